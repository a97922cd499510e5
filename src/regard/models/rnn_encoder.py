"""The reading half of a translator: every word of the source as a state that knows its neighbours on both sides."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.errors import SettingError
from regard.models.cells import recurrent
from regard.models.embedding import Words
from regard.models.rnn import turned


class Source(NamedTuple):
    """What was read: a state for each word, by which it is found; what it then has to tell, the state with the word
    itself; how many are real; and the two last states, one of each way, end to end."""

    states: Tensor  # (B, S, M)
    values: Tensor  # (B, S, M)
    lengths: Tensor  # (B,)
    last: Tensor  # (B, M)


class Reader(nn.Module):
    """Layers of two recurrent readers, from the left and from the right; half of each state comes from each.

    Reader(Words(8000, 128), 256)               # 8000 words of width 128, states of width 256

    What attention brings back is the state with its word added, so that it has something to tell before the recurrent
    part has learned to hand words on. The last states have no such help: what they hold is what a fixed vector holds.
    """

    def __init__(self, words: Words, states: int, layers: int = 1, cell: str = "lstm", dropout: float = 0.0) -> None:
        super().__init__()
        if states < 2 or states % 2:
            raise SettingError(f"states={states}", "an even width, half of it for each way", where="Reader")
        self.words = words
        widths = [words.width, *[states] * (layers - 1)]
        self.forth = nn.ModuleList(recurrent(cell, width, states // 2) for width in widths)
        self.back = nn.ModuleList(recurrent(cell, width, states // 2) for width in widths)
        self.word = nn.Linear(words.width, states, bias=False)
        nn.init.normal_(self.word.weight, std=(3 / words.width) ** 0.5)  # a word is to be heard beside its state
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor, lengths: Tensor) -> Source:
        """source (B, S), of which the first `lengths` (B,) are real, one at least."""
        words = self.dropout(self.words(source))
        # each row is turned about its own last word, so that padding comes after the text for both of them; torch's
        # packed sequences would do the same, at half the speed on a CPU
        last = (lengths - 1).view(-1, 1, 1)
        states, ends = words, []
        for forth, back in zip(self.forth, self.back, strict=True):
            right, _ = forth(states)
            left, _ = back(turned(states, lengths))
            ends = [way.gather(1, last.expand(-1, 1, way.size(-1))).squeeze(1) for way in (right, left)]
            states = self.dropout(torch.cat((right, turned(left, lengths)), -1))
        values = states + self.dropout(self.word(words))
        return Source(states, values, lengths, torch.cat(ends, -1))
