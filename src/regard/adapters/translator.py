"""The adapter of a translator (encoder-decoder) of ours: source, decoder input and output, and the next target word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from regard.adapters.base import (
    DECODER_INPUT,
    DECODER_OUTPUT,
    SOURCE,
    Axes,
    Decision,
    ForwardPass,
    Kind,
    ModelAdapter,
    ModelOutput,
    PredictedTokens,
    check_prefix,
    generate_greedy,
)
from regard.adapters.bert_inputs import pad_ids
from regard.adapters.case import Case, EncodedText, Example, InputRow, tokens_of_words, word_ids_at
from regard.adapters.readout import find_output_layer, gather_positions, restrict_to_positions
from regard.adapters.token_row import NO_WORD, TokenRow
from regard.decoding import Translator
from regard.errors import SettingError
from regard.text import Tokenizer, Translation, encode_with_oov

MAX_OOV = 16  # out-of-vocabulary words of a sentence that a copying model is tested on


@dataclass(frozen=True, eq=False, repr=False)
class TranslatorAdapter(ModelAdapter):
    """A translator with its two tokenizers. `words`: how many words of each translation, chosen at random, are
    decisions of the audit."""

    translator: Translator
    name: str = "translator"
    description: str = ""
    words: int = 2

    @property
    def model(self) -> Any:
        return self.translator.model

    @property
    def kind(self) -> Kind:
        return "translates"

    @property
    def alignment_place(self) -> int:
        return getattr(self.model, "alignment_layer", -1)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.translator.source

    @property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        source, target = self.translator.source, self.translator.target
        return (source,) if source is target else (source, target)

    @property
    def special_tokens(self) -> tuple[list[int], list[int]]:
        return [], [self._source("end")]

    def batch_translator(self) -> Translator:
        return self.translator

    def axes_of(self, place: str) -> Axes:
        if place.startswith("encoder"):
            return SOURCE, SOURCE, "self"
        return (DECODER_INPUT, DECODER_INPUT, "self") if place.endswith(".self") else (DECODER_OUTPUT, SOURCE, "cross")

    def prepare(self, text: str, other: str | None = None, prefix: Sequence[int] | None = None) -> ForwardPass:
        """Every step of a translation: of the given one, or of one that the model generates."""
        source_ids, spellings = self._source_ids(text)
        table = self._oov_table(source_ids)
        ids = torch.tensor([self._to_model_ids(source_ids, table)], device=self.device)
        lengths = torch.tensor([ids.size(1)], device=self.device)
        tokens = self._target_tokens(text, other, prefix, (ids, lengths), table)
        start, end = self._target("start"), self._target("end")
        given = torch.tensor([[start, *tokens]], device=self.device)
        target = self.translator.target

        def decode(number: int) -> str:
            own = number if number < len(target) else table[number - len(target)]
            return spellings.get(own) or target.decode([own]) or target.token(own)

        def forward() -> ModelOutput:
            logs = self.model(ids, lengths, given)[0].log_probs()[0]
            output = [*tokens, end]
            total = logs.gather(1, torch.tensor([output], device=ids.device).mT).sum()
            axes = self._axes(text, other, [decode(token) for token in tokens])
            return ModelOutput(axes, total, PredictedTokens(logs, output, range(len(output)), decode))

        return ForwardPass(max(ids.size(1), given.size(1)), forward)

    @property
    def decision(self) -> Decision:
        return "next word of the translation"

    def make_cases(self, example: Example, number: int, rng: Random) -> list[Case]:
        source, given, links = _split_example(example)
        target = self.translator([source])[0][0].text if given is None else given
        text = self._encode_source(source)
        row = text.row
        output, words = self._encode_target(target, row)
        steps = [at for at, word in enumerate(words) if word >= 0 and (at == 0 or words[at - 1] != word)]
        found = []
        for at in sorted(rng.sample(steps, min(self.words, len(steps)))):
            linked = None if links is None else {one for one, other in links if other == words[at]}
            evidence = tokens_of_words(text.words, linked) if linked else None
            begun = InputRow(row.ids, row.removable, (), (self._target("start"), *output[:at]), row.oov_ids)
            expected = None if given is None else self._column(output[at], row)  # its own output is not a gold answer
            found.append(Case(number, begun, text.tokens, expected, evidence))
        return found

    def log_probs(self, rows: Sequence[InputRow]) -> Tensor:
        """ln p (B, V), or (B, V + MAX_OOV) of a model that copies: the out-of-vocabulary words of a text come last."""
        table = self._oov_table([token for row in rows for token in row.ids])
        source, pad = [self._to_model_ids(row.ids, table) for row in rows], self._source("pad")
        ids, lengths = pad_ids(source, pad, self.device)
        target, end = [self._to_model_ids(row.decoder_ids, table) for row in rows], self._target("end")
        decoder_ids, counts = pad_ids(target, end, self.device)
        with restrict_to_positions(find_output_layer(self.model), counts - 1):
            output = self.model(ids, lengths, decoder_ids)[0]
        logs = gather_positions(output.log_probs(), counts - 1)
        return self._align_columns(logs, rows, table) if self.model.copies else logs

    def input_ids(self, rows: Sequence[InputRow]) -> Tensor:
        unknown, size = self.translator.source.special.unknown, len(self.translator.source)
        known = [[token if token < size else unknown for token in row.ids] for row in rows]
        return pad_ids(known, self._source("pad"), self.device)[0]  # type: ignore[arg-type]

    def readout_position(self, place: str, rows: Sequence[InputRow]) -> list[int] | None:
        """In cross-attention the step of the word; in the encoder, several."""
        return None if self.has_text_queries(place) else [len(row.decoder_ids) - 1 for row in rows]

    def label(self, number: int) -> str:
        target = self.translator.target
        return (target.decode([number]) or target.token(number)) if number < len(target) else "a word of the source"

    def word_ids(self, source: str, target: str) -> tuple[list[int], list[int]]:
        """The word of each token of the source and of the target, their end tokens included."""
        pair = (self.translator.source.encode(source), self.translator.target.encode(target))
        sources, targets = ([*one.words, NO_WORD] for one in pair)
        return sources, targets

    def _source(self, role: str) -> int:
        return self.translator.source.special.need(role)

    def _target(self, role: str) -> int:
        return self.translator.target.special.need(role)

    def _source_ids(self, text: str) -> tuple[list[int], dict[int, str]]:
        """The ids of a source with its end token, and the spellings of those outside the vocabulary."""
        ids, spellings = self._ids_with_oov(self.translator.source, text)
        return [*ids, self._source("end")], spellings

    def _ids_with_oov(self, tokenizer: Tokenizer, text: str) -> tuple[list[int], dict[int, str]]:
        if not self.model.copies:
            return list(tokenizer.encode(text).ids), {}
        [one] = encode_with_oov(tokenizer, [text])
        return list(one.ids), dict(one.spellings)

    def _oov_table(self, ids: Sequence[int]) -> list[int]:
        """The out-of-vocabulary words of a model that copies, in order."""
        size = len(self.translator.target)
        return sorted({token for token in ids if token >= size}) if self.model.copies else []

    def _to_model_ids(self, ids: Sequence[int], table: Sequence[int]) -> list[int]:
        """Out-of-vocabulary words by their index in the table; those that are not in the text as unknown."""
        if not self.model.copies:
            return list(ids)
        size, places = len(self.translator.target), {token: at for at, token in enumerate(table)}
        unknown = self.translator.target.special.unknown
        found = [token if token < size else size + places[token] if token in places else unknown for token in ids]
        return [0 if token is None else token for token in found]

    def _target_tokens(
        self,
        text: str,
        other: str | None,
        prefix: Sequence[int] | None,
        source: tuple[Tensor, Tensor],
        table: Sequence[int],
    ) -> list[int]:
        """The tokens of the translation, without its end."""
        target, end = self.translator.target, self._target("end")
        if other is not None and prefix is None:
            [one] = self.translator.score([(text, other)])
            return list(one.tokens)
        if not prefix:
            [[best]] = self.translator([text])
            return self._to_model_ids(best.tokens, table)
        tokens = check_prefix(prefix, len(target) + len(table))
        if end in tokens:
            return tokens[: tokens.index(end)]
        first = torch.tensor([self._target("start")], device=self.device)
        return generate_greedy(self.model, self.model.start(*source), first, tokens, end, 2 * source[0].size(1) + 10)

    def _axes(self, text: str, other: str | None, words: Sequence[str]) -> tuple[TokenRow, TokenRow, TokenRow]:
        source, target = self.translator.source, self.translator.target
        given = source.encode(text)
        encoder = TokenRow("source").add_text(text, given.pieces, given.offsets, given.words)
        encoder.add_special(source.token(self._source("end")))
        start, end = (target.token(self._target(role)) for role in ("start", "end"))
        rows = [TokenRow("decoder input"), TokenRow("decoder output")]
        rows[0].add_special(start)
        for row in rows:
            _add_target(row, target, other, words)
        rows[1].add_special(end)
        return encoder, rows[0], rows[1]

    def _encode_source(self, source: str) -> EncodedText:
        ids, _ = self._source_ids(source)
        encoding = self.translator.source.encode(source)
        oov_ids = tuple(token for token in dict.fromkeys(ids) if token in self._oov_table(ids))[:MAX_OOV]
        row = InputRow(tuple(ids), (*[True] * (len(ids) - 1), False), oov_ids=oov_ids)
        tokens = (*encoding.pieces, self.translator.source.token(self._source("end")))
        return EncodedText(row, tokens, (*word_ids_at(source, encoding.offsets), -1))

    def _encode_target(self, target: str, row: InputRow) -> tuple[list[int], list[int]]:
        """The tokens of a translation, which may be copied words of the source, and the word of each."""
        ids, _ = self._ids_with_oov(self.translator.target, target)
        size, unknown = len(self.translator.target), self.translator.target.special.unknown
        known = [token if token < size or token in row.oov_ids else unknown for token in ids]
        offsets = self.translator.target.encode(target).offsets
        return [0 if token is None else token for token in known], word_ids_at(target, offsets)

    def _column(self, token: int, row: InputRow) -> int:
        size = len(self.translator.target)
        return token if token < size else size + row.oov_ids.index(token)

    def _align_columns(self, logs: Tensor, rows: Sequence[InputRow], table: Sequence[int]) -> Tensor:
        """The out-of-vocabulary words of every text in the same columns, whatever texts are in the batch."""
        size, places = len(self.translator.target), {token: at for at, token in enumerate(table)}
        nowhere = logs.size(1)  # a column of probability 0
        own = [[size + places[token] if token in places else nowhere for token in row.oov_ids] for row in rows]
        index, _ = pad_ids([one + [nowhere] * (MAX_OOV - len(one)) for one in own], nowhere, logs.device)
        wide = torch.cat((logs, logs.new_full((len(logs), 1), -torch.inf)), 1)
        return torch.cat((logs[:, :size], wide.gather(1, index)), 1)


def _add_target(row: TokenRow, target: Tokenizer, other: str | None, words: Sequence[str]) -> None:
    if other is not None:
        one = target.encode(other)
        if len(one.pieces) == len(words):
            row.add_text(other, one.pieces, one.offsets, one.words)
            return
    row.add_words(words)


def _split_example(example: Example) -> tuple[str, str | None, tuple[tuple[int, int], ...] | None]:
    if isinstance(example, Translation):
        return example.source, example.target, example.links
    if isinstance(example, tuple):
        return example[0], example[1], None
    if isinstance(example, str):
        return example, None, None
    raise SettingError("A translator takes sentences, not texts with labels", where="audit")
