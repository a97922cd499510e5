"""Sampling: temperature, top-k, nucleus (top-p) and min-p sampling, and the repetition penalty.

Each filter (top_k, top_p, min_p, penalise_repetition) maps ln p (B, V) to ln p, -inf for tokens it excludes. Neither
need be normalised; a row keeps at least its likeliest token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from regard.decoding.greedy import decode_rows
from regard.decoding.search import Hypothesis, Rules, Search, Stepper
from regard.errors import SettingError


@dataclass(frozen=True)
class Sample:
    """Random sampling; `num_samples` texts for each row.

    Sample(temperature=0.8, top_p=0.95, seed=1)

    temperature         p^(1/temperature): lower is closer to greedy
    top_k               only the k likeliest tokens
    top_p               nucleus sampling: only the fewest tokens with this total probability
    min_p               only tokens with at least this fraction of the largest probability
    repetition_penalty  p^penalty for tokens that the text has already

    They apply in the order repetition_penalty, temperature, top_k, top_p, min_p. The random numbers of a row depend on
    `seed`, its number (Rules.rows) and its length so far, never on other rows; log_probs are those of the model.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    seed: int = 0
    num_samples: int = 1

    def __post_init__(self) -> None:
        _expect(self.temperature > 0 and isfinite(self.temperature), self, "temperature", "above 0")
        _expect(self.top_k is None or self.top_k >= 1, self, "top_k", "at least 1")
        _expect(self.top_p is None or 0 < self.top_p <= 1, self, "top_p", "above 0, at most 1")
        _expect(self.min_p is None or 0 < self.min_p <= 1, self, "min_p", "above 0, at most 1")
        penalty = self.repetition_penalty
        _expect(penalty > 0 and isfinite(penalty), self, "repetition_penalty", "above 0 (1: no penalty)")
        _expect(self.seed >= 0, self, "seed", "at least 0")
        _expect(self.num_samples >= 1, self, "num_samples", "at least 1")

    def __call__(
        self, model: Stepper[Any], state: Any, first: Tensor, rules: Rules, attention: bool = False
    ) -> list[list[Hypothesis]]:
        """`num_samples` texts for each of the B rows of `first` (B,), the likeliest first."""
        rules.check(len(first))
        copies = torch.arange(len(first), device=first.device).repeat_interleave(self.num_samples)
        if self.num_samples > 1:
            state = model.reorder(state, copies)
        numbers = range(len(first)) if rules.rows is None else rules.rows
        uniforms = self._uniforms(numbers, rules.max_length).to(first.device)
        rules = rules.select([row for row in range(len(first)) for _ in range(self.num_samples)])
        texts = decode_rows(model, state, first[copies], rules, _ChooseRandomly(self, uniforms), attention)
        rows = (texts[at : at + self.num_samples] for at in range(0, len(texts), self.num_samples))
        return [sorted(row, key=lambda text: -text.score) for row in rows]

    def _uniforms(self, rows: Sequence[int], max_length: int) -> Tensor:
        """(max_length, B * num_samples) uniform random numbers in [0, 1), seeded by each text alone."""
        keys = [(self.seed, row, number) for row in rows for number in range(self.num_samples)]
        columns = [np.random.default_rng(key).random(max_length) for key in keys]
        return torch.from_numpy(np.stack(columns, 1)) if columns else torch.zeros(max_length, 0, dtype=torch.float64)

    def filtered(self, log_probs: Tensor, written: Tensor | None = None) -> Tensor:
        """ln p (N, V) to draw from, not normalised; `written` (N, V): whether the text has a token already."""
        found = log_probs.double()
        if written is not None:
            found = penalise_repetition(found, written, self.repetition_penalty)
        found = found / self.temperature
        if self.top_k is not None:
            found = top_k(found, self.top_k)
        if self.top_p is not None:
            found = top_p(found, self.top_p)
        return found if self.min_p is None else min_p(found, self.min_p)


class _ChooseRandomly:
    """Draws a token for each row, and tracks the tokens of each where there is a repetition penalty."""

    def __init__(self, sample: Sample, uniforms: Tensor) -> None:
        self.sample, self.uniforms = sample, uniforms
        self.written: Tensor | None = None  # (B, V)

    def __call__(self, log_probs: Tensor, rows: Tensor, written: int) -> Tensor:
        if self.sample.repetition_penalty == 1:
            return draw(self.sample.filtered(log_probs), self.uniforms[written, rows])
        if self.written is None:
            self.written = log_probs.new_zeros(self.uniforms.size(1), log_probs.size(1), dtype=torch.bool)
        tokens = draw(self.sample.filtered(log_probs, self.written[rows]), self.uniforms[written, rows])
        self.written[rows, tokens] = True
        return tokens


def _expect(fine: bool, sample: Sample, name: str, expected: str) -> None:
    if not fine:
        raise SettingError(f"{name}={getattr(sample, name)}", expected, where="Sample")


def penalise_repetition(log_probs: Tensor, written: Tensor, penalty: float) -> Tensor:
    """Repetition penalty (Keskar et al. 2019): tokens that are `written` (B, V) get p^penalty, less likely above 1."""
    return torch.where(written, log_probs * penalty, log_probs)


def top_k(log_probs: Tensor, count: int) -> Tensor:
    """Top-k sampling: only the `count` likeliest tokens."""
    values, places = log_probs.topk(min(count, log_probs.size(-1)), -1)
    return torch.full_like(log_probs, -inf).scatter(-1, places, values)


def top_p(log_probs: Tensor, share: float) -> Tensor:
    """Nucleus (top-p) sampling: the fewest likeliest tokens with total probability `share` (Holtzman et al. 2020)."""
    values, places = log_probs.sort(-1, descending=True)
    probs = values.softmax(-1)
    needed = probs.cumsum(-1) - probs < share  # those before it do not reach it
    needed[..., 0] = True
    return torch.full_like(log_probs, -inf).scatter(-1, places, values.masked_fill(~needed, -inf))


def min_p(log_probs: Tensor, share: float) -> Tensor:
    """Min-p sampling: tokens at least `share` times as likely as the likeliest one."""
    least = log_probs.amax(-1, keepdim=True) + torch.tensor(share, dtype=log_probs.dtype).log().item()
    return log_probs.masked_fill(log_probs < least, -inf)


def draw(log_probs: Tensor, uniforms: Tensor) -> Tensor:
    """Inverse-CDF sampling: the token (B,) at which the cumulative probability of row b passes uniforms[b]."""
    sums = log_probs.double().softmax(-1).cumsum(-1)
    # a uniform is at most 1 - 2^-53, so this is below the sum even after rounding: impossible tokens are never drawn
    bars = uniforms.unsqueeze(-1) * sums[:, -1:]
    found = torch.searchsorted(sums, bars, right=True).squeeze(-1)
    return found.clamp(max=log_probs.size(-1) - 1)  # where all probabilities are 0


if TYPE_CHECKING:
    _search: Search = Sample()
