"""Bucketing by length: batches of similar lengths within a token budget, little padding, reshuffled every epoch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from regard.errors import SettingError, ShapeError, unknown
from regard.text.batches.plan import fingerprint
from regard.text.batches.seeded_rng import Epoch


@dataclass(frozen=True, eq=False)
class Buckets:
    """A batch plan with a token budget: rows x longest row <= `budget` on each side, and at most `rows` rows.

    `lengths`: (n,), or (n, sides) such as source and target, special tokens included: what `collate.lengths` gives.
    `subset`: the numbers of the examples to use, all by default. An example longer than the budget is refused,
    or left out and counted in `left_out`. `curriculum`: this first share of the first epoch goes from short to long
    texts (SortaGrad, Amodei et al. 2016).

    >>> plan = Buckets(collate.lengths, budget=4096)
    >>> plan.padding_share(Epoch(seed=0))                  # the share of padding positions
    """

    lengths: np.ndarray
    budget: int
    rows: int | None = None
    subset: np.ndarray | None = None
    too_long: Literal["refuse", "leave out"] = "refuse"
    curriculum: float = 0.0

    def __post_init__(self) -> None:
        if self.too_long not in ("refuse", "leave out"):
            raise unknown(self.too_long, ("refuse", "leave out"), kind="value of too_long", where="Buckets")
        if self.budget < 1 or (self.rows is not None and self.rows < 1):
            raise SettingError(f"budget={self.budget}, rows={self.rows}", "at least 1 of each", where="Buckets")
        if not 0 <= self.curriculum <= 1:
            raise SettingError(f"curriculum={self.curriculum}", "a share from 0 to 1", where="Buckets")
        if np.ndim(self.lengths) not in (1, 2):
            raise ShapeError(
                f"lengths of shape {np.shape(self.lengths)}", "(n,) or (n, sides)", where="Buckets lengths"
            )
        if len(self.left_out) and self.too_long == "refuse":
            worst = self.left_out[self._sides[self.left_out].max(1).argmax()]
            raise SettingError(
                f"Some examples ({len(self.left_out)}) are longer than the budget of {self.budget} tokens; "
                f"the longest, example {worst}, has {self._sides[worst].max()}",
                where="Buckets",
                advice="Give the collator a max_length, raise the budget, or pass too_long='leave out'.",
            )
        if not len(self._used):
            raise SettingError("There are no examples to batch", where="Buckets")

    def __call__(self, epoch: Epoch) -> list[np.ndarray]:
        rng = epoch.rng("buckets")
        order = self._used[_boustrophedon_order(self._sides[self._used], self._grain, rng)]
        batches = self._cut(order, rng.random())
        shuffled = [batches[number] for number in rng.permutation(len(batches))]
        first = round(self.curriculum * len(shuffled)) if epoch.number == 0 else 0
        return [*sorted(shuffled[:first], key=lambda rows: int(self._sides[rows].max())), *shuffled[first:]]

    @cached_property
    def fingerprint(self) -> str:
        more = ("rising", self.curriculum) if self.curriculum else ()
        return fingerprint("buckets", self._sides, self.budget, self.rows, self._used, *more)

    @cached_property
    def left_out(self) -> np.ndarray:
        """The numbers of the examples longer than the budget."""
        return self._requested[self._sides[self._requested].max(1, initial=0) > self.budget]

    def padding_share(self, epoch: Epoch) -> float:
        """The share of padding positions in an epoch, all sides together."""
        return self._padding_of(self(epoch))

    @cached_property
    def _sides(self) -> np.ndarray:  # (n, sides)
        lengths = np.asarray(self.lengths, dtype=np.int64)
        return lengths if lengths.ndim == 2 else lengths[:, None]

    @cached_property
    def _requested(self) -> np.ndarray:
        return np.arange(len(self._sides)) if self.subset is None else np.asarray(self.subset, dtype=np.int64)

    @cached_property
    def _used(self) -> np.ndarray:
        return self._requested[self._sides[self._requested].max(1, initial=0) <= self.budget]

    @cached_property
    def _grain(self) -> int:
        """The width of a bucket in lengths: doubled from 1 while that saves padding (few examples, wide buckets)."""
        rng = Epoch(0).rng("grain")
        best, least, grain = 1, 1.0, 1
        while grain <= self._sides.max():
            padding = self._padding_of(
                self._cut(self._used[_boustrophedon_order(self._sides[self._used], grain, rng)], 1.0)
            )
            if padding >= least:
                break
            best, least, grain = grain, padding, 2 * grain
        return best

    def _cut(self, order: np.ndarray, first: float) -> list[np.ndarray]:
        """Cut `order` into batches, each as large as the budget allows, the first reduced to a share `first` of it.

        That share shifts every cut, so the rare lengths at the ends do not form the same batches in each epoch.
        """
        longest = self._sides[order].max(1)
        batches, begin, share = [], 0, first
        while begin < len(order):
            max_rows = min(self.budget // max(1, int(longest[begin])), self.rows or self.budget)
            window = np.maximum.accumulate(longest[begin : begin + max_rows])
            fits = int(np.count_nonzero(window * np.arange(1, len(window) + 1) <= self.budget))
            count = max(1, int(fits * share))
            batches.append(order[begin : begin + count])
            begin, share = begin + count, 1.0
        return batches

    def _padding_of(self, batches: list[np.ndarray]) -> float:
        cells = sum(len(batch) * int(self._sides[batch].max(0).sum()) for batch in batches)
        return 1 - int(self._sides[self._used].sum()) / max(1, cells)


def _boustrophedon_order(sides: np.ndarray, grain: int, rng: np.random.Generator) -> np.ndarray:
    """An order in which neighbours have similar lengths on every side: bucket by bucket, in alternating direction.

    A bucket holds the examples of similar maximum length, sorted by the difference between the last side and the first,
    ascending and descending in turn. Ties are shuffled, and the whole order is reversed at random.
    """
    phase, parity, reverse = rng.integers(grain), rng.integers(2), rng.integers(2)
    bucket = (sides.max(1) + phase) // grain
    along = sides[:, -1] - sides[:, 0]
    along = np.where(bucket % 2 == parity, along, -along)
    order = np.lexsort((rng.permutation(len(sides)), along, bucket))
    return order[::-1] if reverse else order
