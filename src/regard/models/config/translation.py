"""Configurations of translators: one for each recurrent decoder, and the Transformer."""

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
from regard.models.blocks import Gated, Style, gelu
from regard.models.config.names import CellName, NormName
from regard.models.decoders import Bahdanau, Bottleneck, Decoder, FedLuong, Luong
from regard.models.embedding import Words
from regard.models.pointer import PointerGenerator
from regard.models.rnn_encoder import Reader
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Positions, Size, Transformer, build_transformer

QueryName = Literal["state", "state and word"]
LuongScore = Literal["dot", "scaled-dot", "bilinear", "concat", "cosine"]
WindowName = Literal["global", "local-m", "local-p"]
OrderName = Literal["post", "pre"]
ActivationName = Literal["relu", "gelu", "swiglu"]
PositionsName = Literal["sinusoidal", "rotary", "sinusoidal and rotary"]


class Vocabularies(NamedTuple):
    """The sizes of the source's and the target's vocabulary; `unknown`: the source's token for all other words; `end`:
    the token that every target ends with; `shared`: both are one."""

    source: int
    target: int
    unknown: int | None
    end: int | None
    shared: bool


@dataclass(frozen=True, kw_only=True)
class _Seq2SeqConfig(ABC):
    """Words are `width` wide, the states of the encoder `states` (both directions together), the decoder's `hidden`.

    `cell` is the decoder's; the encoder has LSTMs, which torch runs fastest. `negatives`: in training the softmax is
    taken over the words of the batch and about so many others (sampled softmax); 0: over all.
    """

    words: Vocabularies
    width: int = 128
    states: int = 256
    hidden: int = 256
    cell: CellName = "gru"
    dropout: float = 0.0
    negatives: int = 0

    def build(self) -> Seq2Seq:
        target = Words(self.words.target, self.width, scale=1.0)
        return Seq2Seq(self._encoder(), self._decoder(), target, self.dropout, self.negatives, self.words.end)

    @abstractmethod
    def _decoder(self) -> Decoder: ...

    def _encoder(self) -> Reader:
        own = Words(self.words.source, self.width, self.words.unknown, scale=1.0)
        return Reader(own, self.states, dropout=self.dropout)


@dataclass(frozen=True, kw_only=True)
class BottleneckConfig(_Seq2SeqConfig):
    """No attention: the last states of the source are all that the decoder gets."""

    layers: int = 1

    def _decoder(self) -> Bottleneck:
        return Bottleneck(self.width, self.hidden, self.states, self.layers, self.cell, self.dropout)


@dataclass(frozen=True, kw_only=True)
class BahdanauConfig(_Seq2SeqConfig):
    """Additive attention of the previous state; `score_width`: of tanh.

    `query`: that state alone, as published, or that state with the word before, which it has not read yet.
    """

    score_width: int = 128
    query: QueryName = "state"

    def _decoder(self) -> Bahdanau:
        return self._bahdanau()

    def _bahdanau(self, coverage: bool = False) -> Bahdanau:
        with_word = self.query == "state and word"
        score = Additive(self.hidden + self.width * with_word, self.score_width, self.states)
        return Bahdanau(self.width, self.hidden, self.states, score, self.cell, coverage, with_word)


@dataclass(frozen=True, kw_only=True)
class LuongConfig(_Seq2SeqConfig):
    """Attention of the new state: to all of the source, near its own place (local-m) or a predicted one (local-p)."""

    score: LuongScore = "bilinear"
    window: WindowName = "global"
    half_width: int = 10
    feeding: bool = True
    layers: int = 1

    def _decoder(self) -> Luong:
        kind = FedLuong if self.feeding else Luong
        windows: dict[str, Callable[[], LocalM | LocalP | None]] = {
            "global": lambda: None,
            "local-m": lambda: LocalM(self.half_width),
            "local-p": lambda: LocalP(self.hidden, self.half_width),
        }
        near, score = windows[self.window](), self._score()
        return kind(self.width, self.hidden, self.states, score, near, self.layers, self.cell, self.dropout)

    def _score(self) -> Score:
        if self.score in ("dot", "scaled-dot", "cosine") and self.hidden != self.states:
            raise SettingError(
                f"score {self.score!r} between states of {self.hidden} and of {self.states}",
                "hidden and states of one width",
                where="model.score",
                advice="bilinear and concat compare different widths.",
            )
        scores: dict[str, Callable[[], Score]] = {
            "dot": Dot,
            "scaled-dot": ScaledDot,
            "cosine": Cosine,
            "bilinear": lambda: Bilinear(self.hidden, self.states),
            "concat": lambda: Additive(self.hidden, self.hidden, self.states),
        }
        return scores[self.score]()


@dataclass(frozen=True, kw_only=True)
class PointerConfig(BahdanauConfig):
    """As Bahdanau, and words of the source can be copied, known or not (pointer-generator).

    `coverage`: the decoder remembers where it has looked, and looking there again costs `charge` times the weight.
    """

    coverage: bool = True
    charge: float = 1.0

    def build(self) -> PointerGenerator:
        if not self.words.shared or self.words.unknown is None:
            raise SettingError(
                "a pointer with two vocabularies" if not self.words.shared else "a tokenizer without an unknown token",
                "one vocabulary for both sides, with an unknown token",
                where="target_tokenizer",
                advice="Leave [target_tokenizer] out, and take words as the tokenizer's kind.",
            )
        if self.negatives:
            raise SettingError(
                f"negatives={self.negatives}", "0: a word may also be pointed at", where="model.negatives"
            )
        target = Words(self.words.target, self.width, self.words.unknown, scale=1.0)
        return PointerGenerator(self._encoder(), self._decoder(), target, self.dropout, self.charge)

    def _decoder(self) -> Bahdanau:
        return self._bahdanau(self.coverage)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Encoder and decoder of `layers` each, `hidden` of the feed-forward layers; as published in 2017 by default.

    `key_heads`: fewer heads for keys and values, each shared by a group. `gain`: how many times faster embeddings learn
    than matrices do, for rare words; `project` puts a matrix before the softmax, without which a model whose softmax is
    tied to its embedding begins by repeating the last word. `looks`: the layer whose cross-attention is reported, -1
    the last. `negatives`: as for the others.
    """

    words: Vocabularies
    layers: int = 6
    width: int = 512
    heads: int = 8
    hidden: int = 2048
    order: OrderName = "post"
    norm: NormName = "layer"
    activation: ActivationName = "relu"
    positions: PositionsName = "sinusoidal"
    key_heads: int | None = None
    bias: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.0
    gain: float = 1.0
    project: bool = False
    looks: int = -1
    negatives: int = 0

    def build(self) -> Transformer:
        sizes = self.words.source if self.words.shared else (self.words.source, self.words.target)
        return build_transformer(
            sizes,
            Size(self.layers, self.width, self.heads, self.hidden),
            self._style,
            self._positions,
            gain=self.gain,
            project=nn.Linear(self.width, self.width, bias=False) if self.project else None,
            looks=self.looks,
            negatives=self.negatives,
            end=self.words.end,
        )

    @property
    def _style(self) -> Style:
        feeds: dict[str, Callable[[int, int], nn.Module]] = {"relu": FeedForward, "gelu": gelu, "swiglu": Gated}
        return Style(
            order=self.order,
            norm=nn.RMSNorm if self.norm == "rms" else nn.LayerNorm,
            feed=feeds[self.activation],
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
