"""Sample inputs to verify a graph with: sentences of the built-in corpus, or random ids where a run has its own."""

from __future__ import annotations

import random
from itertools import cycle, islice
from typing import Any

from regard.adapters import ModelAdapter
from regard.text import Tokenizer, grammar

COUNT = 6


def samples(recipe: Any, adapter: ModelAdapter) -> list[list[int]]:
    """A few rows of different lengths, in their frame; none is longer than the model reads."""
    (before, after), tokenizer = adapter.special_tokens, adapter.tokenizers[0]
    room = None if adapter.max_length is None else adapter.max_length - len(before) - len(after)
    texts = _sentences(recipe, tokenizer) if recipe.data.kind == "built-in" else _random(len(tokenizer))
    return [[*before, *text[:room], *after] for text in texts]


def _sentences(recipe: Any, tokenizer: Tokenizer) -> list[list[int]]:
    """Of the validation split, in the language that the run reads."""
    settings = {str(value) for value in recipe.data.model_dump().values()}
    french = "fr-en" in settings or any("french" in value for value in settings)
    pairs = grammar.GeneratedCorpus(grammar.translation, 4 * COUNT, "valid")
    known = [ids for ids in tokenizer.ids_batch([pair.target if french else pair.source for pair in pairs]) if ids]
    one_a_length = {len(ids): ids for ids in known}
    return list(islice(cycle(one_a_length.values()), COUNT))


def _random(vocabulary: int) -> list[list[int]]:
    draw = random.Random(0)
    return [[draw.randrange(vocabulary) for _ in range(length)] for length in range(3, 3 + 2 * COUNT, 2)]
