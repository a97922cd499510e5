"""The record: what a model attended to in one text, as one file that says all of it in space linear in the length.

record = Record.load("seen.regard");  record.place("decoder.3.cross").tile(head=0, rows=slice(0, 10))

The file is safetensors: numbers by name ("3.queries" belongs to place number 3), and one line of JSON beside them.
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

from regard.errors import RecordError
from regard.files import write_whole
from regard.inspection.record.mask_codec import Added, Local, Sight
from regard.inspection.record.place import Kept, Place, Slopes, Statistics
from regard.inspection.record.quantize import Fixed
from regard.inspection.record.token_axis import Side

VERSION = 1


@dataclass(frozen=True)
class Step:
    """One token that was written: its number among the tokens of the side that was written, ln p of it, and what else
    could have come, likeliest first: (token, as it is shown, ln p)."""

    at: int
    token: int
    log_prob: float
    candidates: tuple[tuple[int, str, float], ...]


@dataclass(frozen=True, eq=False)
class MeasureMap:
    """A map that an attribution measure computed: `values` (R, C), float32, between the tokens of the sides number
    `rows` and `cols`, which `axes` holds; `place` is None where all layers are taken together."""

    name: str
    title: str
    place: str | None
    rows: int
    cols: int
    values: np.ndarray
    axes: tuple[tuple[str, ...], tuple[str, ...]]

    def told(self) -> dict[str, Any]:
        """As JSON takes it, the values as base64 of little-endian float32."""
        numbers = self.values.astype("<f4")
        return self.described() | {"values": base64.b64encode(numbers.tobytes()).decode("ascii")}

    def described(self) -> dict[str, Any]:
        """Everything but the values."""
        about = {"name": self.name, "title": self.title, "place": self.place, "rows": self.rows, "cols": self.cols}
        return about | {"shape": list(self.values.shape)}

    @classmethod
    def read(cls, told: Mapping[str, Any], sides: tuple[Side, ...]) -> MeasureMap:
        numbers = np.frombuffer(base64.b64decode(told["values"]), "<f4").reshape(told["shape"])
        own = {name: told[name] for name in ("name", "title", "place", "rows", "cols")}
        axes = sides[told["rows"]].tokens, sides[told["cols"]].tokens
        return cls(**own, values=numbers.astype(np.float32), axes=axes)


@dataclass(frozen=True, eq=False)
class Record:
    """`sides`: rows of tokens that places look from and at. `facts`: about the model and the making, for the reader.
    `steps`: where the text, or its end, was written by the model, how. `measures`: attribution maps, if any."""

    sides: tuple[Side, ...]
    places: tuple[Place, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    measures: tuple[MeasureMap, ...] = ()

    def place(self, name: str) -> Place:
        found = next((place for place in self.places if place.name == name), None)
        if found is None:
            names = ", ".join(place.name for place in self.places)
            raise RecordError(f"place {name!r}", f"one of {names}", where="record")
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, whole or not at all."""
        write_whole(Path(path), self.bytes())

    def bytes(self) -> bytes:
        told = json.dumps(self.told(), ensure_ascii=False)
        return save({name: tensor.contiguous() for name, tensor in self.tensors().items()}, {"regard": told})

    def told(self) -> dict[str, Any]:
        """Everything but the numbers, as JSON takes it."""
        told = {
            "version": VERSION,
            "facts": dict(self.facts),
            "sides": [side.told() for side in self.sides],
            "places": [_told(place) for place in self.places],
            "steps": [[step.at, step.token, step.log_prob, step.candidates] for step in self.steps],
        }
        return told | ({"measures": [one.told() for one in self.measures]} if self.measures else {})

    def tensors(self) -> dict[str, Tensor]:
        """The numbers, each by the number of its place and its name there."""
        return {
            f"{number}.{name}": tensor
            for number, place in enumerate(self.places)
            for name, tensor in _tensors(place).items()
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Record:
        """Read a file back; what is no record, or of a later version, is refused."""
        where = str(path)
        if not Path(path).is_file():
            raise RecordError("no such file", "a record", where=where)
        try:
            with safe_open(path, framework="pt") as file:
                told = (file.metadata() or {}).get("regard")
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise RecordError(f"a file that cannot be read ({error})", "a record", where=where) from None
        if told is None:
            raise RecordError("a safetensors file without a record", "a record", where=where)
        return cls.read(json.loads(told), tensors, where)

    @classmethod
    def read(cls, told: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str) -> Record:
        if told.get("version") != VERSION:
            came = f"a record of version {told.get('version')}"
            raise RecordError(came, f"version {VERSION}", where=where, advice="A newer regard may read it.")
        try:
            places = tuple(_place(one, f"{number}.", tensors) for number, one in enumerate(told["places"]))
            sides = tuple(Side.read(side) for side in told["sides"])
            steps = tuple(
                Step(at, token, log_prob, tuple((number, text, value) for number, text, value in others))
                for at, token, log_prob, others in told["steps"]
            )
            measures = tuple(MeasureMap.read(one, sides) for one in told.get("measures", ()))
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"a record with something missing ({error})", "a whole one", where=where) from None
        return cls(sides, places, dict(told["facts"]), steps, measures)


