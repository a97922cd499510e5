"""A translator of ours: the source that it reads, the target that it writes, and the next word of a translation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from regard.adapters.base import (
    READ,
    SOURCE,
    WRITTEN,
    Axes,
    Decision,
    Kind,
    ModelAdapter,
    Output,
    Pass,
    Predicted,
    continued,
    expect_known,
)
from regard.adapters.bert_inputs import padded
from regard.adapters.case import Case, Example, ReadText, Row, tokens_of, words_at
from regard.adapters.readout import only_at, output_layer, picked
from regard.adapters.tokens import NO_WORD, TokenRow
from regard.decoding import Translator
from regard.errors import SettingError
from regard.text import Tokenizer, Translation, opened

UNKNOWN = 16  # words outside the vocabulary of a sentence that a copying model is asked about


@dataclass(frozen=True, eq=False)
class TranslatorAdapter(ModelAdapter):
    """A translator with its two tokenizers. `words`: of how many words of each translation decisions are asked for,
    chosen at random."""

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
        return getattr(self.model, "looks", -1)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.translator.source

    @property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        source, target = self.translator.source, self.translator.target
        return (source,) if source is target else (source, target)

    @property
    def frame(self) -> tuple[list[int], list[int]]:
        return [], [self._source("end")]

    def batch_translator(self) -> Translator:
        return self.translator

    def axes_of(self, place: str) -> Axes:
        if place.startswith(("encoder", "reader")):
            return SOURCE, SOURCE, "self"
        return (READ, READ, "self") if place.endswith(".self") else (WRITTEN, SOURCE, "cross")

    def prepare(self, text: str, other: str | None = None, prefix: Sequence[int] | None = None) -> Pass:
        """Every step of a translation: the one that is given, or one that the model writes."""
        read, spellings = self._source_ids(text)
        table = self._table(read)
        ids = torch.tensor([self._dense(read, table)], device=self.device)
        lengths = torch.tensor([ids.size(1)], device=self.device)
        tokens = self._target_tokens(text, other, prefix, (ids, lengths), table)
        start, end = self._target("start"), self._target("end")
        given = torch.tensor([[start, *tokens]], device=self.device)
        target = self.translator.target

        def spell(number: int) -> str:
            own = number if number < len(target) else table[number - len(target)]
            return spellings.get(own) or target.decode([own]) or target.token(own)

        def forward() -> Output:
            logs = self.model(ids, lengths, given)[0].log_probs()[0]
            said = [*tokens, end]
            total = logs.gather(1, torch.tensor([said], device=ids.device).mT).sum()
            axes = self._axes(text, other, [spell(token) for token in tokens])
            return Output(axes, total, Predicted(logs, said, range(len(said)), spell))

        return Pass(max(ids.size(1), given.size(1)), forward)

    @property
    def decides(self) -> Decision:
        return "next word of the translation"

    def cases(self, example: Example, number: int, chance: Random) -> list[Case]:
        source, given, links = _pair(example)
        target = self.translator([source])[0][0].text if given is None else given
        read = self._read(source)
        row = read.row
        said, places = self._said(target, row)
        steps = [at for at, word in enumerate(places) if word >= 0 and (at == 0 or places[at - 1] != word)]
        found = []
        for at in sorted(chance.sample(steps, min(self.words, len(steps)))):
            wanted = None if links is None else {one for one, other in links if other == places[at]}
            evidence = tokens_of(read.words, wanted) if wanted else None
            begun = Row(row.ids, row.free, (), (self._target("start"), *said[:at]), row.unknown)
            expected = None if given is None else self._column(said[at], row)  # what it said itself proves nothing
            found.append(Case(number, begun, read.tokens, expected, evidence))
        return found

    def log_probs(self, rows: Sequence[Row]) -> Tensor:
        """ln p (B, V), or (B, V + UNKNOWN) of a model that copies: the words that a text has of its own come last."""
        table = self._table([token for row in rows for token in row.ids])
        ids, lengths = padded([self._dense(row.ids, table) for row in rows], self._source("pad"), self.device)
        written, counts = padded([self._dense(row.written, table) for row in rows], self._target("end"), self.device)
        with only_at(output_layer(self.model), counts - 1):
            said = self.model(ids, lengths, written)[0]
        logs = picked(said.log_probs(), counts - 1)
        return self._aligned(logs, rows, table) if self.model.copies else logs

    def input_ids(self, rows: Sequence[Row]) -> Tensor:
        unknown, size = self.translator.source.special.unknown, len(self.translator.source)
        known = [[token if token < size else unknown for token in row.ids] for row in rows]
        return padded(known, self._source("pad"), self.device)[0]  # type: ignore[arg-type]

    def readout_position(self, place: str, rows: Sequence[Row]) -> list[int] | None:
        """In cross-attention the step of the word; the source attends to itself with all its words."""
        return None if self.attends_from_text(place) else [len(row.written) - 1 for row in rows]

    def label(self, number: int) -> str:
        target = self.translator.target
        return (target.decode([number]) or target.token(number)) if number < len(target) else "a word of the source"

    def word_numbers(self, source: str, target: str) -> tuple[list[int], list[int]]:
        """The word that each token of the source and of the target belongs to, their ends among them."""
        pair = (self.translator.source.encode(source), self.translator.target.encode(target))
        read, written = ([*one.words, NO_WORD] for one in pair)
        return read, written

    def _source(self, role: str) -> int:
        return self.translator.source.special.need(role)

    def _target(self, role: str) -> int:
        return self.translator.target.special.need(role)

    def _source_ids(self, text: str) -> tuple[list[int], dict[int, str]]:
        """The ids of a source and of its end, and the spellings of those beyond the vocabulary."""
        ids, spellings = self._open_ids(self.translator.source, text)
        return [*ids, self._source("end")], spellings

    def _open_ids(self, tokenizer: Tokenizer, text: str) -> tuple[list[int], dict[int, str]]:
        if not self.model.copies:
            return list(tokenizer.encode(text).ids), {}
        [one] = opened(tokenizer, [text])
        return list(one.ids), dict(one.spellings)

    def _table(self, ids: Sequence[int]) -> list[int]:
        """The words outside the vocabulary of a model that copies, in order."""
        size = len(self.translator.target)
        return sorted({token for token in ids if token >= size}) if self.model.copies else []

    def _dense(self, ids: Sequence[int], table: Sequence[int]) -> list[int]:
        """Words outside the vocabulary by their place in the table; those that are no longer in the text as unknown."""
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
            [one] = self.translator.read([(text, other)])
            return list(one.tokens)
        if not prefix:
            [[best]] = self.translator([text])
            return self._dense(best.tokens, table)
        tokens = expect_known(prefix, len(target) + len(table))
        if end in tokens:
            return tokens[: tokens.index(end)]
        first = torch.tensor([self._target("start")], device=self.device)
        return continued(self.model, self.model.start(*source), first, tokens, end, 2 * source[0].size(1) + 10)

    def _axes(self, text: str, other: str | None, words: Sequence[str]) -> tuple[TokenRow, TokenRow, TokenRow]:
        source, target = self.translator.source, self.translator.target
        given = source.encode(text)
        read = TokenRow("source").part(text, given.pieces, given.offsets, given.words)
        read.special(source.token(self._source("end")))
        start, end = (target.token(self._target(role)) for role in ("start", "end"))
        rows = [TokenRow("target, read"), TokenRow("target, written")]
        rows[0].special(start)
        for row in rows:
            _fill(row, target, other, words)
        rows[1].special(end)
        return read, rows[0], rows[1]

    def _read(self, source: str) -> ReadText:
        ids, _ = self._source_ids(source)
        encoding = self.translator.source.encode(source)
        unknown = tuple(token for token in dict.fromkeys(ids) if token in self._table(ids))[:UNKNOWN]
        row = Row(tuple(ids), (*[True] * (len(ids) - 1), False), unknown=unknown)
        tokens = (*encoding.pieces, self.translator.source.token(self._source("end")))
        return ReadText(row, tokens, (*words_at(source, encoding.offsets), -1))

    def _said(self, target: str, row: Row) -> tuple[list[int], list[int]]:
        """The tokens of a translation, which may be words of the source, and the word that each lies in."""
        ids, _ = self._open_ids(self.translator.target, target)
        size, unknown = len(self.translator.target), self.translator.target.special.unknown
        known = [token if token < size or token in row.unknown else unknown for token in ids]
        offsets = self.translator.target.encode(target).offsets
        return [0 if token is None else token for token in known], words_at(target, offsets)

    def _column(self, token: int, row: Row) -> int:
        size = len(self.translator.target)
        return token if token < size else size + row.unknown.index(token)

    def _aligned(self, logs: Tensor, rows: Sequence[Row], table: Sequence[int]) -> Tensor:
        """Every text's own words in the same columns, whatever texts are asked about together."""
        size, places = len(self.translator.target), {token: at for at, token in enumerate(table)}
        nowhere = logs.size(1)  # a column of words that cannot be said
        own = [[size + places[token] if token in places else nowhere for token in row.unknown] for row in rows]
        index, _ = padded([one + [nowhere] * (UNKNOWN - len(one)) for one in own], nowhere, logs.device)
        wide = torch.cat((logs, logs.new_full((len(logs), 1), -torch.inf)), 1)
        return torch.cat((logs[:, :size], wide.gather(1, index)), 1)


def _fill(row: TokenRow, target: Tokenizer, other: str | None, words: Sequence[str]) -> None:
    if other is not None:
        one = target.encode(other)
        if len(one.pieces) == len(words):
            row.part(other, one.pieces, one.offsets, one.words)
            return
    row.written(words)


def _pair(example: Example) -> tuple[str, str | None, tuple[tuple[int, int], ...] | None]:
    if isinstance(example, Translation):
        return example.source, example.target, example.links
    if isinstance(example, tuple):
        return example[0], example[1], None
    if isinstance(example, str):
        return example, None, None
    raise SettingError("texts with labels", "sentences, for a translator", where="audit")
