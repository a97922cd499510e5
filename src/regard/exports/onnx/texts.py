"""Texts to try a graph with, as ids: sentences of the built-in corpus, or tokens at random where a run had its own."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor

from regard.text import grammar
from regard.text.tokenizers.specials import SpecialIds
from regard.text.tokenizers.tokenizer import Tokenizer

COUNT = 6
FRAMES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {"translation": ((), ("end",)), "language": ((), ())}
USUAL = ("cls",), ("sep",)


def frame(task: str, special: SpecialIds) -> tuple[list[int], list[int]]:
    """The tokens that stand before a text, and those that stand after it."""
    before, after = FRAMES.get(task, USUAL)
    return [special.need(role) for role in before], [special.need(role) for role in after]


def samples(recipe: Any, tokenizer: Tokenizer, longest: int | None) -> list[list[int]]:
    """A few rows of different lengths, framed; none is longer than `longest`."""
    before, after = frame(recipe.task, tokenizer.special)
    room = None if longest is None else longest - len(before) - len(after)
    texts = _sentences(recipe, tokenizer) if recipe.data.kind == "built-in" else _random(len(tokenizer))
    return [[*before, *text[:room], *after] for text in texts]


def padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """ids (B, T) and lengths (B,)."""
    lengths = [len(row) for row in rows]
    return torch.tensor([[*row, *[pad] * (max(lengths) - len(row))] for row in rows]), torch.tensor(lengths)


def _sentences(recipe: Any, tokenizer: Tokenizer) -> list[list[int]]:
    """Of the validation split, in the language that the run reads."""
    said = {str(value) for value in recipe.data.model_dump().values()}
    french = "fr-en" in said or any("french" in value for value in said)
    pairs = grammar.Drawn(grammar.translation, 4 * COUNT, "valid")
    known = [ids for ids in tokenizer.ids_batch([pair.target if french else pair.source for pair in pairs]) if ids]
    one_a_length = {len(ids): ids for ids in known}
    return list(islice(cycle(one_a_length.values()), COUNT))


def _random(vocabulary: int) -> list[list[int]]:
    draw = random.Random(0)
    return [[draw.randrange(vocabulary) for _ in range(length)] for length in range(3, 3 + 2 * COUNT, 2)]
