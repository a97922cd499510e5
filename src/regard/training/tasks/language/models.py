"""The section [model] of the task "language": a kind for every line of language models."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from regard.models.config import (
    AttentiveLMConfig,
    CellName,
    CopyName,
    FeedName,
    GPTConfig,
    NormName,
    PositionName,
    RecurrentLMConfig,
    ScoreName,
    WindowLMConfig,
)
from regard.training.recipe import Count, Positive, Section, Share


class Gpt(Section):
    """Layers of heads over one stream of vectors, `width` wide; positions up to the size of a block are learned.

    As it stands it is GPT-2's; Llama's has norm = "rms", feed = "swiglu", bias = false, feed_bias = false, positions =
    "rotary" and an output of its own, tied = false. `key_heads`: fewer heads for keys and values. `head`: how wide one
    is. `hidden`: of the feed-forward layers, 4 x width if not told. `base`: of rotary angles.
    """

    carries_state: ClassVar[bool] = False
    kind: Literal["gpt"] = "gpt"
    layers: Count = GPTConfig.layers
    heads: Count = GPTConfig.heads
    width: Count = GPTConfig.width
    positions: PositionName = GPTConfig.positions
    dropout: Share = GPTConfig.dropout
    hidden: Count | None = GPTConfig.hidden
    key_heads: Count | None = GPTConfig.key_heads
    head: Count | None = GPTConfig.head
    norm: NormName = GPTConfig.norm
    eps: Positive = GPTConfig.eps
    feed: FeedName = GPTConfig.feed
    bias: bool = GPTConfig.bias
    feed_bias: bool = GPTConfig.feed_bias
    tied: bool = GPTConfig.tied
    base: Positive = GPTConfig.base


class Window(Section):
    """The last `size` words side by side, each `width` wide, and one layer of `hidden` units."""

    carries_state: ClassVar[bool] = True  # from one batch to the next, where batches are lanes
    kind: Literal["window"] = "window"
    size: Count = WindowLMConfig.size
    width: Count = WindowLMConfig.width
    hidden: Count = WindowLMConfig.hidden
    tied: bool = WindowLMConfig.tied
    dropout: Share = WindowLMConfig.dropout


class Recurrent(Section):
    """Words `width` wide, read by recurrent layers of `hidden` units; `tied`: the softmax takes the words' vectors."""

    carries_state: ClassVar[bool] = True
    kind: Literal["recurrent"] = "recurrent"
    cell: CellName = RecurrentLMConfig.cell
    layers: Count = RecurrentLMConfig.layers
    width: Count = RecurrentLMConfig.width
    hidden: Count = RecurrentLMConfig.hidden
    tied: bool = RecurrentLMConfig.tied
    dropout: Share = RecurrentLMConfig.dropout


class Attentive(Section):
    """A recurrent model whose state looks back at all earlier ones, `memory` of them in the batch before.

    `copying`: what it looks at may be said because it was seen: for half of the mass, where a gate opens, or where a
    sentinel gives way.
    """

    carries_state: ClassVar[bool] = True
    kind: Literal["attentive"] = "attentive"
    cell: CellName = AttentiveLMConfig.cell
    layers: Count = AttentiveLMConfig.layers
    width: Count = AttentiveLMConfig.width
    hidden: Count = AttentiveLMConfig.hidden
    tied: bool = AttentiveLMConfig.tied
    dropout: Share = AttentiveLMConfig.dropout
    score: ScoreName = AttentiveLMConfig.score
    copying: CopyName = AttentiveLMConfig.copying
    memory: Annotated[int, Field(ge=0)] = AttentiveLMConfig.memory


AnyModel = Gpt | Window | Recurrent | Attentive
