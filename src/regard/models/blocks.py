"""What tells the Transformer of 2017 from BERT, GPT-2 and Llama: a handful of values, and stacks built with them.

Style()                                    # norms after the sum, ReLU: Vaswani et al. 2017
Style(order="pre", norm=nn.RMSNorm, feed=Gated, bias=False, key_heads=2)     # norms before, SwiGLU, grouped heads
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from regard.attention.layers import (
    AddNorm,
    DecoderBlock,
    Dropout,
    EncoderBlock,
    FeedForward,
    Fused,
    MultiHead,
    Separate,
)
from regard.attention.positions import Rotary
from regard.errors import SettingError
from regard.models.fused_gelu import GeluFeed


class Gated(nn.Module):
    """A feed-forward layer whose bend is a product: outer(silu(gate x) * inner x), SwiGLU (Shazeer 2020)."""

    def __init__(self, dim: int, hidden: int, activation: nn.Module | None = None, bias: bool = False) -> None:
        super().__init__()
        self.gate, self.inner = nn.Linear(dim, hidden, bias=bias), nn.Linear(dim, hidden, bias=bias)
        self.outer = nn.Linear(hidden, dim, bias=bias)
        self.activation = nn.SiLU() if activation is None else activation

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.outer(self.activation(self.gate(x)) * self.inner(x))
        return found


@dataclass(frozen=True)
class Style:
    """The choices in which blocks differ, each a value.

    `feed` makes the feed-forward layer of (width, hidden), `norm` the norm of a width. `bias`: of the attention's
    matrices. `key_heads`: fewer heads for keys and values, shared in groups. `head`: how wide one is, if it is not
    width / heads. `dropout` falls on what is added to the stream, `attention_dropout` on the weights (which then cannot
    take the fused kernels of every device).
    """

    order: Literal["post", "pre"] = "post"
    norm: Callable[[int], nn.Module] = nn.LayerNorm
    feed: Callable[[int, int], nn.Module] = FeedForward
    bias: bool = True
    key_heads: int | None = None
    head: int | None = None
    dropout: float = 0.0
    attention_dropout: float = 0.0

    def itself(self, width: int, heads: int, rotary: Rotary | None = None) -> MultiHead:
        """Heads that look at their own stream: one product for queries, keys and values."""
        joint = Fused(width, heads, key_heads=self.key_heads, width=self.head, bias=self.bias)
        return MultiHead(width, joint, rotary=rotary, dropout=self.attention_dropout)

    def across(self, width: int, heads: int) -> MultiHead:
        """Heads that look at another stream."""
        parts = Separate(width, heads, key_heads=self.key_heads, width=self.head, bias=self.bias)
        return MultiHead(width, parts, dropout=self.attention_dropout)

    def add_norm(self, width: int) -> AddNorm:
        return AddNorm(width, self.order, self.dropout, self.norm)

    def last(self, width: int) -> nn.Module:
        """What comes after the last block: a norm where blocks norm what goes in, nothing where they norm the sum."""
        return self.norm(width) if self.order == "pre" else nn.Identity()


def gelu(width: int, hidden: int, approximate: str = "none", bias: bool = True) -> FeedForward:
    """BERT's feed-forward layer; GPT-2's with approximate="tanh"."""
    return GeluFeed(width, hidden, approximate, bias)


PUBLISHED = Style()
BERT = Style(norm=partial(nn.LayerNorm, eps=1e-12), feed=gelu)
GPT2 = Style(order="pre", feed=partial(gelu, approximate="tanh"))
MODERN = Style(order="pre", norm=nn.RMSNorm, feed=Gated, bias=False)


def readers(
    layers: int, width: int, heads: int, hidden: int, style: Style, rotary: Rotary | None = None
) -> nn.ModuleList:
    """Blocks whose tokens look at one another; with a causal mask they are GPT's."""
    _expect_some(layers)
    return nn.ModuleList(
        EncoderBlock(style.itself(width, heads, rotary), style.feed(width, hidden), style.add_norm)
        for _ in range(layers)
    )


def writers(
    layers: int, width: int, heads: int, hidden: int, style: Style, rotary: Rotary | None = None
) -> nn.ModuleList:
    """Blocks that look back at themselves, then across at what was read."""
    _expect_some(layers)
    return nn.ModuleList(
        DecoderBlock(
            style.itself(width, heads, rotary),
            style.across(width, heads),
            style.feed(width, hidden),
            style.add_norm,
        )
        for _ in range(layers)
    )


class Embedded(nn.Module):
    """Tokens as vectors that know where they stand: scale * embedding + position (+ segment), normed, dropped.

    `positions` are added (Sinusoidal, Learned), or None where queries and keys are turned instead. `segments`: how many
    there are. `norm`: of the sum, where there is one.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        positions: nn.Module | None,
        *,
        segments: int = 0,
        scale: float = 1.0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions, self.scale = positions, scale
        self.segments = nn.Embedding(segments, width) if segments else None
        self.norm = nn.Identity() if norm is None else norm
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor, offset: int | Tensor = 0, segments: Tensor | None = None) -> Tensor:
        """ids (B, T), the first of which stands at `offset`; segments (B, T), all 0 if not told: (B, T, width)."""
        x = self.tokens(ids)
        x = x if self.scale == 1.0 else x * self.scale
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(ids) if segments is None else segments)
        if self.positions is not None:
            x = self.positions(x, offset)
        found: Tensor = self.dropout(self.norm(x))
        return found


def _expect_some(layers: int) -> None:
    if layers < 1:
        raise SettingError(f"layers={layers}", "at least 1", where="blocks")
