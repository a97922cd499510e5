"""Configurations of language models: GPT, a window, recurrent ones, and recurrent ones that attend to their past."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from torch import nn

from regard.attention.layers import FeedForward
from regard.attention.positions import Rotary, Sinusoidal
from regard.models.attentive_rnn_lm import AttentiveLM, LookBack
from regard.models.blocks import Gated, Style, gelu
from regard.models.config.names import SCORES, CellName, NormName, ScoreName
from regard.models.copy_gates import Average, Copy, Gate, Sentinel
from regard.models.embedding import Words
from regard.models.gpt import GPT, Positions
from regard.models.rnn import Recurrence
from regard.models.rnn_lm import RecurrentLM
from regard.models.window_lm import WindowLM

PositionName = Literal["learned", "sinusoidal", "rotary"]
FeedName = Literal["relu", "gelu", "gelu-tanh", "swiglu"]
CopyName = Literal["none", "average", "gate", "sentinel"]

FEEDS: dict[str, Callable[[bool], Callable[[int, int], nn.Module]]] = {
    "relu": lambda bias: partial(FeedForward, bias=bias),
    "gelu": lambda bias: partial(gelu, bias=bias),
    "gelu-tanh": lambda bias: partial(gelu, approximate="tanh", bias=bias),
    "swiglu": lambda bias: partial(Gated, bias=bias),
}
COPIES: dict[str, Callable[[int], Copy | None]] = {
    "none": lambda width: None,
    "average": lambda width: Average(),
    "gate": Gate,
    "sentinel": Sentinel,
}


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """A decoder-only Transformer: GPT-2 by default, Llama with other settings.

    `longest`: how many positions are learned. `hidden`: width of the feed-forward layers, by default 4 x width.
    `key_heads`: fewer heads for keys and values (grouped-query attention). `head`: width of one head. `base`: of the
    rotary angles.
    """

    vocabulary: int
    longest: int = 128
    layers: int = 4
    heads: int = 4
    width: int = 128
    positions: PositionName = "learned"
    dropout: float = 0.0
    hidden: int | None = None
    key_heads: int | None = None
    head: int | None = None
    norm: NormName = "layer"
    eps: float = 1e-5
    feed: FeedName = "gelu-tanh"
    bias: bool = True
    feed_bias: bool = True
    tied: bool = True
    base: float = 10000.0

    def build(self) -> GPT:
        positions: int | Positions = self.longest
        if self.positions == "sinusoidal":
            positions = Sinusoidal(self.width)
        elif self.positions == "rotary":
            positions = Rotary(self.head or self.width // self.heads, self.base)
        sizes = (self.width, self.layers, self.heads)
        return GPT(self.vocabulary, *sizes, positions, self.hidden, self._style, self.tied)

    @property
    def _style(self) -> Style:
        return Style(
            order="pre",
            norm=partial(nn.RMSNorm if self.norm == "rms" else nn.LayerNorm, eps=self.eps),
            feed=FEEDS[self.feed](self.feed_bias),
            bias=self.bias,
            key_heads=self.key_heads,
            head=self.head,
            dropout=self.dropout,
        )


@dataclass(frozen=True, kw_only=True)
class WindowLMConfig:
    """The last `size` words side by side, each `width` wide, and one layer of `hidden` units."""

    vocabulary: int
    unknown: int | None = None
    size: int = 5
    width: int = 128
    hidden: int = 128
    tied: bool = True
    dropout: float = 0.0

    def build(self) -> WindowLM:
        words = Words(self.vocabulary, self.width, self.unknown)
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
        recurrence = Recurrence(self.cell, self.width, self.hidden, self.layers, self.dropout)
        return RecurrentLM(Words(self.vocabulary, self.width, self.unknown), recurrence, self.tied, self.dropout)


@dataclass(frozen=True, kw_only=True)
class AttentiveLMConfig(RecurrentLMConfig):
    """A recurrent language model whose state attends to all earlier ones, `memory` of them in the batch before.

    `copying`: whether, and how, the weights become a distribution over the tokens that were seen.
    """

    score: ScoreName = "bilinear"
    copying: CopyName = "none"
    memory: int = 64

    def build(self) -> AttentiveLM:  # type: ignore[override]
        recurrence = Recurrence(self.cell, self.width, self.hidden, self.layers, self.dropout)
        look = LookBack(SCORES[self.score](self.hidden), self.memory, COPIES[self.copying](self.hidden))
        return AttentiveLM(Words(self.vocabulary, self.width, self.unknown), recurrence, look, self.tied, self.dropout)
