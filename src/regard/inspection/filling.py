"""What a BERT would put behind a mask.

>>> Filler.of("runs/bert")(["The old [MASK] did not see us ."], 5)[0][0].words        # the five likeliest, best first
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.errors import SettingError
from regard.inspection.rows import rows_of
from regard.models.bert import Guesses, MaskedLM
from regard.models.predictions import Logits
from regard.runs.run import Run
from regard.text.tokenizers.tokenizer import Tokenizer

ROWS = 32  # texts read at once


@dataclass(frozen=True)
class Filled:
    """The likeliest words behind one mask, best first, and how likely each is."""

    words: tuple[str, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Filler:
    """A pre-trained BERT with its tokenizer."""

    model: MaskedLM
    tokenizer: Tokenizer

    @classmethod
    def of(cls, run: str | os.PathLike[str]) -> Filler:
        """The model of a run folder."""
        opened = Run.open(run)
        opened.expect_task("masked")
        model = opened.model()
        assert isinstance(model, MaskedLM)
        return cls(model, opened.tokenizer)

    @property
    def mask(self) -> str:
        """How the tokenizer spells what stands for a hidden word."""
        return self.tokenizer.token(self.tokenizer.special.need("mask"))

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
        special = self.tokenizer.special
        mask, device = special.need("mask"), self.model.bert.words.device
        ids = [one.ids for one in self.tokenizer.encode_batch(texts, specials=True)]
        for text, row in zip(texts, ids, strict=True):
            if mask not in row:
                raise SettingError(f"{text!r} without a mask", f"{self.mask} where a word is hidden", where="fill")
        rows = rows_of(ids, [None] * len(ids), special, self.model.bert.longest, "fill").to(device)
        places = (rows.inputs == mask).flatten().nonzero().squeeze(-1)
        said: Guesses = self.model(*rows, places)
        logits = said.words.index_fill(-1, torch.tensor(sorted(special.all), device=device), -torch.inf)
        words = logits.size(-1) - len(special.all)
        best = Logits(logits).log_probs().exp().topk(min(count, words))
        found: list[list[Filled]] = [[] for _ in texts]
        for place, numbers, shares in zip(places.tolist(), best.indices.tolist(), best.values.tolist(), strict=True):
            spelled = self.tokenizer.decode_batch([[one] for one in numbers])
            found[place // rows.inputs.size(1)].append(Filled(tuple(spelled), tuple(shares)))
        return found
