"""A recurrent language model: what was read so far is one state, and the state says what comes next.

h_t = cell(x_t, h_{t-1}),    p(x_{t+1}) = softmax(W h_t + b)
"""

from __future__ import annotations

from typing import NamedTuple, cast

from torch import Tensor, nn

from regard.models.embedding import Softmax, Words
from regard.models.predictions import Logits, Prediction
from regard.models.rnn import Carry, Recurrence


class Reading(NamedTuple):
    """What came of a segment: the prediction at each place, the vectors (B, T, D) it was made from, the carry."""

    prediction: Prediction
    hidden: Tensor
    carry: dict[str, Tensor]


class RecurrentLM(nn.Module):
    """Words, recurrent layers, a softmax.

    RecurrentLM(Words(1500, 64), Recurrence("lstm", 64, 128))
    prediction, carry = model(inputs)                            # (B, T)
    prediction, carry = model(more, carry=carry)                 # the same rows, read on; no gradient crosses the cut

    `tied`: the softmax takes the embedding for its weights. Dropout falls on what the layers read and on what the
    softmax reads. The state runs on over the end of a text, so `documents` are of no concern to it.
    """

    copies = False

    def __init__(self, words: Words, recurrence: Recurrence, tied: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.words, self.recurrence = words, recurrence
        self.dropout = nn.Dropout(dropout)
        self.softmax = Softmax(recurrence.hidden, words.embedding.num_embeddings, words if tied else None)

    def forward(
        self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None
    ) -> tuple[Prediction, dict[str, Tensor]]:
        """inputs (B, T): what comes after each, and what to hand in with the tokens after these."""
        reading = self.read(inputs, documents, carry)
        return reading.prediction, reading.carry

    def read(self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None) -> Reading:
        states, after = self.recurrence(self.dropout(self.words(inputs)), carry)
        states = self.dropout(states)
        return Reading(Logits(self.softmax(states)), states, after)

    def start(self, inputs: Tensor, lengths: Tensor, end: int | None = None) -> dict[str, Tensor]:
        return cast(dict[str, Tensor], self.recurrence(self.words(inputs), lengths=lengths)[1])

    def step(self, state: Carry, tokens: Tensor) -> tuple[Tensor, None, Carry]:
        prediction, after = self(tokens.unsqueeze(-1), carry=state)
        return prediction.log_probs().squeeze(1), None, after

    def reorder(self, state: Carry, rows: Tensor) -> Carry:
        return {name: tensor.index_select(0, rows) for name, tensor in state.items()}
