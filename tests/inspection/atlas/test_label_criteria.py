"""A planted head gets its label and no other; a random head gets none about words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from inspection.atlas.planted import lexicon, named, read, scene, texts
from regard.inspection.atlas.head_atlas import induction_probes
from regard.inspection.atlas.head_patterns import PATTERNS
from regard.inspection.atlas.label_criteria import FAMILIES, Interval, PatternMeasure, criteria, earned_names
from regard.inspection.atlas.passages import Passage
from regard.inspection.atlas.token_features import MapFeatures, map_features
from regard.inspection.record.token_axis import TokenAxis


def on(name: str) -> Callable[[MapFeatures], Tensor]:
    """Exactly on the targets of a pattern, as the pattern itself has them, and anywhere where a query has none."""
    trait = next(trait for trait in PATTERNS if trait.name == name)
    rng = torch.Generator().manual_seed(0)

    def plant(one: MapFeatures) -> Tensor:
        targets = trait.targets(one)
        assert targets is not None
        if trait.level == "words":  # to the first piece of each target, from every piece
            first = one.keys.unit_of_token.diff(prepend=torch.tensor([-1])) != 0
            targets = targets[one.queries.unit_of_token][:, one.keys.unit_of_token] & first
        anywhere = one.visible * torch.rand(one.visible.shape, generator=rng)
        anywhere = (anywhere == anywhere.amax(-1, keepdim=True)).double()
        return torch.where((targets & one.visible).any(-1, keepdim=True), targets.double(), anywhere)

    return plant


def step(by: int) -> Callable[[MapFeatures], Tensor]:
    return lambda one: torch.diag(torch.ones(len(one.visible) - abs(by)), by)


SCENES = [scene(passage) for passage in texts()]
ALONE = [scene(passage, special=False) for passage in texts()]
PAST = [scene(passage, "past", special=False) for passage in texts()]
ACROSS = [
    scene(Passage(one.text, other.text, nouns=(one.nouns[0], other.nouns[0])))
    for one, other in zip(texts(), texts(7), strict=True)
]


@pytest.mark.parametrize("by", [-8, -2, -1, 0, 1, 5])
def test_a_fixed_offset_is_labelled(by: int) -> None:
    name = {-1: "previous", 0: "self", 1: "next"}.get(by, f"offset {by:+d}")
    assert named(step(by), SCENES) == [name]
    if by <= 0:
        assert named(step(by), PAST) == [name]


@pytest.mark.parametrize("name", ["identical word", "predicting word", "rare word", "nouns and names"])
def test_a_planted_head_on_words_is_labelled(name: str) -> None:
    assert named(on(name), SCENES) == [name]


@pytest.mark.parametrize("name", ["identical word, other text"])
def test_a_head_on_words_of_the_other_text(name: str) -> None:
    assert named(on(name), ACROSS) == [name]


def test_landmarks() -> None:
    assert named(on("first token"), ALONE) == ["first token"]
    assert named(on("first token"), PAST) == ["first token"]
    assert named(on("delimiter"), ALONE) == ["delimiter"]

    def separator(one: MapFeatures) -> Tensor:
        found = torch.zeros(one.visible.shape)
        found[:, -1] = 1
        return found

    assert named(separator, SCENES) == ["delimiter"]

    def start(one: MapFeatures) -> Tensor:
        return separator(one).flip(-1)

    assert named(start, SCENES) == ["first token"]  # [CLS] is a delimiter too, which is not said twice


@pytest.mark.parametrize("scenes", [SCENES, PAST], ids=["both ways", "past"])
def test_uniform_attention_is_broad(scenes: list[MapFeatures]) -> None:
    assert named(lambda one: torch.ones(one.visible.shape), scenes) == ["broad"]


def test_related_words_share_a_stem_or_cooccur() -> None:
    passages = [
        Passage(text)
        for text in (
            "he walked by the lake and they were walking in the wood",
            "the singer had a voice for songs so they sang with her singers",
            "she liked to cook since the cooks and the cooking were here",
        )
        * 8
    ]
    scenes = [scene(one) for one in passages]
    assert named(on("related word"), scenes)[:1] == ["related word"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sharpness", [0.5, 4.0])
def test_a_random_head_has_no_label_about_words(seed: int, sharpness: float) -> None:
    torch.manual_seed(seed)
    heads = [lambda one: (sharpness * torch.randn(one.visible.shape)).softmax(-1)] * 8
    for scenes in (SCENES[:15], ACROSS[:15]):
        found = read(heads, scenes)
        assert not [name for head in found for name in earned_names(head) if FAMILIES[name] not in ("spread",)]


@pytest.mark.parametrize("seed", range(3))
def test_a_head_that_prefers_certain_keys_or_distances_has_no_label_about_pairs(seed: int) -> None:
    """Some words pull whoever asks, and near ones more: nothing in that depends on who asks."""
    torch.manual_seed(seed)
    pull = {word: 2 * torch.randn(()) for one in SCENES for word in one.keys.lower}

    def plant(one: MapFeatures) -> Tensor:
        keys = torch.stack([pull[one.keys.lower[unit]] for unit in one.keys.unit_of_token.tolist()])
        far = (torch.arange(len(keys)) - torch.arange(len(keys))[:, None]).abs()
        return (keys - 0.5 * far).softmax(-1)

    assert not [name for name in named(plant, SCENES) if FAMILIES[name] == "pairs"]


def said_twice(past: bool) -> list[MapFeatures]:
    return [scene(one, "past" if past else "all", special=not past) for one in induction_probes(lexicon(), pairs=False)]


@pytest.mark.parametrize("past", [True, False])
def test_induction_is_found_in_repeated_texts(past: bool) -> None:
    scenes = said_twice(past)
    assert named(on("induction"), scenes) == ["induction"]
    assert named(on("induction, before"), scenes) == ["induction, before"]
    assert named(step(-1), scenes) == []
    assert named(lambda one: torch.ones(one.visible.shape), scenes) == []


def test_alignment_is_more_than_a_diagonal() -> None:
    links = ((0, 2), (1, 0), (2, 1), (3, 5), (4, 3), (5, 4))
    aligned, diagonal = [], []
    for number in range(12):
        source, target = (" ".join(f"{letter}{number + at}" for at in range(6)) for letter in "st")
        passage = Passage(source, target, links)
        sides = TokenAxis.from_tokens("target", target.split()), TokenAxis.from_tokens("source", source.split())
        aligned.append(map_features(sides, False, torch.ones(6, 6, dtype=torch.bool), passage, lexicon()))
        diagonal.append(replace(aligned[-1], gold=None))
    assert named(on("alignment"), aligned)[0] == "alignment"
    assert named(lambda one: torch.eye(6), aligned) == ["diagonal"]
    assert named(lambda one: torch.eye(6), diagonal) == ["diagonal"]


def measure(weight: float, largest: float, even: float, alike: float | None = None) -> PatternMeasure:
    values = (Interval(value, value - 0.01, value + 0.01) for value in (weight, largest))
    return PatternMeasure(1000, *values, even, alike, alike)


def test_the_criteria_are_those_of_the_papers() -> None:
    assert criteria("previous", measure(0.52, 0.6, 0.1)) == ["more than half of the weight"]
    assert criteria("previous", measure(0.4, 0.92, 0.1)) == ["90% of the largest weights"]
    assert criteria("previous", measure(0.505, 0.6, 0.1)) == []  # three standard errors below are less than half
    assert criteria("previous", measure(0.505, 0.6, 0.1), sure=False) == ["more than half of the weight"]
    assert len(criteria("identical word", measure(0.5, 0.5, 0.05, 0.3))) == 2
    assert criteria("identical word", measure(0.5, 0.5, 0.05, 0.45)) == []
    assert criteria("identical word", replace(measure(0.9, 0.9, 0.05, 0.1), queries=10)) == []


def test_labels_are_sorted_by_strength() -> None:
    found = {"delimiter": measure(0.6, 0.6, 0.1), "identical word": measure(0.3, 0.3, 0.05, 0.05)}
    assert earned_names(found) == ["delimiter", "identical word"]
    assert earned_names(dict(reversed(found.items()))) == ["delimiter", "identical word"]
