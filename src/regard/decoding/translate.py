"""Text in, text out: translations of sentences, and what a model thinks of translations that are given.

translator = Translator(model, source_tokenizer, target_tokenizer)
[[best, ...], ...] = translator(["He hit me ."], Beam(5))
translator.read([("He hit me .", "Il m' a frappé .")])             # forced: ln p and attention of each word
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.decoding.beam import Beam
from regard.decoding.score import forced
from regard.decoding.search import Rules, Search, Written
from regard.errors import SettingError
from regard.text import Opened, Tokenizer, compacted, opened, pad_rows, spelled

Tell = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Translated:
    """A sentence and one translation of it.

    `tokens` of the target, without the end; `log_probs` of each of them, and of the end where it was `finished`;
    `weights` (T, S): the attention of each of these steps to each token of the source, its end last.
    """

    source: str
    text: str
    score: float
    tokens: list[int]
    log_probs: list[float]
    finished: bool = True
    weights: Tensor | None = None


@dataclass(frozen=True)
class Translator:
    """A trained model with its two tokenizers; `rows` sentences are translated at once."""

    model: Any  # a Stepper
    source: Tokenizer
    target: Tokenizer
    rows: int = 64

    @torch.no_grad()
    def __call__(
        self,
        texts: Sequence[str],
        search: Search | None = None,
        rules: Rules | None = None,
        attention: bool = False,
        tell: Tell = lambda more: None,
    ) -> list[list[Translated]]:
        """The best translations of each text, best first. `rules`: those of `self.rules()`, as a rule."""
        search, rules = search or Beam(), rules or self.rules()
        found: list[list[Translated]] = [[] for _ in texts]
        for rows, given in self._batches(texts, tell):
            longest = rules.longest if rules.longest < FREE else 2 * given.ids.size(1) + 10
            own = replace(rules.of(rows), longest=max(longest, rules.shortest))
            state = self.model.start(given.ids, given.lengths)
            written = search(self.model, state, self._first(len(rows)), own, attention)
            for row, spellings, best in zip(rows, given.spellings, written, strict=True):
                found[row] = [self._told(texts[row], one, given.table, spellings) for one in best]
        return found

    def rules(self, longest: int | None = None, shortest: int = 0, **more: Any) -> Rules:
        """Rules of writing in this target language; without `longest`, twice as long as the source and a little."""
        return Rules(self.target.special.need("end"), longest or FREE, shortest, **more)

    @torch.no_grad()
    def read(self, pairs: Sequence[tuple[str, str]], tell: Tell = lambda more: None) -> list[Translated]:
        """What the model thinks of given translations: ln p and attention of each of their words and of their end."""
        found: list[Translated | None] = [None for _ in pairs]
        end, device = self.target.special.need("end"), self._device
        for rows, given in self._batches([source for source, _ in pairs], tell):
            targets = [[*one.ids, end] for one in self._ids(self.target, [pairs[row][1] for row in rows])]
            places = {int(number): len(self.target) + at for at, number in enumerate(given.table)}
            unknown = self.target.special.unknown
            targets = [[_known(token, len(self.target), places, unknown) for token in ids] for ids in targets]
            padded, lengths = pad_rows(targets, end, device)
            state = self.model.start(given.ids, given.lengths)
            said, weights = forced(self.model, state, self._first(len(rows)), padded, lengths)
            for at, row in enumerate(rows):
                length, (source, target) = int(lengths[at]), pairs[row]
                logs = said[at, :length].tolist()
                seen = None if weights is None else weights[at, :length, : int(given.lengths[at])]
                found[row] = Translated(source, target, sum(logs), targets[at][:-1], logs, True, seen)
        return [one for one in found if one is not None]

    @property
    def _device(self) -> torch.device:
        return next(iter(self.model.parameters())).device

    def _first(self, rows: int) -> Tensor:
        return torch.full((rows,), self.target.special.need("start"), device=self._device)

    def _ids(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[Opened]:
        if self.model.copies:
            return opened(tokenizer, texts)
        return [Opened(ids, {}) for ids in tokenizer.ids_batch(texts)]

    def _batches(self, texts: Sequence[str], tell: Tell) -> Iterator[tuple[list[int], _Given]]:
        """Texts of like length together, longest first, so that what does not fit fails at once."""
        known = self._ids(self.source, texts)
        order = sorted(range(len(texts)), key=lambda row: -len(known[row].ids))
        end = self.source.special.need("end")
        for begin in range(0, len(order), self.rows):
            rows = order[begin : begin + self.rows]
            ids = [[*known[row].ids, end] for row in rows]
            padded, lengths = pad_rows(ids, self.source.special.need("pad"), self._device)
            dense, table = compacted(padded, len(self.source))
            yield rows, _Given(dense, lengths, table, [known[row].spellings for row in rows])
            tell(len(rows))

    def _told(self, source: str, one: Written, table: Tensor, spellings: dict[int, str]) -> Translated:
        size = len(self.target)
        tokens = [token if token < size else int(table[token - size]) for token in one.tokens]
        # an unknown word is shown, not left out: the words of the text are the tokens that were written
        text = spelled(self.target, tokens, spellings, unknown="<unk>")
        length = None if one.weights is None else len(self._ids(self.source, [source])[0].ids) + 1
        weights = None if one.weights is None else one.weights[:, :length]
        return Translated(source, text, one.score, tokens, one.log_probs, one.finished, weights)


FREE = 2**30  # a limit that is left to the length of the source


@dataclass(frozen=True, eq=False)
class _Given:
    """Sources of a batch: ids (B, S) with their ends, and what those beyond the vocabulary stand for."""

    ids: Tensor
    lengths: Tensor
    table: Tensor
    spellings: list[dict[int, str]]


def _known(token: int, size: int, places: dict[int, int], unknown: int | None) -> int:
    """A token of a given target as the model can say it: a word of the source by its place, or the unknown token."""
    if token < size:
        return token
    if token in places:
        return places[token]
    if unknown is None:
        raise SettingError("a word outside the vocabulary", "a tokenizer with an unknown token", where="Translator")
    return unknown
