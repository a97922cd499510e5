"""A translator as two graphs: encoder.onnx reads the source, decoder.onnx goes one word on.

state = encoder(ids, lengths);    log_probs, weights, state = decoder(word, state)

The state is a handful of tensors (B, ...). What a step changes comes out of the decoder as next_NAME, to go in as NAME;
the rest stays as the encoder gave it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.attention.kernels.recurrent import PreparedKeys
from regard.attention.windows import LocalM
from regard.exports.onnx.export_graph import TEXT, Axes, Graph, example
from regard.exports.onnx.tracing import traceable
from regard.models import Bahdanau, Decoder, FedLuong, Luong, Seq2Seq, Source, Standing, Writing

SOURCE = ("keys", "values", "hidden")  # what is looked at; `hidden`: where there is no word


class Begin(nn.Module):
    """The reading half: ids (B, S) and lengths (B,) to the tensors of a state."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.reader, self.decoder = model.reader, model.decoder
        if isinstance(self.decoder, Bahdanau | Luong):
            self.decoder.memory = partial(_believing, self.decoder)  # type: ignore[method-assign]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        ids, lengths = inputs
        read = self.reader(ids, lengths)
        writing = Decoder.begin(self.decoder, read)
        if isinstance(self.decoder, FedLuong):  # which asks how many rows there are, as a number
            writing = replace(writing, fed=read.last.new_zeros(read.last.size(0), self.decoder.vector.out_features))
        return tuple(tensors(_placed(self.decoder, writing, lengths)).values())


class Step(nn.Module):
    """The writing half: word (B,) and state to ln p of the next word (B, V), attention (B, S), what has changed."""

    def __init__(self, model: Seq2Seq, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        word, *state = inputs
        writing = _written(self.model.decoder, dict(zip(self.names, state, strict=True)))
        logs, weights, after = self.model.step(Standing(writing, word, word), word)
        moved = tensors(after.writing)
        looked = () if weights is None else (weights,)
        return logs, *looked, *(moved[name] for name in self.names if name not in SOURCE)


def halves(model: Seq2Seq) -> tuple[Graph, Graph]:
    """The two graphs of a translator."""
    ids, lengths = example()
    before = tensors(_placed(model.decoder, model.start(ids, lengths).writing, lengths))
    names = tuple(before)
    axes: dict[str, Axes] = {name: ("batch", "length") if name in SOURCE else ("batch",) for name in names}
    moved = tuple(f"next_{name}" for name in names if name not in SOURCE)
    said = ("log_probs", "weights") if "keys" in names else ("log_probs",)
    word = torch.ones_like(lengths)
    return (
        Graph("encoder.onnx", Begin(_copy(model)), (ids, lengths), TEXT, names),
        Graph(
            "decoder.onnx",
            Step(_copy(model), names),
            (word, *before.values()),
            {"word": ("batch",), **axes},
            (*said, *moved),
        ),
    )


def tensors(writing: Writing) -> dict[str, Tensor]:
    """Where a decoder stands, by name."""
    found = {f"cell_{i}_{j}": part for i, cell in enumerate(writing.cells) for j, part in enumerate(cell)}
    memory, at = writing.memory, cast(Any, writing.at)
    if memory is not None and memory.hidden is not None:
        found |= dict(zip(SOURCE, (memory.keys, memory.values, memory.hidden.squeeze(1)), strict=True))
    if writing.fed is not None:
        found["fed"] = writing.fed
    if isinstance(at, Tensor):
        found["at"] = at
    return found


def _written(decoder: Decoder, told: dict[str, Tensor]) -> Writing:
    cells = tuple(tuple(told[f"cell_{i}_{j}"] for j in range(decoder.carried)) for i in range(decoder.layers))
    memory = None
    if isinstance(decoder, Bahdanau | Luong):
        memory = PreparedKeys(decoder.score, told["keys"], told["values"], told["hidden"].unsqueeze(1), None)
    return Writing(cells, memory, told.get("fed"), told.get("at", 0))  # type: ignore[arg-type]


def _placed(decoder: Decoder, writing: Writing, lengths: Tensor) -> Writing:
    """A window that moves along must be told where it is: a number for each row, since a graph knows no others."""
    if isinstance(decoder, Luong) and isinstance(decoder.window, LocalM):
        return replace(writing, at=torch.zeros_like(lengths))  # type: ignore[arg-type]
    return writing


def _believing(decoder: Bahdanau | Luong, source: Source) -> PreparedKeys:
    """A decoder's memory, made without looking at the numbers: a source has one word at least."""
    real = torch.arange(source.states.size(1), device=source.states.device) < source.lengths.unsqueeze(-1)
    return PreparedKeys(decoder.score, decoder.score.keys(source.states), source.values, ~real.unsqueeze(1), None)


def _copy(model: Seq2Seq) -> Seq2Seq:
    copy = traceable(model)
    assert isinstance(copy, Seq2Seq)
    return copy
