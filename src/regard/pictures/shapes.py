"""The shapes of scenes as coverage masks: which share of each pixel a shape, its texture and its outline cover.

Masks are supersampled from the inequalities below, and cached: corpora draw each of them many times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

SUBSAMPLES = 8  # along each side of a pixel
OUTLINE_SUBSAMPLES = 4
FAINTEST = 0.125  # a pixel of which a shape covers less is not of it
GAP, LINE = 1.2, 1.4  # between an object and its outline, and the outline's width, in a picture of 64 pixels
REACH = GAP + LINE  # how far an outline reaches beyond its object
STRIPES, DOTS, DOT = 4.0, 4.0, 1.1  # period of the stripes and of the dots, radius of a dot, in a picture of 64

Grid = np.ndarray  # coordinates in units of the radius: u to the right, v down


def _triangle(u: Grid, v: Grid) -> Grid:
    return (v <= 0.55) & (np.abs(u) <= (v + 1) * (0.835 / 1.55))


def _star(u: Grid, v: Grid) -> Grid:
    """Five points: folded into half a point, it lies on one side of the line from a tip to the notch beside it."""
    tenth = math.pi / 5
    angle = np.abs((np.arctan2(u, -v) + tenth) % (2 * tenth) - tenth)
    x, y = np.hypot(u, v) * np.cos(angle), np.hypot(u, v) * np.sin(angle)
    notch_x, notch_y = 0.44 * math.cos(tenth), 0.44 * math.sin(tenth)
    return (notch_x - 1) * y - notch_y * (x - 1) >= 0


def _heart(u: Grid, v: Grid) -> Grid:
    x, y = 1.36 * u, 0.12 - 1.31 * v
    return (x * x + y * y - 1) ** 3 - x * x * y**3 <= 0


def _cross(u: Grid, v: Grid) -> Grid:
    across, along = np.minimum(np.abs(u), np.abs(v)), np.maximum(np.abs(u), np.abs(v))
    return (across <= 0.29) & (along <= 0.95)


def _arrow(u: Grid, v: Grid) -> Grid:
    shaft = (u >= -0.96) & (u <= 0.1) & (np.abs(v) <= 0.25)
    return shaft | ((u >= 0) & (np.abs(v) <= 0.9 * (1 - u)))


INSIDE: dict[str, Callable[[Grid, Grid], Grid]] = {
    "circle": lambda u, v: np.hypot(u, v) <= 0.97,
    "square": lambda u, v: np.maximum(np.abs(u), np.abs(v)) <= 0.7,
    "triangle": _triangle,
    "diamond": lambda u, v: np.abs(u) / 0.7 + np.abs(v) <= 1,
    "bar": lambda u, v: (np.abs(u) <= 0.93) & (np.abs(v) <= 0.33),
    "star": _star,
    "heart": _heart,
    "cross": _cross,
    "ring": lambda u, v: (np.hypot(u, v) <= 1) & (np.hypot(u, v) >= 0.54),
    "moon": lambda u, v: (np.hypot(u, v) <= 1) & (np.hypot(u - 0.5, v) >= 0.78),
    "arrow": _arrow,
}


class Coverage(NamedTuple):
    """Coverage of the pixels about a centre: row 0 is `reach` rows above the centre's row, columns likewise."""

    reach: int
    alpha: np.ndarray  # (N, N, 1) share of the pixel that is covered
    dark: np.ndarray | None  # (N, N, 1) share that is covered with the texture's dark tone
    touched: np.ndarray  # (N, N) whether anything of the pixel is covered
    opaque: np.ndarray  # (N, N) whether all of it is


