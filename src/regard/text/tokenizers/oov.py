"""Out-of-vocabulary (OOV) words and their temporary ids in an extended vocabulary, so that a model can copy them.

The id is a hash of the spelling. So it is the same in a sentence and in its translation, in every line of a text and in
every process, without a list; two words of one text collide with a probability of about 10^-9. A model compares such
ids, and embeds each as the unknown token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from regard.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

MAX_ID = 2**31 - 1  # ids stay below it


class OovEncoding(NamedTuple):
    """The ids of a text, beyond the vocabulary for OOV words, and the spellings of those."""

    ids: list[int]
    spellings: dict[int, str]


def encode_with_oov(tokenizer: Tokenizer, texts: Sequence[str]) -> list[OovEncoding]:
    """Encode texts with an id of its own for each OOV word.

    >>> encode_with_oov(tokenizer, ["Ms. Yellen raised rates ."])
    [OovEncoding(ids=[11, 1650614882, 301, 302, 4], spellings={1650614882: 'Yellen'})]
    """
    unknown, size = tokenizer.special.unknown, len(tokenizer)
    found = []
    for encoding in tokenizer.encode_batch(texts):
        ids, spellings = list(encoding.ids), {}
        for place in (at for at, number in enumerate(ids) if number == unknown):
            start, end = encoding.offsets[place]
            word = encoding.text[start:end]
            ids[place] = oov_id(word, size)
            spellings[ids[place]] = word
        found.append(OovEncoding(ids, spellings))
    return found


def oov_id(word: str, size: int) -> int:
    """The id of an OOV word, for a vocabulary of this size."""
    digest = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")
    return size + digest % (MAX_ID - size)


def compact_oov(ids: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Renumber OOV ids consecutively from `size` on; also returns the table of the original ids, (extra,).

    A distribution over the vocabulary and them is then `size + len(table)` wide.
    """
    import torch  # here: tokenizing does not need torch

    table = ids[ids >= size].unique()
    return torch.where(ids >= size, size + torch.searchsorted(table, ids.contiguous()), ids), table


def decode_with_oov(
    tokenizer: Tokenizer, ids: Sequence[int], spellings: Mapping[int, str] | None = None, unknown: str | None = None
) -> str:
    """Decode ids with OOV words as spelled; without a known spelling, as ⟨number⟩.

    `unknown`: the text of the unknown token; by default it is left out.
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
