"""Transformer blocks: the choices that distinguish Vaswani et al. 2017, BERT, GPT-2 and Llama; SwiGLU; embeddings.

BlockConfig()                                                            # post-norm, ReLU: Vaswani et al. 2017
BlockConfig(order="pre", norm=nn.RMSNorm, feedforward=SwiGLU, bias=False, key_heads=2)    # pre-norm, grouped-query
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
    FusedQKV,
    MultiHead,
    SeparateQKV,
)
from regard.attention.normalise import Normaliser
from regard.attention.positions import Rotary
from regard.attention.scores import ScaledDot
from regard.errors import SettingError
from regard.models.gelu import GeluFeedForward


def softmax(heads: int) -> Normaliser | None:
    """The softmax, for any number of heads."""
    return None


class SwiGLU(nn.Module):
    """SwiGLU, a gated feed-forward layer (Shazeer 2020): outer(silu(gate x) * inner x)."""

    def __init__(self, dim: int, hidden: int, activation: nn.Module | None = None, bias: bool = False) -> None:
        super().__init__()
        self.gate, self.inner = nn.Linear(dim, hidden, bias=bias), nn.Linear(dim, hidden, bias=bias)
        self.outer = nn.Linear(hidden, dim, bias=bias)
        self.activation = nn.SiLU() if activation is None else activation

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.outer(self.activation(self.gate(x)) * self.inner(x))
        return found


@dataclass(frozen=True)
class BlockConfig:
    """The choices in which blocks differ, each a value.

    `order`: post-norm or pre-norm. `feedforward` makes the feed-forward layer of (width, hidden), `norm` the norm of a
    width. `bias`: of the attention's linear layers. `key_heads`: fewer heads for keys and values (grouped-query
    attention). `head_dim`: where it is not width / heads. `dropout` applies to each residual branch,
    `attention_dropout` to the attention weights (which rules out the fused kernels of some devices). `softcap`: no
    score of self-attention passes it (Gemma 2). `normalise`: how the scores of self-attention become weights, by the
    number of heads: softmax, a learned attention sink (gpt-oss), sparsemax or entmax.
    """

    order: Literal["post", "pre"] = "post"
    norm: Callable[[int], nn.Module] = nn.LayerNorm
    feedforward: Callable[[int, int], nn.Module] = FeedForward
    bias: bool = True
    key_heads: int | None = None
    head_dim: int | None = None
    dropout: float = 0.0
    attention_dropout: float = 0.0
    softcap: float | None = None
    normalise: Callable[[int], Normaliser | None] = softmax

    def self_attention(self, width: int, heads: int, rotary: Rotary | None = None) -> MultiHead:
        """Self-attention: one projection for queries, keys and values together."""
        joint = FusedQKV(width, heads, key_heads=self.key_heads, width=self.head_dim, bias=self.bias)
        score = None if self.softcap is None else ScaledDot(cap=self.softcap)
        normalise = self.normalise(heads)
        return MultiHead(width, joint, score=score, rotary=rotary, dropout=self.attention_dropout, normalise=normalise)

    def cross_attention(self, width: int, heads: int) -> MultiHead:
        """Cross-attention to the encoder's states."""
        parts = SeparateQKV(width, heads, key_heads=self.key_heads, width=self.head_dim, bias=self.bias)
        return MultiHead(width, parts, dropout=self.attention_dropout)

    def add_norm(self, width: int) -> AddNorm:
        return AddNorm(width, self.order, self.dropout, self.norm)

    def final_norm(self, width: int) -> nn.Module:
        """The norm after the last block: of pre-norm blocks alone."""
        return self.norm(width) if self.order == "pre" else nn.Identity()


def gelu_feedforward(width: int, hidden: int, approximate: str = "none", bias: bool = True) -> FeedForward:
    """A feed-forward layer with GELU: BERT's; GPT-2's with approximate="tanh"."""
    return GeluFeedForward(width, hidden, approximate, bias)


VASWANI_2017 = BlockConfig()
BERT = BlockConfig(norm=partial(nn.LayerNorm, eps=1e-12), feedforward=gelu_feedforward)
GPT2 = BlockConfig(order="pre", feedforward=partial(gelu_feedforward, approximate="tanh"))
VIT = BlockConfig(order="pre", norm=partial(nn.LayerNorm, eps=1e-6), feedforward=gelu_feedforward)
LLAMA = BlockConfig(order="pre", norm=nn.RMSNorm, feedforward=SwiGLU, bias=False)


def encoder_blocks(
    layers: int, width: int, heads: int, hidden: int, block: BlockConfig, rotary: Rotary | None = None
) -> nn.ModuleList:
    """Blocks of self-attention and feed-forward layer; with a causal mask they are GPT's."""
    _expect_layers(layers)
    return nn.ModuleList(
        EncoderBlock(block.self_attention(width, heads, rotary), block.feedforward(width, hidden), block.add_norm)
        for _ in range(layers)
    )


def decoder_blocks(
    layers: int, width: int, heads: int, hidden: int, block: BlockConfig, rotary: Rotary | None = None
) -> nn.ModuleList:
    """Blocks of self-attention, cross-attention and feed-forward layer."""
    _expect_layers(layers)
    return nn.ModuleList(
        DecoderBlock(
            block.self_attention(width, heads, rotary),
            block.cross_attention(width, heads),
            block.feedforward(width, hidden),
            block.add_norm,
        )
        for _ in range(layers)
    )


class InputEmbedding(nn.Module):
    """Input embedding: scale * token embedding + position (+ segment), then norm and dropout.

    `positions` are added (Sinusoidal, Learned); None where queries and keys are rotated instead. `segments`: how many
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
        """ids (B, T), the first at position `offset`; segments (B, T), by default 0: (B, T, width)."""
        x = self.tokens(ids)
        x = x if self.scale == 1.0 else x * self.scale
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(ids) if segments is None else segments)
        if self.positions is not None:
            x = self.positions(x, offset)
        found: Tensor = self.dropout(self.norm(x))
        return found


def _expect_layers(layers: int) -> None:
    if layers < 1:
        raise SettingError(f"layers={layers}", "at least 1", where="blocks")