@lru_cache(maxsize=8192)
def shape_mask(shape: str, radius: float, along_x: float, along_y: float, texture: str, scale: float) -> Coverage:
    """The mask of a shape whose centre lies at (along_x, along_y) of its pixel."""
    reach = math.ceil(radius) + 1
    x, y = _subpixels(reach, along_x, along_y, SUBSAMPLES)
    inside = INSIDE[shape](x / radius, y / radius)
    alpha = _mean(inside, SUBSAMPLES)
    touched = alpha >= FAINTEST
    alpha = np.where(touched, alpha, np.float32(0))
    dark = None
    if texture != "plain":
        tone = _mean(inside & _dark_places(texture, x / scale, y / scale), SUBSAMPLES)
        dark = np.where(touched, tone, np.float32(0))[:, :, None]
    return Coverage(reach, alpha[:, :, None], dark, touched, alpha == 1)


@lru_cache(maxsize=2048)
def outline_mask(shape: str, radius: float, along_x: float, along_y: float, scale: float) -> Coverage:
    """The outline of a marked object: the points whose distance from the shape is between GAP and REACH."""
    reach = math.ceil(radius + REACH * scale) + 1
    x, y = _subpixels(reach, along_x, along_y, OUTLINE_SUBSAMPLES)
    filled = INSIDE["circle" if shape == "ring" else shape](x / radius, y / radius)  # none within the ring
    near = _dilated(filled, GAP * scale * OUTLINE_SUBSAMPLES)
    far = _dilated(filled, REACH * scale * OUTLINE_SUBSAMPLES)
    alpha = _mean(far & ~near, OUTLINE_SUBSAMPLES)
    return Coverage(reach, alpha[:, :, None], None, alpha > 0, alpha == 1)


@lru_cache(maxsize=4096)
def stroke_mask(length: float, angle: int, along_x: float, along_y: float, width: float) -> Coverage:
    """The mask of a stroke of clutter."""
    reach = math.ceil(length / 2) + 1
    x, y = _subpixels(reach, along_x, along_y, OUTLINE_SUBSAMPLES)
    turn = angle * math.pi / 8
    along, across = x * math.cos(turn) + y * math.sin(turn), y * math.cos(turn) - x * math.sin(turn)
    alpha = _mean((np.abs(along) <= length / 2) & (np.abs(across) <= width / 2), OUTLINE_SUBSAMPLES)
    return Coverage(reach, alpha[:, :, None], None, alpha > 0, alpha == 1)


def _subpixels(reach: int, along_x: float, along_y: float, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of all subsamples about the centre, in pixels: a row and a column that broadcast."""
    steps = np.arange((2 * reach + 1) * samples, dtype=np.float64)
    places = (steps + 0.5) / samples - reach
    return places[None, :] - along_x, places[:, None] - along_y


def _mean(inside: np.ndarray, samples: int) -> np.ndarray:
    side = inside.shape[0] // samples
    return inside.reshape(side, samples, side, samples).mean((1, 3), dtype=np.float32)


def _dark_places(texture: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if texture == "striped":
        return (y + STRIPES / 4) % STRIPES < STRIPES / 2  # a dark stripe through the centre
    rows = np.floor(y / DOTS + 0.5)
    shifted = x + (rows % 2) * (DOTS / 2)
    return np.hypot(shifted - DOTS * np.floor(shifted / DOTS + 0.5), y - DOTS * rows) <= DOT


def _dilated(inside: np.ndarray, distance: float) -> np.ndarray:
    """The points at most `distance` away from one that is inside: dilation by a disc, one row of it at a time."""
    height, width = inside.shape
    whole = math.floor(distance)
    found = np.zeros_like(inside)
    for down in range(-whole, whole + 1):
        reach = math.floor(math.sqrt(distance * distance - down * down))
        sums = np.zeros((height, width + 2 * reach + 1), np.int32)
        np.cumsum(inside, axis=1, out=sums[:, reach + 1 : reach + 1 + width])
        sums[:, reach + 1 + width :] = sums[:, reach + width, None]
        spread = sums[:, 2 * reach + 1 :] > sums[:, :width]
        if down >= 0:
            found[down:] |= spread[: height - down]
        else:
            found[:down] |= spread[-down:]
    return found
