"""A translator of ours asked for the next word of a translation, which begins as one that is given does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from regard.decoding.translate import Translator
from regard.errors import SettingError
from regard.text.examples import Translation
from regard.text.tokenizers.oov import opened
from regard.trust.asking.case import Case, Example, Row, tokens_of, words_at
from regard.trust.asking.lastly import only_at, picked, speaking
from regard.trust.asking.padding import padded

UNKNOWN = 16  # words outside the vocabulary of a sentence that a copying model is asked about


@dataclass(frozen=True, eq=False)
class Translating:
    """`words`: of how many words of each translation it is asked, chosen by chance."""

    translator: Translator
    name: str
    words: int = 2
    kind: str = "next word of the translation"

    @property
    def model(self) -> Any:
        return self.translator.model

    def cases(self, example: Example, number: int, chance: Random) -> list[Case]:
        source, given, links = _pair(example)
        target = self.translator([source])[0][0].text if given is None else given
        row, tokens, words = self._read(source)
        said, places = self._said(target, row)
        steps = [at for at, word in enumerate(places) if word >= 0 and (at == 0 or places[at - 1] != word)]
        start, found = self.translator.target.special.need("start"), []
        for at in sorted(chance.sample(steps, min(self.words, len(steps)))):
            wanted = None if links is None else {one for one, other in links if other == places[at]}
            evidence = tokens_of(words, wanted) if wanted else None
            begun = Row(row.ids, row.free, (), (start, *said[:at]), row.unknown)
            expected = None if given is None else self._column(said[at], row)  # what it said itself proves nothing
            found.append(Case(number, begun, tuple(tokens), expected, evidence))
        return found

    def say(self, rows: Sequence[Row]) -> Tensor:
        """ln p (B, V), or (B, V + UNKNOWN) of a model that copies: the words that a text has of its own come last."""
        size = len(self.translator.target)
        table = sorted({token for row in rows for token in row.ids if token >= size})
        ids, lengths = padded([self._dense(row.ids, table) for row in rows], self._source("pad"), self._device)
        written, counts = padded([self._dense(row.written, table) for row in rows], self._target("end"), self._device)
        with only_at(speaking(self.model), counts - 1):
            said = self.model(ids, lengths, written)[0]
        logs = picked(said.log_probs(), counts - 1)
        return self._aligned(logs, rows, table) if self.model.copies else logs

    def ids(self, rows: Sequence[Row]) -> Tensor:
        unknown, size = self.translator.source.special.unknown, len(self.translator.source)
        known = [[token if token < size else unknown for token in row.ids] for row in rows]
        return padded(known, self._source("pad"), self._device)[0]  # type: ignore[arg-type]

    def looks_at_text(self, place: str) -> bool:
        return self.asks_from_text(place) or not place.endswith(".self")

    def asks_from_text(self, place: str) -> bool:
        return place.startswith(("encoder", "reader"))

    def decider(self, place: str, rows: Sequence[Row]) -> list[int] | None:
        """Where it looks across, the step of the word; the source looks at itself with all its words."""
        return None if self.asks_from_text(place) else [len(row.written) - 1 for row in rows]

    def called(self, number: int) -> str:
        target = self.translator.target
        return (target.decode([number]) or target.token(number)) if number < len(target) else "a word of the source"

    @property
    def _device(self) -> torch.device:
        return next(iter(self.model.parameters())).device

    def _source(self, role: str) -> int:
        return self.translator.source.special.need(role)

    def _target(self, role: str) -> int:
        return self.translator.target.special.need(role)

    def _read(self, source: str) -> tuple[Row, list[str], list[int]]:
        encoding, end = self.translator.source.encode(source), self._source("end")
        ids = opened(self.translator.source, [source])[0].ids if self.model.copies else encoding.ids
        size = len(self.translator.target)
        unknown = tuple(dict.fromkeys(token for token in ids if token >= size))[:UNKNOWN]
        row = Row((*ids, end), (*[True] * len(ids), False), unknown=unknown)
        tokens = [*encoding.pieces, self.translator.source.token(end)]
        return row, tokens, [*words_at(source, encoding.offsets), -1]

    def _said(self, target: str, row: Row) -> tuple[list[int], list[int]]:
        """The tokens of a translation, which may be words of the source, and the word that each lies in."""
        encoding = self.translator.target.encode(target)
        ids = opened(self.translator.target, [target])[0].ids if self.model.copies else encoding.ids
        size, unknown = len(self.translator.target), self.translator.target.special.unknown
        known = [token if token < size or token in row.unknown else unknown for token in ids]
        return [0 if token is None else token for token in known], words_at(target, encoding.offsets)

    def _column(self, token: int, row: Row) -> int:
        size = len(self.translator.target)
        return token if token < size else size + row.unknown.index(token)

    def _dense(self, ids: Sequence[int], table: Sequence[int]) -> list[int]:
        """Words outside the vocabulary by their place in the table; those that are no longer in the text as unknown."""
        size, places = len(self.translator.target), {token: at for at, token in enumerate(table)}
        unknown = self.translator.target.special.unknown
        found = [token if token < size else size + places[token] if token in places else unknown for token in ids]
        return [0 if token is None else token for token in found]

    def _aligned(self, logs: Tensor, rows: Sequence[Row], table: Sequence[int]) -> Tensor:
        """Every text's own words in the same columns, whatever texts are asked about together."""
        size, places = len(self.translator.target), {token: at for at, token in enumerate(table)}
        nowhere = logs.size(1)  # a column of words that cannot be said
        own = [[size + places[token] if token in places else nowhere for token in row.unknown] for row in rows]
        index, _ = padded([one + [nowhere] * (UNKNOWN - len(one)) for one in own], nowhere, logs.device)
        wide = torch.cat((logs, logs.new_full((len(logs), 1), -torch.inf)), 1)
        return torch.cat((logs[:, :size], wide.gather(1, index)), 1)


def _pair(example: Example) -> tuple[str, str | None, tuple[tuple[int, int], ...] | None]:
    if isinstance(example, Translation):
        return example.source, example.target, example.links
    if isinstance(example, tuple):
        return example[0], example[1], None
    if isinstance(example, str):
        return example, None, None
    raise SettingError("texts with labels", "sentences, for a translator", where="audit")
