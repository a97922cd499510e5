"""The reading half of a translator: every word of the source as a state that knows its neighbours on both sides."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.errors import SettingError
from regard.models.cells import recurrent
from regard.models.words import Words


class Source(NamedTuple):
    """What was read: a state for each word, how many are real, and the two last states, one of each way, end to end."""

    states: Tensor  # (B, S, M)
    lengths: Tensor  # (B,)
    last: Tensor  # (B, M)


class Reader(nn.Module):
    """Two recurrent readers, from the left and from the right; half of each state comes from each.

    Reader(Words(8000, 128), 256)               # 8000 words of width 128, states of width 256

    The word itself is added to its state: attention then finds words before the recurrent part has learned to hand
    them on. The last states have no such help, so that what they hold is what a fixed vector can hold.
    """

    def __init__(self, words: Words, states: int, layers: int = 1, cell: str = "gru", dropout: float = 0.0) -> None:
        super().__init__()
        if states < 2 or states % 2:
            raise SettingError(f"states={states}", "an even width, half of it for each way", where="Reader")
        self.words = words
        self.both = recurrent(cell, words.width, states // 2, layers, both=True, dropout=dropout)
        self.word = nn.Linear(words.width, states, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor, lengths: Tensor) -> Source:
        """source (B, S), of which the first `lengths` (B,) are real, one at least."""
        words = self.dropout(self.words(source))
        packed = pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, last = self.both(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=source.size(1))
        top = (last[0] if isinstance(last, tuple) else last)[-2:]  # forth and back of the uppermost layer
        return Source(self.dropout(states + self.word(words)), lengths, torch.cat(tuple(top), -1))
