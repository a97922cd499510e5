"""Co-occurring words, stems, and nouns by a rule of known accuracy."""

from __future__ import annotations

from math import log

import pytest

from regard.inspection.atlas.head_atlas import LENGTHS, induction_probes
from regard.inspection.atlas.passages import Passage
from regard.inspection.atlas.word_statistics import (
    MIN_PMI,
    count_words,
    evaluate_noun_rule,
    guess_nouns,
    is_function,
    stem,
    words_of,
)
from regard.text import grammar

FILL = [Passage(" ".join(f"x{number}{at}" for at in range(20))) for number in range(50)]
TEXTS = [*FILL, *[Passage("he eats straw berries today") for _ in range(6)], Passage("red berries")]


def test_pmi_is_its_formula() -> None:
    found = count_words(TEXTS)
    total = 50 * 20 + 6 * 5 + 2
    assert found.counts.total() == total
    assert found.predicts("berries", "straw") == pytest.approx(log(6 / (6 * 7 * 6 / total)))
    assert found.predicts("straw", "berries") == found.predicts("berries", "straw") > MIN_PMI
    assert found.predicts("red", "berries") == 0  # once is too little


def test_only_open_class_words_are_related() -> None:
    found = count_words(TEXTS)
    assert found.related("straw") == {"eats", "berries"}
    assert found.related("he") == frozenset()
    assert is_function("today") and not is_function("straw")


def test_words_that_cooccur_across_two_texts_are_related() -> None:
    names = ["chien", "chat", "maison", "pain", "arbre", "route"]
    pairs = [Passage(f"{word}z", word) for word in names for _ in range(8)]
    found = count_words(pairs)
    assert all(found.related(word) == {f"{word}z"} for word in names)


@pytest.mark.parametrize(
    ("words", "root"),
    [("walk walks walked walking walker", "walk"), ("stop stopped stopping stops", "stop"), ("city cities", "city")],
)
def test_forms_of_a_word_have_one_stem(words: str, root: str) -> None:
    assert {stem(word) for word in words.split()} == {stem(root)}


def test_other_words_have_other_stems() -> None:
    assert (
        len({stem(word) for word in "cat car care bus busy house mouse thing king red".split()}) == 10 - 1
    )  # car, care


def test_words_have_no_punctuation() -> None:
    assert words_of("Don't stop, he said: 3.5!") == ["don't", "stop", "he", "said", "3.5"]


def test_nouns_by_their_context() -> None:
    words = "The very old judge did not see Mary in the small town .".split()
    assert [word for word, noun in zip(words, guess_nouns(words), strict=True) if noun] == ["judge", "Mary", "town"]
    words = "The dentist cuts a tree .".split()
    assert [word for word, noun in zip(words, guess_nouns(words), strict=True) if noun] == ["dentist", "tree"]
    assert guess_nouns([]) == []


def test_the_accuracy_of_the_noun_rule_is_that_of_the_docs() -> None:
    english = evaluate_noun_rule(grammar.GeneratedCorpus(grammar.tagged, 300, "test"))
    assert english.precision > 0.82 and english.recall > 0.68
    french = evaluate_noun_rule(grammar.GeneratedCorpus(grammar.tagged_french, 300, "test"))
    assert french.precision > 0.55 and french.recall > 0.55


def test_probes_repeat_their_words_at_many_distances() -> None:
    known = count_words([Passage(" ".join(f"w{number}" for number in range(30)))] * 6)
    found = induction_probes(known, pairs=True)
    for one in found:
        words = one.text.split()
        half = len(words) // 2
        assert words[:half] == words[half:] and len(set(words)) == half and one.probe and one.other == one.text
    assert {len(one.text.split()) // 2 for one in found} <= set(range(LENGTHS[0], LENGTHS[1] + 1))
    assert len({len(one.text.split()) for one in found}) > 4
    assert induction_probes(known, pairs=False)[0].other is None
    assert (
        induction_probes(known, pairs=False)
        == induction_probes(known, pairs=False)
        != induction_probes(known, pairs=False, seed=1)
    )
