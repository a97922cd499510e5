"""The picture corpus: the same for the same seed in every process, no two alike, and splits that share no scene."""

import os
import subprocess
import sys
from hashlib import sha256

import pytest

from regard.errors import SettingError
from regard.pictures import (
    SPLITS,
    Scene,
    SceneCorpus,
    SceneSettings,
    captioned,
    doubled,
    labelled,
    phrase,
    question,
    split_of_scene,
)

EVERY_VIEW = [captioned, question, phrase, labelled, doubled]


@pytest.mark.parametrize("view", EVERY_VIEW, ids=lambda view: view.__name__)
def test_the_same_seed_draws_the_same(view) -> None:  # type: ignore[no-untyped-def]
    corpus = SceneCorpus(view, 30, seed=5)
    first = list(corpus)
    assert first == list(corpus) and len(first) == len(corpus) == 30
    assert first != list(SceneCorpus(view, 30, seed=6))
    assert first[:10] == list(SceneCorpus(view, 10, seed=5))
    assert corpus[17] == first[17] and corpus[-1] == first[29]
    with pytest.raises(IndexError, match="index 30 of a corpus of 30 examples"):
        corpus[30]


PROGRAM = """
from hashlib import sha256
from regard.pictures import SceneCorpus, question
for example in SceneCorpus(question, 12, seed=2, split="valid"):
    print(example.question, example.answer, sha256(example.scene.draw().tobytes()).hexdigest())
"""


def test_nothing_depends_on_the_process() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("1", "2")
    }
    here = [
        f"{example.question} {example.answer} {sha256(example.scene.draw().tobytes()).hexdigest()}\n"
        for example in SceneCorpus(question, 12, seed=2, split="valid")
    ]
    assert told == {"".join(here)}


def words_of(scene: Scene) -> tuple[tuple[str, ...], ...]:
    return tuple(sorted((one.shape, one.colour, one.size, one.texture) for one in scene.objects))


def test_no_two_are_alike_and_splits_share_none_whatever_the_seed_and_view() -> None:
    drawn: dict[str, set[object]] = {split: set() for split in SPLITS}
    for split in SPLITS:
        for view in (captioned, labelled, doubled):
            for seed in range(3):
                scenes = [example.scene for example in SceneCorpus(view, 150, split, seed)]
                assert len({scene.draw().tobytes() for scene in scenes}) == 150
                assert all(split_of_scene(scene) == split for scene in scenes)
                drawn[split] |= {words_of(scene) for scene in scenes}
    assert not drawn["train"] & drawn["test"] and not drawn["train"] & drawn["valid"]
    assert not drawn["valid"] & drawn["test"]


def test_settings_are_obeyed() -> None:
    settings = SceneSettings(96, objects=(2, 2), clutter=(1, 1), noise=(0.0,), textures=("plain",), shapes=("bar",))
    for example in SceneCorpus(captioned, 30, settings=settings):
        scene = example.scene
        assert scene.size == 96 and len(scene.objects) == 2 and len(scene.background.clutter) <= 1
        assert {(one.shape, one.texture) for one in scene.objects} == {("bar", "plain")}
        assert scene.background.noise == 0


@pytest.mark.parametrize(
    "setting",
    [
        {"size": 20},
        {"objects": (5, 3)},
        {"objects": (1, 3)},
        {"clutter": (0, 99)},
        {"noise": ()},
        {"noise": (50.0,)},
        {"textures": ("stripy",)},
        {"shapes": ()},
    ],
    ids=str,
)
def test_wrong_scene_settings_are_refused(setting: dict[str, object]) -> None:
    with pytest.raises(SettingError, match=r"SceneSettings: .*\w\.$"):
        SceneSettings(**setting)  # type: ignore[arg-type]


@pytest.mark.parametrize("setting", [{"split": "trian"}, {"count": -1}, {"view": "captioned"}], ids=str)
def test_wrong_corpus_settings_are_refused(setting: dict[str, object]) -> None:
    with pytest.raises(SettingError, match=r"SceneCorpus"):
        SceneCorpus(**{"view": captioned, "count": 5, **setting})  # type: ignore[arg-type]


def test_settings_without_a_scene_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.pictures.scene_rng.MAX_DRAWS", 1)
    with pytest.raises(SettingError, match="no scene of split 'test'"):
        list(SceneCorpus(captioned, 10, "test"))
