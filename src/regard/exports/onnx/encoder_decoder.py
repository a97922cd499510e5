"""A translator as two ONNX graphs: encoder.onnx encodes the source, decoder.onnx runs one decoding step.

state = encoder(ids, lengths);    log_probs, weights, state = decoder(word, state)

The state is a handful of tensors (B, ...). The decoder returns what a step changes as next_NAME, which is NAME in the
next step; the rest stays as the encoder returned it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.attention.kernels.recurrent import PreparedKeys
from regard.attention.windows import LocalM
from regard.exports.onnx.export_graph import TEXT, Axes, Graph, example_inputs
from regard.exports.onnx.tracing import make_traceable
from regard.models import (
    Bahdanau,
    Decoder,
    DecoderState,
    EncoderOutput,
    Luong,
    LuongInputFeeding,
    Seq2Seq,
    Seq2SeqState,
)

SOURCE = ("keys", "values", "hidden")  # the memory; `hidden`: which positions are padding


class EncoderGraph(nn.Module):
    """The encoder: ids (B, S) and lengths (B,) to the tensors of a state."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.encoder, self.decoder = model.encoder, model.decoder
        if isinstance(self.decoder, Bahdanau | Luong):
            self.decoder.prepare_memory = partial(_prepare_unchecked, self.decoder)  # type: ignore[method-assign]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        ids, lengths = inputs
        encoded = self.encoder(ids, lengths)
        state = Decoder.initial_state(self.decoder, encoded)
        if isinstance(self.decoder, LuongInputFeeding):  # its own method takes the number of rows as a constant
            feedback = encoded.last.new_zeros(encoded.last.size(0), self.decoder.vector.out_features)
            state = replace(state, feedback=feedback)
        return tuple(state_tensors(_with_positions(self.decoder, state, lengths)).values())


class DecoderStepGraph(nn.Module):
    """One decoding step: word (B,) and state to ln p of the next word (B, V), attention (B, S), the changed tensors."""

    def __init__(self, model: Seq2Seq, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        word, *state = inputs
        decoder = _to_state(self.model.decoder, dict(zip(self.names, state, strict=True)))
        log_probs, weights, after = self.model.step(Seq2SeqState(decoder, word, word), word)
        changed = state_tensors(after.decoder)
        attention = () if weights is None else (weights,)
        return log_probs, *attention, *(changed[name] for name in self.names if name not in SOURCE)


def encoder_decoder_graphs(model: Seq2Seq) -> tuple[Graph, Graph]:
    """The two graphs of a translator."""
    ids, lengths = example_inputs()
    before = state_tensors(_with_positions(model.decoder, model.start(ids, lengths).decoder, lengths))
    names = tuple(before)
    axes: dict[str, Axes] = {name: ("batch", "length") if name in SOURCE else ("batch",) for name in names}
    changed = tuple(f"next_{name}" for name in names if name not in SOURCE)
    outputs = ("log_probs", "weights") if "keys" in names else ("log_probs",)
    word = torch.ones_like(lengths)
    return (
        Graph("encoder.onnx", EncoderGraph(_copy(model)), (ids, lengths), TEXT, names),
        Graph(
            "decoder.onnx",
            DecoderStepGraph(_copy(model), names),
            (word, *before.values()),
            {"word": ("batch",), **axes},
            (*outputs, *changed),
        ),
    )


def state_tensors(state: DecoderState) -> dict[str, Tensor]:
    """The tensors of a decoder's state, by name."""
    found = {f"cell_{i}_{j}": part for i, cell in enumerate(state.cells) for j, part in enumerate(cell)}
    memory, position = state.memory, cast(Any, state.position)
    if memory is not None and memory.hidden is not None:
        found |= dict(zip(SOURCE, (memory.keys, memory.values, memory.hidden.squeeze(1)), strict=True))
    if state.feedback is not None:
        found["feedback"] = state.feedback
    if isinstance(position, Tensor):
        found["position"] = position
    return found


def _to_state(decoder: Decoder, given: dict[str, Tensor]) -> DecoderState:
    cells = tuple(tuple(given[f"cell_{i}_{j}"] for j in range(decoder.cell_tensors)) for i in range(decoder.layers))
    memory = None
    if isinstance(decoder, Bahdanau | Luong):
        memory = PreparedKeys(decoder.score, given["keys"], given["values"], given["hidden"].unsqueeze(1), None)
    return DecoderState(cells, memory, given.get("feedback"), given.get("position", 0))  # type: ignore[arg-type]


def _with_positions(decoder: Decoder, state: DecoderState, lengths: Tensor) -> DecoderState:
    """A local-m window needs its position as a tensor, one number for each row."""
    if isinstance(decoder, Luong) and isinstance(decoder.window, LocalM):
        return replace(state, position=torch.zeros_like(lengths))  # type: ignore[arg-type]
    return state


def _prepare_unchecked(decoder: Bahdanau | Luong, source: EncoderOutput) -> PreparedKeys:
    """A decoder's memory without data-dependent checks: every source has at least one word."""
    assert source.lengths is not None
    real = torch.arange(source.states.size(1), device=source.states.device) < source.lengths.unsqueeze(-1)
    return PreparedKeys(decoder.score, decoder.score.keys(source.states), source.values, ~real.unsqueeze(1), None)


def _copy(model: Seq2Seq) -> Seq2Seq:
    copy = make_traceable(model)
    assert isinstance(copy, Seq2Seq)
    return copy
