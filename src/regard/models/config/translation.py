"""Configurations of translators: Seq2Seq with each kind of decoder, pointer-generator, and the Transformer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import nn

from regard.attention.layers import FeedForward
from regard.attention.positions import Rotary, Sinusoidal
from regard.attention.scores import Additive, Bilinear, Cosine, Dot, ScaledDot, Score
from regard.attention.windows import LocalM, LocalP
from regard.errors import SettingError
from regard.models.blocks import BlockConfig, SwiGLU, gelu_feedforward
from regard.models.config.names import CellName, NormName
from regard.models.decoders import Bahdanau, Bottleneck, Decoder, Luong, LuongInputFeeding
from regard.models.embedding import WordEmbedding
from regard.models.pointer import PointerGenerator
from regard.models.rnn_encoder import BiRNNEncoder
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Positions, Transformer, TransformerSize, build_transformer

QueryName = Literal["state", "state and word"]
LuongScore = Literal["dot", "scaled-dot", "bilinear", "concat", "cosine"]
WindowName = Literal["global", "local-m", "local-p"]
OrderName = Literal["post", "pre"]
ActivationName = Literal["relu", "gelu", "swiglu"]
TransformerPositions = Literal["sinusoidal", "rotary", "sinusoidal and rotary"]


class VocabularySizes(NamedTuple):
    """The sizes of the source and target vocabularies.

    unknown  id of the source's unknown token
    eos      id of the token that ends every target
    shared   whether both sides use one vocabulary
    """

    source: int
    target: int
    unknown: int | None
    eos: int | None
    shared: bool


@dataclass(frozen=True, kw_only=True)
class _Seq2SeqConfig(ABC):
    """Dimensions and settings that all recurrent translators share.

    width        embedding dimension
    encoder_dim  dimension of the encoder states, both directions together
    hidden       dimension of the decoder states
    cell         of the decoder; the encoder is always an LSTM, which torch runs fastest
    num_sampled  sampled softmax in training: over the words of the batch and about this many others; 0: full softmax
    """

    vocabulary: VocabularySizes
    width: int = 128
    encoder_dim: int = 256
    hidden: int = 256
    cell: CellName = "gru"
    dropout: float = 0.0
    num_sampled: int = 0

    def build(self) -> Seq2Seq:
        target = WordEmbedding(self.vocabulary.target, self.width, scale=1.0)
        return Seq2Seq(self._encoder(), self._decoder(), target, self.dropout, self.num_sampled, self.vocabulary.eos)

    @abstractmethod
    def _decoder(self) -> Decoder: ...

    def _encoder(self) -> BiRNNEncoder:
        words = WordEmbedding(self.vocabulary.source, self.width, self.vocabulary.unknown, scale=1.0)
        return BiRNNEncoder(words, self.encoder_dim, dropout=self.dropout)


@dataclass(frozen=True, kw_only=True)
class BottleneckConfig(_Seq2SeqConfig):
    """Seq2Seq without attention: the decoder gets the final states of the encoder alone."""

    layers: int = 1

    def _decoder(self) -> Bottleneck:
        return Bottleneck(self.width, self.hidden, self.encoder_dim, self.layers, self.cell, self.dropout)


@dataclass(frozen=True, kw_only=True)
class BahdanauConfig(_Seq2SeqConfig):
    """Bahdanau attention: additive attention, with the previous decoder state as the query.

    attention_dim  dimension of the tanh layer
    query          "state": the previous state alone, as published; "state and word": also the embedding of the previous
                   target word, which that state does not contain
    """

    attention_dim: int = 128
    query: QueryName = "state"

    def _decoder(self) -> Bahdanau:
        return self._bahdanau()

    def _bahdanau(self, coverage: bool = False) -> Bahdanau:
        with_word = self.query == "state and word"
        score = Additive(self.hidden + self.width * with_word, self.attention_dim, self.encoder_dim)
        return Bahdanau(self.width, self.hidden, self.encoder_dim, score, self.cell, coverage, with_word)


@dataclass(frozen=True, kw_only=True)
class LuongConfig(_Seq2SeqConfig):
    """Luong attention of the new state: global, or local around its position (local-m) or a predicted one (local-p)."""

    score: LuongScore = "bilinear"
    window: WindowName = "global"
    half_width: int = 10
    input_feeding: bool = True
    layers: int = 1

    def _decoder(self) -> Luong:
        decoder = LuongInputFeeding if self.input_feeding else Luong
        windows: dict[str, Callable[[], LocalM | LocalP | None]] = {
            "global": lambda: None,
            "local-m": lambda: LocalM(self.half_width),
            "local-p": lambda: LocalP(self.hidden, self.half_width),
        }
        window, score = windows[self.window](), self._score()
        return decoder(self.width, self.hidden, self.encoder_dim, score, window, self.layers, self.cell, self.dropout)

    def _score(self) -> Score:
        if self.score in ("dot", "scaled-dot", "cosine") and self.hidden != self.encoder_dim:
            raise SettingError(
                f"hidden={self.hidden} and encoder_dim={self.encoder_dim} with score {self.score!r}",
                "one width for both",
                where="model.score",
                advice="bilinear and concat compare different widths.",
            )
        scores: dict[str, Callable[[], Score]] = {
            "dot": Dot,
            "scaled-dot": ScaledDot,
            "cosine": Cosine,
            "bilinear": lambda: Bilinear(self.hidden, self.encoder_dim),
            "concat": lambda: Additive(self.hidden, self.hidden, self.encoder_dim),
        }
        return scores[self.score]()


@dataclass(frozen=True, kw_only=True)
class PointerConfig(BahdanauConfig):
    """Pointer-generator: Bahdanau attention that can also copy words of the source, known or not.

    `coverage`: the scores take the attention so far, and `coverage_weight` is the weight of the coverage loss.
    """

    coverage: bool = True
    coverage_weight: float = 1.0

    def build(self) -> PointerGenerator:
        if not self.vocabulary.shared or self.vocabulary.unknown is None:
            raise SettingError(
                "A pointer-generator needs one vocabulary for both sides, with an unknown token",
                where="target_tokenizer",
                advice="Leave [target_tokenizer] out, and use a tokenizer of kind words.",
            )
        if self.num_sampled:
            raise SettingError(
                f"num_sampled={self.num_sampled}",
                "0: a pointer-generator needs the full softmax",
                where="model.num_sampled",
            )
        target = WordEmbedding(self.vocabulary.target, self.width, self.vocabulary.unknown, scale=1.0)
        return PointerGenerator(self._encoder(), self._decoder(), target, self.dropout, self.coverage_weight)

    def _decoder(self) -> Bahdanau:
        return self._bahdanau(self.coverage)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """A Transformer: encoder and decoder of `layers` each; by default as published in 2017.

    `order`: post-norm or pre-norm. `key_heads`: fewer heads for keys and values (grouped-query attention).
    `embedding_lr_scale`: how many times faster embeddings learn than matrices, for rare words. `project` puts a linear
    layer before the softmax; without it a model whose softmax is tied to its embedding starts by repeating the last
    word. `alignment_layer`: the layer whose cross-attention is reported, -1 the last. `num_sampled`: sampled softmax.
    """

    vocabulary: VocabularySizes
    layers: int = 6
    width: int = 512
    heads: int = 8
    feedforward_dim: int = 2048
    order: OrderName = "post"
    norm: NormName = "layer"
    activation: ActivationName = "relu"
    positions: TransformerPositions = "sinusoidal"
    key_heads: int | None = None
    bias: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.0
    embedding_lr_scale: float = 1.0
    project: bool = False
    alignment_layer: int = -1
    num_sampled: int = 0

    def build(self) -> Transformer:
        sizes = self.vocabulary.source if self.vocabulary.shared else (self.vocabulary.source, self.vocabulary.target)
        return build_transformer(
            sizes,
            TransformerSize(self.layers, self.width, self.heads, self.feedforward_dim),
            self._block,
            self._positions,
            embedding_lr_scale=self.embedding_lr_scale,
            project=nn.Linear(self.width, self.width, bias=False) if self.project else None,
            alignment_layer=self.alignment_layer,
            num_sampled=self.num_sampled,
            eos=self.vocabulary.eos,
        )

    @property
    def _block(self) -> BlockConfig:
        feedforwards: dict[str, Callable[[int, int], nn.Module]] = {
            "relu": FeedForward,
            "gelu": gelu_feedforward,
            "swiglu": SwiGLU,
        }
        return BlockConfig(
            order=self.order,
            norm=nn.RMSNorm if self.norm == "rms" else nn.LayerNorm,
            feedforward=feedforwards[self.activation],
            bias=self.bias,
            key_heads=self.key_heads,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
        )

    @property
    def _positions(self) -> list[Positions]:
        kinds: dict[str, Callable[[], Positions]] = {
            "sinusoidal": lambda: Sinusoidal(self.width),
            "rotary": lambda: Rotary(self.width // self.heads),
        }
        return [kinds[kind]() for kind in self.positions.split(" and ")]
