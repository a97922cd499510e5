"""The section [model] of the task "translation": a kind for each recurrent decoder, and one for attention alone."""

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
    PositionsName,
    QueryName,
    TransformerConfig,
    WindowName,
)
from regard.training.recipe import Count, Positive, Section, Share


class _Translator(Section):
    """Words are `width` wide, the states of the source `states` (both ways together), the writer's `hidden`.

    `cell` is the writer's; the source is read by LSTMs, which torch runs fastest. `negatives`: in training the softmax
    is taken over the words of the batch and about so many others; 0: over all.
    """

    width: Count = BahdanauConfig.width
    states: Annotated[int, Field(ge=2, multiple_of=2)] = BahdanauConfig.states
    hidden: Count = BahdanauConfig.hidden
    cell: CellName = BahdanauConfig.cell
    dropout: Share = BahdanauConfig.dropout
    negatives: Annotated[int, Field(ge=0)] = BahdanauConfig.negatives


class BottleneckModel(_Translator):
    """No attention: the last states of the source are all that the writer gets."""

    kind: Literal["bottleneck"] = "bottleneck"
    layers: Count = BottleneckConfig.layers


class BahdanauModel(_Translator):
    """The state before looks at the source, and what it sees enters the next one; `score_width`: of tanh.

    `query`: that state alone, as published, or that state with the word before, which it has not read yet.
    """

    kind: Literal["bahdanau"] = "bahdanau"
    score_width: Count = BahdanauConfig.score_width
    query: QueryName = BahdanauConfig.query


class LuongModel(_Translator):
    """The new state looks at the source: everywhere, near its own place (local-m), near a predicted one (local-p)."""

    kind: Literal["luong"] = "luong"
    score: LuongScore = LuongConfig.score
    window: WindowName = LuongConfig.window
    half_width: Count = LuongConfig.half_width
    feeding: bool = LuongConfig.feeding
    layers: Count = LuongConfig.layers


class PointerModel(BahdanauModel):
    """As bahdanau, and words of the source can be said as they stand there, known or not.

    `coverage`: it remembers where it has looked, and looking there again costs `charge` times the weight.
    """

    kind: Literal["pointer"] = "pointer"  # type: ignore[assignment]
    coverage: bool = PointerConfig.coverage
    charge: Annotated[float, Field(ge=0)] = PointerConfig.charge


class TransformerModel(Section):
    """Attention alone: `layers` that read and as many that write, `hidden` of the feed-forward ones.

    As published in 2017 where nothing else is said. `key_heads`: fewer heads for keys and values, each shared by a
    group. `gain`: how many times faster words learn than matrices do, for rare ones; `project` puts a matrix before the
    softmax, without which a model whose words are its softmax's begins by saying again what it has just said.
    `looks`: the layer whose attention to the source is told, -1 the last. `negatives`: as for the others.
    """

    kind: Literal["transformer"] = "transformer"
    layers: Count = TransformerConfig.layers
    width: Count = TransformerConfig.width
    heads: Count = TransformerConfig.heads
    hidden: Count = TransformerConfig.hidden
    order: OrderName = TransformerConfig.order
    norm: NormName = TransformerConfig.norm
    activation: ActivationName = TransformerConfig.activation
    positions: PositionsName = TransformerConfig.positions
    key_heads: Count | None = TransformerConfig.key_heads
    bias: bool = TransformerConfig.bias
    dropout: Share = TransformerConfig.dropout
    attention_dropout: Share = TransformerConfig.attention_dropout
    gain: Positive = TransformerConfig.gain
    project: bool = TransformerConfig.project
    looks: int = TransformerConfig.looks
    negatives: Annotated[int, Field(ge=0)] = TransformerConfig.negatives


AnyModel = BottleneckModel | BahdanauModel | LuongModel | PointerModel | TransformerModel
