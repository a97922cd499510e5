"""The n-gram neural language model (Bengio et al. 2003): a window of the last n words, one layer, a softmax.

h_t = tanh(W [x_{t-n+1}, ..., x_t] + b),    p(x_{t+1}) = softmax(V h_t + c)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.errors import SettingError
from regard.models.cross_entropy import Logits, Prediction
from regard.models.embedding import OutputProjection, WordEmbedding
from regard.models.rnn import Carry
from regard.models.rnn_lm import LMOutput
from regard.models.state_memory import NO_DOCUMENT, NO_TOKEN, document_ids


class WindowLMState(NamedTuple):
    """The state of generation: the last tokens (B, size - 1) of each row, and the token that separates texts."""

    tokens: Tensor
    end: int | None


class WindowLM(nn.Module):
    """Word embedding, a window over the last `size` words, a layer, a softmax.

    WindowLM(WordEmbedding(1500, 64), size=5, hidden=128)

    Positions before the beginning, and words of another text where `documents` are given, are zeros. Its carry is the
    last size - 1 tokens.
    """

    copies = False

    def __init__(self, words: WordEmbedding, size: int, hidden: int, tied: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        if size < 1:
            raise SettingError(f"size={size}", "a window of at least 1 word", where="WindowLM")
        self.words, self.size = words, size
        self.layer = nn.Linear(size * words.embedding.embedding_dim, hidden)
        self.dropout = nn.Dropout(dropout)
        self.softmax = OutputProjection(hidden, words.embedding.num_embeddings, words if tied else None)

    def forward(
        self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None
    ) -> tuple[Prediction, dict[str, Tensor]]:
        """inputs (B, T): the prediction of the token after each, and the carry for the tokens after these."""
        output = self.predict(inputs, documents, carry)
        return output.prediction, output.carry

    def predict(self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None) -> LMOutput:
        documents = torch.zeros_like(inputs) if documents is None else documents
        if carry is None:
            tokens = pad(inputs, (self.size - 1, 0), value=NO_TOKEN)
            documents = pad(documents, (self.size - 1, 0), value=NO_DOCUMENT)
        else:
            tokens = torch.cat((carry["tokens"], inputs), 1)
            documents = torch.cat((carry["documents"], documents), 1)
        first = torch.arange(inputs.size(1), device=inputs.device).unsqueeze(-1)
        windows = first + torch.arange(self.size, device=inputs.device)  # (T, n): the positions in each window
        near = documents[:, windows]
        vectors = self.dropout(self.words(tokens))[:, windows]  # (B, T, n, D)
        vectors = torch.where((near == near[..., -1:]).unsqueeze(-1), vectors, 0.0)
        hidden = self.dropout(self.layer(vectors.flatten(-2)).tanh())
        last = slice(tokens.size(1) - self.size + 1, None)
        after = {"tokens": tokens[:, last], "documents": documents[:, last]}
        return LMOutput(Logits(self.softmax(hidden)), hidden, after)

    def start(self, inputs: Tensor, lengths: Tensor, end: int | None = None) -> WindowLMState:
        """`end`: the token that starts another text in the same row, which does not see those before it."""
        padded = pad(inputs, (self.size - 1, 0), value=NO_TOKEN)
        last = lengths.unsqueeze(-1) + torch.arange(self.size - 1, device=inputs.device)
        return WindowLMState(padded.gather(1, last), end)

    def step(self, state: WindowLMState, tokens: Tensor) -> tuple[Tensor, None, WindowLMState]:
        window = torch.cat((state.tokens, tokens.unsqueeze(-1)), 1)
        documents = document_ids(window, state.end).masked_fill(window == NO_TOKEN, NO_DOCUMENT)
        before = {"tokens": window[:, :-1], "documents": documents[:, :-1]}
        prediction, _ = self(window[:, -1:], documents[:, -1:], before)
        return prediction.log_probs().squeeze(1), None, WindowLMState(window[:, 1:], state.end)

    def reorder(self, state: WindowLMState, rows: Tensor) -> WindowLMState:
        return WindowLMState(state.tokens.index_select(0, rows), state.end)
