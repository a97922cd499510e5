"""A scene: what a picture of the built-in corpus contains, exactly; its words, and its pixels and regions on request.

Nothing about a picture is unknown: every object has its shape, colour, size, texture, centre and radius, so gold
regions come from the scene and not from annotators.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from regard.errors import CorpusError, SettingError, unknown
from regard.pictures import render
from regard.pictures.scene_objects import (
    BACKGROUND_TEXTURES,
    BACKGROUNDS,
    COLOURS,
    LARGEST,
    SHAPES,
    SIZES,
    SMALLEST,
    TEXTURES,
    Background,
    SceneObject,
    Stroke,
)


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture's whole content: its side in pixels, its background, its objects.

    >>> ball = SceneObject("circle", "red", "large", "plain", x=32, y=30, radius=12)
    >>> Scene(64, Background(), (ball,)).draw().shape
    (64, 64, 3)
    """

    size: int
    background: Background
    objects: tuple[SceneObject, ...]

    def __post_init__(self) -> None:
        expect_picture_size(self.size, "Scene")

    def draw(self) -> np.ndarray:
        """The picture, uint8 (H, W, 3), anti-aliased."""
        return render.draw(self.size, self.background, self.objects)

    def region(self, objects: Iterable[int]) -> np.ndarray:
        """The visible pixels of these objects (by their numbers), bool (H, W): every pixel that one of them colours."""
        wanted = set(objects)
        if not wanted <= set(range(len(self.objects))):
            raise SettingError(f"objects {sorted(wanted)}", f"numbers below {len(self.objects)}", where="Scene.region")
        return render.region(self.size, self.objects, wanted)

    def to_dict(self) -> dict[str, Any]:
        """The scene as JSON would have it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Scene:
        """The scene that `to_dict` described; unknown words and missing fields are refused."""
        try:
            ground = dict(values["background"])
            clutter = tuple(Stroke(**stroke) for stroke in ground.pop("clutter", ()))
            known = SceneObject.__dataclass_fields__
            described = [{name: one[name] for name in known if name in one} for one in values["objects"]]
            objects = tuple(SceneObject(**one) for one in described)
            return checked(cls(values["size"], Background(**ground, clutter=clutter), objects))
        except (KeyError, TypeError, AttributeError) as error:
            raise CorpusError(f"This does not describe a scene ({error})", where="Scene.from_dict") from error


def checked(scene: Scene) -> Scene:
    """The scene, if every word in it is known and every number finite."""
    words: list[tuple[str, str, Iterable[str]]] = [("background", scene.background.colour, BACKGROUNDS)]
    words += [("background texture", scene.background.texture, BACKGROUND_TEXTURES)]
    words += [("colour", stroke.colour, COLOURS) for stroke in scene.background.clutter]
    for one in scene.objects:
        words += [("shape", one.shape, SHAPES), ("colour", one.colour, COLOURS)]
        words += [("size", one.size, SIZES), ("texture", one.texture, TEXTURES)]
        if not all(map(math.isfinite, (one.x, one.y))) or not 1 <= one.radius <= scene.size:
            given = f"centre ({one.x}, {one.y}) and radius {one.radius}"
            raise CorpusError(given, f"finite numbers, and a radius of 1 to {scene.size}", where="Scene")
    for kind, word, known in words:
        if word not in known:
            raise unknown(word, known, kind=kind, where="Scene", error=CorpusError)
    return scene


def expect_picture_size(size: int, where: str) -> None:
    """Refuse a side outside the range that the shapes were made for."""
    if not isinstance(size, int) or not SMALLEST <= size <= LARGEST:
        raise SettingError(f"size={size}", f"{SMALLEST} to {LARGEST} pixels", where=where)
