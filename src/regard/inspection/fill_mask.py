"""What a BERT would put behind a mask.

>>> Filler.of("runs/bert")(["The old [MASK] did not see us ."], 5)[0][0].words        # the five likeliest, best first
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.adapters import MaskedLMAdapter, run_adapter
from regard.errors import SettingError
from regard.models import Logits

ROWS = 32  # texts read at once


@dataclass(frozen=True)
class Filled:
    """The likeliest words behind one mask, best first, and how likely each is."""

    words: tuple[str, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Filler:
    """A pre-trained BERT."""

    adapter: MaskedLMAdapter

    @classmethod
    def of(cls, run: str | os.PathLike[str]) -> Filler:
        """The model of a run folder."""
        return cls(run_adapter(run, MaskedLMAdapter, "masked"))

    @property
    def mask(self) -> str:
        """How the tokenizer spells the mask token."""
        return self.adapter.tokenizer.token(self.adapter.mask)

    def __call__(self, texts: Sequence[str], count: int = 5) -> list[list[Filled]]:
        """For each text, one Filled for each of its masks, in order; special tokens are never guessed."""
        found: list[list[Filled]] = []
        for first in range(0, len(texts), ROWS):
            found += self._filled(texts[first : first + ROWS], count)
        return found

    def filled(self, text: str, guesses: Sequence[Filled]) -> str:
        """The text with the likeliest word in the place of each mask."""
        for one in guesses:
            text = text.replace(self.mask, one.words[0], 1)
        return text

    @torch.no_grad()
    def _filled(self, texts: Sequence[str], count: int) -> list[list[Filled]]:
        adapter, tokenizer = self.adapter, self.adapter.tokenizer
        ids = [one.ids for one in tokenizer.encode_batch(texts, specials=True)]
        for text, row in zip(texts, ids, strict=True):
            if adapter.mask not in row:
                raise SettingError(f"{text!r} without a mask", f"{self.mask} where a word is hidden", where="fill")
        rows = adapter.rows(ids, None, "fill")
        places, special = adapter.masks_in(rows), sorted(tokenizer.special.all)
        logits = adapter.masked_logits(rows, places)
        logits = logits.index_fill(-1, torch.tensor(special, device=logits.device), -torch.inf)
        best = Logits(logits).log_probs().exp().topk(min(count, logits.size(-1) - len(special)))
        found: list[list[Filled]] = [[] for _ in texts]
        for place, numbers, shares in zip(places.tolist(), best.indices.tolist(), best.values.tolist(), strict=True):
            spelled = tokenizer.decode_batch([[one] for one in numbers])
            found[place // rows.inputs.size(1)].append(Filled(tuple(spelled), tuple(shares)))
        return found