def _told(place: Place) -> dict[str, Any]:
    kept = place.kept
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
        "kept": None
        if kept is None
        else {
            "heads": kept.heads,
            "key_heads": kept.key_heads,
            "score": "dot" if kept.vector is None else "additive",
            "added": None if kept.added is None else kept.added.kind,
            "half_width": None if kept.local is None else kept.local.half_width,
        },
        "slopes": None if place.slopes is None else place.slopes.groups,
    }


def _tensors(place: Place) -> dict[str, Tensor]:
    kept, seen = place.kept, place.statistics
    found: dict[str, Tensor | None] = {
        "entropy": seen.entropy,
        "received": seen.received,
        "top_values": seen.top_values,
        "top_indices": seen.top_indices,
        "value_norms": place.value_norms,
    }
    if seen.thumbnail is not None:
        found["thumbnail"], found["thumbnail_peak"] = small(seen.thumbnail)
    if kept is not None:
        found |= {
            "queries": kept.queries.steps,
            "queries_scale": kept.queries.scale,
            "keys": kept.keys.steps,
            "keys_scale": kept.keys.scale,
            "keys_centre": kept.keys.centre,
            "vector": kept.vector,
            "first": kept.sight.first,
            "last": kept.sight.last,
            "sight": None if kept.sight.table is None else kept.sight.table.to(torch.uint8),
            "added": None if kept.added is None else kept.added.table,
            "centre": None if kept.local is None else kept.local.centre,
            "lse": kept.lse,
        }
    if place.slopes is not None:
        asks, sends = place.slopes.asks, place.slopes.sends
        found |= {"asks": asks.steps, "asks_scale": asks.scale, "sends": sends.steps, "sends_scale": sends.scale}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def _place(told: Mapping[str, Any], prefix: str, tensors: Mapping[str, Tensor]) -> Place:
    def get(name: str) -> Tensor:
        return tensors[prefix + name]

    def maybe(name: str) -> Tensor | None:
        return tensors.get(prefix + name)

    thumbnail = large(get("thumbnail"), get("thumbnail_peak")) if maybe("thumbnail") is not None else None
    seen = Statistics(get("entropy"), get("received"), get("top_values"), get("top_indices"), thumbnail)
    kept = None
    if told["kept"] is not None:
        how, table, added, centre = told["kept"], maybe("sight"), maybe("added"), maybe("centre")
        kept = Kept(
            tuple(how["heads"]),
            tuple(how["key_heads"]),
            _plain(get("queries"), get("queries_scale")),
            Fixed(get("keys"), get("keys_scale"), get("keys_centre")),
            maybe("vector"),
            Sight(get("first"), get("last"), None if table is None else table.bool()),
            None if added is None else Added(how["added"], added, told["T"]),
            None if centre is None else Local(centre, how["half_width"]),
            get("lse"),
        )
    slopes = None
    if told.get("slopes") is not None:
        asks, sends = (_plain(get(name), get(f"{name}_scale")) for name in ("asks", "sends"))
        slopes = Slopes(asks, sends, tuple(told["slopes"]))
    sizes = (told["layer"], told["kind"], told["queries"], told["keys"], told["heads"])
    return Place(told["name"], *sizes, seen, kept, told["why"], maybe("value_norms"), slopes)


def _plain(steps: Tensor, scale: Tensor) -> Fixed:
    """Numbers around zero."""
    return Fixed(steps, scale, torch.zeros_like(scale))


def small(thumbnail: Tensor) -> tuple[Tensor, Tensor]:
    """Thumbnails (H, R, C) in 8 bits, roots of shares of each one's peak (H,): finer where they are faint."""
    peak = thumbnail.flatten(1).amax(1) if thumbnail.numel() else thumbnail.new_zeros(thumbnail.size(0))
    share = thumbnail / peak.clamp(min=1e-30)[:, None, None]
    return (share.sqrt() * 255).round().to(torch.uint8), peak


def large(steps: Tensor, peak: Tensor) -> Tensor:
    """Thumbnails from their 8 bits."""
    return (steps.float() / 255) ** 2 * peak[:, None, None]
