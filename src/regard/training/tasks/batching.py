"""Rows of like length together, as the [batches] of a recipe ask for; what does not fit is told in its words."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from regard.errors import SettingError
from regard.text import Buckets


class Asked(Protocol):
    """A section of a recipe that says how large batches are."""

    tokens: int


def in_buckets(
    lengths: np.ndarray, asked: Asked, rows: int | None = None, among: np.ndarray | None = None, rising: float = 0.0
) -> Buckets:
    """A plan of batches of at most `asked.tokens`, padding included, for texts of these lengths."""
    used = lengths if among is None else lengths[among]
    if used.size and used.max() > asked.tokens:
        raise SettingError(
            f"tokens = {asked.tokens} in [batches], and a text of {used.max()}",
            "batches that hold the longest text",
            where="the recipe",
            advice=f"Raise batches.tokens, or cut texts at so many: batches.limit = {asked.tokens}.",
        )
    return Buckets(lengths, asked.tokens, rows, among, rising=rising)
