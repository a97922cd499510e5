"""A graph as a file: torch follows the module once, and what it did becomes ONNX."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

import torch
from torch.export import Dim

from regard.errors import CheckpointError
from regard.exports.onnx.graphs import Graph


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
