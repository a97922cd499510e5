"""How words are spelled, as numbers: the bytes of each, between a sign that it begins and a sign that it ends.

Bytes need no list of letters, so a word in any script, seen or not, has a spelling (Peters et al. 2018 read them too).
A special token is one sign of its own, which no text contains.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.errors import SettingError
from regard.text.tokenizers.tokenizer import Tokenizer

PAD, BEGIN, END, SPECIAL = 0, 257, 258, 259  # byte b is the sign b + 1; special tokens count from SPECIAL on
SPACE = "▁"  # what a piece that begins a word begins with
LONGEST = 32  # signs of a word; a longer one loses its end


def spelled_words(words: Sequence[str], longest: int = LONGEST) -> Tensor:
    """(N, C) int16: the signs of each word, then padding; C as the longest of them needs.

    >>> spelled_words(["cat"])
    tensor([[257, 100,  98, 117, 258]], dtype=torch.int16)
    """
    return _table([_signs(word, longest, begins=True) for word in words])


def spelled_vocabulary(tokenizer: Tokenizer, longest: int = LONGEST) -> Tensor:
    """(V, C) int16: the signs of every piece; one that goes on with a word does not begin with BEGIN."""
    specials = {number: SPECIAL + place for place, number in enumerate(sorted(tokenizer.special.all))}
    rows = []
    for number in range(len(tokenizer)):
        if number in specials:
            rows.append([BEGIN, specials[number], END])
        else:
            piece = tokenizer.token(number)
            rows.append(_signs(piece.removeprefix(SPACE), longest, begins=piece.startswith(SPACE)))
    return _table(rows)


def _signs(text: str, longest: int, begins: bool) -> list[int]:
    if longest < 3:
        raise SettingError(f"longest={longest}", "at least 3: a letter between two signs", where="spelling")
    start = [BEGIN] if begins else []
    return [*start, *(byte + 1 for byte in text.encode()[: longest - 1 - len(start)]), END]


def _table(rows: Sequence[Sequence[int]]) -> Tensor:
    table = torch.full((len(rows), max(map(len, rows), default=1)), PAD, dtype=torch.int16)
    for row, signs in zip(table, rows, strict=True):
        row[: len(signs)] = torch.tensor(signs, dtype=torch.int16)
    return table
