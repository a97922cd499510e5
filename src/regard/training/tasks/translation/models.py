"""The section [model] of the task "translation": a kind for each recurrent decoder, and one for attention alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

from pydantic import Field
from torch import nn

from regard.attention.layers import FeedForward
from regard.attention.positions import Rotary, Sinusoidal
from regard.attention.scores import Additive, Bilinear, Cosine, Dot, ScaledDot, Score
from regard.attention.windows import LocalM, LocalP
from regard.errors import SettingError
from regard.models.blocks import Gated, Style, gelu
from regard.models.decoders import Bahdanau, Bottleneck, Decoder, FedLuong, Luong
from regard.models.pointer import PointerGenerator
from regard.models.reader import Reader
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Positions, Size, Transformer, transformer
from regard.models.words import Words
from regard.training.recipe import Count, Positive, Section, Share


class Vocabularies(NamedTuple):
    """How many words a translator reads and writes with; `unknown`: the source's token for all others; `end`: what
    every target ends with."""

    source: int
    target: int
    unknown: int | None
    end: int | None
    shared: bool


class _Translator(Section, ABC):
    """Words are `width` wide, the states of the source `states` (both ways together), the writer's `hidden`.

    `cell` is the writer's; the source is read by LSTMs, which torch runs fastest. `negatives`: in training the softmax
    is taken over the words of the batch and about so many others; 0: over all.
    """

    width: Count = 128
    states: Annotated[int, Field(ge=2, multiple_of=2)] = 256
    hidden: Count = 256
    cell: Literal["rnn", "gru", "lstm"] = "gru"
    dropout: Share = 0.0
    negatives: Annotated[int, Field(ge=0)] = 0

    def make(self, words: Vocabularies) -> Seq2Seq:
        said = Words(words.target, self.width, scale=1.0)
        return Seq2Seq(self._reader(words), self.decoder(), said, self.dropout, self.negatives, words.end)

    @abstractmethod
    def decoder(self) -> Decoder:
        """The writing half."""

    def _reader(self, words: Vocabularies) -> Reader:
        own = Words(words.source, self.width, words.unknown, scale=1.0)
        return Reader(own, self.states, dropout=self.dropout)


class BottleneckModel(_Translator):
    """No attention: the last states of the source are all that the writer gets."""

    kind: Literal["bottleneck"] = "bottleneck"
    layers: Count = 1

    def decoder(self) -> Bottleneck:
        return Bottleneck(self.width, self.hidden, self.states, self.layers, self.cell, self.dropout)


class BahdanauModel(_Translator):
    """The state before looks at the source, and what it sees enters the next one; `score_width`: of tanh.

    `query`: that state alone, as published, or that state with the word before, which it has not read yet.
    """

    kind: Literal["bahdanau"] = "bahdanau"
    score_width: Count = 128
    query: Literal["state", "state and word"] = "state"

    def decoder(self) -> Bahdanau:
        return self._bahdanau()

    def _bahdanau(self, coverage: bool = False) -> Bahdanau:
        with_word = self.query == "state and word"
        score = Additive(self.hidden + self.width * with_word, self.score_width, self.states)
        return Bahdanau(self.width, self.hidden, self.states, score, self.cell, coverage, with_word)


class LuongModel(_Translator):
    """The new state looks at the source: everywhere, near its own place (local-m), near a predicted one (local-p)."""

    kind: Literal["luong"] = "luong"
    score: Literal["dot", "scaled-dot", "bilinear", "concat", "cosine"] = "bilinear"
    window: Literal["global", "local-m", "local-p"] = "global"
    half_width: Count = 10
    feeding: bool = True
    layers: Count = 1

    def decoder(self) -> Luong:
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


class PointerModel(BahdanauModel):
    """As bahdanau, and words of the source can be said as they stand there, known or not.

    `coverage`: it remembers where it has looked, and looking there again costs `charge` times the weight.
    """

    kind: Literal["pointer"] = "pointer"  # type: ignore[assignment]
    coverage: bool = True
    charge: Annotated[float, Field(ge=0)] = 1.0

    def make(self, words: Vocabularies) -> PointerGenerator:
        if not words.shared or words.unknown is None:
            raise SettingError(
                "a pointer with two vocabularies" if not words.shared else "a tokenizer without an unknown token",
                "one vocabulary for both sides, with an unknown token",
                where="target_tokenizer",
                advice="Leave [target_tokenizer] out, and take words as the tokenizer's kind.",
            )
        if self.negatives:
            raise SettingError(
                f"negatives={self.negatives}", "0: a word may also be pointed at", where="model.negatives"
            )
        said = Words(words.target, self.width, words.unknown, scale=1.0)
        return PointerGenerator(self._reader(words), self.decoder(), said, self.dropout, self.charge)

    def decoder(self) -> Bahdanau:
        return self._bahdanau(self.coverage)


class TransformerModel(Section):
    """Attention alone: `layers` that read and as many that write, `hidden` of the feed-forward ones.

    As published in 2017 where nothing else is said. `key_heads`: fewer heads for keys and values, each shared by a
    group. `gain`: how many times faster words learn than matrices do, for rare ones; `project` puts a matrix before the
    softmax, without which a model whose words are its softmax's begins by saying again what it has just said.
    `looks`: the layer whose attention to the source is told, -1 the last. `negatives`: as for the others.
    """

    kind: Literal["transformer"] = "transformer"
    layers: Count = 6
    width: Count = 512
    heads: Count = 8
    hidden: Count = 2048
    order: Literal["post", "pre"] = "post"
    norm: Literal["layer", "rms"] = "layer"
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    positions: Literal["sinusoidal", "rotary", "sinusoidal and rotary"] = "sinusoidal"
    key_heads: Count | None = None
    bias: bool = True
    dropout: Share = 0.1
    attention_dropout: Share = 0.0
    gain: Positive = 1.0
    project: bool = False
    looks: int = -1
    negatives: Annotated[int, Field(ge=0)] = 0

    def make(self, words: Vocabularies) -> Transformer:
        sizes = words.source if words.shared else (words.source, words.target)
        return transformer(
            sizes,
            self._size,
            self._style,
            self._positions,
            gain=self.gain,
            project=nn.Linear(self.width, self.width, bias=False) if self.project else None,
            looks=self.looks,
            negatives=self.negatives,
            end=words.end,
        )

    @property
    def _size(self) -> Size:
        return Size(self.layers, self.width, self.heads, self.hidden)

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


AnyModel = BottleneckModel | BahdanauModel | LuongModel | PointerModel | TransformerModel
