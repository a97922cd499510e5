"""Encoders of ours: BERT and what stands on it, classifiers with attention pooling, and ELMo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.adapters.base import TEXT, Axes, Decision, Kind, ModelAdapter, Output, Pass, Predicted
from regard.adapters.bert_inputs import Rows, framed, padded, padded_rows, rows_of, segments_of
from regard.adapters.case import Case, Example, ReadText, Row, texts_of, words_at
from regard.adapters.readout import Readout, find_readout, readout_of
from regard.adapters.tokens import NO_WORD, Piece, TokenRow
from regard.attention import AttentionPooling
from regard.errors import PlaceError, SettingError
from regard.models import Bert, Logits, Reading, Summary
from regard.text import Encoding, Labels, Scale, Tokenizer, Translation, compacted, opened, spelled_words

QUESTION = 1  # the number of the axis of a learned query


@dataclass(frozen=True, eq=False)
class EncoderAdapter(ModelAdapter):
    """A model of rows [CLS] a [SEP] or [CLS] a [SEP] b [SEP], with its tokenizer."""

    model: nn.Module
    tokenizer: Tokenizer
    name: str = "encoder"
    description: str = ""

    @property
    def frame(self) -> tuple[list[int], list[int]]:
        special = self.tokenizer.special
        return [special.need("cls")], [special.need("sep")]

    @property
    def longest(self) -> int | None:
        return next((one.longest for one in self.model.modules() if isinstance(one, Bert)), None)

    @property
    def reader(self) -> Any:
        """The module that gives the states of every layer, `states(*rows)`; None where there are no layers."""
        return next((one for one in self.model.modules() if isinstance(one, Reading | Bert)), None)

    @property
    def learned_pooling(self) -> Summary | None:
        """How a classifier pools the states of a text by a query that it has learned, if it does."""
        summary = getattr(self.model, "summary", None)
        return summary if isinstance(summary, Summary) and summary.question is not None else None

    def axes_of(self, place: str) -> Axes:
        """Attention pooling looks at the text with one learned query."""
        asks = isinstance(self.model.get_submodule(place), AttentionPooling)
        return (QUESTION, TEXT, "cross") if asks else (TEXT, TEXT, "self")

    def prepare(self, text: str, other: str | None = None, prefix: Sequence[int] | None = None) -> Pass:
        """The attention of every token to every token."""
        if prefix is not None:
            raise SettingError("a prefix", "none: this model writes nothing", where="look")
        encoded = self._encoded(text, other)
        rows = self.rows([encoded[0].ids], [encoded[1].ids if other is not None else None], "look")
        axes = (_axis(self.tokenizer, encoded), TokenRow("question", optional=True).written(["what it asks"]))
        return Pass(rows.inputs.size(1), lambda: self._output(rows, axes))

    def rows(self, ids: Sequence[Sequence[int]], others: Sequence[Sequence[int] | None] | None, where: str) -> Rows:
        """Rows of these ids, on the device of the model; what is too long for it is refused."""
        seconds = [None] * len(ids) if others is None else others
        return rows_of(ids, seconds, self.tokenizer.special, self.longest, where).to(self.device)

    def states(self, texts: Sequence[str]) -> Iterator[Tensor]:
        """(L, T, D) of each text, layer 0 being the words by themselves, [CLS] and [SEP] included."""
        rows = self.rows(self.tokenizer.ids_batch(texts), None, "embed")
        return _unpadded(self.reader.states(*rows), rows.lengths)

    def mixed(self, states: Tensor) -> Tensor:
        """states (L, T, D): their learned mixture, else their mean, (T, D)."""
        mix = getattr(self.reader, "mix", None)
        return states.mean(0) if mix is None else cast(Tensor, mix(states.unsqueeze(0))[0])

    def _output(self, rows: Rows, axes: tuple[TokenRow, ...]) -> Output:
        self.model(*rows)
        return Output(axes)

    def _encoded(self, text: str, other: str | None) -> list[Encoding]:
        return self.tokenizer.encode_batch([text] if other is None else [text, other], specials=True)

    def _read(self, example: Example) -> ReadText:
        """The row of a text or of two."""
        if isinstance(example, Translation):
            raise SettingError("sentences with translations", "texts, for a model that reads", where="audit")
        encoded, special = self._encoded(*texts_of(example)), self.tokenizer.special
        cls, sep = special.need("cls"), special.need("sep")
        ids = framed(cls, sep, [one.ids for one in encoded])
        free = tuple(token == special.unknown or token not in special.all for token in ids)  # words, known or not
        tokens = framed(self.tokenizer.token(cls), self.tokenizer.token(sep), [one.pieces for one in encoded])
        inside = [words_at(one.text, one.offsets) if one is encoded[0] else [-1] * len(one) for one in encoded]
        segments = tuple(segments_of([one.ids for one in encoded]))
        return ReadText(Row(tuple(ids), free, segments), tuple(tokens), tuple(framed(-1, -1, inside)))

    def input_ids(self, rows: Sequence[Row]) -> Tensor:
        return self._batch(rows).inputs

    def _batch(self, rows: Sequence[Row]) -> Rows:
        ids, segments = [row.ids for row in rows], [row.segments for row in rows]
        return padded_rows(ids, segments, self.tokenizer.special.need("pad")).to(self.device)


@dataclass(frozen=True, eq=False)
class ClassifierAdapter(EncoderAdapter):
    """A model of classes, or of a number; `labels`: their names, or the scale of the number, where that is known."""

    labels: Labels | Scale | None = None

    @property
    def decides(self) -> Decision:
        return "class"

    def cases(self, example: Example, number: int, chance: Random) -> list[Case]:
        return self._read(example).class_case(example, number, self._class_id)

    def log_probs(self, rows: Sequence[Row]) -> Tensor:
        said = self.model(*self._batch(rows))
        if said.dim() != 2 or said.size(-1) < 2:
            came = f"a model that says numbers of shape {tuple(said.shape)}"
            raise SettingError(came, "one that says a class of each text", where="audit")
        return cast(Tensor, said.float().log_softmax(-1))

    def readout_position(self, place: str, rows: Sequence[Row]) -> list[int] | None:
        return readout_of(self._readout, rows) if self.attends_from_text(place) else [0] * len(rows)

    def label(self, number: int) -> str:
        return self._names[number] if self._names else f"class {number}"

    def _output(self, rows: Rows, axes: tuple[TokenRow, ...]) -> Output:
        found = self.model(*rows)
        target = found.log_softmax(-1).max() if found.size(-1) > 1 else None
        return Output(axes, target, facts=self.judged(found[0].detach()))

    def judged(self, said: Tensor) -> dict[str, Any]:
        """Each class with its probability, or the number that is estimated."""
        if isinstance(self.labels, Scale):
            return {"estimate": self.labels.value(float(said))}
        if len(said) == 1:
            return {}
        names = self._names or [str(number) for number in range(len(said))]
        shares = said.float().softmax(-1).tolist()
        return {"classes": [[name, share] for name, share in zip(names, shares, strict=True)]}

    @cached_property
    def _readout(self) -> Readout:
        return find_readout(self, self._read("a b c").row)

    @property
    def _names(self) -> tuple[str, ...]:
        return self.labels.names if isinstance(self.labels, Labels) else ()

    def _class_id(self, label: str) -> int | None:
        if not self._names:
            return None
        if label not in self._names:
            raise SettingError(f"the label {label!r}", f"one of {', '.join(self._names)}", where="audit")
        return self._names.index(label)


@dataclass(frozen=True, eq=False)
class MaskedLMAdapter(EncoderAdapter):
    """A BERT that says which token is behind a mask."""

    @property
    def kind(self) -> Kind:
        return "fills"

    @property
    def decides(self) -> Decision:
        return "hidden word"

    @property
    def mask(self) -> int:
        return self.tokenizer.special.need("mask")

    def cases(self, example: Example, number: int, chance: Random) -> list[Case]:
        return self._read(example).masked_token_case(number, chance, self.mask, self.tokenizer.token(self.mask))

    def log_probs(self, rows: Sequence[Row]) -> Tensor:
        batch = self._batch(rows)
        places = torch.tensor(self.readout_position("", rows), device=self.device)
        places = places + torch.arange(len(rows), device=self.device) * batch.inputs.size(1)
        return Logits(self.masked_logits(batch, places)).log_probs()

    def readout_position(self, place: str, rows: Sequence[Row]) -> list[int]:
        return [row.ids.index(self.mask) for row in rows]

    def label(self, number: int) -> str:
        return self.tokenizer.decode([number]) or self.tokenizer.token(number)

    def masks_in(self, rows: Rows) -> Tensor:
        """The positions of masks in the rows end to end."""
        return (rows.inputs == self.mask).flatten().nonzero().squeeze(-1)

    def masked_logits(self, rows: Rows, places: Tensor) -> Tensor:
        """(n, V) at n positions of the rows end to end."""
        said: Any = self.model(*rows, places)
        return cast(Tensor, said.words)

    def _output(self, rows: Rows, axes: tuple[TokenRow, ...]) -> Output:
        places = self.masks_in(rows)
        if not len(places):
            cast(Any, self.model).bert(*rows)
            return Output(axes)
        logs = Logits(self.masked_logits(rows, places)).log_probs()
        predicted = Predicted(logs, logs.argmax(-1).tolist(), places.tolist(), self.label)
        return Output(axes, logs.max(-1).values.sum(), predicted)


@dataclass(frozen=True, eq=False)
class ELMoAdapter(EncoderAdapter):
    """A recurrent encoder of words by their letters, which attends nowhere: it gives states."""

    attends = False

    @property
    def reader(self) -> Any:
        return self.model

    def prepare(self, text: str, other: str | None = None, prefix: Sequence[int] | None = None) -> Pass:
        raise PlaceError(
            f"a {type(self.model).__name__}, which attends nowhere", "a model with attention", where="look"
        )

    def states(self, texts: Sequence[str]) -> Iterator[Tensor]:
        """As of any encoder; words outside the vocabulary are read by their spelling."""
        special, words = self.tokenizer.special, opened(self.tokenizer, texts)
        rows = [framed(special.need("cls"), special.need("sep"), [one.ids]) for one in words]
        inputs, lengths = padded(rows, special.need("pad"))
        inputs, outside = compacted(inputs, len(self.tokenizer))
        spelling = {number: word for one in words for number, word in one.spellings.items()}
        letters = spelled_words([spelling[number] for number in outside.tolist()]).to(self.device)
        return _unpadded(self.reader.states(inputs.to(self.device), lengths.to(self.device), letters), lengths)


def _axis(tokenizer: Tokenizer, encoded: Sequence[Encoding]) -> TokenRow:
    """The tokens of one text or two, in their frame."""
    row, parts, first = TokenRow("text"), list[list[Piece]](), 0
    for one in encoded:
        parts.append(row.pieces_of(one.text, one.pieces, one.offsets, one.words, first))
        first = max(first, 1 + max((piece.word for piece in parts[-1]), default=NO_WORD))
    cls, sep = (Piece(tokenizer.token(tokenizer.special.need(role))) for role in ("cls", "sep"))
    return row.add(framed(cls, sep, parts), segments_of(parts))


def _unpadded(states: Tensor, lengths: Tensor) -> Iterator[Tensor]:
    return (one[:, :length] for one, length in zip(states, lengths.tolist(), strict=True))
