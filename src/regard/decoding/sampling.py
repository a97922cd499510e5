"""Sampling: every token is drawn by chance, as likely as the model says, or from the likelier ones.

Each filter (top_k, top_p, min_p, repeated) takes ln p (B, V) of tokens and gives them changed, or -inf where left out.
They need not be normalised, neither before nor after; a row keeps at least its likeliest token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from regard.decoding.greedy import write
from regard.decoding.search import Rules, Search, Stepper, Written
from regard.errors import SettingError


@dataclass(frozen=True)
class Sample:
    """Texts drawn by chance; `count` of them for each row.

    Sample(temperature=0.8, top_p=0.95, seed=1)

    temperature         p^(1/temperature): colder is closer to greedy
    top_k, top_p, min_p the k likeliest; the fewest that make up a share; those not much less likely than the likeliest
    repetition          p^repetition for tokens that the text has already

    The filters apply in the order repetition, temperature, top_k, top_p, min_p. What a row draws depends on `seed`, on
    its number (Rules.rows) and on how much it has written, never on the other rows; log_probs are the model's own.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition: float = 1.0
    seed: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        _expect(self.temperature > 0 and isfinite(self.temperature), self, "temperature", "above 0")
        _expect(self.top_k is None or self.top_k >= 1, self, "top_k", "at least 1")
        _expect(self.top_p is None or 0 < self.top_p <= 1, self, "top_p", "above 0, at most 1")
        _expect(self.min_p is None or 0 < self.min_p <= 1, self, "min_p", "above 0, at most 1")
        _expect(self.repetition > 0 and isfinite(self.repetition), self, "repetition", "above 0 (1: no penalty)")
        _expect(self.seed >= 0, self, "seed", "at least 0")
        _expect(self.count >= 1, self, "count", "at least 1")

    def __call__(
        self, model: Stepper[Any], state: Any, first: Tensor, rules: Rules, attention: bool = False
    ) -> list[list[Written]]:
        """`count` texts for each of the B rows of `first` (B,), the likeliest first."""
        rules.check(len(first))
        copies = torch.arange(len(first), device=first.device).repeat_interleave(self.count)
        if self.count > 1:
            state = model.reorder(state, copies)
        numbers = range(len(first)) if rules.rows is None else rules.rows
        chances = self._chances(numbers, rules.longest).to(first.device)
        rules = rules.of([row for row in range(len(first)) for _ in range(self.count)])
        texts = write(model, state, first[copies], rules, _Draw(self, chances), attention)
        rows = (texts[at : at + self.count] for at in range(0, len(texts), self.count))
        return [sorted(row, key=lambda text: -text.score) for row in rows]

    def _chances(self, rows: Sequence[int], longest: int) -> Tensor:
        """(longest, B * count) numbers in [0, 1): those of a text always the same, and nobody else's."""
        keys = [(self.seed, row, number) for row in rows for number in range(self.count)]
        drawn = [np.random.default_rng(key).random(longest) for key in keys]
        return torch.from_numpy(np.stack(drawn, 1)) if drawn else torch.zeros(longest, 0, dtype=torch.float64)

    def filtered(self, log_probs: Tensor, written: Tensor | None = None) -> Tensor:
        """ln p (N, V) of what is drawn from, not normalised; `written` (N, V): what the text has already."""
        found = log_probs.double()
        if written is not None:
            found = repeated(found, written, self.repetition)
        found = found / self.temperature
        if self.top_k is not None:
            found = top_k(found, self.top_k)
        if self.top_p is not None:
            found = top_p(found, self.top_p)
        return found if self.min_p is None else min_p(found, self.min_p)


class _Draw:
    """Draws a token for each row, and remembers which ones it has, where repeating them costs."""

    def __init__(self, sample: Sample, chances: Tensor) -> None:
        self.sample, self.chances = sample, chances
        self.written: Tensor | None = None  # (B, V)

    def __call__(self, log_probs: Tensor, rows: Tensor, written: int) -> Tensor:
        if self.sample.repetition == 1:
            return drawn(self.sample.filtered(log_probs), self.chances[written, rows])
        if self.written is None:
            self.written = log_probs.new_zeros(self.chances.size(1), log_probs.size(1), dtype=torch.bool)
        tokens = drawn(self.sample.filtered(log_probs, self.written[rows]), self.chances[written, rows])
        self.written[rows, tokens] = True
        return tokens


def _expect(fine: bool, sample: Sample, name: str, expected: str) -> None:
    if not fine:
        raise SettingError(f"{name}={getattr(sample, name)}", expected, where="Sample")


def repeated(log_probs: Tensor, written: Tensor, penalty: float) -> Tensor:
    """Tokens that were `written` (B, V) get p^penalty: less likely above 1, likelier below (Keskar et al. 2019)."""
    return torch.where(written, log_probs * penalty, log_probs)


def top_k(log_probs: Tensor, count: int) -> Tensor:
    """The `count` likeliest tokens."""
    values, places = log_probs.topk(min(count, log_probs.size(-1)), -1)
    return torch.full_like(log_probs, -inf).scatter(-1, places, values)


def top_p(log_probs: Tensor, share: float) -> Tensor:
    """The fewest likeliest tokens whose probabilities together reach `share` (Holtzman et al. 2020)."""
    values, places = log_probs.sort(-1, descending=True)
    probs = values.softmax(-1)
    needed = probs.cumsum(-1) - probs < share  # those before it do not reach it
    needed[..., 0] = True
    return torch.full_like(log_probs, -inf).scatter(-1, places, values.masked_fill(~needed, -inf))


def min_p(log_probs: Tensor, share: float) -> Tensor:
    """Tokens at least `share` times as likely as the likeliest one."""
    least = log_probs.amax(-1, keepdim=True) + torch.tensor(share, dtype=log_probs.dtype).log().item()
    return log_probs.masked_fill(log_probs < least, -inf)


def drawn(log_probs: Tensor, chances: Tensor) -> Tensor:
    """The token (B,) at which the probabilities of row b, added up, pass chances[b] in [0, 1) of their sum."""
    sums = log_probs.double().softmax(-1).cumsum(-1)
    # a chance is at most 1 - 2^-53, so this is below the sum even after rounding, and what has no share never comes
    bars = chances.unsqueeze(-1) * sums[:, -1:]
    found = torch.searchsorted(sums, bars, right=True).squeeze(-1)
    return found.clamp(max=log_probs.size(-1) - 1)  # where nothing has any probability


if TYPE_CHECKING:
    _search: Search = Sample()
