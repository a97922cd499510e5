"""A figure of pictures with attention laid over them: where a token looks, or who looks at it (matplotlib: PNG, SVG).

save_picture(record, Path("cross.png"), Look(query="cross", head=3))
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import RecordError, SettingError, unknown
from regard.inspection import MATPLOTLIB_SETTINGS, MeasureMap, PlaceRecord, Record, figure_label, save_drawing
from regard.pictures import PatchGrid

OWN_MEASURES = ("weights", "norms", "gradient")
MAX_PICTURES = 64  # in one figure
MAX_COLUMNS = 4
MAX_WORDS = 16  # beside the pictures: those with the largest values
MAX_TITLE = 120
OPACITY = 0.85
LETTERS_PER_INCH = 11  # of the title
PICTURE_INCHES, WORDS_INCHES, WORD_INCHES = 3.2, 2.4, 0.2
BLOCK_ROWS = 256  # of a map, computed at once
COLOURS, NEGATIVE = "inferno", (0.0, 0.7, 1.0)


@dataclass(frozen=True)
class Look:
    """What a figure shows: the row of a `query`, or the column of a `key`, by number or by its text; by default the
    class token's row, or the first word's. `head` None: the mean of all. `measure`: weights, norms, gradient, or the
    name of a stored map."""

    place: str | None = None
    head: int | None = None
    query: int | str | None = None
    key: int | str | None = None
    measure: str = "weights"

    @property
    def is_default(self) -> bool:
        return self.query is None and self.key is None and self.measure == "weights"


def shows_patches(record: Record, look: Look) -> bool:
    """Whether there are pictures, and patches of them among the queries or keys of the map."""
    if not record.pictures:
        return False
    stored = _stored_map(record, look)
    if stored is not None:
        return bool(record.axes[stored.rows].grids or record.axes[stored.cols].grids)
    if look.place is None:
        return any(_patched(record, place) for place in record.places)
    return _patched(record, record.place(look.place))


def save_picture(record: Record, path: Path, look: Look) -> Path:
    """Draw every picture with the values of its patches over it, and the other tokens as bars beside them."""
    if look.query is not None and look.key is not None:
        raise SettingError("A query and a key", "one of them: where it looks, or who looks at it", where="save")
    stored = _stored_map(record, look)
    place = None if stored is not None else _default_place(record, look)
    queries, keys = (stored.rows, stored.cols) if stored is not None else (place.queries, place.keys)  # type: ignore[union-attr]
    is_column = look.key is not None
    subject_axis, shown_axis = (record.axes[at] for at in ((keys, queries) if is_column else (queries, keys)))
    token = _token(record, keys if is_column else queries, look.key if is_column else look.query)
    if stored is not None:
        values = stored.values[:, token] if is_column else stored.values[token]
        where = stored.title if stored.place is None else f"{stored.title}, {stored.place}"
    else:
        assert place is not None
        values = (_column if is_column else _row)(place, look, token).numpy()
        heads = "mean of the heads" if look.head is None else f"head {look.head}"
        where = ", ".join([place.name, heads, *([] if look.measure == "weights" else [look.measure])])
    name = subject_axis.tokens[token]
    title = f"{where}: {f'who looks at {name}' if is_column else f'where {name} looks'}"
    outlined = subject_axis.grids if not shown_axis.grids or subject_axis is shown_axis else ()
    grids = shown_axis.grids or subject_axis.grids
    patches = {int(one) for grid in shown_axis.grids for one in grid.tokens.ravel()}
    others = [at for at in range(len(values)) if at not in patches]
    drawing = _Drawing(record, values, bool(shown_axis.grids), grids, outlined, token)
    words = sorted(sorted(others, key=lambda at: -abs(values[at]))[:MAX_WORDS])
    drawing.save(path, title, [(shown_axis.tokens[at], float(values[at])) for at in words])
    return path


def _patched(record: Record, place: PlaceRecord) -> bool:
    return bool(record.axes[place.queries].grids or record.axes[place.keys].grids)


def _default_place(record: Record, look: Look) -> PlaceRecord:
    """The place of that name; else the last one with patches, where there is one that attends across."""
    if look.place is not None:
        return record.place(look.place)
    known = [place for place in record.places if _patched(record, place)]
    return ([place for place in known if place.kind == "cross"] or known)[-1]


def _stored_map(record: Record, look: Look) -> MeasureMap | None:
    """The stored map of this measure: of the place, or of all layers."""
    if look.measure in OWN_MEASURES:
        return None
    found = [one for one in record.measures if one.name == look.measure]
    if not found:
        raise unknown(
            look.measure, [*OWN_MEASURES, *{one.name for one in record.measures}], kind="measure", where="save"
        )
    chosen = [one for one in found if one.place in (look.place, None)] if look.place is not None else found
    if not chosen:
        raise RecordError(f"{look.measure} of {look.place}", f"one of {[one.place for one in found]}", where="save")
    return chosen[-1]


def _token(record: Record, axis: int, wanted: int | str | None) -> int:
    """The number of a token that is given by its number or its text."""
    side = record.axes[axis]
    tokens = side.tokens
    if isinstance(wanted, int):
        if not 0 <= wanted < len(tokens):
            raise SettingError(f"token {wanted}", f"0 to {len(tokens) - 1}", where="save")
        return wanted
    if wanted is not None:
        if wanted in tokens:
            return tokens.index(wanted)
        if wanted.isdecimal():
            return _token(record, axis, int(wanted))
        raise unknown(wanted, sorted(set(tokens)), kind="token", where="save")
    patches = {int(one) for grid in side.grids for one in grid.tokens.ravel()}
    others = [at for at in range(len(tokens)) if at not in patches]
    special = [at for at in others if tokens[at].strip("[]<>").lower() in ("cls", "class")]
    words = [at for at in others if side.words[at] >= 0]
    if special or words or others:
        return [*special, *(words[-1:] if patches else words), *others][0]
    grid = side.grids[0]
    return int(grid.tokens[grid.rows // 2, grid.cols // 2])


def _row(place: PlaceRecord, look: Look, query: int) -> Tensor:
    return _mean(place, look, torch.tensor([query]), slice(None))[0]


def _column(place: PlaceRecord, look: Look, key: int) -> Tensor:
    """The column of a key; other measures than the weights are normalised by whole rows."""
    if look.measure == "weights":
        return _mean(place, look, slice(None), torch.tensor([key]))[:, 0]
    blocks = torch.arange(place.T).split(BLOCK_ROWS)
    return torch.cat([_mean(place, look, rows, slice(None))[:, key] for rows in blocks])


def _mean(place: PlaceRecord, look: Look, rows: slice | Tensor, cols: slice | Tensor) -> Tensor:
    """The weights, or the shares of a measure, of one head or the mean over those that are stored."""
    if place.stored is None:
        raise RecordError("The record has no map of this place", where=place.name, advice=place.why)
    heads = place.stored.heads if look.head is None else (look.head,)
    found = []
    for head in heads:
        values = place.tile(head, rows, cols)
        if look.measure == "norms":
            if place.value_norms is None:
                raise RecordError("The record has no value norms", where=place.name)
            values = values * place.value_norms[head]
        elif look.measure == "gradient":
            values = values * place.gradient(head, rows, cols).abs()
        if look.measure != "weights":
            total = values.sum(-1, keepdim=True)
            values = values / total.masked_fill(total == 0, 1.0)
        found.append(values)
    return torch.stack(found).mean(0)


@dataclass(frozen=True, eq=False)
class _Drawing:
    """Values of tokens over pictures. `outlined`: the grids in which the subject, a patch, gets a frame."""

    record: Record
    values: np.ndarray
    has_values: bool  # whether the patches have values
    grids: tuple[PatchGrid, ...]
    outlined: tuple[PatchGrid, ...]
    token: int

    def save(self, path: Path, title: str, words: list[tuple[str, float]]) -> None:
        import matplotlib
        from matplotlib.figure import Figure

        numbers = sorted({grid.picture for grid in self.grids})
        if len(numbers) > MAX_PICTURES:
            raise RecordError(f"{len(numbers)} pictures", f"at most {MAX_PICTURES} in one figure", where="save")
        columns = min(MAX_COLUMNS, len(numbers))
        lines = -(-len(numbers) // columns)
        high = max(PICTURE_INCHES * lines, WORD_INCHES * len(words))
        wide = PICTURE_INCHES * columns + (WORDS_INCHES if words else 0) + (0.9 if self.has_values else 0)
        with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
            figure = Figure(figsize=(wide, high + 0.8), layout="constrained")
            shown = figure_label(title, MAX_TITLE)
            figure.suptitle(fill(shown, int(LETTERS_PER_INCH * wide)), x=0.01, ha="left", fontsize=11)
            ratios = [PICTURE_INCHES] * columns + ([WORDS_INCHES] if words else [])
            layout = figure.add_gridspec(lines, len(ratios), width_ratios=ratios)
            panels = []
            for n, number in enumerate(numbers):
                panels.append(figure.add_subplot(layout[n // columns, n % columns]))
                self._draw(panels[-1], number)
            if self.has_values and self._peak > 0:
                self._draw_scale(figure, panels)
            if words:
                self._draw_words(figure.add_subplot(layout[:, -1]), words)
            save_drawing(figure, path, ". ".join(self.record.notes), dpi=150)

    @property
    def _peak(self) -> float:
        """The largest value of a patch, or of all tokens where none is a patch."""
        patches = [grid.tokens[grid.tokens >= 0] for grid in self.grids] if self.has_values else []
        chosen = self.values[np.concatenate(patches)] if patches else self.values
        return float(np.abs(chosen).max(initial=0))

    def _draw(self, axes: Any, number: int) -> None:
        picture = self.record.pictures[number]
        height, width = picture.height, picture.width
        axes.imshow(picture.pixels(), extent=(0, width, height, 0), interpolation="bilinear")
        for grid in self.grids:
            if grid.picture != number:
                continue
            left, top, right, bottom = grid.box
            extent = (left * width, right * width, bottom * height, top * height)
            covered = any(
                other is not grid and other.picture == number and _area(other) < _area(grid) for other in self.grids
            )
            if self.has_values and not covered:  # its parts show it finer
                layer = _overlay(grid.values(self.values), self._peak)
                axes.imshow(layer, extent=extent, interpolation="bilinear", aspect="auto")
            if any(grid is one for one in self.outlined):
                self._outline(axes, grid, extent)
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)
        axes.set_aspect("equal")
        axes.set_axis_off()
        if picture.title:
            axes.set_title(figure_label(picture.title, 40), fontsize=8)

    def _outline(self, axes: Any, grid: PatchGrid, extent: tuple[float, float, float, float]) -> None:
        from matplotlib.patches import Rectangle

        left, right, bottom, top = extent
        wide, high = (right - left) / grid.cols, (bottom - top) / grid.rows
        for row, col in np.argwhere(grid.tokens == self.token):
            for width, colour in ((3.0, "black"), (1.5, "#39d0ff")):
                corner = (left + col * wide, top + row * high)
                axes.add_patch(Rectangle(corner, wide, high, fill=False, edgecolor=colour, linewidth=width))

    def _draw_scale(self, figure: Any, panels: list[Any]) -> None:
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import PowerNorm

        scale = ScalarMappable(PowerNorm(0.5, 0, self._peak), COLOURS)
        bar = figure.colorbar(scale, ax=panels, shrink=0.8, aspect=24)
        bar.outline.set_visible(False)
        negative = self.values.min(initial=0) < 0
        bar.set_label("value (negative ones are blue)" if negative else "share of attention", fontsize=8)
        bar.ax.tick_params(labelsize=7)

    def _draw_words(self, axes: Any, words: list[tuple[str, float]]) -> None:
        names, values = [figure_label(name) for name, _ in words], [value for _, value in words]
        axes.barh(range(len(words)), values, color="#d95f02", height=0.7)
        axes.set_yticks(range(len(words)), names, fontsize=8)
        axes.set_ylim(max(len(words), MAX_WORDS / 2) - 0.5, -0.5)
        axes.locator_params(axis="x", nbins=3)
        axes.tick_params(axis="x", labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)


def _area(grid: PatchGrid) -> float:
    left, top, right, bottom = grid.box
    return (right - left) * (bottom - top)


def _overlay(values: np.ndarray, peak: float) -> np.ndarray:
    """RGBA of the patches (rows, cols, 4), on a square-root scale: the larger a value, the more opaque."""
    import matplotlib

    share = np.sqrt(np.clip(np.abs(values) / peak, 0, 1)) if peak > 0 else np.zeros(values.shape)
    found = matplotlib.colormaps[COLOURS](share)
    found[values < 0, :3] = NEGATIVE
    found[..., 3] = OPACITY * np.minimum(1, 1.1 * share**1.4)
    return found
