"""Captions of scenes by a stated rule, with the objects of which each word speaks: its gold region.

The rule. The *target* is the one marked object; the *landmark* is the object nearest to it (by their centres); the
*relation* is left of, right of, above or below, along the axis on which the centres lie further apart. The caption
names the target by size, texture unless it is plain, colour and shape, then the relation, then the landmark by texture
unless it is plain, colour and shape:

    the small red circle left of the striped blue square
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import SettingError
from regard.pictures.scene import Scene
from regard.pictures.scene_objects import SMALLEST, SceneObject

RELATIONS = {"left": ("left", "of"), "right": ("right", "of"), "above": ("above",), "below": ("below",)}
WORD_KINDS = ("article", "size", "texture", "colour", "shape", "relation")
DOMINANT = 1.5  # an object is clearly left of another if it is this many times as far to the left as above or below
NEARER = 3.0  # pixels by which the second nearest object is further away, in a picture of 64


@dataclass(frozen=True, slots=True)
class SceneWord:
    """A word, what it tells (one of WORD_KINDS), and the numbers of the objects of which it speaks."""

    text: str
    kind: str
    objects: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SceneCaption:
    """A caption: its words, and the objects it is about."""

    words: tuple[SceneWord, ...]
    target: int
    relation: str
    landmark: int

    @property
    def text(self) -> str:
        return " ".join([word.text for word in self.words])


def caption_scene(scene: Scene) -> SceneCaption:
    """The caption of a scene by the rule.

    >>> caption_scene(scene).text
    'the small red circle left of the striped blue square'
    """
    marked = [number for number, one in enumerate(scene.objects) if one.marked]
    if len(marked) != 1 or len(scene.objects) < 2:
        given = f"a scene of {len(scene.objects)} objects, {len(marked)} of them marked"
        raise SettingError(given, "two or more objects, one of them marked", where="caption_scene")
    target = marked[0]
    landmark = nearest(scene.objects, target)
    relation = relation_between(scene.objects[target], scene.objects[landmark])
    words = (
        *noun_phrase(scene.objects[target], target, ("size", "texture", "colour", "shape")),
        *(SceneWord(text, "relation", (target, landmark)) for text in RELATIONS[relation]),
        *noun_phrase(scene.objects[landmark], landmark, ("texture", "colour", "shape")),
    )
    return SceneCaption(words, target, relation, landmark)


def noun_phrase(one: SceneObject, number: int, attributes: Sequence[str]) -> tuple[SceneWord, ...]:
    """The words for an object: an article and these attributes; a plain texture goes without saying."""
    words = [SceneWord("the", "article", (number,))]
    for kind in attributes:
        text = getattr(one, kind)
        if text != "plain":
            words.append(SceneWord(text, kind, (number,)))
    if attributes[-1] != "shape":
        words.append(SceneWord("thing", "shape", (number,)))
    return tuple(words)


def nearest(objects: Sequence[SceneObject], number: int) -> int:
    """The object whose centre is nearest to that of object `number`; of equally near ones the first."""
    others = [other for other in range(len(objects)) if other != number]
    return min(others, key=lambda other: _distance_squared(objects[number], objects[other]))


def relation_between(first: SceneObject, second: SceneObject) -> str:
    """Where the first object is, seen from the second; sideways if both axes are equal."""
    right, down = first.x - second.x, first.y - second.y
    if abs(right) >= abs(down):
        return "left" if right < 0 else "right"
    return "above" if down < 0 else "below"


def has_clear_relation(first: SceneObject, second: SceneObject) -> bool:
    """Whether one axis clearly dominates."""
    across, along = sorted((abs(first.x - second.x), abs(first.y - second.y)))
    return along >= DOMINANT * across


def has_clear_caption(objects: Sequence[SceneObject], target: int, size: int) -> bool:
    """Whether nobody could take another object for the landmark, or another relation."""
    one = objects[target]
    distances = sorted(_distance_squared(one, other) ** 0.5 for at, other in enumerate(objects) if at != target)
    if len(distances) > 1 and distances[1] - distances[0] < NEARER * size / SMALLEST:
        return False
    return has_clear_relation(one, objects[nearest(objects, target)])


def may_stand(first: SceneObject, second: SceneObject, relation: str) -> bool:
    """Whether somebody might say that the first object stands in this relation to the second, however loosely."""
    right, down = first.x - second.x, first.y - second.y
    along, across = {"left": (-right, down), "right": (right, down), "above": (-down, right), "below": (down, right)}[
        relation
    ]
    return along > 0 and DOMINANT * along > abs(across)


def _distance_squared(first: SceneObject, second: SceneObject) -> float:
    return (first.x - second.x) ** 2 + (first.y - second.y) ** 2
