"""How large a BERT is, in every recipe that has one."""

from __future__ import annotations

from typing import Literal

from regard.models.bert import SIZES, Bert, Size
from regard.training.recipe import Count, Section, Share

SizeName = Literal["tiny", "mini", "small", "medium", "base"]


class Sizes(Section):
    """By name, where `layers`, `width` and `heads` do not say otherwise; texts are cut at `positions` tokens."""

    size: SizeName = "tiny"
    layers: Count | None = None
    width: Count | None = None
    heads: Count | None = None
    positions: Count = 128
    dropout: Share = 0.1

    def bert(self, vocabulary: int) -> Bert:
        named = SIZES[self.size]
        size = Size(self.layers or named.layers, self.width or named.width, self.heads)
        return Bert.of(vocabulary, size, positions=self.positions, dropout=self.dropout)

    def limit(self, asked: int | None) -> int:
        """How long a row may be: as long as there are positions, or shorter where a recipe says so."""
        return self.positions if asked is None else min(asked, self.positions)
