"""The section [model] of the task "language": a kind for every line of language models."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from regard.attention.layers import FeedForward
from regard.attention.positions import Rotary, Sinusoidal
from regard.models.attentive import AttentiveLM, LookBack
from regard.models.blocks import Gated, Style, gelu
from regard.models.copying import Average, Copy, Gate, Sentinel
from regard.models.gpt import GPT, Positions
from regard.models.recurrence import Recurrence
from regard.models.recurrent import RecurrentLM
from regard.models.window import WindowLM
from regard.models.words import Words
from regard.training.recipe import Count, Positive, Section, Share
from regard.training.tasks.scores import SCORES, ScoreName


class Gpt(Section):
    """Layers of heads over one stream of vectors, `width` wide; positions up to the size of a block are learned.

    As it stands it is GPT-2's; Llama's has norm = "rms", feed = "swiglu", bias = false, feed_bias = false, positions =
    "rotary" and an output of its own, tied = false. `key_heads`: fewer heads for keys and values. `head`: how wide one
    is. `hidden`: of the feed-forward layers, 4 x width if not told. `base`: of rotary angles.
    """

    kind: Literal["gpt"] = "gpt"
    layers: Count = 4
    heads: Count = 4
    width: Count = 128
    positions: Literal["learned", "sinusoidal", "rotary"] = "learned"
    dropout: Share = 0.0
    hidden: Count | None = None
    key_heads: Count | None = None
    head: Count | None = None
    norm: Literal["layer", "rms"] = "layer"
    eps: Positive = 1e-5
    feed: Literal["relu", "gelu", "gelu-tanh", "swiglu"] = "gelu-tanh"
    bias: bool = True
    feed_bias: bool = True
    tied: bool = True
    base: Positive = 10000.0

    def make(self, vocabulary: int, longest: int, unknown: int | None = None) -> GPT:
        positions: int | Positions = longest
        if self.positions == "sinusoidal":
            positions = Sinusoidal(self.width)
        elif self.positions == "rotary":
            positions = Rotary(self.head or self.width // self.heads, self.base)
        sizes = (self.width, self.layers, self.heads)
        return GPT(vocabulary, *sizes, positions, self.hidden, self.style, self.tied)

    @property
    def style(self) -> Style:
        return Style(
            order="pre",
            norm=partial(nn.RMSNorm if self.norm == "rms" else nn.LayerNorm, eps=self.eps),
            feed=FEEDS[self.feed](self.feed_bias),
            bias=self.bias,
            key_heads=self.key_heads,
            head=self.head,
            dropout=self.dropout,
        )


FEEDS: dict[str, Callable[[bool], Callable[[int, int], nn.Module]]] = {
    "relu": lambda bias: partial(FeedForward, bias=bias),
    "gelu": lambda bias: partial(gelu, bias=bias),
    "gelu-tanh": lambda bias: partial(gelu, approximate="tanh", bias=bias),
    "swiglu": lambda bias: partial(Gated, bias=bias),
}


class Window(Section):
    """The last `size` words side by side, each `width` wide, and one layer of `hidden` units."""

    kind: Literal["window"] = "window"
    size: Count = 5
    width: Count = 128
    hidden: Count = 128
    tied: bool = True
    dropout: Share = 0.0

    def make(self, vocabulary: int, longest: int, unknown: int | None = None) -> WindowLM:
        words = Words(vocabulary, self.width, unknown)
        return WindowLM(words, self.size, self.hidden, self.tied, self.dropout)


class Recurrent(Section):
    """Words `width` wide, read by recurrent layers of `hidden` units; `tied`: the softmax takes the words' vectors."""

    kind: Literal["recurrent"] = "recurrent"
    cell: Literal["rnn", "gru", "lstm"] = "lstm"
    layers: Count = 1
    width: Count = 128
    hidden: Count = 128
    tied: bool = True
    dropout: Share = 0.0

    def make(self, vocabulary: int, longest: int, unknown: int | None = None) -> RecurrentLM:
        recurrence = Recurrence(self.cell, self.width, self.hidden, self.layers, self.dropout)
        return RecurrentLM(Words(vocabulary, self.width, unknown), recurrence, self.tied, self.dropout)


class Attentive(Section):
    """A recurrent model whose state looks back at all earlier ones, `memory` of them in the batch before.

    `copying`: what it looks at may be said because it was seen: for half of the mass, where a gate opens, or where a
    sentinel gives way.
    """

    kind: Literal["attentive"] = "attentive"
    cell: Literal["rnn", "gru", "lstm"] = "lstm"
    layers: Count = 1
    width: Count = 128
    hidden: Count = 128
    tied: bool = True
    dropout: Share = 0.0
    score: ScoreName = "bilinear"
    copying: Literal["none", "average", "gate", "sentinel"] = "none"
    memory: Annotated[int, Field(ge=0)] = 64

    def make(self, vocabulary: int, longest: int, unknown: int | None = None) -> AttentiveLM:
        recurrence = Recurrence(self.cell, self.width, self.hidden, self.layers, self.dropout)
        look = LookBack(SCORES[self.score](self.hidden), self.memory, COPIES[self.copying](self.hidden))
        return AttentiveLM(Words(vocabulary, self.width, unknown), recurrence, look, self.tied, self.dropout)


COPIES: dict[str, Callable[[int], Copy | None]] = {
    "none": lambda width: None,
    "average": lambda width: Average(),
    "gate": Gate,
    "sentinel": Sentinel,
}

AnyModel = Gpt | Window | Recurrent | Attentive
