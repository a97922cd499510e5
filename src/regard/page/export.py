"""Export of a record: a picture (SVG, PNG), JSON, or NumPy arrays (.npz)."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import RecordError, SettingError
from regard.files import write_atomic
from regard.inspection import MATPLOTLIB_SETTINGS, PlaceRecord, Record, draw_map, figure_label, save_drawing
from regard.page.picture_figure import Look, save_picture, shows_patches

MAX_LABELLED = 60  # tokens a side, up to which rows and columns are labelled
NAME_INCHES = 0.062  # a letter of the name of a place beside its row of heads
MAX_PLACE_NAME, MAX_TITLE = 60, 120  # characters that are drawn
MAX_PANELS = 2048  # heads in one picture
MAX_DRAWN = 512  # tokens a side, beyond which means are drawn
MAX_WEIGHTS = 2**22  # of all maps in one file; beyond them it has statistics only


def save_figure(record: Record, path: Path, look: Look = Look()) -> Path:
    """Draw the map of a place, of one head or the mean over the stored heads. The default place is the last one with
    cross-attention; a model without draws a grid of all heads. Where queries or keys are patches of pictures, draw the
    pictures."""
    place, head = look.place, look.head
    if shows_patches(record, look):
        return save_picture(record, path, look)
    if not look.is_default:
        problem = "The record has no picture to draw a query, a key or a measure over"
        advice = "Draw a map with `place` and `head`, or save the page (.html), which draws them."
        raise SettingError(problem, where="save", advice=advice)
    cross = [one for one in record.places if one.kind == "cross"]
    if place is None and head is None and not cross:
        return _draw_all_heads(record, path)
    chosen = record.place(place) if place is not None else (cross or record.places)[-1]
    matrix, shown = _matrix(chosen, head)
    title = f"{_short_name(chosen)}, {shown}"
    description = ". ".join([*record.notes, *filter(None, [chosen.note])])
    if max(chosen.T, chosen.S) <= MAX_LABELLED:
        rows, columns = record.axes[chosen.queries].tokens, record.axes[chosen.keys].tokens
        return draw_map(matrix, columns, rows, path, title=title, description=description)
    return _draw_unlabelled(matrix, path, title, description)


def _matrix(place: PlaceRecord, head: int | None) -> tuple[Tensor, str]:
    """The weights (T, S), or the thumbnail where there are too many to draw."""
    if place.stored is None:
        if place.statistics.thumbnail is None:
            raise RecordError(f"{place.name} has neither maps nor a thumbnail", where="save", advice=place.why)
        small = place.statistics.thumbnail
        return (small.mean(0), "all heads") if head is None else (small[head], f"head {head}")
    heads = place.stored.heads if head is None else (head,)
    shown = f"mean of {len(heads)} heads" if len(heads) > 1 else f"head {heads[0]}"
    if max(place.T, place.S) <= MAX_DRAWN:
        return torch.stack([place.tile(one) for one in heads]).mean(0), shown
    assert place.statistics.thumbnail is not None, "one call, or few tokens"
    return place.statistics.thumbnail[list(heads)].mean(0), shown


def _draw_unlabelled(matrix: Tensor, path: Path, title: str, description: str) -> Path:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        figure = Figure(figsize=(7, 7 * matrix.size(0) / matrix.size(1) + 0.5), layout="constrained")
        axes = figure.subplots()
        axes.imshow(matrix.sqrt().numpy(), cmap="Blues", interpolation="nearest", aspect="auto")
        axes.set_title(figure_label(title, MAX_TITLE), loc="left")
        axes.set_xlabel("key")
        axes.set_ylabel("query")
        save_drawing(figure, path, description, dpi=150)
    return path


def _draw_all_heads(record: Record, path: Path) -> Path:
    """A grid of thumbnails, a row for each place and a column for each head, on a square-root scale."""
    import matplotlib
    from matplotlib.figure import Figure

    places = [place for place in record.places if place.statistics.thumbnail is not None]
    if not places:
        raise RecordError("This record has no thumbnails to draw", where="save")
    columns = max(place.heads for place in places)
    if columns * len(places) > MAX_PANELS:
        panels = f"{len(places)} places with {columns} heads"
        advice = "Choose a place: `--place NAME`, or save(path, place=NAME)."
        raise RecordError(panels, f"at most {MAX_PANELS} heads in one picture", where="save", advice=advice)
    names = [figure_label(_short_name(place), MAX_PLACE_NAME) for place in places]
    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        left = max(1.6, NAME_INCHES * max(map(len, names)))
        figure = Figure(figsize=(left + 1.1 * columns, 0.6 + 1.15 * len(places)), layout="constrained")
        grid: Any = figure.subplots(len(places), columns, squeeze=False)
        for row, place, name in zip(grid, places, names, strict=True):
            thumbnail = place.statistics.thumbnail
            assert thumbnail is not None
            for head, axes in enumerate(row):
                axes.set_axis_off()
                if head < place.heads:
                    axes.imshow(thumbnail[head].sqrt().numpy(), cmap="Blues", interpolation="nearest", aspect="auto")
                    axes.set_title(str(head), fontsize=7, pad=2)
            row[0].text(-0.12, 0.5, name, transform=row[0].transAxes, ha="right", va="center", fontsize=8)
        save_drawing(figure, path, ". ".join(record.notes), dpi=150)
    return path


def _short_name(place: PlaceRecord) -> str:
    """The end of a long name, where the numbers of layers are."""
    return place.name if len(place.name) <= MAX_PLACE_NAME else f"…{place.name[1 - MAX_PLACE_NAME :]}"


def save_json(record: Record, path: Path) -> None:
    """Write sides, steps, and for each place its statistics and the weights of each head, rounded to 4 decimals."""
    with_weights = _weights_fit(record)
    data = record.to_dict()
    places = [
        {**about, **_place_numbers(place, with_weights)}
        for about, place in zip(data["places"], record.places, strict=True)
    ]
    data |= {"places": places, "weights_included": with_weights}
    if record.measures:
        data["measures"] = [one.header() | {"values": one.values.tolist()} for one in record.measures]
    write_atomic(path, json.dumps(data, ensure_ascii=False).encode())


def save_arrays(record: Record, path: Path) -> None:
    """Write the tensors of the record by name, the rest as JSON in "record", the weights of place N as "N.weights", and
    the values of measure N as "measures.N"."""
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in record.tensors().items()}
    arrays["record"] = np.frombuffer(json.dumps(record.to_dict(), ensure_ascii=False).encode(), dtype=np.uint8)
    if _weights_fit(record):
        for number, place in enumerate(record.places):
            if place.stored is not None:
                arrays[f"{number}.weights"] = np.stack([place.tile(head).numpy() for head in place.stored.heads])
    file = io.BytesIO()
    arrays |= {f"measures.{number}": one.values for number, one in enumerate(record.measures)}
    np.savez_compressed(file, **arrays)
    write_atomic(path, file.getvalue())


def _weights_fit(record: Record) -> bool:
    return sum(place.heads * place.T * place.S for place in record.places) <= MAX_WEIGHTS


def _place_numbers(place: PlaceRecord, with_weights: bool) -> dict[str, Any]:
    statistics = place.statistics
    found: dict[str, Any] = {
        "entropy": _rounded(statistics.entropy),
        "received": _rounded(statistics.received),
        "top": {"weights": _rounded(statistics.top_values), "keys": statistics.top_indices.tolist()},
    }
    if with_weights and place.stored is not None:
        found["weights"] = {str(head): _rounded(place.tile(head)) for head in place.stored.heads}
    return found


def _rounded(tensor: Any) -> Any:
    """As nested lists, with 4 decimals."""
    return np.round(tensor.double().numpy(), 4).tolist()
