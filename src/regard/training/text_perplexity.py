"""Score a text with a trained language model: perplexity and bits per character, optionally with a neural cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.errors import SettingError
from regard.models import NeuralCache
from regard.runs import Run
from regard.text import (
    Batches,
    BatchPlan,
    BlockBatch,
    BlockCollator,
    DocumentFields,
    Lanes,
    RawText,
    TokenBlocks,
    TokenStream,
    encode_columns,
)
from regard.training.objectives.base import Carry
from regard.training.objectives.lm import CausalLMObjective
from regard.training.objectives.stateful_lm import StatefulLMObjective
from regard.training.tasks.language import GPTModel, LanguageRecipe
from regard.training.train_run import load_recipe

PARALLEL_ROWS = 32  # blocks of text that a model without a state reads at once


@dataclass(frozen=True)
class NeuralCacheSettings:
    """A neural cache of `size` positions (Grave et al. 2017); models/neural_cache.py explains flatness and share."""

    size: int
    flatness: float = 1.0
    share: float = 0.1


def score_text(
    folder: str | os.PathLike[str], path: Path, cache: NeuralCacheSettings | None = None
) -> dict[str, float]:
    """The metrics of a run's language model on a text file; with `cache`, of the model with a neural cache."""
    run = Run.open(folder)
    run.expect_task("language")
    recipe = load_recipe(run)
    assert isinstance(recipe, LanguageRecipe)
    model, tokenizer = run.model(), run.tokenizer
    is_open = recipe.has_open_vocabulary or cache is not None
    text = RawText(path)
    stream = TokenStream.plain(encode_columns(text, DocumentFields(tokenizer, open_vocabulary=is_open)))
    characters_per_token = sum(map(len, text.lines())) / max(1, len(stream) - 1)
    length = recipe.batches.sequence_length
    settings = (tokenizer, characters_per_token, length)
    if isinstance(recipe.model, GPTModel):
        if cache is not None:
            raise SettingError(
                "A neural cache needs a recurrent language model, and this run has a gpt", where="--cache-size"
            )
        plan: BatchPlan = TokenBlocks(stream, length, PARALLEL_ROWS)
        objective = CausalLMObjective(*settings)
    else:
        model = model if cache is None else NeuralCache(model, cache.size, cache.flatness, cache.share)
        plan, objective = Lanes(stream, length, 1), StatefulLMObjective(*settings, open_vocabulary=is_open)
    batches: Batches[BlockBatch] = Batches(plan, BlockCollator(stream, tokenizer.special.pad or 0))
    return objective.summary(_sums(objective, model.eval(), iter(batches)))


@torch.no_grad()
def _sums(objective: CausalLMObjective, model: nn.Module, batches: Iterator[BlockBatch]) -> dict[str, Tensor]:
    sums: dict[str, Tensor] = {}
    carry: Carry | None = None
    for batch in batches:
        measured = objective.measure(model, batch, carry)
        carry = measured.carry
        for name, value in measured.sums.items():
            sums[name] = sums[name] + value if name in sums else value
    return sums
