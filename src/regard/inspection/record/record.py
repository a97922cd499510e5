"""The record: the attention of a model to one text, as one file whose size is linear in the length.

record = Record.load("seen.regard");  record.place("decoder.3.cross").tile(head=0, rows=slice(0, 10))

The file is safetensors: numbers by name ("3.queries" belongs to place number 3), and one line of JSON as metadata.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from regard.attention import named_places
from regard.bounded_files import expect_regular
from regard.errors import CorpusError, RecordError, unknown
from regard.files import write_atomic
from regard.inspection.record.mask_codec import BiasTerm, GaussianWindow, MaskSpans
from regard.inspection.record.place import PlaceRecord, PlaceStatistics, StoredGradients, StoredQK
from regard.inspection.record.quantize import Int16Tensor
from regard.inspection.record.tensor_checks import check_tensors
from regard.inspection.record.token_axis import TokenAxis
from regard.pictures import Picture

VERSION = 2
EXTRA: dict[str, Any] = {
    "module": None,
    "call": None,
    "joined": None,
    "note": "",
}  # of a place, left out as they are here


@dataclass(frozen=True)
class GenerationStep:
    """One generated token: its number on its axis, its id, ln p of it, and the alternatives, most likely first, as
    (id, text, ln p)."""

    at: int
    token: int
    log_prob: float
    candidates: tuple[tuple[int, str, float], ...]


@dataclass(frozen=True, eq=False, repr=False)
class MeasureMap:
    """The map of an attribution measure: `values` (R, C), float32, between the tokens of the axes number `rows` and
    `cols`, which `axes` holds; `place` is None where it covers all layers."""

    name: str
    title: str
    place: str | None
    rows: int
    cols: int
    values: np.ndarray
    axes: tuple[tuple[str, ...], tuple[str, ...]]

    def __repr__(self) -> str:
        place = "all layers" if self.place is None else self.place
        return f"MeasureMap({self.name!r}, {place}, {' x '.join(map(str, self.values.shape))})"

    def to_dict(self) -> dict[str, Any]:
        """For JSON, the values as base64 of little-endian float32."""
        numbers = self.values.astype("<f4")
        return self.header() | {"values": base64.b64encode(numbers.tobytes()).decode("ascii")}

    def header(self) -> dict[str, Any]:
        """Everything but the values."""
        about = {"name": self.name, "title": self.title, "place": self.place, "rows": self.rows, "cols": self.cols}
        return about | {"shape": list(self.values.shape)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], axes: tuple[TokenAxis, ...]) -> MeasureMap:
        numbers = np.frombuffer(base64.b64decode(data["values"]), "<f4").reshape(data["shape"])
        own = {name: data[name] for name in ("name", "title", "place", "rows", "cols")}
        tokens = axes[data["rows"]].tokens, axes[data["cols"]].tokens
        return cls(**own, values=numbers.astype(np.float32), axes=tokens)


@dataclass(frozen=True, eq=False, repr=False)
class Record:
    """The attention of a model to one text.

    axes       rows of tokens that places attend from and to
    places     the attention at each place
    facts      the model, its kind, and its other outputs
    steps      the generated tokens, if any
    measures   attribution maps, if any
    unheard    attention modules that ran and could not be heard: their paths, and the names of their classes
    pictures   what the model looked at; the grids of the axes say which token is which patch of them
    """

    axes: tuple[TokenAxis, ...]
    places: tuple[PlaceRecord, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[GenerationStep, ...] = ()
    measures: tuple[MeasureMap, ...] = ()
    unheard: Mapping[str, str] = field(default_factory=dict)
    pictures: tuple[Picture, ...] = ()

    @property
    def title(self) -> str:
        """The text, or the names and shapes of inputs that were tensors."""
        text = self.axes[0].text if self.axes else ""
        return str(self.facts.get("inputs", text))

    @property
    def notes(self) -> list[str]:
        """What a reader must know of the whole record: which attention is missing, and which row of a batch it is."""
        found = []
        if self.unheard:
            heard = len({place.owner for place in self.places})
            found.append(
                f"{heard} of {heard + len(self.unheard)} attention modules heard; unheard: {named_places(self.unheard)}"
            )
        rows, row = self.facts.get("rows", 1), self.facts.get("row")
        if rows > 1 and row is None:
            found.append(f"The {rows} rows of the batch are shown together: no place has a sequence for each")
        elif rows > 1:
            found.append(f"Row {row} of a batch of {rows} (rows are counted from 0)")
        return found + [str(note) for note in self.facts.get("notes", ())]

    def __repr__(self) -> str:
        model = self.facts.get("model", "")
        tokens = ", ".join(axis.summary for axis in self.axes)
        heads = sum(place.heads for place in self.places)
        return f"Record({model!r}, {tokens}, {len(self.places)} places, {heads} heads)"

    def place(self, name: str) -> PlaceRecord:
        found = next((place for place in self.places if place.name == name), None)
        if found is None:
            names = [place.name for place in self.places]
            raise unknown(name, names, kind="place", where="record", error=RecordError)
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file atomically."""
        write_atomic(Path(path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """The contents of the file."""
        header = json.dumps(self.to_dict(), ensure_ascii=False)
        try:
            header.encode()
        except UnicodeEncodeError as error:
            problem = f"The record has text that is not Unicode: {header[error.start : error.end]!a}"
            advice = "It may come from a name in the configuration of the model."
            raise RecordError(problem, where="record", advice=advice) from None
        return save({name: tensor.contiguous() for name, tensor in self.tensors().items()}, {"regard": header})

    def to_dict(self) -> dict[str, Any]:
        """Everything but the tensors, for JSON."""
        found = {
            "version": VERSION,
            "facts": dict(self.facts),
            "axes": [axis.to_dict() for axis in self.axes],
            "places": [_place_to_dict(place) for place in self.places],
            "steps": [[step.at, step.token, step.log_prob, step.candidates] for step in self.steps],
        }
        if self.unheard:
            found["unheard"] = dict(self.unheard)
        if self.notes:
            found["notes"] = self.notes
        if self.pictures:
            found["pictures"] = [one.to_dict() for one in self.pictures]
        return found | ({"measures": [one.to_dict() for one in self.measures]} if self.measures else {})

    def tensors(self) -> dict[str, Tensor]:
        """The tensors, each by the number of its place and its name there."""
        return {
            f"{number}.{name}": tensor
            for number, place in enumerate(self.places)
            for name, tensor in _place_tensors(place).items()
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Record:
        """Read a file; a file that is not a record, or of another version, is refused."""
        where = str(path)
        try:
            expect_regular(path, RecordError)
        except FileNotFoundError:
            raise RecordError("File not found", where=where) from None
        except OSError as error:
            raise RecordError(f"The file cannot be read ({error.strerror})", where=where) from None
        try:
            with safe_open(path, framework="pt") as file:
                header = (file.metadata() or {}).get("regard")
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise RecordError(f"The file cannot be read as safetensors ({error})", where=where) from None
        if header is None:
            advice = "`regard look RUN TEXT -o FILE.regard` writes one."
            raise RecordError("The file is safetensors, but not a record", where=where, advice=advice)
        try:
            data = json.loads(header)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"The metadata of the record is not JSON ({error})", where=where) from None
        return cls.from_dict(data, tensors, where)

    @classmethod
    def from_dict(cls, data: Any, tensors: Mapping[str, Tensor], where: str) -> Record:
        """The record of metadata (`to_dict`) and tensors, which are checked whole; `where`: their file."""
        # imported here: a model is looked at without pydantic
        from regard.inspection.record.record_schema import damaged, parse_metadata

        if not isinstance(data, Mapping):
            raise damaged("the metadata", "is not a JSON object", where)
        if data.get("version") != VERSION:
            came = f"a record of version {str(data.get('version'))[:20]}"
            advice = "Write it anew with `regard look`, or read it with the regard that wrote it."
            raise RecordError(came, f"version {VERSION}", where=where, advice=advice)
        found = parse_metadata(data, where)
        check_tensors(found.places, tensors, where)
        axes = tuple(TokenAxis.from_dict(axis) for axis in data["axes"])
        steps = tuple(GenerationStep(at, token, log_prob, tuple(others)) for at, token, log_prob, others in found.steps)
        measures = tuple(MeasureMap.from_dict(one, axes) for one in data.get("measures", ()))
        broken = next((number for number, one in enumerate(measures) if not np.isfinite(one.values).all()), None)
        if broken is not None:
            raise damaged(f"measures.{broken}.values", "has numbers that are not finite", where)
        places = tuple(_place_from_dict(one, f"{number}.", tensors) for number, one in enumerate(data["places"]))
        try:
            pictures = tuple(Picture.from_dict(one) for one in data.get("pictures", ()))
        except CorpusError as error:
            raise damaged("pictures", f"has one that is not as it says ({error})", where) from None
        return cls(axes, places, dict(data["facts"]), steps, measures, found.unheard, pictures)


def _place_to_dict(place: PlaceRecord) -> dict[str, Any]:
    stored, gradients = place.stored, place.stored_gradients
    return {
        "name": place.name,
        "layer": place.layer,
        "kind": place.kind,
        "queries": place.queries,
        "keys": place.keys,
        "heads": place.heads,
        "T": place.T,
        "S": place.S,
        "why": place.why,
        **{name: value for name in EXTRA if (value := getattr(place, name)) != EXTRA[name]},
        "stored": None
        if stored is None
        else {
            "heads": stored.heads,
            "key_heads": stored.key_heads,
            "score": "dot" if stored.vector is None else "additive",
            "bias": None if stored.bias is None else stored.bias.kind,
            "half_width": None if stored.window is None else stored.window.half_width,
            "cap": stored.cap,
            "alpha": stored.alpha,
        },
        "value_heads": None if gradients is None else gradients.value_heads,
    }


def _place_tensors(place: PlaceRecord) -> dict[str, Tensor]:
    stored, statistics = place.stored, place.statistics
    found: dict[str, Tensor | None] = {
        "entropy": statistics.entropy,
        "received": statistics.received,
        "top_values": statistics.top_values,
        "top_indices": statistics.top_indices,
        "value_norms": place.value_norms,
        "sink": statistics.sink,
    }
    if statistics.thumbnail is not None:
        found["thumbnail"], found["thumbnail_peak"] = quantize_thumbnails(statistics.thumbnail)
    if stored is not None:
        found |= {
            "queries": stored.queries.codes,
            "queries_scale": stored.queries.scale,
            "keys": stored.keys.codes,
            "keys_scale": stored.keys.scale,
            "keys_centre": stored.keys.centre,
            "vector": stored.vector,
            "first": stored.mask.first,
            "last": stored.mask.last,
            "mask": None if stored.mask.table is None else stored.mask.table.to(torch.uint8),
            "bias": None if stored.bias is None else stored.bias.table,
            "bias_starts": None if stored.bias is None else stored.bias.starts,
            "centre": None if stored.window is None else stored.window.centre,
            "lse": stored.lse,
        }
    if place.stored_gradients is not None:
        grads, values = place.stored_gradients.output_grads, place.stored_gradients.values
        found |= {"output_grads": grads.codes, "output_grads_scale": grads.scale}
        found |= {"values": values.codes, "values_scale": values.scale}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def _place_from_dict(data: Mapping[str, Any], prefix: str, tensors: Mapping[str, Tensor]) -> PlaceRecord:
    def get(name: str) -> Tensor:
        return tensors[prefix + name]

    def maybe(name: str) -> Tensor | None:
        return tensors.get(prefix + name)

    has_thumbnail = maybe("thumbnail") is not None
    thumbnail = dequantize_thumbnails(get("thumbnail"), get("thumbnail_peak")) if has_thumbnail else None
    exact = (get("entropy"), get("received"), get("top_values"), get("top_indices"))
    statistics = PlaceStatistics(*exact, thumbnail, maybe("sink"))
    stored, gradients = None, None
    how = data["stored"]
    if how is not None:
        table, bias, centre = maybe("mask"), maybe("bias"), maybe("centre")
        stored = StoredQK(
            tuple(how["heads"]),
            tuple(how["key_heads"]),
            _uncentred(get("queries"), get("queries_scale")),
            Int16Tensor(get("keys"), get("keys_scale"), get("keys_centre")),
            maybe("vector"),
            MaskSpans(get("first"), get("last"), None if table is None else table.bool()),
            None if bias is None else BiasTerm(how["bias"], bias, data["T"], maybe("bias_starts")),
            None if centre is None else GaussianWindow(centre, how["half_width"]),
            get("lse"),
            how.get("cap"),
            how.get("alpha"),
        )
    if data["value_heads"] is not None:
        grads, values = (_uncentred(get(name), get(f"{name}_scale")) for name in ("output_grads", "values"))
        gradients = StoredGradients(grads, values, tuple(data["value_heads"]))
    about = (data["layer"], data["kind"], data["queries"], data["keys"], data["heads"])
    extra = {name: data.get(name, default) for name, default in EXTRA.items()}
    return PlaceRecord(data["name"], *about, statistics, stored, data["why"], maybe("value_norms"), gradients, **extra)


def _uncentred(codes: Tensor, scale: Tensor) -> Int16Tensor:
    """Numbers around zero."""
    return Int16Tensor(codes, scale, torch.zeros_like(scale))


def quantize_thumbnails(thumbnail: Tensor) -> tuple[Tensor, Tensor]:
    """Thumbnails (H, R, C) in 8 bits, square roots relative to each one's peak (H,): finer where they are faint."""
    peak = thumbnail.flatten(1).amax(1) if thumbnail.numel() else thumbnail.new_zeros(thumbnail.size(0))
    share = thumbnail / peak.clamp(min=1e-30)[:, None, None]
    return (share.sqrt() * 255).round().to(torch.uint8), peak


def dequantize_thumbnails(codes: Tensor, peak: Tensor) -> Tensor:
    """Thumbnails from their 8 bits."""
    return (codes.float() / 255) ** 2 * peak[:, None, None]
