"""Render a scene to pixels, anti-aliased, and its gold regions: background, clutter, objects, outlines, noise."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import cache, lru_cache

import numpy as np

from regard.errors import SettingError
from regard.pictures.scene_objects import BACKGROUNDS, COLOURS, SMALLEST, Background, SceneObject
from regard.pictures.shapes import Coverage, outline_mask, shape_mask, stroke_mask

WHITE = np.array((250, 250, 250), np.float32)  # of outlines
DARK = 0.5  # a texture's dark tone over its colour
STROKE_SHARE = 0.75  # how much of the background a stroke covers
TEXTURE_LEVELS = 10  # grey levels that a background's texture adds or takes away
NOISE_VALUES = 1 << 18  # of the table that noise is read from

_PAINT = {name: np.array(levels, np.float32) for name, levels in COLOURS.items()}
_SHADE = {name: paint * np.float32(DARK - 1) for name, paint in _PAINT.items()}  # what the dark tone adds

Slices = tuple[slice, slice]


def draw(size: int, ground: Background, objects: Sequence[SceneObject]) -> np.ndarray:
    """The picture of a scene: uint8 (H, W, 3)."""
    scale = size / SMALLEST
    canvas = _ground(size, ground.colour, ground.texture, ground.seed % 8).copy()
    for stroke in ground.clutter:
        mask = stroke_mask(stroke.length, stroke.angle, *_within(stroke.x, stroke.y), scale)
        _blend(canvas, mask, stroke.x, stroke.y, _PAINT[stroke.colour], STROKE_SHARE)
    for one in objects:
        shade = None if one.texture == "plain" else _SHADE[one.colour]
        _blend(canvas, _mask_of(one, scale), one.x, one.y, _PAINT[one.colour], 1.0, shade)
    for one in objects:
        if one.marked:
            _blend(canvas, _outline_of(one, scale), one.x, one.y, WHITE)
    if ground.noise:
        canvas += _noise(ground, size)
    np.rint(canvas, out=canvas)
    np.clip(canvas, 0, 255, out=canvas)
    return canvas.astype(np.uint8)


def region(size: int, objects: Sequence[SceneObject], wanted: Collection[int]) -> np.ndarray:
    """The visible pixels of the objects with these numbers: bool (H, W). Outlines are not of them."""
    scale = size / SMALLEST
    found = np.zeros((size, size), bool)
    for number, one in enumerate(objects):
        mask = _mask_of(one, scale)
        place, part = _slices(mask, one.x, one.y, size)
        if number in wanted:
            found[place] |= mask.touched[part]
        else:
            found[place] &= ~mask.opaque[part]
    for one in objects:
        if one.marked:
            mask = _outline_of(one, scale)
            place, part = _slices(mask, one.x, one.y, size)
            found[place] &= ~mask.opaque[part]
    return found


def bounding_box(region: np.ndarray) -> tuple[int, int, int, int] | None:
    """(left, top, right, bottom) of a region in pixels, right and bottom exclusive; None where it is empty."""
    rows, columns = np.flatnonzero(region.any(1)), np.flatnonzero(region.any(0))
    if not len(rows):
        return None
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def encode_runs(region: np.ndarray) -> list[int]:
    """A region as run lengths: start, length, start, length, ... over its pixels row by row.

    >>> encode_runs(np.array([[False, True], [True, False]]))
    [1, 2]
    """
    edges = np.flatnonzero(np.diff(region.ravel().astype(np.int8), prepend=0, append=0))
    starts, ends = edges[::2], edges[1::2]
    return [int(number) for number in np.stack([starts, ends - starts], 1).ravel()]


def decode_runs(runs: Sequence[int], height: int, width: int) -> np.ndarray:
    """The region of these run lengths: bool (height, width)."""
    found = np.zeros(height * width, bool)
    for start, length in zip(runs[::2], runs[1::2], strict=True):
        if not 0 <= start <= start + length <= found.size:
            raise SettingError(f"the run {start}, {length}", f"pixels below {found.size}", where="decode_runs")
        found[start : start + length] = True
    return found.reshape(height, width)


def _mask_of(one: SceneObject, scale: float) -> Coverage:
    return shape_mask(one.shape, one.radius, *_within(one.x, one.y), one.texture, scale)


def _outline_of(one: SceneObject, scale: float) -> Coverage:
    return outline_mask(one.shape, one.radius, *_within(one.x, one.y), scale)


def _within(x: float, y: float) -> tuple[float, float]:
    """Where in its pixel a point lies."""
    return x - math.floor(x), y - math.floor(y)


def _slices(mask: Coverage, x: float, y: float, size: int) -> tuple[Slices, Slices]:
    """The part of the canvas that a mask lies on, and the part of the mask that lies on the canvas."""
    top, left, side = math.floor(y) - mask.reach, math.floor(x) - mask.reach, 2 * mask.reach + 1
    first_row, last_row = min(max(top, 0), size), min(max(top + side, 0), size)
    first_column, last_column = min(max(left, 0), size), min(max(left + side, 0), size)
    return (
        (slice(first_row, last_row), slice(first_column, last_column)),
        (slice(first_row - top, last_row - top), slice(first_column - left, last_column - left)),
    )


def _blend(
    canvas: np.ndarray,
    mask: Coverage,
    x: float,
    y: float,
    paint: np.ndarray,
    share: float = 1.0,
    shade: np.ndarray | None = None,
) -> None:
    place, part = _slices(mask, x, y, canvas.shape[0])
    under = canvas[place]
    alpha = mask.alpha[part] if share == 1 else mask.alpha[part] * np.float32(share)
    under += alpha * (paint - under)
    if shade is not None and mask.dark is not None:
        under += mask.dark[part] * shade


@lru_cache(maxsize=256)
def _ground(size: int, colour: str, texture: str, variant: int) -> np.ndarray:
    """A background without noise: float32 (H, W, 3)."""
    base = np.array(BACKGROUNDS[colour], np.float32)
    places = (np.arange(size, dtype=np.float64) + 0.5) / size
    turn = variant * math.pi / 4
    along = places[None, :] * math.cos(turn) + places[:, None] * math.sin(turn)  # (H, W), once across is one
    if texture == "gradient":
        level = along - along.mean()
    elif texture == "striped":
        level = np.sin(2 * math.pi * 5 * along) / 2
    elif texture == "checked":
        shifted = places + variant / 24
        level = (np.floor(shifted[None, :] * 6) + np.floor(shifted[:, None] * 6)) % 2 - 0.5
    else:
        level = np.zeros((size, size))
    return base + (2 * TEXTURE_LEVELS * level[:, :, None]).astype(np.float32)


@cache
def _noise_table() -> np.ndarray:
    """Normal deviates by the generator of NumPy that never changes, none above 2.5."""
    return np.clip(np.random.RandomState(2019).standard_normal(NOISE_VALUES), -2.5, 2.5).astype(np.float32)


def _noise(ground: Background, size: int) -> np.ndarray:
    """Grey noise, (H, W, 1), the same for the same seed."""
    start = ground.seed * 7919 % (NOISE_VALUES - size * size)
    return _noise_table()[start : start + size * size].reshape(size, size, 1) * np.float32(ground.noise)
