"""The section [model] of the task "translation": recurrent encoder-decoders (RNN) and the Transformer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from regard.models.config import (
    ActivationName,
    BahdanauConfig,
    BottleneckConfig,
    CellName,
    LuongConfig,
    LuongScore,
    NormName,
    OrderName,
    PointerConfig,
    QueryName,
    TransformerConfig,
    TransformerPositions,
    WindowName,
)
from regard.training.section import Count, Fraction, Positive, RecipeSection


class _Translator(RecipeSection):
    """Embeddings are `width` wide, encoder states `encoder_dim` (both directions), decoder states `hidden`.

    `cell` is the decoder's; the encoder has LSTMs, which torch runs fastest. `num_sampled`: sampled softmax, which in
    training is over the words of the batch and about this many others; 0: the full softmax.
    """

    width: Count = BahdanauConfig.width
    encoder_dim: Annotated[int, Field(ge=2, multiple_of=2)] = BahdanauConfig.encoder_dim
    hidden: Count = BahdanauConfig.hidden
    cell: CellName = BahdanauConfig.cell
    dropout: Fraction = BahdanauConfig.dropout
    num_sampled: Annotated[int, Field(ge=0)] = BahdanauConfig.num_sampled


class BottleneckModel(_Translator):
    """No attention: the decoder gets the last encoder states only."""

    kind: Literal["bottleneck"] = "bottleneck"
    layers: Count = BottleneckConfig.layers


class BahdanauModel(_Translator):
    """Additive attention with the previous decoder state as the query; `attention_dim`: the width of its tanh layer.

    `query`: the previous state, as published, or that state with the previous word, which it has not read yet.
    """

    kind: Literal["bahdanau"] = "bahdanau"
    attention_dim: Count = BahdanauConfig.attention_dim
    query: QueryName = BahdanauConfig.query


class LuongModel(_Translator):
    """Attention with the new decoder state as the query: global, or local around t (local-m) or a predicted position
    (local-p).

    `input_feeding`: the attentional state is an input of the next step.
    """

    kind: Literal["luong"] = "luong"
    score: LuongScore = LuongConfig.score
    window: WindowName = LuongConfig.window
    half_width: Count = LuongConfig.half_width
    input_feeding: bool = LuongConfig.input_feeding
    layers: Count = LuongConfig.layers


class PointerModel(BahdanauModel):
    """Bahdanau's decoder with a copy mechanism: words of the source can be copied, known or not (pointer-generator).

    `coverage`: the decoder keeps track of what it attended to; attending to it again costs `coverage_weight` times the
    weight.
    """

    kind: Literal["pointer"] = "pointer"  # type: ignore[assignment]
    coverage: bool = PointerConfig.coverage
    coverage_weight: Annotated[float, Field(ge=0)] = PointerConfig.coverage_weight


class TransformerModel(RecipeSection):
    """The Transformer: `layers` in the encoder and as many in the decoder; as published in 2017 by default.

    `key_heads`: fewer heads for keys and values (grouped-query attention). `embedding_lr_scale`: how many times faster
    embeddings learn than matrices, for rare words. `project`: a matrix before the softmax; without it, a model whose
    softmax is tied to the embedding starts by repeating the last word. `alignment_layer`: the decoder layer whose
    cross-attention is reported, -1 the last. `num_sampled`: sampled softmax, as for the others.
    """

    kind: Literal["transformer"] = "transformer"
    layers: Count = TransformerConfig.layers
    width: Count = TransformerConfig.width
    heads: Count = TransformerConfig.heads
    feedforward_dim: Count = TransformerConfig.feedforward_dim
    order: OrderName = TransformerConfig.order
    norm: NormName = TransformerConfig.norm
    activation: ActivationName = TransformerConfig.activation
    positions: TransformerPositions = TransformerConfig.positions
    key_heads: Count | None = TransformerConfig.key_heads
    bias: bool = TransformerConfig.bias
    dropout: Fraction = TransformerConfig.dropout
    attention_dropout: Fraction = TransformerConfig.attention_dropout
    embedding_lr_scale: Positive = TransformerConfig.embedding_lr_scale
    project: bool = TransformerConfig.project
    alignment_layer: int = TransformerConfig.alignment_layer
    num_sampled: Annotated[int, Field(ge=0)] = TransformerConfig.num_sampled


AnyModel = BottleneckModel | BahdanauModel | LuongModel | PointerModel | TransformerModel
