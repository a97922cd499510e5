"""Search: what it asks of a model (a Stepper: start, step, reorder), what is asked of it (Rules), and what it gives.

The protocols are structural: models satisfy Stepper without importing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from torch import Tensor

from regard.errors import SettingError

State = TypeVar("State")


class Stepper(Protocol[State]):
    """Rows are independent of each other: what a row gets does not depend on its company. A search may let several
    rows go on from one source; they then lie side by side, as many for each.

    state = model.start(inputs, lengths)
    log_probs, weights, state = model.step(state, tokens)
    state = model.reorder(state, rows)
    """

    def start(self, inputs: Tensor, lengths: Tensor) -> State:
        """What the model knows after reading inputs (B, S), of which the first `lengths` (B,) are real: the source of
        a translation, or the text before the token that is stepped with first."""

    def step(self, state: State, tokens: Tensor) -> tuple[Tensor, Tensor | None, State]:
        """After these tokens (B,): ln p of the next one, (B, V) or more columns, where tokens beyond the vocabulary
        can be copied; the attention that this step paid to what was read, (B, S) or None; and the state to go on
        from. The state that was handed in is not used again."""

    def reorder(self, state: State, rows: Tensor) -> State:
        """The state of these rows (B',), in this order; a row may come twice."""


Ids = Sequence[int]


@dataclass(frozen=True)
class Rules:
    """What may be written. `end`: the token that ends a text (None: nothing does); it is not part of what was written.

    longest, shortest   how many tokens are written, the end not counted; a text that has `longest` stops unfinished
    prefix              for each row, tokens that it begins with, even where they are banned
    banned              sequences of tokens that are never written, in any row
    required            for each row, sequences that must be in it (a beam only)
    rows                the number of each row, on which its chance depends; 0, 1, 2, ... unless told
    """

    end: int | None
    longest: int
    shortest: int = 0
    prefix: Sequence[Ids] | None = None
    banned: Sequence[Ids] = ()
    required: Sequence[Sequence[Ids]] | None = None
    rows: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise SettingError(f"longest={self.longest}", "at least 1", where="Rules")
        if not 0 <= self.shortest <= self.longest:
            raise SettingError(f"shortest={self.shortest}", f"0 to longest={self.longest}", where="Rules")
        phrases = [phrase for row in self.required or () for phrase in row]
        for name, sequences in (("banned", self.banned), ("required", phrases)):
            if any(len(ids) == 0 for ids in sequences):
                raise SettingError("a sequence of no tokens", "at least one token in each", where=f"Rules.{name}")
        for name, sequences in (("prefix", self.prefix or ()), ("required", phrases)):
            for ids in sequences:
                if len(ids) > self.longest:
                    raise SettingError(
                        f"a sequence of {len(ids)} tokens", f"at most longest={self.longest}", where=f"Rules.{name}"
                    )
                if self.end in ids:
                    raise SettingError(f"the end token {self.end}", "tokens before the end", where=f"Rules.{name}")
        numbers = (number for ids in (*self.banned, *phrases, *(self.prefix or ())) for number in ids)
        if any(number < 0 for number in numbers):
            raise SettingError("a token below 0", "ids, which count from 0", where="Rules")

    def of(self, rows: Sequence[int]) -> Rules:
        """The rules of some rows, which keep their numbers: for whoever groups rows before searching."""
        numbers = rows if self.rows is None else [self.rows[row] for row in rows]
        prefix = None if self.prefix is None else [self.prefix[row] for row in rows]
        required = None if self.required is None else [self.required[row] for row in rows]
        return replace(self, prefix=prefix, required=required, rows=numbers)

    def check(self, rows: int) -> None:
        """Refuse settings that do not say something about each of so many rows."""
        for name in ("prefix", "required", "rows"):
            given = getattr(self, name)
            if given is not None and len(given) != rows:
                raise SettingError(f"{name} of {len(given)} rows", f"of all {rows}", where="Rules")


@dataclass(frozen=True, eq=False)
class Written:
    """One text: its tokens without the end, ln p of each of them (and of the end, where it was `finished`)."""

    tokens: list[int]
    log_probs: list[float]
    finished: bool
    score: float  # what texts are ranked by: the sum of log_probs, or what a beam makes of it
    weights: Tensor | None = None  # (len(log_probs), S): the attention of every step, where it was asked for


class Search(Protocol):
    """A way to write: Greedy(), Sample(...), Beam(...). Gives the best texts of each row, best first."""

    def __call__(
        self, model: Stepper[Any], state: Any, first: Tensor, rules: Rules, attention: bool = False
    ) -> list[list[Written]]:
        """`state` of B rows as `model.start` gave it, `first` (B,) the tokens to step with first."""
