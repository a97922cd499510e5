"""Adapters of regard's encoders: BERT and its task heads, classifiers with attention pooling, and ELMo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.adapters.base import TEXT, Axes, Decision, ForwardPass, Kind, ModelAdapter, ModelOutput, PredictedTokens
from regard.adapters.bert_inputs import (
    BertInputs,
    add_special_tokens,
    build_bert_inputs,
    pad_bert_inputs,
    pad_ids,
    segment_ids,
)
from regard.adapters.case import Case, EncodedText, Example, InputRow, texts_of, word_ids_at
from regard.adapters.readout import Readout, find_readout, readout_positions
from regard.adapters.token_row import NO_WORD, Piece, TokenRow
from regard.attention import AttentionPooling
from regard.errors import PlaceError, SettingError, unknown
from regard.models import Bert, BertFeatures, Logits, Pooler
from regard.text import Encoding, Labels, Scale, Tokenizer, Translation, compact_oov, encode_with_oov, spell_words

LEARNED_QUERY = 1  # the axis of a learned query


@dataclass(frozen=True, eq=False, repr=False)
class EncoderAdapter(ModelAdapter):
    """A model of rows [CLS] a [SEP] or [CLS] a [SEP] b [SEP], with its tokenizer; `pairs_refused`: why it reads one
    text alone, where two would need other rows."""

    model: nn.Module
    tokenizer: Tokenizer
    name: str = "encoder"
    description: str = ""
    pairs_refused: str = field(default="", kw_only=True)

    @property
    def special_tokens(self) -> tuple[list[int], list[int]]:
        special = self.tokenizer.special
        return [special.need("cls")], [special.need("sep")]

    @property
    def max_length(self) -> int | None:
        return next((one.max_positions for one in self.model.modules() if isinstance(one, Bert)), None)

    @property
    def encoder(self) -> Any:
        """The module that returns the states of every layer, `states(*inputs)`; None where there are no layers."""
        return next((one for one in self.model.modules() if isinstance(one, BertFeatures | Bert)), None)

    @property
    def learned_pooling(self) -> Pooler | None:
        """The attention pooling of a classifier, which has a learned query; None where it pools otherwise."""
        pooler = getattr(self.model, "pooler", None)
        return pooler if isinstance(pooler, Pooler) and pooler.attention is not None else None

    def axes_of(self, place: str) -> Axes:
        """Attention pooling attends to the text from one learned query."""
        pools = isinstance(self.model.get_submodule(place), AttentionPooling)
        return (LEARNED_QUERY, TEXT, "cross") if pools else (TEXT, TEXT, "self")

    def prepare(self, text: str, other: str | None = None, prefix: Sequence[int] | None = None) -> ForwardPass:
        """The attention of every token to every token."""
        if prefix is not None:
            raise SettingError("An encoder generates nothing, so it takes no prefix", where="look")
        encoded = self._encode(text, other)
        inputs = self.build_inputs([encoded[0].ids], [encoded[1].ids if other is not None else None], "look")
        axes = (_text_axis(self.tokenizer, encoded), TokenRow("query", optional=True).add_words(["query vector"]))
        return ForwardPass(inputs.inputs.size(1), lambda: self._output(inputs, axes))

    def build_inputs(
        self, ids: Sequence[Sequence[int]], others: Sequence[Sequence[int] | None] | None, where: str
    ) -> BertInputs:
        """The inputs of these ids, on the device of the model; rows over its maximum length are refused."""
        seconds = [None] * len(ids) if others is None else others
        return build_bert_inputs(ids, seconds, self.tokenizer.special, self.max_length, where).to(self.device)

    def states(self, texts: Sequence[str]) -> Iterator[Tensor]:
        """Hidden states (L, T, D) of each text, layer 0 being the embeddings, [CLS] and [SEP] included."""
        inputs = self.build_inputs(self.tokenizer.ids_batch(texts), None, "embed")
        return _unpad(self.encoder.states(*inputs), inputs.lengths)

    def mix_layers(self, states: Tensor) -> Tensor:
        """states (L, T, D): their learned mixture (scalar mix), else their mean, (T, D)."""
        mix = getattr(self.encoder, "mix", None)
        return states.mean(0) if mix is None else cast(Tensor, mix(states.unsqueeze(0))[0])

    def _output(self, inputs: BertInputs, axes: tuple[TokenRow, ...]) -> ModelOutput:
        self.model(*inputs)
        return ModelOutput(axes)

    def _encode(self, text: str, other: str | None) -> list[Encoding]:
        if other is not None and self.pairs_refused:
            raise SettingError(self.pairs_refused, where="look")
        return self.tokenizer.encode_batch([text] if other is None else [text, other], specials=True)

    def _encode_example(self, example: Example) -> EncodedText:
        """The row of one text or of two."""
        if isinstance(example, Translation):
            raise SettingError(f"{type(self).__name__} takes texts, not translations", where="audit")
        encoded, special = self._encode(*texts_of(example)), self.tokenizer.special
        cls, sep = special.need("cls"), special.need("sep")
        ids = add_special_tokens(cls, sep, [one.ids for one in encoded])
        removable = tuple(token == special.unknown or token not in special.all for token in ids)  # [UNK] is a word too
        pieces = [one.pieces for one in encoded]
        tokens = add_special_tokens(self.tokenizer.token(cls), self.tokenizer.token(sep), pieces)
        inside = [word_ids_at(one.text, one.offsets) if one is encoded[0] else [-1] * len(one) for one in encoded]
        segments = tuple(segment_ids([one.ids for one in encoded]))
        words = tuple(add_special_tokens(-1, -1, inside))
        return EncodedText(InputRow(tuple(ids), removable, segments), tuple(tokens), words)

    def input_ids(self, rows: Sequence[InputRow]) -> Tensor:
        return self._batch(rows).inputs

    def _batch(self, rows: Sequence[InputRow]) -> BertInputs:
        ids, segments = [row.ids for row in rows], [row.segments for row in rows]
        return pad_bert_inputs(ids, segments, self.tokenizer.special.need("pad")).to(self.device)


@dataclass(frozen=True, eq=False, repr=False)
class ClassifierAdapter(EncoderAdapter):
    """A classifier, or a regression model; `labels`: the class names, or the scale of the number, if known."""

    labels: Labels | Scale | None = None

    @property
    def decision(self) -> Decision:
        return "class"

    def make_cases(self, example: Example, number: int, rng: Random) -> list[Case]:
        return self._encode_example(example).class_case(example, number, self._class_id)

    def log_probs(self, rows: Sequence[InputRow]) -> Tensor:
        logits = self.model(*self._batch(rows))
        if logits.dim() != 2 or logits.size(-1) < 2:
            came = f"a model with outputs of shape {tuple(logits.shape)}"
            raise SettingError(came, "logits (B, C) of two or more classes", where="audit")
        return cast(Tensor, logits.float().log_softmax(-1))

    def readout_position(self, place: str, rows: Sequence[InputRow]) -> list[int] | None:
        return readout_positions(self._readout, rows) if self.has_text_queries(place) else [0] * len(rows)

    def label(self, number: int) -> str:
        return self._names[number] if self._names else f"class {number}"

    def _output(self, inputs: BertInputs, axes: tuple[TokenRow, ...]) -> ModelOutput:
        found = self.model(*inputs)
        target = found.log_softmax(-1).max() if found.size(-1) > 1 else None
        return ModelOutput(axes, target, facts=self.interpret_logits(found[0].detach()))

    def interpret_logits(self, logits: Tensor) -> dict[str, Any]:
        """The probability of each class, or the estimated number, of the outputs (C,) for one text."""
        if isinstance(self.labels, Scale):
            return {"estimate": self.labels.value(float(logits))}
        if len(logits) == 1:
            return {}
        names = self._names or [str(number) for number in range(len(logits))]
        probabilities = logits.float().softmax(-1).tolist()
        return {"classes": [[name, share] for name, share in zip(names, probabilities, strict=True)]}

    @cached_property
    def _readout(self) -> Readout:
        return find_readout(self, self._encode_example("a b c").row)

    @property
    def _names(self) -> tuple[str, ...]:
        return self.labels.names if isinstance(self.labels, Labels) else ()

    def _class_id(self, label: str) -> int | None:
        if not self._names:
            return None
        if label not in self._names:
            raise unknown(label, self._names, kind="label", where="audit")
        return self._names.index(label)


@dataclass(frozen=True, eq=False, repr=False)
class MaskedLMAdapter(EncoderAdapter):
    """A BERT with its masked language modelling head, which predicts the tokens behind masks."""

    @property
    def kind(self) -> Kind:
        return "fills"

    @property
    def decision(self) -> Decision:
        return "hidden word"

    @property
    def mask(self) -> int:
        return self.tokenizer.special.need("mask")

    def make_cases(self, example: Example, number: int, rng: Random) -> list[Case]:
        text = self._encode_example(example)
        return text.masked_token_case(number, rng, self.mask, self.tokenizer.token(self.mask))

    def log_probs(self, rows: Sequence[InputRow]) -> Tensor:
        batch = self._batch(rows)
        positions = torch.tensor(self.readout_position("", rows), device=self.device)
        positions = positions + torch.arange(len(rows), device=self.device) * batch.inputs.size(1)
        return Logits(self.logits_at(batch, positions)).log_probs()

    def readout_position(self, place: str, rows: Sequence[InputRow]) -> list[int]:
        return [row.ids.index(self.mask) for row in rows]

    def label(self, number: int) -> str:
        return self.tokenizer.decode([number]) or self.tokenizer.token(number)

    def mask_positions(self, inputs: BertInputs) -> Tensor:
        """The positions of masks in the rows end to end."""
        return (inputs.inputs == self.mask).flatten().nonzero().squeeze(-1)

    def logits_at(self, inputs: BertInputs, positions: Tensor) -> Tensor:
        """(n, V) at n positions of the rows end to end."""
        output: Any = self.model(*inputs, positions)
        return cast(Tensor, output.logits)

    def _output(self, inputs: BertInputs, axes: tuple[TokenRow, ...]) -> ModelOutput:
        positions = self.mask_positions(inputs)
        if not len(positions):
            cast(Any, self.model).bert(*inputs)
            return ModelOutput(axes)
        logs = Logits(self.logits_at(inputs, positions)).log_probs()
        predicted = PredictedTokens(logs, logs.argmax(-1).tolist(), positions.tolist(), self.label)
        return ModelOutput(axes, logs.max(-1).values.sum(), predicted)


@dataclass(frozen=True, eq=False, repr=False)
class ELMoAdapter(EncoderAdapter):
    """ELMo, a character-based recurrent encoder without attention: it has hidden states alone."""

    has_attention = False

    @property
    def encoder(self) -> Any:
        return self.model

    def prepare(self, text: str, other: str | None = None, prefix: Sequence[int] | None = None) -> ForwardPass:
        raise PlaceError(f"A {type(self.model).__name__} has no attention to look at", where="look")

    def states(self, texts: Sequence[str]) -> Iterator[Tensor]:
        """As of any encoder; words outside the vocabulary are read by their characters."""
        special, words = self.tokenizer.special, encode_with_oov(self.tokenizer, texts)
        rows = [add_special_tokens(special.need("cls"), special.need("sep"), [one.ids]) for one in words]
        inputs, lengths = pad_ids(rows, special.need("pad"))
        inputs, outside = compact_oov(inputs, len(self.tokenizer))
        spelling = {number: word for one in words for number, word in one.spellings.items()}
        letters = spell_words([spelling[number] for number in outside.tolist()]).to(self.device)
        return _unpad(self.encoder.states(inputs.to(self.device), lengths.to(self.device), letters), lengths)


def _text_axis(tokenizer: Tokenizer, encoded: Sequence[Encoding]) -> TokenRow:
    """The tokens of one text or two, with [CLS] and [SEP]."""
    row, parts, first = TokenRow("text"), list[list[Piece]](), 0
    for one in encoded:
        parts.append(row.make_pieces(one.text, one.pieces, one.offsets, one.words, first))
        first = max(first, 1 + max((piece.word for piece in parts[-1]), default=NO_WORD))
    cls, sep = (Piece(tokenizer.token(tokenizer.special.need(role))) for role in ("cls", "sep"))
    return row.add_pieces(add_special_tokens(cls, sep, parts), segment_ids(parts))


def _unpad(states: Tensor, lengths: Tensor) -> Iterator[Tensor]:
    return (one[:, :length] for one, length in zip(states, lengths.tolist(), strict=True))
