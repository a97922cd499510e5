"""Translation: text to text by a trained model, and scores of given translations (teacher forcing).

translator = Translator(model, source_tokenizer, target_tokenizer)
[[best, ...], ...] = translator(["He hit me ."], Beam(5))
translator.score([("He hit me .", "Il m' a frappé .")])            # teacher forcing: ln p and attention of each word

Unknown words that the model copies (models/pointer.py) have ids beyond the vocabulary, and are spelled from the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.decoding.beam import Beam
from regard.decoding.score import teacher_force
from regard.decoding.search import MAX_SHOWN, Hypothesis, Rules, Search
from regard.errors import SettingError
from regard.text import OovEncoding, Tokenizer, compact_oov, decode_with_oov, encode_with_oov, pad_rows

ProgressCallback = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Translated:
    """A sentence and one translation of it.

    `tokens` of the target, without the end; `log_probs` of each, and of the end if it is `finished`; `weights` (T, S):
    the attention of each step to each token of the source, the end token last.
    """

    source: str
    text: str
    score: float
    tokens: list[int]
    log_probs: list[float]
    finished: bool = True
    weights: Tensor | None = None

    def __repr__(self) -> str:
        state = "" if self.finished else ", unfinished"
        shown = self.text if len(self.text) <= MAX_SHOWN else f"{self.text[: MAX_SHOWN - 1]}…"
        return f"Translated({shown!r}, score={self.score:.3f}{state})"


@dataclass(frozen=True)
class Translator:
    """A trained model with its two tokenizers; `rows`: sentences of a batch."""

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
        on_progress: ProgressCallback = lambda done: None,
    ) -> list[list[Translated]]:
        """The translations of each text, best first. `rules`: by default those of `self.rules()`."""
        search, rules = search or Beam(), rules or self.rules()
        found: list[list[Translated]] = [[] for _ in texts]
        for rows, given in self._batches(texts, on_progress):
            max_length = rules.max_length if rules.max_length < UNLIMITED else 2 * given.ids.size(1) + 10
            own = replace(rules.select(rows), max_length=max(max_length, rules.min_length))
            state = self.model.start(given.ids, given.lengths)
            written = search(self.model, state, self._first(len(rows)), own, attention)
            for row, spellings, best in zip(rows, given.spellings, written, strict=True):
                found[row] = [self._translated(texts[row], one, given.table, spellings) for one in best]
        return found

    def rules(self, max_length: int | None = None, min_length: int = 0, **more: Any) -> Rules:
        """Rules for this target vocabulary; without `max_length`, twice the length of the source plus 10."""
        return Rules(self.target.special.need("end"), max_length or UNLIMITED, min_length, **more)

    @torch.no_grad()
    def score(
        self, pairs: Sequence[tuple[str, str]], on_progress: ProgressCallback = lambda done: None
    ) -> list[Translated]:
        """Given translations, scored with teacher forcing: ln p and attention of each token and of the end."""
        found: list[Translated | None] = [None for _ in pairs]
        end, device = self.target.special.need("end"), self._device
        for rows, given in self._batches([source for source, _ in pairs], on_progress):
            targets = [[*one.ids, end] for one in self._ids(self.target, [pairs[row][1] for row in rows])]
            places = {int(number): len(self.target) + at for at, number in enumerate(given.table)}
            unknown = self.target.special.unknown
            targets = [[_to_model_id(token, len(self.target), places, unknown) for token in ids] for ids in targets]
            padded, lengths = pad_rows(targets, end, device)
            state = self.model.start(given.ids, given.lengths)
            log_probs, weights = teacher_force(self.model, state, self._first(len(rows)), padded, lengths)
            for at, row in enumerate(rows):
                length, (source, target) = int(lengths[at]), pairs[row]
                logs = log_probs[at, :length].tolist()
                attention = None if weights is None else weights[at, :length, : int(given.lengths[at])]
                found[row] = Translated(source, target, sum(logs), targets[at][:-1], logs, True, attention)
        return [one for one in found if one is not None]

    @property
    def _device(self) -> torch.device:
        return next(iter(self.model.parameters())).device

    def _first(self, rows: int) -> Tensor:
        return torch.full((rows,), self.target.special.need("start"), device=self._device)

    def _ids(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[OovEncoding]:
        if self.model.copies:
            return encode_with_oov(tokenizer, texts)
        return [OovEncoding(ids, {}) for ids in tokenizer.ids_batch(texts)]

    def _batches(self, texts: Sequence[str], on_progress: ProgressCallback) -> Iterator[tuple[list[int], _SourceBatch]]:
        """Texts sorted by length, longest first, so that running out of memory happens at once."""
        known = self._ids(self.source, texts)
        order = sorted(range(len(texts)), key=lambda row: -len(known[row].ids))
        end = self.source.special.need("end")
        begin = 0
        while begin < len(order):
            longest = len(known[order[begin]].ids) + 1
            rows = order[begin : begin + max(1, min(self.rows, MAX_BATCH_TOKENS // longest))]
            begin += len(rows)
            ids = [[*known[row].ids, end] for row in rows]
            padded, lengths = pad_rows(ids, self.source.special.need("pad"), self._device)
            dense, table = compact_oov(padded, len(self.source))
            yield rows, _SourceBatch(dense, lengths, table, [known[row].spellings for row in rows])
            on_progress(len(rows))

    def _translated(self, source: str, one: Hypothesis, table: Tensor, spellings: dict[int, str]) -> Translated:
        size = len(self.target)
        tokens = [token if token < size else int(table[token - size]) for token in one.tokens]
        # the unknown token is shown, so that the words of the text are its tokens
        text = decode_with_oov(self.target, tokens, spellings, unknown="<unk>")
        length = None if one.weights is None else len(self._ids(self.source, [source])[0].ids) + 1
        weights = None if one.weights is None else one.weights[:, :length]
        return Translated(source, text, one.score, tokens, one.log_probs, one.finished, weights)


MAX_BATCH_TOKENS = 1 << 15  # of a batch with its padding: 64 sentences of up to 512 tokens, fewer longer ones
UNLIMITED = 2**30  # stands for a maximum length that depends on the source


@dataclass(frozen=True, eq=False)
class _SourceBatch:
    """Sources of a batch: ids (B, S) with their end tokens, and the original ids of those beyond the vocabulary."""

    ids: Tensor
    lengths: Tensor
    table: Tensor
    spellings: list[dict[int, str]]


def _to_model_id(token: int, size: int, places: dict[int, int], unknown: int | None) -> int:
    """A target token as an id of the model: a copied word of the source by its index, or the unknown token."""
    if token < size:
        return token
    if token in places:
        return places[token]
    if unknown is None:
        raise SettingError(
            "A word is outside the vocabulary, and the tokenizer has no unknown token", where="Translator"
        )
    return unknown
