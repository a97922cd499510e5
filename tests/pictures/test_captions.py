"""Captions: each is the one that the rule gives, found here from the pixels and the positions alone."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from regard.errors import SettingError
from regard.pictures import WORD_KINDS, Background, Scene, SceneCorpus, SceneObject, caption_scene, captioned

EXAMPLES = list(SceneCorpus(captioned, 300, seed=7))


def by_the_rule(scene: Scene) -> str:
    """The caption, derived anew."""
    [target] = [one for one in scene.objects if one.marked]
    others = [one for one in scene.objects if one is not target]
    distances = [np.hypot(one.x - target.x, one.y - target.y) for one in others]
    landmark = others[int(np.argmin(distances))]
    assert len(others) == 1 or sorted(distances)[1] - min(distances) >= 3 - 1e-9  # clearly the nearest
    right, down = target.x - landmark.x, target.y - landmark.y
    assert max(abs(right), abs(down)) >= 1.5 * min(abs(right), abs(down))  # clearly along one axis
    across = "left of" if right < 0 else "right of"
    relation = across if abs(right) > abs(down) else "above" if down < 0 else "below"
    words = ["the", target.size, target.texture, target.colour, target.shape]
    words += [relation, "the", landmark.texture, landmark.colour, landmark.shape]
    return " ".join(word for word in words if word != "plain")


def test_captions_follow_the_rule() -> None:
    for example in EXAMPLES:
        assert example.caption.text == by_the_rule(example.scene) == caption_scene(example.scene).text


def test_the_mark_is_in_the_picture() -> None:
    """The target can be found from the pixels: only about it is there a white outline."""
    for example in EXAMPLES[:60]:
        white = (example.scene.draw() > 170).all(2)
        rows, columns = np.nonzero(white)
        target = example.scene.objects[example.caption.target]
        distances = np.hypot(columns + 0.5 - target.x, rows + 0.5 - target.y)
        assert len(rows) > 15 and (distances <= target.radius + 4).mean() > 0.95


def test_every_word_has_its_objects_and_its_kind() -> None:
    for example in EXAMPLES:
        caption, objects = example.caption, example.scene.objects
        said = [word.objects for word in caption.words]
        relations = [word for word in caption.words if word.kind == "relation"]
        first = caption.words.index(relations[0])
        assert all(word.objects == (caption.target, caption.landmark) for word in relations)
        assert set(said[:first]) == {(caption.target,)} and set(said[first + len(relations) :]) == {(caption.landmark,)}
        for word in caption.words:
            assert word.kind in WORD_KINDS
            if word.kind in ("size", "texture", "colour", "shape"):
                assert getattr(objects[word.objects[0]], word.kind) == word.text != "plain"


def test_what_is_said_is_unique_in_its_scene() -> None:
    for example in EXAMPLES:
        called = Counter((one.shape, one.colour) for one in example.scene.objects)
        assert set(called.values()) == {1}


def test_relations_and_words_are_all_there() -> None:
    relations = Counter(example.caption.relation for example in EXAMPLES)
    assert set(relations) == {"left", "right", "above", "below"} and min(relations.values()) > 40
    words = Counter(word.text for example in EXAMPLES for word in example.caption.words)
    assert len(words) == 1 + 3 + 2 + 8 + 11 + 5


@pytest.mark.parametrize("marks", [(), (0, 1)])
def test_scenes_that_have_no_caption_are_refused(marks: tuple[int, ...]) -> None:
    ball = SceneObject("circle", "red", "small", "plain", 20, 20, 6)
    objects = tuple(replace(ball, x=20 + 20 * at, marked=at in marks) for at in range(2))
    with pytest.raises(SettingError, match="one of them marked"):
        caption_scene(Scene(64, Background(), objects))
