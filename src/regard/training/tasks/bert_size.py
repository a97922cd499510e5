"""How large a BERT is, in every recipe that has one."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from regard.models.config import BertActivation, BertConfig, SizeName
from regard.training.recipe import Count, Positive, Section, Share


class Sizes(Section):
    """By name, where `layers`, `width` and `heads` do not say otherwise; texts are cut at `positions` tokens.

    The rest is as published for BERT and otherwise for its kin: `hidden` numbers in a feed-forward layer (4 x width),
    an `activation`, how many `segments` are told apart, and what norms add to a variance, `eps`.
    """

    size: SizeName = BertConfig.size
    layers: Count | None = BertConfig.layers
    width: Count | None = BertConfig.width
    heads: Count | None = BertConfig.heads
    positions: Count = BertConfig.positions
    dropout: Share = BertConfig.dropout
    hidden: Count | None = BertConfig.hidden
    activation: BertActivation = BertConfig.activation
    segments: Annotated[int, Field(ge=0)] = BertConfig.segments
    eps: Positive = BertConfig.eps

    def limit(self, asked: int | None) -> int:
        """How long a row may be: as long as there are positions, or shorter where a recipe says so."""
        return self.positions if asked is None else min(asked, self.positions)
