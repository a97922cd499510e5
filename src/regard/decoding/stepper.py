"""What every search asks of a model that writes token by token: begin, go one token on, go on with some of the rows.

The protocol is structural: models satisfy it without importing it.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from torch import Tensor

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
