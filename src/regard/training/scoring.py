"""How well a trained language model knows a text: perplexity and bits per character, read on from its first line."""

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
from regard.text import Batches, BlockBatch, Blocks, DocumentFields, Lanes, Plan, Read, Running, Stream, columns_of
from regard.training.objectives.base import Carry
from regard.training.objectives.lm import PredictNext
from regard.training.objectives.stateful_lm import ReadOn
from regard.training.run import recorded
from regard.training.tasks.language import Gpt, Language

ROWS = 32  # stretches that a model without a state reads at once


@dataclass(frozen=True)
class Cache:
    """A neural cache of `size` places (Grave et al. 2017); see models.cache for flatness and share."""

    size: int
    flatness: float = 1.0
    share: float = 0.1


def score_text(folder: str | os.PathLike[str], path: Path, cache: Cache | None = None) -> dict[str, float]:
    """The metrics of a run's language model on a file of text; with `cache`, of the model with a neural cache."""
    run = Run.open(folder)
    run.expect_task("language")
    recipe = recorded(run)
    assert isinstance(recipe, Language)
    model, tokenizer = run.model(), run.tokenizer
    opened = recipe.open or cache is not None
    text = Running(path)
    stream = Stream.plain(columns_of(text, DocumentFields(tokenizer, open=opened)))
    characters = sum(map(len, text.lines())) / max(1, len(stream) - 1)
    told = (tokenizer, characters, recipe.batches.size)
    if isinstance(recipe.model, Gpt):
        if cache is not None:
            raise SettingError("a neural cache for a gpt", "a recurrent language model", where="--cache")
        plan: Plan = Blocks(stream, recipe.batches.size, ROWS)
        objective = PredictNext(*told)
    else:
        model = model if cache is None else NeuralCache(model, cache.size, cache.flatness, cache.share)
        plan, objective = Lanes(stream, recipe.batches.size, 1), ReadOn(*told, open=opened)
    batches = Batches(plan, Read(stream, tokenizer.special.pad or 0))
    return objective.summary(_sums(objective, model.eval(), iter(batches)))


@torch.no_grad()
def _sums(objective: PredictNext, model: nn.Module, batches: Iterator[BlockBatch]) -> dict[str, Tensor]:
    sums: dict[str, Tensor] = {}
    carry: Carry | None = None
    for batch in batches:
        got = objective.measure(model, batch, carry)
        carry = got.carry
        for name, value in got.sums.items():
            sums[name] = sums[name] + value if name in sums else value
    return sums
