"""Words as spans: the words of split(), punctuation apart, and the word of every piece."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from regard.text.words import tokenize_words, whitespace_words, word_indices

TEXTS = st.text(alphabet=st.sampled_from("ab é'\u2019-.,!1 \t\n\u0301中語กั\u200d(m"), max_size=40) | st.text(
    max_size=40
)


def shown(text: str) -> list[str]:
    return [text[start:end] for start, end in tokenize_words(text)]


@given(st.text())
def test_whitespace_words_are_those_of_split(text: str) -> None:
    assert [text[start:end] for start, end in whitespace_words(text)] == text.split()


@given(TEXTS)
def test_tokenize_words_splits_each_whitespace_word_without_loss(text: str) -> None:
    spans = tokenize_words(text)
    for start, end in whitespace_words(text):
        inside = [span for span in spans if start <= span[0] < end]
        assert inside[0][0] == start
        assert inside[-1][1] == end
        assert all(left[1] == right[0] for left, right in pairwise(inside))
    assert sum(end - start for start, end in spans) == sum(end - start for start, end in whitespace_words(text))
    assert all(start < end for start, end in spans)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, world!", ["Hello", ",", "world", "!"]),
        ("l'homme L'ami", ["l'", "homme", "L'", "ami"]),
        ("aujourd'hui presqu'île jusqu'à", ["aujourd'hui", "presqu'", "île", "jusqu'", "à"]),
        ("qu\u2019il n'est m' a", ["qu\u2019", "il", "n'", "est", "m'", "a"]),
        ("don't it's rock'n'roll dogs'", ["don't", "it's", "rock'n'roll", "dogs", "'"]),
        ("porte-monnaie -- a-", ["porte-monnaie", "--", "a", "-"]),
        ("3.14, 1,000.", ["3.14", ",", "1,000", "."]),
        ("中文字。", ["中", "文", "字", "。"]),
        ("日本語テスト", list("日本語テスト")),
        ("กี่ไทย", ["กี่", "ไ", "ท", "ย"]),
        ("हिन्दी नमस्ते", ["हिन्दी", "नमस्ते"]),
        ("مرحبا، كيف", ["مرحبا", "،", "كيف"]),
        ("שלום עולם!", ["שלום", "עולם", "!"]),
        ("e\u0301te\u0301!", ["e\u0301te\u0301", "!"]),
        ("GPT2中x", ["GPT2", "中", "x"]),
        ("", []),
    ],
)
def test_separated_words(text: str, words: list[str]) -> None:
    assert shown(text) == words


@given(TEXTS)
def test_every_character_of_a_word_has_its_number(text: str) -> None:
    for splitter in (whitespace_words, tokenize_words):
        words = splitter(text)
        for number, (start, end) in enumerate(words):
            assert set(word_indices(words, [(at, at + 1) for at in range(start, end)])) == {number}


def test_space_counts_with_the_word_that_follows() -> None:
    words = whitespace_words(" a  b ")
    assert word_indices(words, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]) == [0, 0, 1, 1, 1, 2]
