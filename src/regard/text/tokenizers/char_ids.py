"""Character ids of words, for a character CNN: the UTF-8 bytes between a begin sign and an end sign.

Bytes need no alphabet, so every word in any script has a spelling (Peters et al. 2018 do the same). A special token
is a single sign, which no text contains.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.errors import SettingError
from regard.text.tokenizers.tokenizer import Tokenizer

# byte b is id b + 1; special tokens count from CHAR_SPECIAL on
CHAR_PAD, CHAR_BEGIN, CHAR_END, CHAR_SPECIAL = 0, 257, 258, 259
SPACE = "▁"  # the first character of a piece that begins a word
MAX_CHARS = 32  # of a word; longer ones are truncated


def spell_words(words: Sequence[str], max_chars: int = MAX_CHARS) -> Tensor:
    """(N, C) int16: the character ids of each word, padded to the longest.

    >>> spell_words(["cat"])
    tensor([[257, 100,  98, 117, 258]], dtype=torch.int16)
    """
    return _pad_char_ids([_char_ids(word, max_chars, begins=True) for word in words])


def spell_vocabulary(tokenizer: Tokenizer, max_chars: int = MAX_CHARS) -> Tensor:
    """(V, C) int16: the character ids of every piece; a piece inside a word has no begin sign."""
    specials = {number: CHAR_SPECIAL + place for place, number in enumerate(sorted(tokenizer.special.all))}
    rows = []
    for number in range(len(tokenizer)):
        if number in specials:
            rows.append([CHAR_BEGIN, specials[number], CHAR_END])
        else:
            piece = tokenizer.token(number)
            rows.append(_char_ids(piece.removeprefix(SPACE), max_chars, begins=piece.startswith(SPACE)))
    return _pad_char_ids(rows)


def _char_ids(text: str, max_chars: int, begins: bool) -> list[int]:
    if max_chars < 3:
        raise SettingError(f"max_chars={max_chars}", "at least 3: a byte between two signs", where="char_ids")
    start = [CHAR_BEGIN] if begins else []
    return [*start, *(byte + 1 for byte in text.encode()[: max_chars - 1 - len(start)]), CHAR_END]


def _pad_char_ids(rows: Sequence[Sequence[int]]) -> Tensor:
    table = torch.full((len(rows), max(map(len, rows), default=1)), CHAR_PAD, dtype=torch.int16)
    for row, signs in zip(table, rows, strict=True):
        row[: len(signs)] = torch.tensor(signs, dtype=torch.int16)
    return table
