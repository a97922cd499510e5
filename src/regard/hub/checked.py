"""What the trial of an exported model counted."""

from typing import NamedTuple


class Checked(NamedTuple):
    """How many texts an exported model was tried on, and how many came out the same."""

    checked: int
    equal: int
    tokens: float = 1.0  # the share of all tokens that were the same
