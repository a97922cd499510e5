"""How large a BERT is, in every recipe that has one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from regard.models.bert import FEEDS, SIZES, Bert, Size
from regard.models.blocks import BERT
from regard.training.recipe import Count, Positive, Section, Share

SizeName = Literal["tiny", "mini", "small", "medium", "base"]


class Sizes(Section):
    """By name, where `layers`, `width` and `heads` do not say otherwise; texts are cut at `positions` tokens.

    The rest is as published for BERT and otherwise for its kin: `hidden` numbers in a feed-forward layer (4 x width),
    an `activation`, how many `segments` are told apart, and what norms add to a variance, `eps`.
    """

    size: SizeName = "tiny"
    layers: Count | None = None
    width: Count | None = None
    heads: Count | None = None
    positions: Count = 128
    dropout: Share = 0.1
    hidden: Count | None = None
    activation: Literal["gelu", "gelu_new", "relu"] = "gelu"
    segments: Annotated[int, Field(ge=0)] = 2
    eps: Positive = 1e-12

    def bert(self, vocabulary: int) -> Bert:
        named = SIZES[self.size]
        size = Size(self.layers or named.layers, self.width or named.width, self.heads, self.hidden)
        style = replace(BERT, norm=partial(nn.LayerNorm, eps=self.eps), feed=FEEDS[self.activation])
        return Bert.of(
            vocabulary, size, positions=self.positions, segments=self.segments, dropout=self.dropout, style=style
        )

    def limit(self, asked: int | None) -> int:
        """How long a row may be: as long as there are positions, or shorter where a recipe says so."""
        return self.positions if asked is None else min(asked, self.positions)
