"""Word tokenization: words as character spans of a text, and the word index of each piece."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

Span = tuple[int, int]  # text[start:end]
Splitter = Callable[[str], list[Span]]


def whitespace_words(text: str) -> list[Span]:
    """The spans of `text.split()`: words between white space, as gold alignments count them.

    >>> whitespace_words("Il m' a")
    [(0, 2), (3, 5), (6, 7)]
    """
    return [match.span() for match in _NON_SPACE.finditer(text)]


def tokenize_words(text: str) -> list[Span]:
    """Tokenize into words and punctuation; in scripts written without spaces, every character is a word.

    An elided French word keeps its apostrophe ("l'" + "homme"); other apostrophes and hyphens between letters, and
    points and commas between digits, stay inside ("aujourd'hui", "don't", "porte-monnaie", "3.14").

    >>> [("L'ami (d'ici) ne sait-il pas?")[a:b] for a, b in tokenize_words("L'ami (d'ici) ne sait-il pas?")]
    ["L'", 'ami', '(', "d'", 'ici', ')', 'ne', 'sait-il', 'pas', '?']
    """
    return [span for start, end in whitespace_words(text) for span in _split_run(text, start, end)]


def word_indices(words: Sequence[Span], offsets: Iterable[Span]) -> list[int]:
    """The index of the word each piece belongs to: how many words end at or before the start of the piece.

    So white space belongs to the next word; after the last word its index is the number of words.

    >>> word_indices(whitespace_words("He hit"), [(0, 2), (2, 4), (4, 6)])
    [0, 1, 1]
    """
    ends = [end for _, end in words]
    return [bisect_right(ends, start) for start, _ in offsets]


_NON_SPACE = re.compile(r"\S+")
_ELIDED = re.compile(r"(?:[cdjlmnst]|(?:jus|lors|puis|quoi|quel)?qu|presqu)", re.IGNORECASE)
_APOSTROPHES = "'\u2019"
_HYPHENS = "-\u2010\u2011"
_UNSPACED_SCRIPTS = (  # first and last characters of the blocks of scripts without spaces between words
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x0FFF),  # Tibetan
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # radicals
    (0x3005, 0x3007),  # iteration marks, zero
    (0x3040, 0x31FF),  # kana, bopomofo
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),  # half-width kana
    (0x1B000, 0x1B16F),
    (0x20000, 0x3FFFF),
)


def _split_run(text: str, start: int, end: int) -> list[Span]:
    """Split a run without spaces wherever two neighbours belong to different words."""
    classes = _classes(text[start:end])
    cuts = [0, *(at for at in range(1, end - start) if not _is_same_word(text, start, at, classes)), end - start]
    return [(start + a, start + b) for a, b in pairwise(cuts)]


def _classes(run: str) -> list[str]:
    """The class of each character: letter, digit, sign (a word by itself), punctuation; or mark, as its base."""
    classes: list[str] = []
    for character in run:
        category = unicodedata.category(character)
        if classes and (category[0] == "M" or category == "Cf"):
            classes.append("mark")
        elif any(first <= ord(character) <= last for first, last in _UNSPACED_SCRIPTS) and category[0] in "LMN":
            classes.append("sign")
        else:
            classes.append({"L": "letter", "M": "letter", "N": "digit"}.get(category[0], "punctuation"))
    return classes


def _is_same_word(text: str, start: int, at: int, classes: list[str]) -> bool:
    """Whether the characters at - 1 and at of the run belong to one word."""
    if classes[at] == "mark":
        return True
    left, right = _base_class(classes, at - 1), classes[at]
    before, here = text[start + at - 1], text[start + at]
    if left in _WORDLIKE and right in _WORDLIKE:
        return True
    if right == "punctuation" and left in _WORDLIKE:
        after = classes[at + 1] if at + 1 < len(classes) else ""
        return _binds(here, left, after) or (here in _APOSTROPHES and _is_elided(text, start, at, classes))
    if left == "punctuation" and right in _WORDLIKE:
        into = _base_class(classes, at - 2) if at >= 2 else ""
        return _binds(before, into, right) and not (before in _APOSTROPHES and _is_elided(text, start, at - 1, classes))
    return left == right == "punctuation" and before == here


_WORDLIKE = ("letter", "digit")


def _base_class(classes: list[str], at: int) -> str:
    while classes[at] == "mark":
        at -= 1
    return classes[at]


def _binds(character: str, left: str, right: str) -> bool:
    """Whether punctuation between these neighbours belongs to the word."""
    if character in _APOSTROPHES:
        return left == right == "letter"
    if character in _HYPHENS:
        return left in _WORDLIKE and right in _WORDLIKE
    return character in ".," and left == right == "digit"


def _is_elided(text: str, start: int, at: int, classes: list[str]) -> bool:
    """Whether the letters that end before the apostrophe at `at` are an elided French word."""
    first = at
    while first > 0 and classes[first - 1] in ("letter", "mark"):
        first -= 1
    starts_word = first == 0 or text[start + first - 1] not in _APOSTROPHES  # not the n of rock'n'roll
    return starts_word and _ELIDED.fullmatch(text, start + first, start + at) is not None
