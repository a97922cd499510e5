"""What the grammar draws it can read, and nothing else."""

from __future__ import annotations

import pytest

from benchmark import benchmark
from regard.errors import SettingError
from regard.text.grammar.rng import GrammarRng
from regard.text.grammar.stories import story, story_sentence

reads = benchmark("grammar_recogniser").reads


def sentences(seed: str, stories: int) -> list[tuple[str, ...]]:
    rng = GrammarRng(seed)
    return [sentence.source for _ in range(stories) for sentence in story(rng)]


def test_every_sentence_of_a_story_is_read():
    drawn = sentences("reading", 15)
    assert len(drawn) > 60
    assert [sentence for sentence in drawn if not reads(sentence, story_sentence)] == []


def test_a_single_sentence_is_one_of_a_story_and_is_read():
    rng = GrammarRng("alone")
    assert all(reads(story_sentence(rng).source, story_sentence) for _ in range(40))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("She sold it .", "She sell it ."),
        ("Mr. Lamnard lived in Landorf .", "Mr. Lamnard lived Landorf in ."),
        ("He bought another warm boot .", "He bought another warm boots ."),
        ("Ms. Galson was arresting him .", "Ms. Galson were arresting him ."),
        ("Yesterday , Mr. Lamnard was a musician .", "Yesterday Mr. Lamnard was a musician ."),
        ("He did not work at the airport .", "He not worked at the airport ."),
        ("The butter was delicious .", "The butters was delicious ."),
    ],
)
def test_a_word_makes_the_difference(right: str, wrong: str):
    assert reads(right.split(), story_sentence)
    assert not reads(wrong.split(), story_sentence)


def test_words_in_another_order_are_another_sentence():
    drawn = [sentence for sentence in sentences("order", 4) if len(sentence) < 9]
    turned = [(*sentence[1:-1], sentence[0], sentence[-1]) for sentence in drawn]
    assert not any(reads(sentence, story_sentence) for sentence in turned)


@pytest.mark.parametrize("words", [(), (".",), ("Nobody", "knows", "."), ("sold",)])
def test_what_is_no_sentence_is_not_read(words: tuple[str, ...]):
    assert not reads(words, story_sentence)


def test_one_that_takes_too_long_is_neither_right_nor_wrong():
    with pytest.raises(SettingError, match="settled in 2 ways"):
        reads("She never sold it .".split(), story_sentence, most=2)


def test_drawing_is_not_disturbed_by_those_who_listen():
    heard: list[str] = []
    rng, other = GrammarRng("same"), GrammarRng("same")
    rng.emit = lambda slots: heard.extend(slot[0].form for slot in slots)
    assert [sentence.source for sentence in story(rng)] == [sentence.source for sentence in story(other)]
    assert heard
