"""The ONNX graph of a model: its inputs and outputs by name, and its file, written by torch.export."""

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
from regard.exports.onnx.tracing import make_traceable
from regard.models import ELMo, MaskedLM, PoolingClassifier, RecurrentLM, SequenceClassifier, Tagger, TokenClassifier

Axes = tuple[str, ...]
OutputFunction = Callable[..., tuple[Tensor, ...]]
TEXT: dict[str, Axes] = {"ids": ("batch", "length"), "lengths": ("batch",)}
PAIR: dict[str, Axes] = {**TEXT, "segments": ("batch", "length")}


@dataclass(frozen=True, eq=False)
class Graph:
    """A module to export, example inputs, and the names of inputs and outputs.

    `inputs` name the dynamic leading dimensions; equal names are equal sizes.
    """

    file: str
    module: nn.Module
    examples: tuple[Tensor, ...]
    inputs: dict[str, Axes]
    outputs: tuple[str, ...]


class GraphModule(nn.Module):
    """A model and the function (model, *inputs) -> outputs that a graph computes."""

    def __init__(self, model: nn.Module, outputs: OutputFunction) -> None:
        super().__init__()
        self.model, self.outputs = model, outputs

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.outputs(self.model, *inputs)


def _masked_lm_outputs(model: Any, ids: Tensor, lengths: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
    states = model.bert(ids, lengths, segments)
    return states, model.lm_head(states, model.bert.words)


def _logits_output(model: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
    return (model(*inputs),)


def _rnn_lm_outputs(model: Any, ids: Tensor) -> tuple[Tensor, ...]:
    rnn = model.rnn
    zeros = model.words.embedding.weight.new_zeros(ids.size(0), rnn.layers.num_layers, rnn.hidden)
    return (model(ids, carry=dict.fromkeys(rnn.names, zeros))[0].logits,)


def _elmo_outputs(model: Any, ids: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    states = model.states(ids, lengths)
    forward, backward = states[:, -1].chunk(2, -1)
    return states, model.output(forward), model.output(backward)


KINDS: dict[type[nn.Module], tuple[OutputFunction, dict[str, Axes], tuple[str, ...]]] = {
    MaskedLM: (_masked_lm_outputs, PAIR, ("states", "logits")),
    SequenceClassifier: (_logits_output, PAIR, ("logits",)),
    TokenClassifier: (_logits_output, TEXT, ("logits",)),
    PoolingClassifier: (_logits_output, TEXT, ("logits",)),
    Tagger: (_logits_output, TEXT, ("logits",)),
    ELMo: (_elmo_outputs, TEXT, ("states", "after", "before")),
    RecurrentLM: (_rnn_lm_outputs, {"ids": ("batch", "length")}, ("logits",)),
}


def graph_module(model: nn.Module) -> GraphModule:
    """The module that a model's graph is exported from."""
    return GraphModule(model, KINDS[type(model)][0])


def single_graph(model: nn.Module) -> Graph:
    """The graph of a model that is exported as one."""
    compute, inputs, outputs = KINDS[type(model)]
    ids, lengths = example_inputs()
    given = {"ids": ids, "lengths": lengths, "segments": torch.zeros_like(ids)}
    module = GraphModule(make_traceable(model), compute)
    return Graph("model.onnx", module, tuple(given[name] for name in inputs), inputs, outputs)


def example_inputs() -> tuple[Tensor, Tensor]:
    """ids (3, 5) and lengths (3,): of sizes that are unlikely to equal another dimension."""
    return torch.arange(15).reshape(3, 5) % 4, torch.tensor([5, 2, 4])


def write_graph(graph: Graph, folder: Path, max_length: int | None = None) -> None:
    """Write a graph; `max_length`: of a text, where there is a limit."""
    dims = {"batch": Dim("batch", min=1), "length": Dim("length", min=1, max=max_length)}
    shapes = tuple({at: dims[name] for at, name in enumerate(axes)} for axes in graph.inputs.values())
    with torch.no_grad(), _silence_exporter():
        # a dimension that turns out not to be dynamic is an error here, but becomes a constant in torch.onnx.export
        exported = torch.export.export(graph.module.eval(), graph.examples, dynamic_shapes=(shapes,), strict=False)
        program = torch.onnx.export(
            exported,
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamo=True,
            verbose=False,
        )
    if program is None:
        raise CheckpointError("torch.onnx.export returned no graph", where=f"{folder / graph.file}")
    program.save(folder / graph.file)


@contextmanager
def _silence_exporter() -> Iterator[None]:
    """Silence the exporter's log messages; errors are raised."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
