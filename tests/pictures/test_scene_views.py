"""Views: questions have one answer, phrases one object, labelled scenes one key shape and doubled ones two."""

from collections import Counter

import pytest

from regard.pictures import (
    COLOURS,
    KEY_SHAPES,
    SHAPES,
    SIZES,
    Scene,
    SceneCorpus,
    SceneObject,
    doubled,
    labelled,
    phrase,
    question,
)

QUESTIONS = list(SceneCorpus(question, 1200, seed=3))
SIDES = {"left": (-1, 0), "right": (1, 0), "above": (0, -1), "below": (0, 1)}


def told(scene: Scene, text: str) -> list[int]:
    """The objects that a noun phrase fits, found by its words: "striped things", "circle left of the blue square"."""
    noun, *place = text.replace(" of ", " ").split(" the ")
    words = noun.split()
    relation = next((word for word in words if word in SIDES), None)
    fits = [at for at, one in enumerate(scene.objects) if all(_is(one, word) for word in words if word != relation)]
    if relation is None:
        return fits
    [landmark] = told(scene, place[0])
    return [at for at in fits if at != landmark and _stands(scene, at, landmark, relation)]


def _is(one: SceneObject, word: str) -> bool:
    singular = word.removesuffix("es") if word == "crosses" else word.removesuffix("s") if word[:-1] in SHAPES else word
    return singular in ("thing", "things", one.shape, one.colour, one.size, one.texture)


def _stands(scene: Scene, at: int, landmark: int, relation: str) -> bool:
    right, down = (getattr(scene.objects[at], axis) - getattr(scene.objects[landmark], axis) for axis in "xy")
    x, y = SIDES[relation]
    return right * x + down * y > abs(right * y + down * x)


def test_every_answer_is_the_only_one() -> None:
    for asked in QUESTIONS:
        words = asked.question.removesuffix(" ?")
        if asked.kind == "existence":
            found = told(asked.scene, words.removeprefix("is there ").partition(" ")[2])
            assert (asked.answer == "yes") == bool(found)
        elif asked.kind == "count":
            found = told(asked.scene, words.removeprefix("how many ").removesuffix(" are there"))
            assert asked.answer == ("zero", "one", "two", "three", "four", "five")[len(found)] != "zero"
        else:
            found = told(asked.scene, words.removeprefix(f"what {asked.kind} is the "))
            assert len(found) == 1 and getattr(asked.scene.objects[found[0]], asked.kind) == asked.answer
        assert tuple(found) == asked.objects


def test_questions_are_of_all_kinds_and_cannot_be_guessed() -> None:
    kinds = Counter(asked.kind for asked in QUESTIONS)
    assert set(kinds) == {"colour", "shape", "size", "count", "existence"} and min(kinds.values()) > 100
    existence = Counter(asked.answer for asked in QUESTIONS if asked.kind == "existence")
    assert 0.4 < existence["yes"] / existence.total() < 0.6
    assert {asked.answer for asked in QUESTIONS} >= {*COLOURS, *SHAPES, *SIZES, "one", "two", "three", "yes", "no"}
    wrong = [asked for asked in QUESTIONS if asked.answer == "no"]
    crossed = 0
    for asked in wrong:
        *_, colour, shape, _mark = asked.question.split()
        there = asked.scene.objects
        crossed += any(one.colour == colour for one in there) and any(one.shape == shape for one in there)
    assert crossed > 0.4 * len(wrong)


def test_a_phrase_refers_to_one_object() -> None:
    kinds = set()
    marked = 0
    for example in SceneCorpus(phrase, 600):
        assert told(example.scene, example.text.removeprefix("the ")) == [example.target]
        kinds.add(tuple(word.kind for word in example.words))
        marked += example.scene.objects[example.target].marked
    assert len(kinds) >= 8 and 100 < marked < 400


@pytest.mark.parametrize(("view", "keys"), [(labelled, 1), (doubled, 2)])
def test_key_shapes_are_the_labels(view, keys: int) -> None:  # type: ignore[no-untyped-def]
    labels = Counter()  # type: ignore[var-annotated]
    for example in SceneCorpus(view, 400):
        special = [(one.shape, at) for at, one in enumerate(example.scene.objects) if one.shape in KEY_SHAPES]
        assert special == list(zip(example.labels, example.objects, strict=True)) and len(special) == keys
        assert len(set(example.labels)) == keys and example.label == example.labels[0]
        assert not any(one.marked for one in example.scene.objects)
        labels.update(example.labels)
    assert set(labels) == set(KEY_SHAPES) and min(labels.values()) > 40 * keys
