"""The section [batches] of most tasks: batches of rows of similar length, bounded by tokens with padding (buckets).

A module of its own, since the sections of four tasks inherit from it.
"""

from __future__ import annotations

import numpy as np

from regard.errors import SettingError
from regard.text import Buckets
from regard.training.section import Count, RecipeSection


class BucketBatches(RecipeSection):
    """Rows of similar length, at most `tokens` with padding and `rows` a batch; texts are truncated to `max_length`."""

    tokens: Count = 4096
    rows: Count | None = None
    max_length: Count | None = None

    def plan(self, lengths: np.ndarray, among: np.ndarray | None = None, curriculum: float = 0.0) -> Buckets:
        """The batches of texts of these lengths; `among`: the texts to use, all by default."""
        used = lengths if among is None else lengths[among]
        if used.size and used.max() > self.tokens:
            raise SettingError(
                f"A text has {used.max()} tokens, and batches.tokens = {self.tokens} allows fewer in a batch",
                where="batches.tokens",
                advice=f"Raise batches.tokens, or truncate texts with batches.max_length = {self.tokens}.",
            )
        return Buckets(lengths, self.tokens, self.rows, among, curriculum=curriculum)
