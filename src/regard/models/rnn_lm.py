"""A recurrent language model (RNN, GRU, LSTM): one state holds the text so far and predicts the next token.

h_t = cell(x_t, h_{t-1}),    p(x_{t+1}) = softmax(W h_t + b)
"""

from __future__ import annotations

from typing import NamedTuple, cast

from torch import Tensor, nn

from regard.models.cross_entropy import Logits, Prediction
from regard.models.embedding import OutputProjection, WordEmbedding
from regard.models.rnn import Carry, RecurrentLayers


class LMOutput(NamedTuple):
    """The output for a segment: the prediction at each position, the vectors (B, T, D) behind it, the carry."""

    prediction: Prediction
    hidden: Tensor
    carry: dict[str, Tensor]


class RecurrentLM(nn.Module):
    """Word embedding, recurrent layers, a softmax.

    RecurrentLM(WordEmbedding(1500, 64), RecurrentLayers("lstm", 64, 128))
    prediction, carry = model(inputs)                   # (B, T)
    prediction, carry = model(more, carry=carry)        # continues the rows; gradients stop there (truncated BPTT)

    `tied`: the softmax uses the embedding matrix. Dropout applies to the inputs of the layers and of the softmax. The
    state runs on over the end of a text, so `documents` are ignored.
    """

    copies = False

    def __init__(self, words: WordEmbedding, rnn: RecurrentLayers, tied: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.words, self.rnn = words, rnn
        self.dropout = nn.Dropout(dropout)
        self.softmax = OutputProjection(rnn.hidden, words.embedding.num_embeddings, words if tied else None)

    def forward(
        self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None
    ) -> tuple[Prediction, dict[str, Tensor]]:
        """inputs (B, T): the prediction of the token after each, and the carry for the tokens after these."""
        output = self.predict(inputs, documents, carry)
        return output.prediction, output.carry

    def predict(self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None) -> LMOutput:
        states, after = self.rnn(self.dropout(self.words(inputs)), carry)
        states = self.dropout(states)
        return LMOutput(Logits(self.softmax(states)), states, after)

    def start(self, inputs: Tensor, lengths: Tensor, end: int | None = None) -> dict[str, Tensor]:
        return cast(dict[str, Tensor], self.rnn(self.words(inputs), lengths=lengths)[1])

    def step(self, state: Carry, tokens: Tensor) -> tuple[Tensor, None, Carry]:
        prediction, after = self(tokens.unsqueeze(-1), carry=state)
        return prediction.log_probs().squeeze(1), None, after

    def reorder(self, state: Carry, rows: Tensor) -> Carry:
        return {name: tensor.index_select(0, rows) for name, tensor in state.items()}
