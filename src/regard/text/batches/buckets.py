"""Batches of similar lengths: as many rows as fit a budget of tokens, little padding, new company every epoch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from regard.errors import SettingError, ShapeError
from regard.text.batches.plan import fingerprint
from regard.text.batches.seeded_rng import Epoch


@dataclass(frozen=True, eq=False)
class Buckets:
    """A plan in which rows x longest is at most `budget` on each side, and no batch has more than `rows` rows.

    `lengths`: (n,), or (n, sides) such as source and target, special tokens included: what `collate.lengths` gives.
    `among`: the numbers of the examples to use, all by default. An example longer than the budget is refused, or left
    out and counted in `left_out`. `rising`: this share of the first epoch, its beginning, goes from short texts to long
    ones (as SortaGrad does, Amodei et al. 2016): what is learned on short ones is there when the long ones come.

    >>> plan = Buckets(collate.lengths, budget=4096)
    >>> plan.waste(Epoch(seed=0))                  # the share of padding among all cells
    """

    lengths: np.ndarray
    budget: int
    rows: int | None = None
    among: np.ndarray | None = None
    too_long: Literal["refuse", "leave out"] = "refuse"
    rising: float = 0.0

    def __post_init__(self) -> None:
        if self.too_long not in ("refuse", "leave out"):
            raise SettingError(f"too_long={self.too_long!r}", "'refuse' or 'leave out'", where="Buckets")
        if self.budget < 1 or (self.rows is not None and self.rows < 1):
            raise SettingError(f"budget={self.budget}, rows={self.rows}", "at least 1 of each", where="Buckets")
        if not 0 <= self.rising <= 1:
            raise SettingError(f"rising={self.rising}", "a share from 0 to 1", where="Buckets")
        if np.ndim(self.lengths) not in (1, 2):
            raise ShapeError(
                f"lengths of shape {np.shape(self.lengths)}", "(n,) or (n, sides)", where="Buckets lengths"
            )
        if len(self.left_out) and self.too_long == "refuse":
            worst = self.left_out[self._sides[self.left_out].max(1).argmax()]
            raise SettingError(
                f"{len(self.left_out)} examples longer than the budget, example {worst} the longest with "
                f"{self._sides[worst].max()} tokens",
                f"at most {self.budget}",
                where="Buckets",
                advice="Give the collate a limit, raise the budget, or pass too_long='leave out'.",
            )
        if not len(self._used):
            raise SettingError("no examples", "at least one", where="Buckets")

    def __call__(self, epoch: Epoch) -> list[np.ndarray]:
        random = epoch.random("buckets")
        order = self._used[_snake(self._sides[self._used], self._grain, random)]
        batches = self._cut(order, random.random())
        mixed = [batches[number] for number in random.permutation(len(batches))]
        first = round(self.rising * len(mixed)) if epoch.number == 0 else 0
        return [*sorted(mixed[:first], key=lambda rows: int(self._sides[rows].max())), *mixed[first:]]

    @cached_property
    def fingerprint(self) -> str:
        more = ("rising", self.rising) if self.rising else ()
        return fingerprint("buckets", self._sides, self.budget, self.rows, self._used, *more)

    @cached_property
    def left_out(self) -> np.ndarray:
        """The numbers of the examples longer than the budget."""
        return self._asked[self._sides[self._asked].max(1, initial=0) > self.budget]

    def waste(self, epoch: Epoch) -> float:
        """The share of padding among all cells of an epoch, all sides together."""
        return self._waste(self(epoch))

    @cached_property
    def _sides(self) -> np.ndarray:  # (n, sides)
        lengths = np.asarray(self.lengths, dtype=np.int64)
        return lengths if lengths.ndim == 2 else lengths[:, None]

    @cached_property
    def _asked(self) -> np.ndarray:
        return np.arange(len(self._sides)) if self.among is None else np.asarray(self.among, dtype=np.int64)

    @cached_property
    def _used(self) -> np.ndarray:
        return self._asked[self._sides[self._asked].max(1, initial=0) <= self.budget]

    @cached_property
    def _grain(self) -> int:
        """How many lengths make a shelf: doubled from 1 as long as it saves padding (few examples, wide shelves)."""
        random = Epoch(0).random("grain")
        best, least, grain = 1, 1.0, 1
        while grain <= self._sides.max():
            waste = self._waste(self._cut(self._used[_snake(self._sides[self._used], grain, random)], 1.0))
            if waste >= least:
                break
            best, least, grain = grain, waste, 2 * grain
        return best

    def _cut(self, order: np.ndarray, first: float) -> list[np.ndarray]:
        """Batches of `order` from its beginning, each as large as the budget allows, the first by a part `first` of it.

        That part moves every cut, so the rare lengths at the ends of the order do not meet the same company each epoch.
        """
        longest = self._sides[order].max(1)
        batches, begin, share = [], 0, first
        while begin < len(order):
            most = min(self.budget // max(1, int(longest[begin])), self.rows or self.budget)
            window = np.maximum.accumulate(longest[begin : begin + most])
            fits = int(np.count_nonzero(window * np.arange(1, len(window) + 1) <= self.budget))
            count = max(1, int(fits * share))
            batches.append(order[begin : begin + count])
            begin, share = begin + count, 1.0
        return batches

    def _waste(self, batches: list[np.ndarray]) -> float:
        cells = sum(len(batch) * int(self._sides[batch].max(0).sum()) for batch in batches)
        return 1 - int(self._sides[self._used].sum()) / max(1, cells)


def _snake(sides: np.ndarray, grain: int, random: np.random.Generator) -> np.ndarray:
    """An order in which neighbours are alike on every side: shelf by shelf, there and back.

    A shelf holds the examples whose longest side is alike; along it runs the difference between the last side and the
    first, to and fro, so that no step is long. Equal ones are shuffled, and the way through is turned by chance.
    """
    phase, forth, back = random.integers(grain), random.integers(2), random.integers(2)
    shelf = (sides.max(1) + phase) // grain
    along = sides[:, -1] - sides[:, 0]
    along = np.where(shelf % 2 == forth, along, -along)
    order = np.lexsort((random.permutation(len(sides)), along, shelf))
    return order[::-1] if back else order
