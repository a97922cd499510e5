"""Recurrent decoders: bottleneck, or a context vector by Bahdanau or Luong attention; input feeding, coverage.

Bottleneck    h_t = f(y_t-1, h_t-1), h_0 from the last states alone (Sutskever 2014, Cho 2014)
Bahdanau      c_t = attend(h_t-1), h_t = f(y_t-1, c_t, h_t-1): the context enters the next state (Bahdanau 2015)
Luong         h_t = f(y_t-1, h_t-1), c_t = attend(h_t): context and state predict; with input feeding
              h_t = f(y_t-1, v_t-1, h_t-1), v the attentional vector (Luong 2015)

Each gives a vector v_t from which the next word is predicted. Where no step depends on attention, all steps run in one
RNN call and one `attend`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import Attended, Observe, Tap
from regard.attention.kernels.recurrent import PreparedKeys, steps_unsupported_reason
from regard.attention.masks import Padding
from regard.attention.scores import Additive, Score
from regard.attention.windows import LocalM, LocalP
from regard.errors import SettingError
from regard.models import fused_bahdanau
from regard.models.cells import CellState, RecurrentCell, build_rnn
from regard.models.rnn_encoder import EncoderOutput

OBSERVE_NOTHING, OBSERVE_WEIGHTS = Observe(), Observe(weights=True)


@dataclass(frozen=True, eq=False)
class DecoderState:
    """The state of a decoder: its cells, one for each layer; the encoder memory; what the next step gets from this one;
    the number of steps so far."""

    cells: tuple[CellState, ...]
    memory: PreparedKeys | None
    feedback: Tensor | None = None  # (B, F): the last attentional vector (input feeding), or the coverage of each key
    position: int = 0

    def rows(self, rows: Tensor, same: bool) -> DecoderState:
        """The state of these rows; `same`: each of them has the source that was in its row before."""
        cells = tuple(tuple(part.index_select(0, rows) for part in cell) for cell in self.cells)
        memory = self.memory if same or self.memory is None else self.memory.rows(rows)
        return replace(
            self,
            cells=cells,
            memory=memory,
            feedback=None if self.feedback is None else self.feedback.index_select(0, rows),
        )


class DecoderOutput(NamedTuple):
    """The outputs of T steps: the vectors that predict, the features they are made of, and the attention weights."""

    vectors: Tensor  # (B, T, width)
    features: Tensor  # (B, T, F): state, context and input word, as far as the decoder has them
    weights: Tensor | None = None  # (B, T, S)


class Decoder(nn.Module, ABC):
    """A decoder starts from the encoder's final states; it runs over given words at once, or one step at a time."""

    def __init__(self, width: int, hidden: int, encoder_dim: int, layers: int, cell: str) -> None:
        super().__init__()
        self.hidden, self.layers, self.feature_dim = hidden, layers, hidden
        self.cell_tensors = 2 if cell == "lstm" else 1  # tensors of a cell's state
        self.bridge = nn.Linear(encoder_dim, layers * self.cell_tensors * hidden)

    def initial_state(self, source: EncoderOutput) -> DecoderState:
        """Before the first word: cells from the encoder's final states, and the memory, where there is one."""
        first = torch.tanh(self.bridge(source.last)).chunk(self.layers * self.cell_tensors, -1)
        cells = tuple(tuple(first[i : i + self.cell_tensors]) for i in range(0, len(first), self.cell_tensors))
        return DecoderState(cells, self.prepare_memory(source))

    def prepare_memory(self, source: EncoderOutput) -> PreparedKeys | None:
        return None

    @abstractmethod
    def forward(self, words: Tensor, state: DecoderState, observe: Observe = OBSERVE_NOTHING) -> DecoderOutput:
        """The steps of all words (B, T, width) at once; with Observe(weights=True) their attention weights too."""

    @abstractmethod
    def step(self, word: Tensor, state: DecoderState) -> tuple[DecoderOutput, DecoderState]:
        """One step, word (B, width): what `forward` gives for T = 1, weights too, and the new state."""


