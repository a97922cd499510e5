"""The targets of each pattern, by hand for short texts."""

from __future__ import annotations

import torch
from torch import Tensor

from inspection.atlas.planted import side_of
from regard.inspection.atlas.head_patterns import PATTERNS
from regard.inspection.atlas.passages import Passage
from regard.inspection.atlas.token_features import MapFeatures, map_features
from regard.inspection.atlas.word_statistics import count_words

FILLERS = [" ".join(f"w{number}{letter}" for letter in "abcdefghij") for number in range(300)]
CORPUS = [
    Passage(text) for text in ("we eat straw berries here", "more straw and berries", "they eat a cat and a dog") * 6
]
CORPUS += [Passage(f"the zebra ran here {filler}") for filler in FILLERS]
LEXICON = count_words(CORPUS)


def scene(text: str, other: str | None = None, past: bool = False, probe: bool = False) -> MapFeatures:
    side = side_of(text, other)
    seen = torch.ones(len(side), len(side), dtype=torch.bool)
    passage = Passage(text, other, probe=probe)
    return map_features((side, side), True, seen.tril() if past else seen, passage, LEXICON)


def targets(name: str, one: MapFeatures) -> Tensor | None:
    return next(trait for trait in PATTERNS if trait.name == name).targets(one)


def pairs(name: str, one: MapFeatures) -> set[tuple[str, str]]:
    """Query and key, spelled, where a pattern has targets between words."""
    found = targets(name, one)
    assert found is not None
    return {(one.queries.texts[i], one.keys.texts[j]) for i, j in found.nonzero().tolist()}


def test_tokens_become_words_punctuation_and_special_tokens() -> None:
    one = scene("berries , cat")
    assert one.keys.texts == ("[CLS]", "berries", ",", "cat", "[SEP]")
    assert one.keys.unit_of_token.tolist() == [0, 1, 1, 2, 3, 4]
    assert one.keys.is_word.tolist() == [False, True, False, True, False]


def test_identical_words_in_one_text_and_in_the_other() -> None:
    one = scene("The cat saw the dog", "a cat")
    assert pairs("identical word", one) == {("The", "the"), ("the", "The")}
    assert pairs("identical word, other text", one) == {("cat", "cat")}
    found = targets("identical word, other text", one)
    assert found is not None and found.sum() == 2  # either way


def test_related_word_targets() -> None:
    assert pairs("related word", scene("he walked and walks on straw for berries")) == {
        ("walked", "walks"),
        ("walks", "walked"),
        ("straw", "berries"),
        ("berries", "straw"),
    }


def test_the_neighbour_that_predicts_a_word() -> None:
    assert pairs("predicting word", scene("never straw nor berries")) == {("straw", "berries"), ("berries", "straw")}
    far = pairs("predicting word", scene("straw one two three four berries"))
    assert ("straw", "berries") not in far


def test_causal_queries_see_the_past_alone() -> None:
    assert pairs("related word", scene("straw berries", past=True)) == {("berries", "straw")}


def test_the_rarest_word_and_nouns() -> None:
    one = scene("we eat the w0a zebra here")
    asking = ("we", "eat", "the", "zebra", "here")
    assert pairs("rare word", one) == {*((word, "w0a") for word in asking), ("w0a", "we")}
    assert {key for _, key in pairs("nouns and names", scene("he saw the cat in Paris yesterday"))} == {"cat", "Paris"}


def test_landmarks_exclude_the_query_itself() -> None:
    one = scene("a , b")
    first, delimiter = targets("first token", one), targets("delimiter", one)
    assert first is not None and first.nonzero().tolist() == [[i, 0] for i in range(1, 5)]
    assert delimiter is not None and delimiter[1].nonzero().flatten().tolist() == [0, 2, 4]
    assert delimiter[2].nonzero().flatten().tolist() == [0, 4]


def test_induction_points_behind_the_same_token_in_the_other_half() -> None:
    one = scene("cat berries dog cat berries dog", probe=True)  # [CLS] cat ber ries dog cat ber ries dog [SEP]
    found = targets("induction", one)
    assert found is not None
    assert found.nonzero().tolist() == [[1, 6], [2, 7], [3, 8], [5, 2], [6, 3], [7, 4]]
    assert targets("identical word", one) is None and targets("previous", one) is None
    assert targets("induction", scene("cat dog cat dog")) is None


def test_pairs_of_one_kind_differ_only_in_the_words() -> None:
    one = scene("the cat and the dog", "the cat")
    kinds, words = one.kinds, one.keys.texts
    assert words[:6] == ("[CLS]", "the", "cat", "and", "the", "dog")
    assert kinds[1, 2] == kinds[4, 5]  # the -> the word after it
    assert kinds[1, 2] != kinds[1, 5] and kinds[1, 2] != kinds[1, 8]  # as far as it is, and in which text
    assert kinds[1, 2] != kinds[2, 3]
