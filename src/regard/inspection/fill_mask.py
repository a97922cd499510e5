"""Fill-mask: the most likely words behind each [MASK] of a text, by a trained BERT.

>>> MaskFiller.of("runs/bert")(["The old [MASK] did not see us ."], 5)[0][0].words        # the five most likely
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.adapters import MaskedLMAdapter, run_adapter
from regard.errors import SettingError
from regard.models import Logits

ROWS = 32  # texts in a batch


@dataclass(frozen=True, repr=False)
class FilledMask:
    """The most likely words behind one mask, best first, and their probabilities."""

    words: tuple[str, ...]
    probabilities: tuple[float, ...]

    def __repr__(self) -> str:
        each = zip(self.words, self.probabilities, strict=True)
        return f"FilledMask({', '.join(f'{word} {share:.1%}' for word, share in each)})"


@dataclass(frozen=True, eq=False)
class MaskFiller:
    """A pre-trained BERT with its masked language modelling head."""

    adapter: MaskedLMAdapter

    @classmethod
    def of(cls, run: str | os.PathLike[str]) -> MaskFiller:
        """The model of a run folder."""
        return cls(run_adapter(run, MaskedLMAdapter, "masked"))

    @property
    def mask(self) -> str:
        """The mask token of the tokenizer, such as [MASK]."""
        return self.adapter.tokenizer.token(self.adapter.mask)

    def __call__(self, texts: Sequence[str], count: int = 5) -> list[list[FilledMask]]:
        """For each text, one FilledMask for each of its masks, in order; special tokens are never predicted."""
        found: list[list[FilledMask]] = []
        for first in range(0, len(texts), ROWS):
            found += self._fill_batch(texts[first : first + ROWS], count)
        return found

    def fill_text(self, text: str, guesses: Sequence[FilledMask]) -> str:
        """The text with the most likely word in place of each mask."""
        for one in guesses:
            text = text.replace(self.mask, one.words[0], 1)
        return text

    @torch.no_grad()
    def _fill_batch(self, texts: Sequence[str], count: int) -> list[list[FilledMask]]:
        adapter, tokenizer = self.adapter, self.adapter.tokenizer
        ids = [one.ids for one in tokenizer.encode_batch(texts, specials=True)]
        for text, row in zip(texts, ids, strict=True):
            if adapter.mask not in row:
                advice = f"Put {self.mask} in place of the word to predict."
                raise SettingError(f"There is no mask in {text!r}", where="fill", advice=advice)
        inputs = adapter.build_inputs(ids, None, "fill")
        positions, special = adapter.mask_positions(inputs), sorted(tokenizer.special.all)
        logits = adapter.logits_at(inputs, positions)
        logits = logits.index_fill(-1, torch.tensor(special, device=logits.device), -torch.inf)
        best = Logits(logits).log_probs().exp().topk(min(count, logits.size(-1) - len(special)))
        found: list[list[FilledMask]] = [[] for _ in texts]
        each = zip(positions.tolist(), best.indices.tolist(), best.values.tolist(), strict=True)
        for position, numbers, shares in each:
            words = tokenizer.decode_batch([[one] for one in numbers])
            found[position // inputs.inputs.size(1)].append(FilledMask(tuple(words), tuple(shares)))
        return found