class Bottleneck(Decoder):
    """No attention: an RNN that starts from the encoder's final states (Sutskever et al. 2014, Cho et al. 2014)."""

    def __init__(
        self, width: int, hidden: int, encoder_dim: int, layers: int = 1, cell: str = "gru", dropout: float = 0.0
    ) -> None:
        super().__init__(width, hidden, encoder_dim, layers, cell)
        self.rnn = build_rnn(cell, width, hidden, layers, dropout=dropout)
        self.vector = nn.Linear(hidden, width)

    def forward(self, words: Tensor, state: DecoderState, observe: Observe = OBSERVE_NOTHING) -> DecoderOutput:
        return self._run(words, state)[0]

    def step(self, word: Tensor, state: DecoderState) -> tuple[DecoderOutput, DecoderState]:
        return self._run(word.unsqueeze(1), state)

    def _run(self, words: Tensor, state: DecoderState) -> tuple[DecoderOutput, DecoderState]:
        states, cells = run_rnn(self.rnn, words, state.cells)
        after = replace(state, cells=cells, position=state.position + words.size(1))
        return DecoderOutput(torch.tanh(self.vector(states)), states), after


class Bahdanau(Decoder):
    """Additive attention of the previous state; the context enters the next state (Bahdanau et al. 2015).

    `query_includes_input`: the query is the previous state and the previous word, concatenated (the score takes
    hidden + width). The state alone, as published, has not seen that word yet. `coverage`: the scores also take the
    weight that each key has had so far (See et al. 2017, equation 11). `gate`: the context is multiplied by
    beta = sigmoid(f(h_t-1)), so that a word that needs none can leave it out (Xu et al. 2015, 4.2.1).
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        encoder_dim: int,
        score: Score | None = None,
        cell: str = "gru",
        coverage: bool = False,
        query_includes_input: bool = False,
        gate: bool = False,
    ) -> None:
        super().__init__(width, hidden, encoder_dim, 1, cell)
        self.query_includes_input = query_includes_input
        self.score = Additive(hidden + width * query_includes_input, hidden, encoder_dim) if score is None else score
        self.cell = RecurrentCell(cell, width, hidden, step_input=encoder_dim)
        self.feature_dim = hidden + encoder_dim + width
        self.vector = nn.Linear(self.feature_dim, width)
        self.gate = nn.Linear(hidden, 1) if gate else None
        self.tap = Tap()
        self.coverage: nn.Parameter | None = None
        if coverage:
            if not isinstance(self.score, Additive):
                raise SettingError(f"coverage with {type(self.score).__name__}", "an Additive score", where="Bahdanau")
            self.coverage = nn.Parameter(torch.zeros(self.score.query.out_features))

    def prepare_memory(self, source: EncoderOutput) -> PreparedKeys:
        return PreparedKeys.of(source.states, source.values, score=self.score, mask=_padding(source))

    def initial_state(self, source: EncoderOutput) -> DecoderState:
        state = super().initial_state(source)
        return (
            replace(state, feedback=source.states.new_zeros(source.states.shape[:2]))
            if self.coverage is not None
            else state
        )

    def forward(self, words: Tensor, state: DecoderState, observe: Observe = OBSERVE_NOTHING) -> DecoderOutput:
        if self._has_loop(state, observe):
            return self._fused(words, state)
        hidden, contexts, weights = [], [], []
        for word, gates in zip(words.unbind(1), self.cell.inputs(words).unbind(1), strict=True):
            context, weight, state = self._step(word, gates, state, observe)
            hidden.append(state.cells[0][0])
            contexts.append(context)
            weights.append(weight)
        features = torch.cat((torch.stack(hidden, 1), torch.stack(contexts, 1), words), -1)
        stacked = torch.stack([one for one in weights if one is not None], 1) if observe.weights else None
        return DecoderOutput(torch.tanh(self.vector(features)), features, stacked)

    def step(self, word: Tensor, state: DecoderState) -> tuple[DecoderOutput, DecoderState]:
        context, weights, state = self._step(word, self.cell.inputs(word), state, OBSERVE_WEIGHTS)
        features = torch.cat((state.cells[0][0], context, word), -1).unsqueeze(1)
        weights = None if weights is None else weights.unsqueeze(1)
        return DecoderOutput(torch.tanh(self.vector(features)), features, weights), state

    def _has_loop(self, state: DecoderState, observe: Observe) -> bool:
        """Whether `fused_bahdanau` applies: training, a GRU without coverage and gate, no one reads or sets weights."""
        assert state.memory is not None
        supported = self.cell.kind == "gru" and self.coverage is None and self.gate is None
        unobserved = observe == OBSERVE_NOTHING and not self.tap.is_replaceable and torch.is_grad_enabled()
        return supported and unobserved and steps_unsupported_reason(state.memory, state.cells[0][0].dtype) is None

    def _fused(self, words: Tensor, state: DecoderState) -> DecoderOutput:
        memory, score, cell = state.memory, self.score, self.cell
        assert memory is not None and isinstance(score, Additive) and cell.step_input is not None
        of_state, of_word = score.query.weight.split((self.hidden, score.query.in_features - self.hidden), -1)
        from_words = words @ of_word.t() if self.query_includes_input else None
        weights = fused_bahdanau.LoopWeights(
            of_state, score.vector, cell.step_input.weight, cell.state.weight, cell.state.bias
        )
        steps = fused_bahdanau.run_loop(
            cell.inputs(words), from_words, state.cells[0][0], memory.keys, memory.values, memory.hidden, weights
        )
        if self.tap.has_listeners:
            for one in zip(*(x.split(1, 1) for x in (steps.twice / 2, steps.scores, steps.contexts)), strict=True):
                self.tap.report(partial(memory.as_attended, *one), memory.values)
        features = torch.cat((steps.states, steps.contexts, words), -1)
        return DecoderOutput(torch.tanh(self.vector(features)), features)

    def _step(
        self, word: Tensor, gates: Tensor, state: DecoderState, observe: Observe
    ) -> tuple[Tensor, Tensor | None, DecoderState]:
        assert state.memory is not None
        memory, cell = state.memory, state.cells[0]
        if self.coverage is not None and state.feedback is not None:
            memory = replace(memory, keys=memory.keys + state.feedback.unsqueeze(-1) * self.coverage)
            observe = OBSERVE_WEIGHTS | observe
        query = torch.cat((cell[0], word), -1) if self.query_includes_input else cell[0]
        got = self.tap(query.unsqueeze(1), memory, observe=observe)
        context = got.output.squeeze(1)
        if self.gate is not None:
            context = context * torch.sigmoid(self.gate(cell[0]))
        weights = None if got.weights is None else got.weights.squeeze(1)
        feedback = state.feedback
        if self.coverage is not None and feedback is not None and weights is not None:
            feedback = feedback + weights
        cells = (self.cell(gates, cell, context),)
        after = replace(state, cells=cells, feedback=feedback, position=state.position + 1)
        return context, weights, after


class Luong(Decoder):
    """Attention of the new state, global or local (a window); state and context predict: v = tanh(W [h; c])."""

    def __init__(
        self,
        width: int,
        hidden: int,
        encoder_dim: int,
        score: Score,
        window: LocalM | LocalP | None = None,
        layers: int = 1,
        cell: str = "lstm",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, hidden, encoder_dim, layers, cell)
        self.score, self.window = score, window
        self.feature_dim = hidden + encoder_dim + width
        self.vector = nn.Linear(hidden + encoder_dim, width)
        self.tap = Tap()
        self._build_rnn(width, layers, cell, dropout)

    def _build_rnn(self, width: int, layers: int, cell: str, dropout: float) -> None:
        self.rnn = build_rnn(cell, width, self.hidden, layers, dropout=dropout)

    def prepare_memory(self, source: EncoderOutput) -> PreparedKeys:
        return PreparedKeys.of(source.states, source.values, score=self.score, mask=_padding(source))

    def forward(self, words: Tensor, state: DecoderState, observe: Observe = OBSERVE_NOTHING) -> DecoderOutput:
        assert state.memory is not None
        states, _ = run_rnn(self.rnn, words, state.cells)
        return self._attend(states, words, state, observe)

    def step(self, word: Tensor, state: DecoderState) -> tuple[DecoderOutput, DecoderState]:
        states, cells = run_rnn(self.rnn, word.unsqueeze(1), state.cells)
        found = self._attend(states, word.unsqueeze(1), state, OBSERVE_WEIGHTS)
        return found, replace(state, cells=cells, position=state.position + 1)

    def _attend(self, states: Tensor, words: Tensor, state: DecoderState, observe: Observe) -> DecoderOutput:
        """Attention of these states (B, T, H), the first of which is of step `state.position`."""
        assert state.memory is not None
        got = self.tap(states, state.memory, window=self._window(state), observe=observe)
        return self._combine(states, got, words)

    def _combine(self, states: Tensor, got: Attended, words: Tensor) -> DecoderOutput:
        joined = torch.cat((states, got.output), -1)
        return DecoderOutput(torch.tanh(self.vector(joined)), torch.cat((joined, words), -1), got.weights)

    def _window(self, state: DecoderState) -> LocalM | LocalP | None:
        """The window of the steps from `state.position` on."""
        return LocalM(self.window.half_width, state.position) if isinstance(self.window, LocalM) else self.window


class LuongInputFeeding(Luong):
    """Luong attention with input feeding: the attentional vector v_t-1 is an input of the next state."""

    def _build_rnn(self, width: int, layers: int, cell: str, dropout: float) -> None:
        self.first = RecurrentCell(cell, width, self.hidden, step_input=width)
        self.others = nn.ModuleList(RecurrentCell(cell, self.hidden, self.hidden) for _ in range(layers - 1))
        self.dropout = nn.Dropout(dropout)

    def initial_state(self, source: EncoderOutput) -> DecoderState:
        return replace(
            super().initial_state(source), feedback=source.last.new_zeros(len(source.last), self.vector.out_features)
        )

    def forward(self, words: Tensor, state: DecoderState, observe: Observe = OBSERVE_NOTHING) -> DecoderOutput:
        outputs = []
        for gates, word in zip(self.first.inputs(words).unbind(1), words.unbind(1), strict=True):
            found, state = self._step(gates, word, state, observe)
            outputs.append(found)
        vectors, features = (torch.cat([getattr(one, name) for one in outputs], 1) for name in ("vectors", "features"))
        weights = [one.weights for one in outputs if one.weights is not None]
        return DecoderOutput(vectors, features, torch.cat(weights, 1) if observe.weights else None)

    def step(self, word: Tensor, state: DecoderState) -> tuple[DecoderOutput, DecoderState]:
        return self._step(self.first.inputs(word), word, state, OBSERVE_WEIGHTS)

    def _step(
        self, gates: Tensor, word: Tensor, state: DecoderState, observe: Observe
    ) -> tuple[DecoderOutput, DecoderState]:
        cells: list[CellState] = [self.first(gates, state.cells[0], state.feedback)]
        for cell, before in zip(self.others, state.cells[1:], strict=True):
            assert isinstance(cell, RecurrentCell)
            cells.append(cell(cell.inputs(self.dropout(cells[-1][0])), before))
        found = self._attend(cells[-1][0].unsqueeze(1), word.unsqueeze(1), state, observe)
        return found, replace(state, cells=tuple(cells), feedback=found.vectors.squeeze(1), position=state.position + 1)


def _padding(source: EncoderOutput) -> Padding | None:
    return None if source.lengths is None else Padding(source.lengths)


def run_rnn(network: nn.RNNBase, words: Tensor, cells: tuple[CellState, ...]) -> tuple[Tensor, tuple[CellState, ...]]:
    """torch's RNN over words (B, T, D) from these cells: all states of the last layer, and the final cells."""
    parts = [torch.stack(part) for part in zip(*cells, strict=True)]  # (L, B, H), and the same of an LSTM's c
    states, last = network(words, tuple(parts) if len(parts) == 2 else parts[0])
    return states, tuple(zip(*(part.unbind(0) for part in (last if isinstance(last, tuple) else (last,))), strict=True))
