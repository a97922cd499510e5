"""The views of the picture corpus: captions, questions, phrases, class labels; each draws one example from an RNG.

captioned   a scene with a marked object, and its caption
question    a question with a one-word answer, and the objects that answer it
phrase      a phrase that refers to exactly one object
labelled    a scene with one key shape among ordinary ones; the label is that shape
doubled     a scene with two key shapes: planted truth for class sensitivity, never for training
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.pictures.captions import (
    RELATIONS,
    SceneCaption,
    SceneWord,
    caption_scene,
    has_clear_relation,
    may_stand,
    noun_phrase,
    relation_between,
)
from regard.pictures.scene import Scene
from regard.pictures.scene_objects import COLOURS, KEY_SHAPES, SceneObject
from regard.pictures.scene_rng import SceneRng

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six")
QUESTIONS = ("colour", "shape", "size", "count", "existence")
PHRASES = (
    ("shape",),
    ("colour",),
    ("colour", "shape"),
    ("size", "shape"),
    ("texture", "shape"),
    ("size", "colour", "shape"),
    ("size", "texture", "colour", "shape"),
)


@dataclass(frozen=True, slots=True)
class CaptionedScene:
    """A scene and its caption."""

    scene: Scene
    caption: SceneCaption


@dataclass(frozen=True, slots=True)
class SceneQuestion:
    """A question about a scene, its one-word answer, and the objects that answer it: none where it is "no"."""

    scene: Scene
    kind: str  # one of QUESTIONS
    question: str
    answer: str
    objects: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScenePhrase:
    """A phrase and the one object of its scene to which it refers."""

    scene: Scene
    words: tuple[SceneWord, ...]
    target: int

    @property
    def text(self) -> str:
        return " ".join([word.text for word in self.words])


@dataclass(frozen=True, slots=True)
class LabelledScene:
    """A scene with key shapes: the label of each, and the object that shows it."""

    scene: Scene
    labels: tuple[str, ...]
    objects: tuple[int, ...]

    @property
    def label(self) -> str:
        """The first label, the only one of a scene of the view `labelled`."""
        return self.labels[0]


def captioned(rng: SceneRng) -> CaptionedScene:
    """A scene with a marked object, and its caption by the rule of `captions`."""
    scene = rng.scene(marked=True)
    return CaptionedScene(scene, caption_scene(scene))


def question(rng: SceneRng) -> SceneQuestion:
    """A question about a scene; its kinds are equally frequent, and so are yes and no."""
    return ask(rng, rng.scene(marked=True))


def phrase(rng: SceneRng) -> ScenePhrase:
    """A phrase that refers to exactly one object of a scene, marked or not."""
    return refer(rng, rng.scene(marked=True))


def labelled(rng: SceneRng) -> LabelledScene:
    """A scene with one object of a key shape, which is its label, among ordinary ones."""
    return _key_shapes(rng.scene(keys=1))


def doubled(rng: SceneRng) -> LabelledScene:
    """A scene with two different key shapes among ordinary ones."""
    return _key_shapes(rng.scene(keys=2))


def ask(rng: SceneRng, scene: Scene) -> SceneQuestion:
    """A question about this scene."""
    kind = rng.choice(QUESTIONS)
    if kind == "existence":
        return _existence(rng, scene)
    if kind != "count":
        for target, landmark in _shuffled_pairs(rng, scene):
            asked = _attribute_question(scene, kind, target, landmark)
            if asked is not None:
                return asked
    return _count(rng, scene)


def refer(rng: SceneRng, scene: Scene) -> ScenePhrase:
    """A phrase that refers to exactly one object of this scene: by its attributes, or by its place."""
    if rng.random() < 0.3:
        for target, landmark in _shuffled_pairs(rng, scene):
            noun = scene.objects[target].shape
            if _is_only_one(scene, target, landmark, noun):
                return ScenePhrase(scene, _related(scene, target, landmark), target)
    target = rng.choice(range(len(scene.objects)))
    one = scene.objects[target]
    fitting = [attributes for attributes in PHRASES if _alike(scene, one, attributes) == [target]]
    fitting = [attributes for attributes in fitting if "texture" not in attributes or one.texture != "plain"]
    return ScenePhrase(scene, noun_phrase(one, target, rng.choice(fitting)), target)


def _alike(scene: Scene, one: SceneObject, attributes: tuple[str, ...]) -> list[int]:
    """The objects that have these attributes in common with one."""
    return [
        at
        for at, other in enumerate(scene.objects)
        if all(getattr(other, name) == getattr(one, name) for name in attributes)
    ]


def _is_only_one(scene: Scene, target: int, landmark: int, noun: str | None) -> bool:
    """Whether only the target is, with this noun or any, in its relation to the landmark; and that clearly."""
    one, place = scene.objects[target], scene.objects[landmark]
    if not has_clear_relation(one, place) or len(_alike(scene, place, ("colour", "shape"))) > 1:
        return False
    relation = relation_between(one, place)
    return not any(
        may_stand(other, place, relation)
        for at, other in enumerate(scene.objects)
        if at not in (target, landmark) and noun in (None, other.shape)
    )


def _related(scene: Scene, target: int, landmark: int) -> tuple[SceneWord, ...]:
    """The circle left of the blue square."""
    one, place = scene.objects[target], scene.objects[landmark]
    relation = RELATIONS[relation_between(one, place)]
    return (
        *noun_phrase(one, target, ("shape",)),
        *(SceneWord(text, "relation", (target, landmark)) for text in relation),
        *noun_phrase(place, landmark, ("colour", "shape")),
    )


def _attribute_question(scene: Scene, kind: str, target: int, landmark: int) -> SceneQuestion | None:
    """What colour is the circle left of the blue square ? None if another circle might be meant."""
    one = scene.objects[target]
    if not _is_only_one(scene, target, landmark, None if kind == "shape" else one.shape):
        return None
    noun = "thing" if kind == "shape" else one.shape
    relation = " ".join(RELATIONS[relation_between(one, scene.objects[landmark])])
    place = " ".join(word.text for word in noun_phrase(scene.objects[landmark], landmark, ("colour", "shape")))
    text = f"what {kind} is the {noun} {relation} {place} ?"
    return SceneQuestion(scene, kind, text, getattr(one, kind), (target,))


def _count(rng: SceneRng, scene: Scene) -> SceneQuestion:
    """How many circles are there ? The answer is one or more."""
    one = scene.objects[rng.choice(range(len(scene.objects)))]
    attribute = rng.choice(("shape", "colour", "size") if one.texture == "plain" else ("texture", "shape", "colour"))
    counted = _alike(scene, one, (attribute,))
    noun = _plural(one.shape) if attribute == "shape" else f"{getattr(one, attribute)} things"
    return SceneQuestion(scene, "count", f"how many {noun} are there ?", NUMBERS[len(counted)], tuple(counted))


def _existence(rng: SceneRng, scene: Scene) -> SceneQuestion:
    """Is there a red circle ? Half of those that there are not have their colour and shape on other objects."""
    here = {(one.colour, one.shape): at for at, one in enumerate(scene.objects)}
    colours, shapes = [one.colour for one in scene.objects], [one.shape for one in scene.objects]
    if rng.random() < 0.5:
        colour, shape = rng.choice(list(here))
        return SceneQuestion(scene, "existence", _is_there(colour, shape), "yes", (here[colour, shape],))
    crossed = [(colour, shape) for colour in colours for shape in shapes if (colour, shape) not in here]
    if not crossed or rng.random() < 0.5:
        kinds = rng.settings.shapes
        crossed = [(colour, shape) for colour in COLOURS for shape in kinds if (colour, shape) not in here]
    return SceneQuestion(scene, "existence", _is_there(*rng.choice(crossed)), "no", ())


def _is_there(colour: str, shape: str) -> str:
    return f"is there {'an' if colour == 'orange' else 'a'} {colour} {shape} ?"


def _plural(shape: str) -> str:
    return f"{shape}es" if shape == "cross" else f"{shape}s"


def _shuffled_pairs(rng: SceneRng, scene: Scene) -> list[tuple[int, int]]:
    """All pairs of a target and a landmark, in random order."""
    count = len(scene.objects)
    pairs = [(rng.random(), (one, other)) for one in range(count) for other in range(count) if one != other]
    return [pair for _, pair in sorted(pairs)]


def _key_shapes(scene: Scene) -> LabelledScene:
    found = [(one.shape, at) for at, one in enumerate(scene.objects) if one.shape in KEY_SHAPES]
    return LabelledScene(scene, tuple(shape for shape, _ in found), tuple(at for _, at in found))
