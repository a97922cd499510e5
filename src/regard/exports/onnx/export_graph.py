"""The ONNX graph of a model: what goes in and comes out by name, and its file, written by torch.export."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from regard.errors import CheckpointError
from regard.exports.onnx.tracing import traceable
from regard.models import ELMo, MaskedLM, OnText, OnTokens, PoolingClassifier, RecurrentLM, Tagger

Axes = tuple[str, ...]
Ask = Callable[..., tuple[Tensor, ...]]
TEXT: dict[str, Axes] = {"ids": ("batch", "length"), "lengths": ("batch",)}
PAIR: dict[str, Axes] = {**TEXT, "segments": ("batch", "length")}


@dataclass(frozen=True, eq=False)
class Graph:
    """A module to be drawn, tensors to draw it with, and what goes in and comes out.

    `inputs` name the leading dimensions that are free, which are of the same size wherever they have the same name.
    """

    file: str
    module: nn.Module
    examples: tuple[Tensor, ...]
    inputs: dict[str, Axes]
    outputs: tuple[str, ...]


class Asked(nn.Module):
    """A model with what is asked of it: a function (model, *inputs) -> outputs."""

    def __init__(self, model: nn.Module, ask: Ask) -> None:
        super().__init__()
        self.model, self.ask = model, ask

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.ask(self.model, *inputs)


def _guesses(model: Any, ids: Tensor, lengths: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
    states = model.bert(ids, lengths, segments)
    return states, model.guess(states, model.bert.words)


def _logits(model: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
    return (model(*inputs),)


def _next(model: Any, ids: Tensor) -> tuple[Tensor, ...]:
    layers = model.recurrence
    fresh = model.words.embedding.weight.new_zeros(ids.size(0), layers.layers.num_layers, layers.hidden)
    return (model(ids, carry=dict.fromkeys(layers.names, fresh))[0].logits,)


def _neighbours(model: Any, ids: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    states = model.states(ids, lengths)
    forth, back = states[:, -1].chunk(2, -1)
    return states, model.output(forth), model.output(back)


KINDS: dict[type[nn.Module], tuple[Ask, dict[str, Axes], tuple[str, ...]]] = {
    MaskedLM: (_guesses, PAIR, ("states", "logits")),
    OnText: (_logits, PAIR, ("logits",)),
    OnTokens: (_logits, TEXT, ("logits",)),
    PoolingClassifier: (_logits, TEXT, ("logits",)),
    Tagger: (_logits, TEXT, ("logits",)),
    ELMo: (_neighbours, TEXT, ("states", "after", "before")),
    RecurrentLM: (_next, {"ids": ("batch", "length")}, ("logits",)),
}


def asked(model: nn.Module) -> Asked:
    """What the graph of a model is to say, computed here."""
    return Asked(model, KINDS[type(model)][0])


def whole(model: nn.Module) -> Graph:
    """The one graph of a model that reads."""
    ask, inputs, outputs = KINDS[type(model)]
    rows, columns = example()
    given = {"ids": rows, "lengths": columns, "segments": torch.zeros_like(rows)}
    drawn = Asked(traceable(model), ask)
    return Graph("model.onnx", drawn, tuple(given[name] for name in inputs), inputs, outputs)


def example() -> tuple[Tensor, Tensor]:
    """ids (3, 5) and lengths (3,): of sizes that no other dimension is likely to be taken for."""
    return torch.arange(15).reshape(3, 5) % 4, torch.tensor([5, 2, 4])


def draw(graph: Graph, folder: Path, longest: int | None = None) -> None:
    """Write a graph; `longest`: how long a text may be, where there is a limit."""
    dims = {"batch": Dim("batch", min=1), "length": Dim("length", min=1, max=longest)}
    shapes = tuple({at: dims[name] for at, name in enumerate(axes)} for axes in graph.inputs.values())
    with torch.no_grad(), _silence():
        # a dimension that turns out not to be free is an error here, and a fixed number in torch.onnx.export alone
        followed = torch.export.export(graph.module.eval(), graph.examples, dynamic_shapes=(shapes,), strict=False)
        program = torch.onnx.export(
            followed,
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamo=True,
            verbose=False,
        )
    if program is None:
        raise CheckpointError("nothing from torch.onnx.export", "a graph", where=f"{folder / graph.file}")
    program.save(folder / graph.file)


@contextmanager
def _silence() -> Iterator[None]:
    """The exporter tells of its own ways, at length; what goes wrong it raises."""
    loud = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(loud)
