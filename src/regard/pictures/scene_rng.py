"""The random number generator (RNG) that every view of the picture corpus draws scenes from, and its settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import Random
from typing import TypeVar

from regard.errors import SettingError, unknown
from regard.pictures.captions import has_clear_caption
from regard.pictures.scene import Scene, expect_picture_size
from regard.pictures.scene_objects import (
    BACKGROUND_TEXTURES,
    BACKGROUNDS,
    COLOURS,
    KEY_SHAPES,
    ORDINARY_SHAPES,
    SHAPES,
    SIZES,
    SMALLEST,
    STEP,
    Background,
    SceneObject,
    Stroke,
    radii,
)
from regard.pictures.shapes import REACH

SPLITS = ("train", "valid", "test")
MARGIN = 1.0  # pixels between an outline and anything else, in a picture of 64
PLACE_TRIES = 15  # of one object before the layout is given up
LAYOUTS = 8  # of the same objects before others are drawn
MAX_DRAWS = 20_000  # of sets of objects for one scene
NOISE_SEEDS = 1 << 20

Item = TypeVar("Item")
Thing = tuple[str, str, str, str]  # shape, colour, size, texture


@dataclass(frozen=True, slots=True)
class SceneSettings:
    """What scenes may contain: side in pixels, numbers of objects and of strokes (least, most), noise, words."""

    size: int = SMALLEST
    objects: tuple[int, int] = (3, 5)
    clutter: tuple[int, int] = (0, 4)
    noise: tuple[float, ...] = (0.0, 3.0, 6.0)  # one of these, in grey levels
    textures: tuple[str, ...] = ("plain", "plain", "plain", "striped", "dotted")  # one of these, for each object
    shapes: tuple[str, ...] = SHAPES

    def __post_init__(self) -> None:
        expect_picture_size(self.size, "SceneSettings")
        for name, lowest, highest in (("objects", 2, 6), ("clutter", 0, 50)):
            least, most = getattr(self, name)
            if not lowest <= least <= most <= highest:
                raise SettingError(
                    f"{name}=({least}, {most})", f"two numbers from {lowest} to {highest}", where="SceneSettings"
                )
        for name, known in (("textures", ("plain", "striped", "dotted")), ("shapes", SHAPES)):
            words = getattr(self, name)
            for word in words:
                if word not in known:
                    raise unknown(word, known, kind=name.removesuffix("s"), where="SceneSettings")
            if not words:
                raise SettingError(f"no {name}", "one or more", where="SceneSettings")
        if not self.noise or not all(0 <= level <= 20 for level in self.noise):
            raise SettingError(f"noise={self.noise}", "levels from 0 to 20", where="SceneSettings")


class SceneRng:
    """A seeded random number generator of scenes; every decision consumes one number of its sequence.

    Where `split` is given, its scenes are of that split alone.
    """

    __slots__ = ("choice", "random", "settings", "split")

    def __init__(self, seed: str, settings: SceneSettings | None = None, split: str | None = None) -> None:
        random = Random(seed).random

        def choice(choices: Sequence[Item]) -> Item:
            return choices[int(random() * len(choices))]

        self.random: Callable[[], float] = random
        self.choice = choice
        self.settings = settings or SceneSettings()
        self.split = split

    def scene(self, keys: int | None = None, marked: bool = False) -> Scene:
        """A scene; with `keys`, so many of its objects are of key shapes. One is marked if `marked`.

        No two objects have both shape and colour in common, none overlap, and the caption of a marked scene is clear.
        """
        for _ in range(MAX_DRAWS):
            things = self._things(keys)
            if things is None or (self.split is not None and _split_of(things) != self.split):
                continue
            for _ in range(LAYOUTS):
                objects = self._layout(things)
                if objects is not None and marked:
                    objects = self._marked(objects)
                if objects is not None:
                    return Scene(self.settings.size, self._background(objects), objects)
        raise SettingError(
            f"settings under which {MAX_DRAWS:,} draws gave no scene of split {self.split!r}",
            "fewer objects, or more shapes and textures",
            where="SceneRng",
        )

    def integer(self, bounds: tuple[int, int]) -> int:
        """A number from the first to the last of these, both included."""
        return bounds[0] + int(self.random() * (bounds[1] - bounds[0] + 1))

    def _things(self, keys: int | None) -> list[Thing] | None:
        """The words of all objects, the ones of key shapes first; None if two would be called alike."""
        count, choice, textures = self.integer(self.settings.objects), self.choice, self.settings.textures
        if keys is None:
            shapes = [choice(self.settings.shapes) for _ in range(count)]
        else:
            special = [choice(KEY_SHAPES) for _ in range(keys)]
            if len(set(special)) < keys:
                return None
            shapes = special + [choice(ORDINARY_SHAPES) for _ in range(count - keys)]
        colours, sizes = _COLOURS, _SIZES
        things = [(shape, choice(colours), choice(sizes), choice(textures)) for shape in shapes]
        return things if len({thing[:2] for thing in things}) == count else None

    def _layout(self, things: list[Thing]) -> tuple[SceneObject, ...] | None:
        """Places for all objects, the large ones first, in random order; None if they find no room."""
        random, size = self.random, self.settings.size
        scale = size / SMALLEST
        apart, edge = (REACH + MARGIN) * scale, (REACH + MARGIN / 2) * scale
        placed: list[tuple[float, float, float, Thing]] = []
        sized = [(self.choice(radii(thing[2], size)), thing) for thing in things]
        for radius, thing in sorted(sized, key=_by_radius):
            low = int((radius + edge) / STEP) + 1
            steps = int(size / STEP) - 2 * low + 1
            for _ in range(PLACE_TRIES):
                x, y = (low + int(random() * steps)) * STEP, (low + int(random() * steps)) * STEP
                for other_x, other_y, other_radius, _thing in placed:
                    right, down, free = x - other_x, y - other_y, radius + other_radius + apart
                    if right * right + down * down < free * free:
                        break
                else:
                    placed.append((x, y, radius, thing))
                    break
            else:
                return None
        order = sorted((random(), place) for place in range(len(placed)))
        return tuple([SceneObject(*placed[at][3], placed[at][0], placed[at][1], placed[at][2]) for _, at in order])

    def _marked(self, objects: tuple[SceneObject, ...]) -> tuple[SceneObject, ...] | None:
        """The objects with one of them marked, about which the caption is clear."""
        clear = [at for at in range(len(objects)) if has_clear_caption(objects, at, self.settings.size)]
        if not clear:
            return None
        target = self.choice(clear)
        return (*objects[:target], replace(objects[target], marked=True), *objects[target + 1 :])

    def _background(self, objects: tuple[SceneObject, ...]) -> Background:
        choice = self.choice
        strokes = [self._stroke(objects) for _ in range(self.integer(self.settings.clutter))]
        return Background(
            choice(_GROUNDS),
            choice(BACKGROUND_TEXTURES),
            choice(self.settings.noise),
            tuple([stroke for stroke in strokes if stroke is not None]),
            int(self.random() * NOISE_SEEDS),
        )

    def _stroke(self, objects: tuple[SceneObject, ...]) -> Stroke | None:
        """A stroke that touches no object, so that none seems to grow arms; None if it finds no room."""
        size = self.settings.size
        scale = size / SMALLEST
        length, angle, colour = self.integer((4, 8)) * scale, self.integer((0, 7)), self.choice(_COLOURS)
        for _ in range(PLACE_TRIES):
            x, y = int(self.random() * size) + 0.5, int(self.random() * size) + 0.5
            free = length / 2 + (REACH + MARGIN) * scale
            if all((x - one.x) ** 2 + (y - one.y) ** 2 >= (one.radius + free) ** 2 for one in objects):
                return Stroke(x, y, length, angle, colour)
        return None


def split_of_scene(scene: Scene) -> str:
    """The split of a scene: by a hash of the words of its objects, so that splits share not even a set of objects.

    One set in twenty is for testing, one in twenty for validation, the rest for training.
    """
    return _split_of([(one.shape, one.colour, one.size, one.texture) for one in scene.objects])


def _split_of(things: list[Thing]) -> str:
    text = "|".join(sorted([" ".join(thing) for thing in things]))
    digest = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
    return ("test", "valid", "train")[min(digest % 20, 2)]


def _by_radius(sized: tuple[float, Thing]) -> float:
    return -sized[0]


_COLOURS, _SIZES, _GROUNDS = tuple(COLOURS), tuple(SIZES), tuple(BACKGROUNDS)
