"""The bidirectional RNN (BiLSTM) encoder of a translator: a state for every source word, from both directions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.errors import SettingError
from regard.models.cells import build_rnn
from regard.models.embedding import WordEmbedding
from regard.models.rnn import reverse_padded


class EncoderOutput(NamedTuple):
    """The encoded source: attention keys (states), values (states plus projected word embeddings), the number of real
    words, and the final states of both directions, concatenated."""

    states: Tensor  # (B, S, M)
    values: Tensor  # (B, S, M)
    lengths: Tensor | None  # (B,); None: all are real
    last: Tensor  # (B, M)


class BiRNNEncoder(nn.Module):
    """Layers of two RNNs, one in each direction; half of each state comes from each (a BiLSTM by default).

    BiRNNEncoder(WordEmbedding(8000, 128), 256)         # 8000 words of width 128, states of width 256

    The values that attention averages are the states plus the projected word embeddings (a residual connection), so
    that they carry the words before the RNN has learned to pass them on. The final states have no such connection.
    """

    def __init__(
        self, words: WordEmbedding, dim: int, layers: int = 1, cell: str = "lstm", dropout: float = 0.0
    ) -> None:
        super().__init__()
        if dim < 2 or dim % 2:
            raise SettingError(f"dim={dim}", "an even width, half of it for each direction", where="BiRNNEncoder")
        self.words = words
        widths = [words.width, *[dim] * (layers - 1)]
        self.forward_rnn = nn.ModuleList(build_rnn(cell, width, dim // 2) for width in widths)
        self.backward_rnn = nn.ModuleList(build_rnn(cell, width, dim // 2) for width in widths)
        self.word_projection = nn.Linear(words.width, dim, bias=False)
        nn.init.normal_(self.word_projection.weight, std=(3 / words.width) ** 0.5)  # words weigh as much as states
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor, lengths: Tensor) -> EncoderOutput:
        """source (B, S), of which the first `lengths` (B,) are real, one at least."""
        words = self.dropout(self.words(source))
        # each row is reversed within its length, so that padding comes last in both directions; torch's packed
        # sequences would do the same, at half the speed on a CPU
        last = (lengths - 1).view(-1, 1, 1)
        states, ends = words, []
        for forward_rnn, backward_rnn in zip(self.forward_rnn, self.backward_rnn, strict=True):
            right, _ = forward_rnn(states)
            left, _ = backward_rnn(reverse_padded(states, lengths))
            ends = [one.gather(1, last.expand(-1, 1, one.size(-1))).squeeze(1) for one in (right, left)]
            states = self.dropout(torch.cat((right, reverse_padded(left, lengths)), -1))
        values = states + self.dropout(self.word_projection(words))
        return EncoderOutput(states, values, lengths, torch.cat(ends, -1))
