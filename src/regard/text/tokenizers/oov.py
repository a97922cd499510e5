"""Words outside the vocabulary, kept apart: each has a number of its own, beyond the vocabulary, so it can be copied.

The number is a hash of the spelling. So it is the same in a sentence and in its translation, in every line of a text,
in every process, and nobody keeps a list; two words of one text share one with a chance of about one in 10^9.
A model compares such numbers, and reads each of them as the unknown token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from regard.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

MOST = 2**31 - 1  # ids stay below it


class Opened(NamedTuple):
    """The ids of a text, beyond the vocabulary where a word is unknown, and how those are spelled."""

    ids: list[int]
    spellings: dict[int, str]


def opened(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Opened]:
    """The ids of texts in which no unknown word is the same as another.

    >>> opened(tokenizer, ["Ms. Yellen raised rates ."])
    [Opened(ids=[11, 1650614882, 301, 302, 4], spellings={1650614882: 'Yellen'})]
    """
    unknown, size = tokenizer.special.unknown, len(tokenizer)
    found = []
    for encoding in tokenizer.encode_batch(texts):
        ids, spellings = list(encoding.ids), {}
        for place in (at for at, number in enumerate(ids) if number == unknown):
            start, end = encoding.offsets[place]
            word = encoding.text[start:end]
            ids[place] = number_of(word, size)
            spellings[ids[place]] = word
        found.append(Opened(ids, spellings))
    return found


def number_of(word: str, size: int) -> int:
    """The id of a word that a vocabulary of this size does not have."""
    digest = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")
    return size + digest % (MOST - size)


def compacted(ids: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """ids with the ones beyond the vocabulary counted from `size` on, and the table of what was there, (extra,).

    So that a distribution over the vocabulary and them is `size + len(table)` wide.
    """
    import torch  # here, because who tokenises needs none

    table = ids[ids >= size].unique()
    return torch.where(ids >= size, size + torch.searchsorted(table, ids.contiguous()), ids), table


def spelled(
    tokenizer: Tokenizer, ids: Sequence[int], spellings: Mapping[int, str] | None = None, unknown: str | None = None
) -> str:
    """The text of ids, words outside the vocabulary as they are spelled; those that nobody knows as ⟨number⟩.

    `unknown`: what stands for the unknown token, which is left out unless told.
    """
    size = len(tokenizer)
    named = {tokenizer.special.unknown: unknown} if unknown is not None else {}
    if all(number < size and number not in named for number in ids):
        return tokenizer.decode(ids)
    parts: list[str] = []
    for apart, run in groupby(ids, key=lambda number: number >= size or number in named):
        if not apart:
            parts.append(tokenizer.decode(list(run)))
            continue
        parts += (named.get(number) or (spellings or {}).get(number, f"⟨{number - size}⟩") for number in run)
    return " ".join(part.strip() for part in parts)
