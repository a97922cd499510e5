"""The tokens of pictures, by a law: a bright patch in a dark picture changes the token that the grid names, no other.

The encoder is made to read each token alone (its attention adds nothing), so the law holds behind it too: in the text
of a language model, and among the keys of cross-attention.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from adapters.vision_models import FAMILIES, build, silence_encoder
from regard import Observe, capture, look
from regard.adapters.vision.crops import tile_box
from regard.inspection.record.record import Record

pytest.importorskip("transformers")
DARK, BRIGHT = 30, 220


def values_of(model: Any, image: Any) -> tuple[Record, dict[str, Tensor]]:
    """The record of an image, and the values (S, H x D) of all keys of each place, its calls one after another."""
    with capture(model, "*", Observe(values=True)) as heard:
        record = look(model, image).record
    found = {}
    for place in heard:
        calls = [call.values.flatten(0, -4).transpose(1, 2).flatten(0, 1).flatten(1) for call in heard.calls(place)]
        found[place] = torch.cat(calls)
    return record, found


def picture_cells(record: Record, axis: int) -> list[tuple[int, int, int]]:
    """Every patch that has a token: the number of its grid, its row and its col."""
    grids = record.axes[axis].grids
    return [(n, r, c) for n, grid in enumerate(grids) for r in range(grid.rows) for c in range(grid.cols)]


def changed_tokens(before: Tensor, after: Tensor) -> set[int]:
    return set((before - after).abs().amax(-1).gt(1e-5).nonzero().squeeze(-1).tolist())


def bright_cell(record: Record, axis: int, cell: tuple[int, int, int], name: str) -> np.ndarray:
    """A dark image with one bright patch, where the grid says that it is."""
    number, row, col = cell
    grid, size = record.axes[axis].grids[number], FAMILIES[name].size
    left, top, right, bottom = tile_box(number, 2, 2) if name in CROPPED else grid.box
    down, across = (bottom - top) / grid.rows, (right - left) / grid.cols
    image = np.full((*size, 3), DARK, np.uint8)
    rows = slice(round((top + row * down) * size[0]), round((top + (row + 1) * down) * size[0]))
    cols = slice(round((left + col * across) * size[1]), round((left + (col + 1) * across) * size[1]))
    image[rows, cols] = BRIGHT
    return image


CROPPED = ("idefics3", "smolvlm")  # whose pictures are crops: here 2 x 2 of them, and then the whole image
OVERVIEWS = ("llava next", *CROPPED)  # whose encoder sees each patch twice: in a crop, and in the whole
CORNERS = 5  # patches of each grid that are tried


@pytest.mark.parametrize("name", FAMILIES)
def test_a_bright_patch_changes_the_token_that_the_grid_names(name: str) -> None:
    model, size = build(name), FAMILIES[name].size
    silence_encoder(model)
    dark, before = values_of(model, np.full((*size, 3), DARK, np.uint8))
    axes = {place.keys: place.name for place in reversed(dark.places)}  # the first place of each axis
    checked = [axis for axis in axes if dark.axes[axis].grids]
    assert checked, "no axis has patches"
    rng = np.random.default_rng(0)
    for axis in checked:
        cells = picture_cells(dark, axis)
        if name in OVERVIEWS:  # cells of the whole image, which other crops show again
            cells = [cell for cell in cells if cell[0] != overview_of(dark, axis)]
        chosen = [cells[0], cells[-1], *(cells[n] for n in rng.integers(0, len(cells), CORNERS - 2))]
        for cell in chosen:
            image = bright_cell(dark, axis, cell, name)
            record, after = values_of(model, image)
            named = int(grid_of(dark, axis, cell).tokens[cell[1:]])
            found = changed_tokens(before[axes[axis]], after[axes[axis]])
            label = dark.axes[axis].tokens[named]
            assert label.endswith(f"patch {cell[1]},{cell[2]}")
            others = found - {named}
            if name not in OVERVIEWS:
                assert found == {named}, (axes[axis], cell, label, sorted(found))
            else:
                overview = [int(t) for t in grid_of(dark, axis, (overview_of(dark, axis), 0, 0)).tokens.ravel()]
                assert named in found and others <= set(overview) and others, (label, sorted(found))
            bright = np.argwhere(record.pictures[grid_of(record, axis, cell).picture].pixels().mean(-1) > 125)
            assert covers(record, axis, cell, bright)


def grid_of(record: Record, axis: int, cell: tuple[int, int, int]) -> Any:
    return record.axes[axis].grids[cell[0]]


def overview_of(record: Record, axis: int) -> int:
    """The number of the grid of the whole image, made small: the first one of LLaVA-NeXT, the last of others."""
    return 0 if "overview" in " ".join(record.axes[axis].tokens) else len(record.axes[axis].grids) - 1


def covers(record: Record, axis: int, cell: tuple[int, int, int], bright: np.ndarray) -> bool:
    """Whether the bright pixels of the stored picture are those of the box of this patch."""
    grid = grid_of(record, axis, cell)
    picture = record.pictures[grid.picture]
    left, top, right, bottom = grid.box
    rows = (top + np.array([cell[1], cell[1] + 1]) / grid.rows * (bottom - top)) * picture.height
    cols = (left + np.array([cell[2], cell[2] + 1]) / grid.cols * (right - left)) * picture.width
    (first_row, first_col), (last_row, last_col) = bright.min(0), bright.max(0) + 1
    found = np.array([first_row, last_row, first_col, last_col])
    return bool(np.abs(found - np.array([*rows, *cols])).max() <= 1)
