"""What scenes are made of: objects, backgrounds and clutter, and the words for them with their colours and radii."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

ORDINARY_SHAPES = ("circle", "square", "triangle", "diamond", "bar")
KEY_SHAPES = ("star", "heart", "cross", "ring", "moon", "arrow")  # the classes of labelled scenes
SHAPES = ORDINARY_SHAPES + KEY_SHAPES
COLOURS = {
    "red": (222, 40, 40),
    "orange": (246, 140, 28),
    "yellow": (246, 226, 60),
    "green": (40, 170, 60),
    "cyan": (70, 214, 226),
    "blue": (50, 92, 236),
    "purple": (148, 70, 204),
    "pink": (250, 158, 202),
}
SIZES = {"small": (5.5, 6.5), "medium": (8.0, 9.5), "large": (11.5, 12.5)}  # radii in a picture of 64 pixels
TEXTURES = ("plain", "striped", "dotted")
BACKGROUNDS = {
    "charcoal": (36, 36, 42),
    "slate": (60, 72, 88),
    "moss": (66, 76, 58),
    "umber": (84, 70, 58),
    "grey": (104, 104, 104),
}
BACKGROUND_TEXTURES = ("plain", "gradient", "striped", "checked")
SMALLEST, LARGEST = 64, 128  # pixels of a side
STEP = 0.5  # centres and radii of sampled objects are multiples of it, in pixels


@dataclass(frozen=True, slots=True)
class SceneObject:
    """One object: its words, and its place in pixels (x to the right, y down, from the upper left corner).

    The shape lies within the circle of `radius` about (x, y). `marked`: it carries a thin white outline with a gap.
    """

    shape: str
    colour: str
    size: str
    texture: str
    x: float
    y: float
    radius: float
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Stroke:
    """A thin stroke of clutter, one pixel wide in a picture of 64: centre, length, angle (sixteenths of a turn)."""

    x: float
    y: float
    length: float
    angle: int
    colour: str


@dataclass(frozen=True, slots=True)
class Background:
    """What lies behind the objects; `noise` is a standard deviation in grey levels, `seed` draws it."""

    colour: str = "charcoal"
    texture: str = "plain"
    noise: float = 0.0
    clutter: tuple[Stroke, ...] = ()
    seed: int = 0


@cache
def radii(word: str, size: int) -> tuple[float, ...]:
    """The radii that a size word stands for, in a picture of `size` pixels; those of different words are disjoint."""
    low, high = (bound * size / SMALLEST for bound in SIZES[word])
    first, last = math.ceil(low / STEP), math.floor(high / STEP)
    return tuple(number * STEP for number in range(first, last + 1))
