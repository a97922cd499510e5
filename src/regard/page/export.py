"""A record as files for other programs: a still picture, JSON, or NumPy's npz."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import RecordError
from regard.files import write_whole
from regard.inspection import SETTINGS, Place, Record, draw_map

LABELLED = 60  # tokens, up to which a map has a word at every row and column
DOTS = 512  # rows and columns of a map that is drawn without words
WHOLE = 2**22  # weights that a file holds whole; of longer texts it has the statistics, and says so


def draw(record: Record, path: Path, place: str | None = None, head: int | None = None) -> Path:
    """The map of a place, of one head or the mean over those that were kept; without a place, what the text is about:
    a translation's last look across, or every head."""
    across = [one for one in record.places if one.kind == "cross"]
    if place is None and head is None and not across:
        return _all_heads(record, path)
    chosen = record.place(place) if place is not None else (across or record.places)[-1]
    matrix, shown = _map(chosen, head)
    title = f"{chosen.name}, {shown}"
    if max(chosen.T, chosen.S) <= LABELLED:
        rows, columns = record.sides[chosen.queries].tokens, record.sides[chosen.keys].tokens
        return draw_map(matrix, [_plain(one) for one in columns], [_plain(one) for one in rows], path, title=title)
    return _unlabelled(matrix, path, title)


def _map(place: Place, head: int | None) -> tuple[Tensor, str]:
    """The weights (T, S), or their means where there are too many to draw."""
    if place.kept is None:
        if place.statistics.thumbnail is None:
            raise RecordError(
                f"a picture of {place.name}", "a place that kept its maps", where="draw", advice=place.why
            )
        small = place.statistics.thumbnail
        return (small.mean(0), "all heads") if head is None else (small[head], f"head {head}")
    heads = place.kept.heads if head is None else (head,)
    shown = f"mean of {len(heads)} heads" if len(heads) > 1 else f"head {heads[0]}"
    if max(place.T, place.S) <= DOTS:
        return torch.stack([place.tile(one) for one in heads]).mean(0), shown
    assert place.statistics.thumbnail is not None, "one call, or few tokens"
    return place.statistics.thumbnail[list(heads)].mean(0), shown


def _unlabelled(matrix: Tensor, path: Path, title: str) -> Path:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(7, 7 * matrix.size(0) / matrix.size(1) + 0.5), layout="constrained")
        axes = figure.subplots()
        axes.imshow(matrix.sqrt().numpy(), cmap="Blues", interpolation="nearest", aspect="auto")
        axes.set_title(title, loc="left")
        axes.set_xlabel("key")
        axes.set_ylabel("query")
        _save(figure, path)
    return path


def _all_heads(record: Record, path: Path) -> Path:
    """A row for each place, a column for each head; brighter maps are brought up, since a square root is drawn."""
    import matplotlib
    from matplotlib.figure import Figure

    places = [place for place in record.places if place.statistics.thumbnail is not None]
    if not places:
        raise RecordError("a record without thumbnails", "one with some", where="draw")
    columns = max(place.heads for place in places)
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(1.6 + 1.1 * columns, 0.6 + 1.15 * len(places)), layout="constrained")
        grid: Any = figure.subplots(len(places), columns, squeeze=False)
        for row, place in zip(grid, places, strict=True):
            thumbnail = place.statistics.thumbnail
            assert thumbnail is not None
            for head, axes in enumerate(row):
                axes.set_axis_off()
                if head < place.heads:
                    axes.imshow(thumbnail[head].sqrt().numpy(), cmap="Blues", interpolation="nearest", aspect="auto")
                    axes.set_title(str(head), fontsize=7, pad=2)
            row[0].text(-0.12, 0.5, place.name, transform=row[0].transAxes, ha="right", va="center", fontsize=8)
        _save(figure, path)
    return path


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)


def _plain(token: str) -> str:
    """A token as a label: no signs that matplotlib reads as formulas or that have no shape."""
    shown = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in token).replace("$", r"\$")
    return shown if len(shown) <= 24 else f"{shown[:23]}…"


def save_json(record: Record, path: Path) -> None:
    """Sides, steps, and for each place its statistics and, of each head, the weights rounded to 4 places."""
    whole = _fits(record)
    told = record.told()
    places = [{**about, **_numbers(place, whole)} for about, place in zip(told["places"], record.places, strict=True)]
    told |= {"places": places, "whole": whole}
    if record.measures:
        told["measures"] = [one.described() | {"values": one.values.tolist()} for one in record.measures]
    write_whole(path, json.dumps(told, ensure_ascii=False).encode())


def save_arrays(record: Record, path: Path) -> None:
    """The tensors of the record by their names, the rest of it as JSON in "record", "N.weights" of each place, and the
    values of its measures as "measures.N"."""
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in record.tensors().items()}
    arrays["record"] = np.frombuffer(json.dumps(record.told(), ensure_ascii=False).encode(), dtype=np.uint8)
    if _fits(record):
        for number, place in enumerate(record.places):
            if place.kept is not None:
                arrays[f"{number}.weights"] = np.stack([place.tile(head).numpy() for head in place.kept.heads])
    file = io.BytesIO()
    arrays |= {f"measures.{number}": one.values for number, one in enumerate(record.measures)}
    np.savez_compressed(file, **arrays)
    write_whole(path, file.getvalue())


def _fits(record: Record) -> bool:
    return sum(place.heads * place.T * place.S for place in record.places) <= WHOLE


def _numbers(place: Place, whole: bool) -> dict[str, Any]:
    seen = place.statistics
    found: dict[str, Any] = {
        "entropy": _rounded(seen.entropy),
        "received": _rounded(seen.received),
        "top": {"weights": _rounded(seen.top_values), "keys": seen.top_indices.tolist()},
    }
    if whole and place.kept is not None:
        found["weights"] = {str(head): _rounded(place.tile(head)) for head in place.kept.heads}
    return found


def _rounded(tensor: Any) -> Any:
    """Nested lists, 4 places behind the point."""
    return np.round(tensor.double().numpy(), 4).tolist()
