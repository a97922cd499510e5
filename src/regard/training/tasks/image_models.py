"""The section [model] of tasks that look at pictures: the image encoder, and what each task puts on it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from regard.models import ImagePooling
from regard.models.config import (
    CellName,
    ImageClassifierConfig,
    ImageEncoderName,
    PatchPositions,
    PhrasePointerConfig,
    QueryName,
    RecurrentCaptionerConfig,
    StemName,
    TransformerCaptionerConfig,
)
from regard.training.section import Count, Fraction, RecipeSection


class _ImageModel(RecipeSection):
    """The image encoder: a convolutional feature grid ("conv"), or self-attention over patches ("vit").

    `patch`: pixels of a side of each patch, or cell of the grid. A vit has `heads`, `feedforward_dim` (4 x width where
    it is not given), a `stem` that makes patch embeddings by a linear layer or by strided convolutions, `positions`,
    and `registers`, learned tokens beside the patches.
    """

    encoder: ImageEncoderName = RecurrentCaptionerConfig.encoder
    patch: Count = RecurrentCaptionerConfig.patch
    width: Annotated[int, Field(ge=4, multiple_of=4)] = RecurrentCaptionerConfig.width
    layers: Count = RecurrentCaptionerConfig.layers
    heads: Count = RecurrentCaptionerConfig.heads
    feedforward_dim: Count | None = RecurrentCaptionerConfig.feedforward_dim
    stem: StemName = RecurrentCaptionerConfig.stem
    positions: PatchPositions = RecurrentCaptionerConfig.positions
    registers: Annotated[int, Field(ge=0)] = RecurrentCaptionerConfig.registers
    dropout: Fraction = RecurrentCaptionerConfig.dropout


class RecurrentCaptionerModel(_ImageModel):
    """Show, Attend and Tell: an LSTM or GRU with additive attention over the grid, and a gate on what it attends to.

    `query`: the previous state, as published, or that state with the previous word, which it has not read yet.
    """

    kind: Literal["recurrent"] = "recurrent"
    word_dim: Count = RecurrentCaptionerConfig.word_dim
    hidden: Count = RecurrentCaptionerConfig.hidden
    attention_dim: Count = RecurrentCaptionerConfig.attention_dim
    cell: CellName = RecurrentCaptionerConfig.cell
    gate: bool = RecurrentCaptionerConfig.gate
    query: QueryName = RecurrentCaptionerConfig.query


class TransformerCaptionerModel(_ImageModel):
    """Transformer decoder blocks with cross-attention to the grid; `alignment_layer`: the one that is reported."""

    kind: Literal["transformer"] = "transformer"
    decoder_layers: Count = TransformerCaptionerConfig.decoder_layers
    alignment_layer: int = TransformerCaptionerConfig.alignment_layer


class ImageClassifierModel(_ImageModel):
    """A linear classifier on one vector of the picture: the class token, the mean, or attention pooling."""

    kind: Literal["encoder"] = "encoder"
    encoder: ImageEncoderName = ImageClassifierConfig.encoder
    patch: Count = ImageClassifierConfig.patch
    pooling: ImagePooling = ImageClassifierConfig.pooling


class PhrasePointerModel(_ImageModel):
    """`phrase_layers`: blocks in which the words of a phrase attend to each other and to the picture."""

    kind: Literal["pointer"] = "pointer"
    phrase_layers: Count = PhrasePointerConfig.phrase_layers
