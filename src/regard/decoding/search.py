"""The search protocol: a model is a Stepper (start, step, reorder), Rules constrain it, Hypotheses are its results.

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
    """A model that decodes step by step. Rows are independent of each other. A search may continue several rows from
    one source; they are then adjacent, the same number for each source.

    state = model.start(inputs, lengths)
    log_probs, weights, state = model.step(state, tokens)
    state = model.reorder(state, rows)
    """

    def start(self, inputs: Tensor, lengths: Tensor) -> State:
        """The state after inputs (B, S), of which the first `lengths` (B,) are real: the source of a translation, or
        the text before the first token to step with."""

    def step(self, state: State, tokens: Tensor) -> tuple[Tensor, Tensor | None, State]:
        """After these tokens (B,): ln p of the next one, (B, V), with more columns where tokens beyond the vocabulary
        can be copied; the attention of this step to the inputs, (B, S) or None; and the new state. The given state
        is not used again."""

    def reorder(self, state: State, rows: Tensor) -> State:
        """The state of these rows (B',), in this order; a row may come twice."""


Ids = Sequence[int]


@dataclass(frozen=True)
class Rules:
    """Constraints on generation. `end`: the token that ends a text (None: no token does); it is not part of the result.

    max_length, min_length   the number of tokens, the end not counted; at `max_length` a text stops unfinished
    prefix                   for each row, tokens that it begins with, even banned ones
    banned                   sequences of tokens that are never generated, in any row
    required                 for each row, sequences that must occur in it (constrained decoding, beam search only)
    rows                     the number of each row, which seeds its random numbers; by default 0, 1, 2, ...
    """

    end: int | None
    max_length: int
    min_length: int = 0
    prefix: Sequence[Ids] | None = None
    banned: Sequence[Ids] = ()
    required: Sequence[Sequence[Ids]] | None = None
    rows: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.max_length < 1:
            raise SettingError(f"max_length={self.max_length}", "at least 1", where="Rules")
        if not 0 <= self.min_length <= self.max_length:
            raise SettingError(f"min_length={self.min_length}", f"0 to max_length={self.max_length}", where="Rules")
        phrases = [phrase for row in self.required or () for phrase in row]
        for name, sequences in (("banned", self.banned), ("required", phrases)):
            if any(len(ids) == 0 for ids in sequences):
                raise SettingError("A sequence is empty; each needs at least one token", where=f"Rules.{name}")
        for name, sequences in (("prefix", self.prefix or ()), ("required", phrases)):
            for ids in sequences:
                if len(ids) > self.max_length:
                    raise SettingError(
                        f"a sequence of {len(ids)} tokens",
                        f"at most max_length={self.max_length}",
                        where=f"Rules.{name}",
                    )
                if self.end in ids:
                    raise SettingError(f"The end token {self.end} may not be in a sequence", where=f"Rules.{name}")
        numbers = (number for ids in (*self.banned, *phrases, *(self.prefix or ())) for number in ids)
        if any(number < 0 for number in numbers):
            raise SettingError("a negative token id", "ids from 0", where="Rules")

    def select(self, rows: Sequence[int]) -> Rules:
        """The rules of some rows, which keep their numbers: for callers that batch rows."""
        numbers = rows if self.rows is None else [self.rows[row] for row in rows]
        prefix = None if self.prefix is None else [self.prefix[row] for row in rows]
        required = None if self.required is None else [self.required[row] for row in rows]
        return replace(self, prefix=prefix, required=required, rows=numbers)

    def check(self, rows: int) -> None:
        """Check that settings given for each row are given for this many rows."""
        for name in ("prefix", "required", "rows"):
            given = getattr(self, name)
            if given is not None and len(given) != rows:
                raise SettingError(f"{name} for {len(given)} rows", f"one for each of {rows}", where="Rules")


MAX_SHOWN = 120  # characters of a text in a repr


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """One generated text: its tokens without the end, and ln p of each (and of the end, if it is `finished`)."""

    tokens: list[int]
    log_probs: list[float]
    finished: bool
    score: float  # ranks hypotheses: the sum of log_probs, or the length-normalised score of a beam
    weights: Tensor | None = None  # (len(log_probs), S): the attention of every step, on request

    def __repr__(self) -> str:
        state = "" if self.finished else ", unfinished"
        return f"Hypothesis({len(self.tokens)} tokens, score={self.score:.3f}{state})"


class Search(Protocol):
    """A decoding strategy: Greedy(), Sample(...), Beam(...). Returns the hypotheses of each row, best first."""

    def __call__(
        self, model: Stepper[Any], state: Any, first: Tensor, rules: Rules, attention: bool = False
    ) -> list[list[Hypothesis]]:
        """`state` of B rows from `model.start`; `first` (B,): the tokens to step with first."""
