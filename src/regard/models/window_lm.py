"""A language model with a fixed window (Bengio et al. 2003): the last n words side by side, one layer, a softmax.

h_t = tanh(W [x_{t-n+1}, ..., x_t] + b),    p(x_{t+1}) = softmax(V h_t + c)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.errors import SettingError
from regard.models.embedding import Softmax, Words
from regard.models.predictions import Logits, Prediction
from regard.models.rnn import Carry
from regard.models.rnn_lm import Reading
from regard.models.state_memory import NO_TEXT, NO_TOKEN, texts_of


class Near(NamedTuple):
    """Where rows stand that are written step by step: their last tokens (B, size - 1), and the one that ends a text."""

    tokens: Tensor
    end: int | None


class WindowLM(nn.Module):
    """Words, a window over the last `size` of them, a layer, a softmax.

    WindowLM(Words(1500, 64), size=5, hidden=128)

    Places before the beginning, and words of another text where `documents` are given, are zeros. What it carries is
    the last size - 1 tokens.
    """

    copies = False

    def __init__(self, words: Words, size: int, hidden: int, tied: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        if size < 1:
            raise SettingError(f"size={size}", "a window of at least 1 word", where="WindowLM")
        self.words, self.size = words, size
        self.layer = nn.Linear(size * words.embedding.embedding_dim, hidden)
        self.dropout = nn.Dropout(dropout)
        self.softmax = Softmax(hidden, words.embedding.num_embeddings, words if tied else None)

    def forward(
        self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None
    ) -> tuple[Prediction, dict[str, Tensor]]:
        """inputs (B, T): what comes after each, and what to hand in with the tokens after these."""
        reading = self.read(inputs, documents, carry)
        return reading.prediction, reading.carry

    def read(self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None) -> Reading:
        texts = torch.zeros_like(inputs) if documents is None else documents
        if carry is None:
            tokens = pad(inputs, (self.size - 1, 0), value=NO_TOKEN)
            texts = pad(texts, (self.size - 1, 0), value=NO_TEXT)
        else:
            tokens, texts = torch.cat((carry["tokens"], inputs), 1), torch.cat((carry["documents"], texts), 1)
        here = torch.arange(inputs.size(1), device=inputs.device).unsqueeze(-1)
        windows = here + torch.arange(self.size, device=inputs.device)  # (T, n): the places in each one's window
        near = texts[:, windows]
        vectors = self.dropout(self.words(tokens))[:, windows]  # (B, T, n, D)
        vectors = torch.where((near == near[..., -1:]).unsqueeze(-1), vectors, 0.0)
        hidden = self.dropout(self.layer(vectors.flatten(-2)).tanh())
        kept = slice(tokens.size(1) - self.size + 1, None)
        return Reading(Logits(self.softmax(hidden)), hidden, {"tokens": tokens[:, kept], "documents": texts[:, kept]})

    def start(self, inputs: Tensor, lengths: Tensor, end: int | None = None) -> Near:
        """`end`: the token that opens another text in the same row, which does not see those before it."""
        padded = pad(inputs, (self.size - 1, 0), value=NO_TOKEN)
        last = lengths.unsqueeze(-1) + torch.arange(self.size - 1, device=inputs.device)
        return Near(padded.gather(1, last), end)

    def step(self, state: Near, tokens: Tensor) -> tuple[Tensor, None, Near]:
        window = torch.cat((state.tokens, tokens.unsqueeze(-1)), 1)
        texts = texts_of(window, state.end).masked_fill(window == NO_TOKEN, NO_TEXT)
        before = {"tokens": window[:, :-1], "documents": texts[:, :-1]}
        prediction, _ = self(window[:, -1:], texts[:, -1:], before)
        return prediction.log_probs().squeeze(1), None, Near(window[:, 1:], state.end)

    def reorder(self, state: Near, rows: Tensor) -> Near:
        return Near(state.tokens.index_select(0, rows), state.end)
