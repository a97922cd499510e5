"""A recurrent language model with attention to its own past states, and optionally a copy mechanism (pointer).

c_t = attend(h_t, h_1 ... h_{t-1}),    p(x_{t+1}) = softmax(V tanh(W [h_t, c_t]))

A segment takes one pass of the recurrent layers and one `attend`. With a CopyGate the weights are also a distribution
over the tokens of those states, so that words of the text can be copied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.attention import Attended, Observe, Tap, max_materialized
from regard.attention.masks import Documents, Mask, Past
from regard.attention.scores import Dot, Score, as_score
from regard.errors import SettingError
from regard.models.copy_gates import CopyGate
from regard.models.cross_entropy import Logits, Mixture, Prediction
from regard.models.embedding import OutputProjection, WordEmbedding
from regard.models.lazy_copy_weights import LazyCopyWeights
from regard.models.rnn import Carry, RecurrentLayers
from regard.models.rnn_lm import LMOutput
from regard.models.state_memory import StateMemory, document_ids


class PastAttention(NamedTuple):
    """Attention to the past: the score, how many states of the segment before are kept, and the copy gate."""

    score: Score | None = None
    memory: int = 64
    copy: CopyGate | None = None


@dataclass(frozen=True)
class AttentiveLMState:
    """The state of generation. `document` (B,): the document number of each row; `end`: the token that starts another
    one. `width`: of the distributions, above V where the text has words outside the vocabulary.
    """

    rnn: Carry
    memory: StateMemory
    document: Tensor
    end: int | None
    width: int


class AttentiveLM(nn.Module):
    """Word embedding, recurrent layers, attention to the past, a softmax.

    AttentiveLM(WordEmbedding(1500, 64), RecurrentLayers("lstm", 64, 128), PastAttention(Bilinear(128)))

    A state attends to all states before it in its segment, and to the last `attention.memory` states before the
    segment, which get no gradient. Where `documents` are given, it attends to those of its own document alone. The
    first token of a document attends to nothing, and its context is zero. With a copy gate, each id beyond the
    vocabulary is a word of its own.
    """

    def __init__(
        self,
        words: WordEmbedding,
        rnn: RecurrentLayers,
        attention: PastAttention | None = None,
        tied: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        attention = PastAttention() if attention is None else attention
        if attention.memory < 0:
            raise SettingError(f"memory={attention.memory}", "0 or more states", where="AttentiveLM")
        width = rnn.hidden
        self.words, self.rnn = words, rnn
        self.score, self.memory, self.copy = attention.score, attention.memory, attention.copy
        self.past = Tap()
        self.join = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)
        self.softmax = OutputProjection(width, words.embedding.num_embeddings, words if tied else None)

    @property
    def copies(self) -> bool:
        return self.copy is not None

    def forward(
        self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None
    ) -> tuple[Prediction, dict[str, Tensor]]:
        """inputs (B, T): the prediction of the token after each, and the carry for the tokens after these."""
        output = self.predict(inputs, documents, carry)
        return output.prediction, output.carry

    def predict(self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None) -> LMOutput:
        states, after = self.rnn(self.dropout(self.words(inputs)), carry)
        current = StateMemory.of(states, inputs, documents)
        keys = current if carry is None else StateMemory.from_carry(carry).append(current)
        mask: Mask = Past()
        same: Documents | None = None
        if carry is not None or documents is not None:  # else there is one document, and no empty slot
            same = keys.mask(documents, inputs.size(1))
            mask = mask & same
        got = self._attend(states, keys, mask, weights=self.copies and not self._too_many(states, keys))
        prediction, hidden = self._predict(states, got, keys, same)
        return LMOutput(prediction, hidden, after | keys.last(self.memory).carry)

    def start(self, inputs: Tensor, lengths: Tensor, end: int | None = None) -> AttentiveLMState:
        """`end`: the token that starts another document in the same row, which does not see those before it."""
        states, rnn = self.rnn(self.words(inputs), lengths=lengths)
        memory = StateMemory.of(states, inputs, document_ids(inputs, end)).truncate(lengths)
        document = memory.documents.clamp(min=0).amax(1) if inputs.size(1) else torch.zeros_like(lengths)
        return AttentiveLMState(rnn, memory, document, end, self._width(self.softmax.bias.numel(), memory.tokens))

    def step(self, state: AttentiveLMState, tokens: Tensor) -> tuple[Tensor, Tensor | None, AttentiveLMState]:
        """Weights (B, S): over the prompt, padding included, and all tokens since."""
        inputs, memory = tokens.unsqueeze(-1), state.memory
        document = state.document if state.end is None else state.document + (tokens == state.end)
        states, rnn = self.rnn(self.words(inputs), state.rnn)
        got = self._attend(states, memory, memory.mask(document.unsqueeze(-1), 1), weights=True)
        prediction, _ = self._predict(states, got, memory)
        log_probs, width = prediction.log_probs().squeeze(1), self._width(state.width, inputs)
        log_probs = pad(log_probs, (0, width - log_probs.size(-1)), value=-torch.inf)
        assert got.weights is not None
        after = memory.append(StateMemory.of(states, inputs, document.unsqueeze(-1)))
        return log_probs, got.weights.squeeze(1), AttentiveLMState(rnn, after, document, state.end, width)

    def reorder(self, state: AttentiveLMState, rows: Tensor) -> AttentiveLMState:
        rnn = {name: tensor.index_select(0, rows) for name, tensor in state.rnn.items()}
        document = state.document.index_select(0, rows)
        return replace(state, rnn=rnn, memory=state.memory.rows(rows), document=document)

    def _attend(self, states: Tensor, keys: StateMemory, mask: Mask, weights: bool) -> Attended:
        observe = Observe(weights=weights)
        got: Attended = self.past(states, keys.states, score=self.score, mask=mask, observe=observe)
        return got

    def _too_many(self, states: Tensor, keys: StateMemory) -> bool:
        """Whether the weights are too many to store, and need not be stored: a dot-product score, and no listener
        that replaces weights."""
        many = states.size(0) * states.size(1) * keys.tokens.size(1) > max_materialized(states.device)
        return many and isinstance(as_score(self.score), Dot) and not self.past.is_replaceable

    def _predict(
        self, states: Tensor, got: Attended, keys: StateMemory, same: Documents | None = None
    ) -> tuple[Prediction, Tensor]:
        """The prediction, and the inputs (B, T, D) of the softmax. `same`: the document mask, for lazy weights."""
        hidden = self.dropout(self.join(torch.cat((states, got.output), -1)).tanh())
        logits = self.softmax(hidden)
        if self.copy is None:
            return Logits(logits), hidden
        p_gen, p_copy = self.copy(states, got)
        if got.weights is not None:
            return Mixture(logits, p_gen, got.weights * p_copy.unsqueeze(-1), keys.tokens), hidden
        score = as_score(self.score)
        assert isinstance(score, Dot), "other scores store their weights"
        weights = LazyCopyWeights.from_score(score, states, keys.states, p_copy, same)
        return Mixture(logits, p_gen, weights, keys.tokens), hidden

    def _width(self, width: int, tokens: Tensor) -> int:
        """The width of a distribution that covers these tokens."""
        return max(width, int(tokens.max()) + 1) if self.copies and tokens.numel() else width
