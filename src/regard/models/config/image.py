"""Configurations of models that look at pictures: image classifier (ViT), captioners, phrase pointer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from regard.attention.positions import Sinusoidal
from regard.attention.scores import Additive
from regard.errors import SettingError
from regard.models.blocks import LLAMA, VIT, InputEmbedding, decoder_blocks
from regard.models.config.names import CellName
from regard.models.decoders import Bahdanau
from regard.models.embedding import OutputProjection, WordEmbedding
from regard.models.image_captioners import RecurrentCaptioner, TransformerCaptioner
from regard.models.image_classifier import ImageClassifier, ImagePooling
from regard.models.image_encoders import ConvEncoder, PatchEncoder, vit_blocks
from regard.models.image_pointer import PhrasePointer

ImageEncoderName = Literal["conv", "vit"]
StemName = Literal["linear", "conv"]
PatchPositions = Literal["learned", "sinusoidal"]


@dataclass(frozen=True, kw_only=True)
class _ImageModel:
    """The image encoder that all have.

    size             pixels of a side of the picture
    encoder          "conv": a convolutional feature grid; "vit": self-attention over patches
    patch            pixels of a side of each patch, or of each cell of the feature grid
    width, layers    of the encoder: its states, and its blocks or residual convolutions
    heads            of the self-attention of a vit
    feedforward_dim  of its feed-forward layers, by default 4 x width
    stem             of a vit: how pixels become patch embeddings, by a linear layer or by strided convolutions
    positions        of a vit: learned, or fixed 2-D sine positions
    registers        of a vit: learned tokens beside the patches
    """

    size: int
    encoder: ImageEncoderName = "conv"
    patch: int = 4
    width: int = 64
    layers: int = 4
    heads: int = 4
    feedforward_dim: int | None = None
    stem: StemName = "linear"
    positions: PatchPositions = "learned"
    registers: int = 0
    dropout: float = 0.0

    def _encoder(self) -> ConvEncoder | PatchEncoder:
        if self.encoder == "conv":
            if self.registers:
                given = f"registers={self.registers} with encoder 'conv'"
                raise SettingError(given, "0: registers are tokens of a vit", where="model.registers")
            return ConvEncoder(self.size, self.patch, self.width, self.layers)
        blocks = vit_blocks(self.layers, self.width, self.heads, self.feedforward_dim or 4 * self.width, VIT)
        return PatchEncoder(
            self.size,
            self.patch,
            self.width,
            blocks,
            VIT.final_norm(self.width),
            stem=self.stem,
            positions=self.positions,
            registers=self.registers,
            dropout=self.dropout,
        )


@dataclass(frozen=True, kw_only=True)
class ImageClassifierConfig(_ImageModel):
    """An image classifier: by default a small ViT that classifies by its class token ("cls")."""

    classes: int
    encoder: ImageEncoderName = "vit"
    patch: int = 8
    pooling: ImagePooling = "cls"

    def build(self) -> ImageClassifier:
        return ImageClassifier(self._encoder(), self.classes, self.pooling, self.dropout)


@dataclass(frozen=True, kw_only=True)
class RecurrentCaptionerConfig(_ImageModel):
    """Show, Attend and Tell: an LSTM or GRU with additive attention over the grid.

    word_dim       embedding dimension of the words
    hidden         dimension of the decoder states
    attention_dim  dimension of the tanh layer
    gate           whether the context is multiplied by beta = sigmoid(f(h)), as published
    query          as of BahdanauConfig: "state" is the published one
    """

    vocabulary: int
    word_dim: int = 64
    hidden: int = 128
    attention_dim: int = 64
    cell: CellName = "lstm"
    gate: bool = True
    query: Literal["state", "state and word"] = "state"

    def build(self) -> RecurrentCaptioner:
        with_word = self.query == "state and word"
        score = Additive(self.hidden + self.word_dim * with_word, self.attention_dim, self.width)
        decoder = Bahdanau(
            self.word_dim, self.hidden, self.width, score, self.cell, query_includes_input=with_word, gate=self.gate
        )
        words = WordEmbedding(self.vocabulary, self.word_dim, scale=1.0)
        return RecurrentCaptioner(self._encoder(), decoder, words, self.dropout)


@dataclass(frozen=True, kw_only=True)
class TransformerCaptionerConfig(_ImageModel):
    """A Transformer decoder of `decoder_layers` with cross-attention to the grid; both are `width` wide.

    alignment_layer  the decoder layer whose cross-attention is reported, -1 the last
    """

    vocabulary: int
    decoder_layers: int = 2
    alignment_layer: int = -1

    def build(self) -> TransformerCaptioner:
        embedding, blocks = _phrase_parts(self.vocabulary, self.width, self.heads, self.decoder_layers, self.dropout)
        # without a matrix before the tied softmax it would start by repeating the last word
        project = nn.Linear(self.width, self.width, bias=False)
        output = OutputProjection(self.width, self.vocabulary, embedding.tokens, project=project)
        norm = LLAMA.final_norm(self.width)
        return TransformerCaptioner(
            self._encoder(), embedding, blocks, norm, output, alignment_layer=self.alignment_layer
        )


@dataclass(frozen=True, kw_only=True)
class PhrasePointerConfig(_ImageModel):
    """Phrase grounding: `phrase_layers` blocks in which the words attend to each other and to the patches."""

    vocabulary: int
    phrase_layers: int = 2

    def build(self) -> PhrasePointer:
        embedding, blocks = _phrase_parts(self.vocabulary, self.width, self.heads, self.phrase_layers, self.dropout)
        return PhrasePointer(self._encoder(), embedding, blocks, LLAMA.final_norm(self.width))


def _phrase_parts(
    vocabulary: int, width: int, heads: int, layers: int, dropout: float
) -> tuple[InputEmbedding, nn.ModuleList]:
    embedding = InputEmbedding(vocabulary, width, Sinusoidal(width), scale=width**0.5, dropout=dropout)
    nn.init.normal_(embedding.tokens.weight, std=width**-0.5)
    return embedding, decoder_blocks(layers, width, heads, 2 * width, LLAMA)
