"""The section [model] of the task "language": GPT, a fixed window, recurrent networks, and those with attention."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from regard.models.config import (
    AttentiveLMConfig,
    CellName,
    CopyName,
    GPTActivation,
    GPTConfig,
    GPTPositions,
    NormaliserName,
    NormName,
    RecurrentLMConfig,
    ScoreName,
    WindowLMConfig,
)
from regard.training.section import Count, Fraction, Positive, RecipeSection


class GPTModel(RecipeSection):
    """A decoder-only Transformer: GPT-2's by default, with learned positions up to batches.sequence_length.

    Llama's has norm = "rms", activation = "swiglu", bias = false, feedforward_bias = false, positions = "rotary" and
    tied = false. `key_heads`: fewer heads for keys and values (grouped-query attention). `head_dim`: width of one head.
    `feedforward_dim`: by default 4 x width. `rotary_base`: of the rotary angles. `softcap`: no attention score passes
    it (Gemma 2's is 50). `normalise`: how scores become weights; "sink" is a softmax with a learned attention sink for
    each head (gpt-oss), "sparsemax" and "entmax" (alpha 1.5) give most keys no weight at all.
    """

    carries_state: ClassVar[bool] = False
    kind: Literal["gpt"] = "gpt"
    layers: Count = GPTConfig.layers
    heads: Count = GPTConfig.heads
    width: Count = GPTConfig.width
    positions: GPTPositions = GPTConfig.positions
    dropout: Fraction = GPTConfig.dropout
    feedforward_dim: Count | None = GPTConfig.feedforward_dim
    key_heads: Count | None = GPTConfig.key_heads
    head_dim: Count | None = GPTConfig.head_dim
    norm: NormName = GPTConfig.norm
    eps: Positive = GPTConfig.eps
    activation: GPTActivation = GPTConfig.activation
    bias: bool = GPTConfig.bias
    feedforward_bias: bool = GPTConfig.feedforward_bias
    tied: bool = GPTConfig.tied
    rotary_base: Positive = GPTConfig.rotary_base
    softcap: Positive | None = GPTConfig.softcap
    normalise: NormaliserName = GPTConfig.normalise


class WindowModel(RecipeSection):
    """The last `size` words side by side, each `width` wide, and one layer of `hidden` units."""

    carries_state: ClassVar[bool] = True  # from one batch to the next, where batches are lanes
    kind: Literal["window"] = "window"
    size: Count = WindowLMConfig.size
    width: Count = WindowLMConfig.width
    hidden: Count = WindowLMConfig.hidden
    tied: bool = WindowLMConfig.tied
    dropout: Fraction = WindowLMConfig.dropout


class RecurrentModel(RecipeSection):
    """Embeddings `width` wide and recurrent layers of `hidden` units; `tied`: the softmax uses the embedding matrix."""

    carries_state: ClassVar[bool] = True
    kind: Literal["recurrent"] = "recurrent"
    cell: CellName = RecurrentLMConfig.cell
    layers: Count = RecurrentLMConfig.layers
    width: Count = RecurrentLMConfig.width
    hidden: Count = RecurrentLMConfig.hidden
    tied: bool = RecurrentLMConfig.tied
    dropout: Fraction = RecurrentLMConfig.dropout


class AttentiveModel(RecipeSection):
    """A recurrent model whose state attends to all earlier ones, `memory` of them in the batches before.

    `copying`: how the attention weights become a distribution over the tokens seen: as half of the mass ("average"), by
    a gate, or by a sentinel.
    """

    carries_state: ClassVar[bool] = True
    kind: Literal["attentive"] = "attentive"
    cell: CellName = AttentiveLMConfig.cell
    layers: Count = AttentiveLMConfig.layers
    width: Count = AttentiveLMConfig.width
    hidden: Count = AttentiveLMConfig.hidden
    tied: bool = AttentiveLMConfig.tied
    dropout: Fraction = AttentiveLMConfig.dropout
    score: ScoreName = AttentiveLMConfig.score
    copying: CopyName = AttentiveLMConfig.copying
    memory: Annotated[int, Field(ge=0)] = AttentiveLMConfig.memory


AnyModel = GPTModel | WindowModel | RecurrentModel | AttentiveModel
