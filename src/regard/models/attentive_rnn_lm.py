"""A recurrent language model that looks back: its state asks all earlier states, and answers with what they say.

c_t = attend(h_t, h_1 ... h_{t-1}),    p(x_{t+1}) = softmax(V tanh(W [h_t, c_t]))

A segment takes one pass of the recurrent layers and one `attend`. With a Copy the weights are also a distribution over
the tokens of those states, so that a word can be said because it was seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.attention import Attended, Observe, Tap, most_held
from regard.attention.masks import Documents, Mask, Past
from regard.attention.scores import Dot, Score, as_score
from regard.errors import SettingError
from regard.models.copy_gates import Copy
from regard.models.embedding import Softmax, Words
from regard.models.lazy_copy_weights import Looked
from regard.models.predictions import Logits, Mixture, Prediction
from regard.models.rnn import Carry, Recurrence
from regard.models.rnn_lm import Reading
from regard.models.state_memory import Seen, texts_of


class LookBack(NamedTuple):
    """How a state looks back: by which score, over how many states of the segment before, and whether it copies."""

    score: Score | None = None
    memory: int = 64
    copy: Copy | None = None


@dataclass(frozen=True)
class Read:
    """Where rows stand that are written step by step. `text` (B,): the number of the text that each is in; `end`: the
    token that opens another one. `width`: of the distributions, beyond V where words were seen that it does not have.
    """

    recurrent: Carry
    memory: Seen
    text: Tensor
    end: int | None
    width: int


class AttentiveLM(nn.Module):
    """Words, recurrent layers, a look back, a softmax.

    AttentiveLM(Words(1500, 64), Recurrence("lstm", 64, 128), LookBack(Bilinear(128), copy=Sentinel(128)))

    A state sees all states before it in its segment, and what was carried: the last `look.memory` states of what came
    before, through which no gradient flows. Where `documents` are given, it sees those of its own text alone. The first
    token of a text sees nothing, and its context is zero. With a copy, ids beyond the vocabulary are told apart.
    """

    def __init__(
        self,
        words: Words,
        recurrence: Recurrence,
        look: LookBack | None = None,
        tied: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        look = LookBack() if look is None else look
        if look.memory < 0:
            raise SettingError(f"memory={look.memory}", "0 or more states", where="AttentiveLM")
        width = recurrence.hidden
        self.words, self.recurrence = words, recurrence
        self.score, self.memory, self.copy = look.score, look.memory, look.copy
        self.past = Tap()
        self.join = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)
        self.softmax = Softmax(width, words.embedding.num_embeddings, words if tied else None)

    @property
    def copies(self) -> bool:
        return self.copy is not None

    def forward(
        self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None
    ) -> tuple[Prediction, dict[str, Tensor]]:
        """inputs (B, T): what comes after each, and what to hand in with the tokens after these."""
        reading = self.read(inputs, documents, carry)
        return reading.prediction, reading.carry

    def read(self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None) -> Reading:
        states, after = self.recurrence(self.dropout(self.words(inputs)), carry)
        here = Seen.of(states, inputs, documents)
        keys = here if carry is None else Seen.carried(carry).then(here)
        mask: Mask = Past()
        texts: Documents | None = None
        if carry is not None or documents is not None:  # else there is one text, and no empty place
            texts = keys.mask(documents, inputs.size(1))
            mask = mask & texts
        got = self._look(states, keys, mask, weights=self.copies and not self._too_many(states, keys))
        prediction, hidden = self._said(states, got, keys, texts)
        return Reading(prediction, hidden, after | keys.last(self.memory).carry)

    def start(self, inputs: Tensor, lengths: Tensor, end: int | None = None) -> Read:
        """`end`: the token that opens another text in the same row, which does not see those before it."""
        states, recurrent = self.recurrence(self.words(inputs), lengths=lengths)
        texts = texts_of(inputs, end)
        memory = Seen.of(states, inputs, texts).only(lengths)
        text = memory.documents.clamp(min=0).amax(1) if inputs.size(1) else torch.zeros_like(lengths)
        return Read(recurrent, memory, text, end, self._wide(self.softmax.bias.numel(), memory.tokens))

    def step(self, state: Read, tokens: Tensor) -> tuple[Tensor, Tensor | None, Read]:
        """Weights (B, S): over what was read at the start, padding included, and all that was stepped with since."""
        inputs, memory = tokens.unsqueeze(-1), state.memory
        text = state.text if state.end is None else state.text + (tokens == state.end)
        states, recurrent = self.recurrence(self.words(inputs), state.recurrent)
        got = self._look(states, memory, memory.mask(text.unsqueeze(-1), 1), weights=True)
        prediction, _ = self._said(states, got, memory)
        log_probs, width = prediction.log_probs().squeeze(1), self._wide(state.width, inputs)
        log_probs = pad(log_probs, (0, width - log_probs.size(-1)), value=-torch.inf)
        assert got.weights is not None
        after = memory.then(Seen.of(states, inputs, text.unsqueeze(-1)))
        return log_probs, got.weights.squeeze(1), Read(recurrent, after, text, state.end, width)

    def reorder(self, state: Read, rows: Tensor) -> Read:
        recurrent = {name: tensor.index_select(0, rows) for name, tensor in state.recurrent.items()}
        return replace(
            state, recurrent=recurrent, memory=state.memory.rows(rows), text=state.text.index_select(0, rows)
        )

    def _look(self, states: Tensor, keys: Seen, mask: Mask, weights: bool) -> Attended:
        observe = Observe(weights=weights)
        got: Attended = self.past(states, keys.states, score=self.score, mask=mask, observe=observe)
        return got

    def _too_many(self, states: Tensor, keys: Seen) -> bool:
        """Whether the weights had better not be held: there are many, of a score that can do without, and nobody
        may replace them."""
        many = states.size(0) * states.size(1) * keys.tokens.size(1) > most_held(states.device)
        return many and isinstance(as_score(self.score), Dot) and not self.past.replaceable

    def _said(
        self, states: Tensor, got: Attended, keys: Seen, texts: Documents | None = None
    ) -> tuple[Prediction, Tensor]:
        """The prediction, and the vectors (B, T, D) that the softmax saw. `texts`: who sees whom, without weights."""
        hidden = self.dropout(self.join(torch.cat((states, got.output), -1)).tanh())
        logits = self.softmax(hidden)
        if self.copy is None:
            return Logits(logits), hidden
        share, rest = self.copy(states, got)
        if got.weights is not None:
            return Mixture(logits, share, got.weights * rest.unsqueeze(-1), keys.tokens), hidden
        score = as_score(self.score)
        assert isinstance(score, Dot), "other scores hold their weights"
        return Mixture(logits, share, Looked.by(score, states, keys.states, rest, texts), keys.tokens), hidden

    def _wide(self, width: int, tokens: Tensor) -> int:
        """How many columns a distribution needs after these tokens."""
        return max(width, int(tokens.max()) + 1) if self.copies and tokens.numel() else width
