"""Trainings small enough to be run many times in a test: a classifier with dropout, a recurrent model that carries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.text.batches.batch import Batch, BlockBatch, LabelledBatch
from regard.text.batches.buckets import Buckets
from regard.text.batches.collate import LabelCollator
from regard.text.batches.lm_batches import BlockCollator, Lanes, TokenStream
from regard.text.batches.plan import Batches
from regard.text.store.columns import Columns, RaggedArray
from regard.text.tokenizers.specials import SpecialIds
from regard.training.metrics import CorpusScore
from regard.training.objectives.base import Better, Carry, ExampleOutput, Loss, MetricSums
from regard.training.recipe import PreparedTask, Recipe

SPECIAL = SpecialIds(pad=0, cls=1, sep=2)
VOCABULARY, CLASSES = 20, 3


class Bag(nn.Module):
    """The mean of the words, with dropout, so that chance matters."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(VOCABULARY, width), nn.Linear(width, CLASSES)
        self.layers = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width)])
        self.dropout = nn.Dropout(0.2)

    def forward(self, inputs: Tensor) -> Tensor:
        real = (inputs != SPECIAL.need("pad")).float()[..., None]
        x = (self.dropout(self.words(inputs)) * real).sum(1) / real.sum(1)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.out(x)


class Guess:
    """Which class? The label is the remainder of the sum of the words."""

    metrics: Mapping[str, Better] = {"loss": "lower", "accuracy": "higher", "length": "higher"}

    def loss(self, model: nn.Module, batch: LabelledBatch, carry: Carry | None) -> Loss:
        return Loss(functional.cross_entropy(model(batch.inputs), batch.labels, reduction="sum"))

    def measure(self, model: nn.Module, batch: LabelledBatch, carry: Carry | None) -> MetricSums:
        logits = model(batch.inputs)
        nll = functional.cross_entropy(logits, batch.labels, reduction="sum").double()
        right = (logits.argmax(-1) == batch.labels).sum().double()
        return MetricSums({"nll": nll, "right": right, "rows": torch.tensor(float(len(batch)))})

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        return {"loss": float(sums["nll"] / sums["rows"]), "accuracy": float(sums["right"] / sums["rows"])}

    def outputs(self, model: nn.Module, batch: LabelledBatch) -> list[ExampleOutput]:
        torch.rand(3)  # one who is careless with chance
        guesses = model(batch.inputs).argmax(-1)
        rows = zip(batch.indices, batch.inputs, guesses, batch.labels, strict=True)
        return [ExampleOutput(int(i), str(x[x > 0].tolist()), str(int(y)), str(int(label))) for i, x, y, label in rows]

    def text_metrics(self, outputs: Sequence[ExampleOutput]) -> dict[str, CorpusScore]:
        return {"length": CorpusScore(float(np.mean([len(one.given) for one in outputs])), "mean|characters")}


def columns(count: int, seed: int) -> Columns:
    random = np.random.default_rng(seed)
    texts = [random.integers(3, VOCABULARY, size=random.integers(2, 7)) for _ in range(count)]
    labels = [[int(text.sum()) % CLASSES] for text in texts]
    return Columns({"text": RaggedArray.of(texts, np.uint16), "label": RaggedArray.of(labels, np.uint16)})


def recipe(**sections: Any) -> Recipe:
    """A recipe of 12 steps; sections as in a file: train={"steps": 3}."""
    base: dict[str, dict[str, Any]] = {
        "train": {"steps": 12, "seed": 5, "prefetch": 0},
        "evaluate": {"every": 4},
        "checkpoint": {"every": 3, "keep_last": 2},
        "log": {"every": 2},
    }
    merged = {name: {**base.get(name, {}), **sections.get(name, {})} for name in {**base, **sections}}
    return Recipe.model_validate({"task": "little", "name": "little", **merged})


def little(plan: Recipe | None = None, rank: int = 0, ranks: int = 1, rows: int = 8) -> PreparedTask:
    """A classifier of 60 texts, 24 of them held out."""
    plan = plan or recipe()
    train, valid = columns(60, 0), columns(24, 1)

    def batches(data: Columns, rank: int, ranks: int) -> Batches[LabelledBatch]:
        collate = LabelCollator(data, SPECIAL)
        return Batches(Buckets(collate.lengths, 1000, rows), collate, plan.train.seed, rank, ranks, plan.train.prefetch)

    def held_out(rank: int, ranks: int) -> Iterable[Batch]:
        return batches(valid, rank, ranks)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = Bag()
    return PreparedTask(plan, model, Guess(), batches(train, rank, ranks), held_out)


class Reader(nn.Module):
    """A recurrent model: (B, T) and a state (B, H) to logits (B, T, V) and the next state."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell, self.out = nn.Embedding(VOCABULARY, 6), nn.GRU(6, 6, batch_first=True), nn.Linear(6, 20)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        states, last = self.cell(self.words(inputs), state[None])
        return self.out(states), last[0]


class Continue:
    """The next token, with the state of the lane carried from batch to batch."""

    metrics: Mapping[str, Better] = {"loss": "lower"}

    def loss(self, model: nn.Module, batch: BlockBatch, carry: Carry | None) -> Loss:
        state = carry["state"] if carry is not None and batch.carried else torch.zeros(len(batch), 6)
        logits, last = model(batch.inputs, state)
        return Loss(
            functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="sum"), {"state": last}
        )

    def measure(self, model: nn.Module, batch: BlockBatch, carry: Carry | None) -> MetricSums:
        got = self.loss(model, batch, carry)
        return MetricSums({"nll": got.total, "tokens": torch.tensor(float(batch.tokens))}, got.carry)

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        return {"loss": float(sums["nll"] / sums["tokens"])}

    def outputs(self, model: nn.Module, batch: BlockBatch) -> list[ExampleOutput]:
        return []

    def text_metrics(self, outputs: Sequence[ExampleOutput]) -> dict[str, CorpusScore]:
        return {}


def reading(plan: Recipe | None = None, rank: int = 0, ranks: int = 1) -> PreparedTask:
    """A recurrent model over four lanes of a stream."""
    plan = plan or recipe()
    stream = TokenStream.plain(
        Columns({"text": RaggedArray.of([np.random.default_rng(7).integers(3, 20, size=400)], np.uint16)})
    )

    def batches(rank: int, ranks: int) -> Batches[BlockBatch]:
        return Batches(Lanes(stream, size=10, lanes=4), BlockCollator(stream), plan.train.seed, rank, ranks)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = Reader()
    return PreparedTask(plan, model, Continue(), batches(rank, ranks), batches)
