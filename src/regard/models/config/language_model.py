"""Configurations of language models: GPT, n-gram window, recurrent, and recurrent with attention to the past."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from torch import nn

from regard.attention.layers import FeedForward
from regard.attention.positions import Rotary, Sinusoidal
from regard.models.attentive_rnn_lm import AttentiveLM, PastAttention
from regard.models.blocks import BlockConfig, SwiGLU, gelu_feedforward
from regard.models.config.names import NORMALISERS, SCORES, CellName, NormaliserName, NormName, ScoreName
from regard.models.copy_gates import Average, CopyGate, Gate, Sentinel
from regard.models.embedding import WordEmbedding
from regard.models.gpt import GPT, Positions
from regard.models.rnn import RecurrentLayers
from regard.models.rnn_lm import RecurrentLM
from regard.models.window_lm import WindowLM

GPTPositions = Literal["learned", "sinusoidal", "rotary"]
GPTActivation = Literal["relu", "gelu", "gelu-tanh", "swiglu"]
CopyName = Literal["none", "average", "gate", "sentinel"]

FEEDFORWARDS: dict[str, Callable[[bool], Callable[[int, int], nn.Module]]] = {
    "relu": lambda bias: partial(FeedForward, bias=bias),
    "gelu": lambda bias: partial(gelu_feedforward, bias=bias),
    "gelu-tanh": lambda bias: partial(gelu_feedforward, approximate="tanh", bias=bias),
    "swiglu": lambda bias: partial(SwiGLU, bias=bias),
}
COPY_GATES: dict[str, Callable[[int], CopyGate | None]] = {
    "none": lambda width: None,
    "average": lambda width: Average(),
    "gate": Gate,
    "sentinel": Sentinel,
}


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """A decoder-only Transformer: GPT-2 by default, Llama with other settings.

    `max_positions`: how many positions are learned. `feedforward_dim`: width of the feed-forward layers, by default
    4 x width. `key_heads`: fewer heads for keys and values (grouped-query attention). `head_dim`: width of one head.
    `rotary_base`: of the rotary angles. `softcap`: of the attention scores (Gemma 2). `normalise`: how scores become
    weights: softmax, softmax with a learned attention sink, sparsemax, or entmax with alpha 1.5.
    """

    vocabulary: int
    max_positions: int = 128
    layers: int = 4
    heads: int = 4
    width: int = 128
    positions: GPTPositions = "learned"
    dropout: float = 0.0
    feedforward_dim: int | None = None
    key_heads: int | None = None
    head_dim: int | None = None
    norm: NormName = "layer"
    eps: float = 1e-5
    activation: GPTActivation = "gelu-tanh"
    bias: bool = True
    feedforward_bias: bool = True
    tied: bool = True
    rotary_base: float = 10000.0
    softcap: float | None = None
    normalise: NormaliserName = "softmax"

    def build(self) -> GPT:
        positions: int | Positions = self.max_positions
        if self.positions == "sinusoidal":
            positions = Sinusoidal(self.width)
        elif self.positions == "rotary":
            positions = Rotary(self.head_dim or self.width // self.heads, self.rotary_base)
        sizes = (self.width, self.layers, self.heads)
        return GPT(self.vocabulary, *sizes, positions, self.feedforward_dim, self._block, self.tied)

    @property
    def _block(self) -> BlockConfig:
        return BlockConfig(
            order="pre",
            norm=partial(nn.RMSNorm if self.norm == "rms" else nn.LayerNorm, eps=self.eps),
            feedforward=FEEDFORWARDS[self.activation](self.feedforward_bias),
            bias=self.bias,
            key_heads=self.key_heads,
            head_dim=self.head_dim,
            dropout=self.dropout,
            softcap=self.softcap,
            normalise=NORMALISERS[self.normalise],
        )


@dataclass(frozen=True, kw_only=True)
class WindowLMConfig:
    """An n-gram neural language model: the last `size` words, each `width` wide, and one layer of `hidden` units."""

    vocabulary: int
    unknown: int | None = None
    size: int = 5
    width: int = 128
    hidden: int = 128
    tied: bool = True
    dropout: float = 0.0

    def build(self) -> WindowLM:
        words = WordEmbedding(self.vocabulary, self.width, self.unknown)
        return WindowLM(words, self.size, self.hidden, self.tied, self.dropout)


@dataclass(frozen=True, kw_only=True)
class RecurrentLMConfig:
    """A recurrent language model. `tied`: the softmax uses the embedding matrix."""

    vocabulary: int
    unknown: int | None = None
    cell: CellName = "lstm"
    layers: int = 1
    width: int = 128
    hidden: int = 128
    tied: bool = True
    dropout: float = 0.0

    def build(self) -> RecurrentLM:
        rnn = RecurrentLayers(self.cell, self.width, self.hidden, self.layers, self.dropout)
        return RecurrentLM(WordEmbedding(self.vocabulary, self.width, self.unknown), rnn, self.tied, self.dropout)


@dataclass(frozen=True, kw_only=True)
class AttentiveLMConfig(RecurrentLMConfig):
    """A recurrent language model with attention to its past states, `memory` of them from the batch before.

    `copying`: the copy gate, which adds the attention weights as a distribution over earlier tokens.
    """

    score: ScoreName = "bilinear"
    copying: CopyName = "none"
    memory: int = 64

    def build(self) -> AttentiveLM:  # type: ignore[override]
        rnn = RecurrentLayers(self.cell, self.width, self.hidden, self.layers, self.dropout)
        attention = PastAttention(SCORES[self.score](self.hidden), self.memory, COPY_GATES[self.copying](self.hidden))
        return AttentiveLM(
            WordEmbedding(self.vocabulary, self.width, self.unknown), rnn, attention, self.tied, self.dropout
        )
