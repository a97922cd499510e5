"""The writing half of a translator, from a bottleneck to attention: three ways to use what was read.

Bottleneck    h_t = f(y_t-1, h_t-1), h_0 from the last states alone (Sutskever 2014, Cho 2014)
Bahdanau      c_t = attend(h_t-1), h_t = f(y_t-1, c_t, h_t-1): the context enters the next state (Bahdanau 2015)
Luong         h_t = f(y_t-1, h_t-1), c_t = attend(h_t): it joins the state that asked; with input feeding
              h_t = f(y_t-1, v_t-1, h_t-1), v the vector that predicts (Luong 2015)

Each gives a vector v_t that the next word is predicted from. Where no step depends on attention, all steps run in one
recurrent call and one `attend`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import Attended, Observe, Tap
from regard.attention.kernels.recurrent import PreparedKeys, steps_refuse
from regard.attention.masks import Padding
from regard.attention.scores import Additive, Score
from regard.attention.windows import LocalM, LocalP
from regard.errors import SettingError
from regard.models import bahdanau_loop
from regard.models.cells import Cell, State, recurrent
from regard.models.rnn_encoder import Source

NOTHING, WEIGHTS = Observe(), Observe(weights=True)


@dataclass(frozen=True, eq=False)
class Writing:
    """Where a decoder stands: its cells, one for each layer; what it may look at; what it is fed; how far it is."""

    cells: tuple[State, ...]
    memory: PreparedKeys | None
    fed: Tensor | None = None  # (B, F): the vector that predicted the word before, or the weight each key has had
    at: int = 0

    def rows(self, rows: Tensor, same: bool) -> Writing:
        """The same for these rows; `same`: each of them reads the source that stood in its place before."""
        cells = tuple(tuple(part.index_select(0, rows) for part in cell) for cell in self.cells)
        memory = self.memory if same or self.memory is None else self.memory.rows(rows)
        return replace(
            self, cells=cells, memory=memory, fed=None if self.fed is None else self.fed.index_select(0, rows)
        )


class Decoded(NamedTuple):
    """What T steps gave: the vectors that predict, what those are made of, and what was looked at."""

    vectors: Tensor  # (B, T, width)
    parts: Tensor  # (B, T, P): state, context and input word, as far as the decoder has them
    weights: Tensor | None = None  # (B, T, S)


class Decoder(nn.Module, ABC):
    """Starts from the last states that were read, walks through given words or goes one step on."""

    def __init__(self, width: int, hidden: int, states: int, layers: int, cell: str) -> None:
        super().__init__()
        self.hidden, self.layers, self.parts = hidden, layers, hidden
        self.carried = 2 if cell == "lstm" else 1  # tensors that a cell hands on
        self.bridge = nn.Linear(states, layers * self.carried * hidden)

    def begin(self, source: Source) -> Writing:
        """Before the first word: cells from the last states, and the memory, where there is one."""
        first = torch.tanh(self.bridge(source.last)).chunk(self.layers * self.carried, -1)
        cells = tuple(tuple(first[i : i + self.carried]) for i in range(0, len(first), self.carried))
        return Writing(cells, self.memory(source))

    def memory(self, source: Source) -> PreparedKeys | None:
        return None

    @abstractmethod
    def run(self, words: Tensor, state: Writing, observe: Observe = NOTHING) -> Decoded:
        """The steps of all words (B, T, width) at once; what they looked at, where Observe(weights=True) asks."""

    @abstractmethod
    def step(self, word: Tensor, state: Writing) -> tuple[Decoded, Writing]:
        """One step, word (B, width): what `run` gives for T = 1, weights too, and where it stands then."""


class Bottleneck(Decoder):
    """A recurrent network that has seen the source once, before its first word."""

    def __init__(
        self, width: int, hidden: int, states: int, layers: int = 1, cell: str = "gru", dropout: float = 0.0
    ) -> None:
        super().__init__(width, hidden, states, layers, cell)
        self.recurrent = recurrent(cell, width, hidden, layers, dropout=dropout)
        self.vector = nn.Linear(hidden, width)

    def run(self, words: Tensor, state: Writing, observe: Observe = NOTHING) -> Decoded:
        return self._walk(words, state)[0]

    def step(self, word: Tensor, state: Writing) -> tuple[Decoded, Writing]:
        return self._walk(word.unsqueeze(1), state)

    def _walk(self, words: Tensor, state: Writing) -> tuple[Decoded, Writing]:
        states, cells = through(self.recurrent, words, state.cells)
        after = replace(state, cells=cells, at=state.at + words.size(1))
        return Decoded(torch.tanh(self.vector(states)), states), after


class Bahdanau(Decoder):
    """Looks with the state before, and takes what it sees into the next one.

    `asks_with_word`: the query is that state and the word before, end to end (the score takes hidden + width). The
    state alone, as published, has not read that word yet: it must guess what it said before it can look further.
    `coverage`: scores also see how much weight each key has had so far (See et al. 2017, equation 11).
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        states: int,
        score: Score | None = None,
        cell: str = "gru",
        coverage: bool = False,
        asks_with_word: bool = False,
    ) -> None:
        super().__init__(width, hidden, states, 1, cell)
        self.asks_with_word = asks_with_word
        self.score = Additive(hidden + width * asks_with_word, hidden, states) if score is None else score
        self.cell = Cell(cell, width, hidden, fed=states)
        self.parts = hidden + states + width
        self.vector = nn.Linear(self.parts, width)
        self.tap = Tap()
        self.coverage: nn.Parameter | None = None
        if coverage:
            if not isinstance(self.score, Additive):
                raise SettingError(f"coverage with {type(self.score).__name__}", "an Additive score", where="Bahdanau")
            self.coverage = nn.Parameter(torch.zeros(self.score.query.out_features))

    def memory(self, source: Source) -> PreparedKeys:
        return PreparedKeys.of(source.states, source.values, score=self.score, mask=Padding(source.lengths))

    def begin(self, source: Source) -> Writing:
        state = super().begin(source)
        return (
            replace(state, fed=source.states.new_zeros(source.states.shape[:2])) if self.coverage is not None else state
        )

    def run(self, words: Tensor, state: Writing, observe: Observe = NOTHING) -> Decoded:
        if self._has_loop(state, observe):
            return self._fused(words, state)
        hidden, contexts, weights = [], [], []
        for word, gates in zip(words.unbind(1), self.cell.inputs(words).unbind(1), strict=True):
            context, weight, state = self._go(word, gates, state, observe)
            hidden.append(state.cells[0][0])
            contexts.append(context)
            weights.append(weight)
        parts = torch.cat((torch.stack(hidden, 1), torch.stack(contexts, 1), words), -1)
        found = torch.stack([one for one in weights if one is not None], 1) if observe.weights else None
        return Decoded(torch.tanh(self.vector(parts)), parts, found)

    def step(self, word: Tensor, state: Writing) -> tuple[Decoded, Writing]:
        context, weights, state = self._go(word, self.cell.inputs(word), state, WEIGHTS)
        parts = torch.cat((state.cells[0][0], context, word), -1).unsqueeze(1)
        seen = None if weights is None else weights.unsqueeze(1)
        return Decoded(torch.tanh(self.vector(parts)), parts, seen), state

    def _has_loop(self, state: Writing, observe: Observe) -> bool:
        """Whether `bahdanau_loop` serves: training, the usual score and cell, weights that nobody uses or replaces."""
        assert state.memory is not None
        usual = self.cell.kind == "gru" and self.coverage is None
        free = observe == NOTHING and not self.tap.replaceable and torch.is_grad_enabled()
        return usual and free and steps_refuse(state.memory, state.cells[0][0].dtype) is None

    def _fused(self, words: Tensor, state: Writing) -> Decoded:
        memory, score, cell = state.memory, self.score, self.cell
        assert memory is not None and isinstance(score, Additive) and cell.fed is not None
        of_state, of_word = score.query.weight.split((self.hidden, score.query.in_features - self.hidden), -1)
        asked = words @ of_word.t() if self.asks_with_word else None
        weights = bahdanau_loop.Weights(of_state, score.vector, cell.fed.weight, cell.state.weight, cell.state.bias)
        steps = bahdanau_loop.run(
            cell.inputs(words), asked, state.cells[0][0], memory.keys, memory.values, memory.hidden, weights
        )
        if self.tap.heard:
            for one in zip(*(x.split(1, 1) for x in (steps.twice / 2, steps.scores, steps.contexts)), strict=True):
                self.tap.report(partial(memory.attended, *one), memory.values)
        parts = torch.cat((steps.states, steps.contexts, words), -1)
        return Decoded(torch.tanh(self.vector(parts)), parts)

    def _go(
        self, word: Tensor, gates: Tensor, state: Writing, observe: Observe
    ) -> tuple[Tensor, Tensor | None, Writing]:
        assert state.memory is not None
        memory, cell = state.memory, state.cells[0]
        if self.coverage is not None and state.fed is not None:
            memory = replace(memory, keys=memory.keys + state.fed.unsqueeze(-1) * self.coverage)
            observe = WEIGHTS | observe
        query = torch.cat((cell[0], word), -1) if self.asks_with_word else cell[0]
        got = self.tap(query.unsqueeze(1), memory, observe=observe)
        context = got.output.squeeze(1)
        weights = None if got.weights is None else got.weights.squeeze(1)
        fed = state.fed if self.coverage is None or state.fed is None or weights is None else state.fed + weights
        after = replace(state, cells=(self.cell(gates, cell, context),), fed=fed, at=state.at + 1)
        return context, weights, after


class Luong(Decoder):
    """Looks with the state it has, globally or through a window, and predicts from both: v = tanh(W [h; c])."""

    def __init__(
        self,
        width: int,
        hidden: int,
        states: int,
        score: Score,
        window: LocalM | LocalP | None = None,
        layers: int = 1,
        cell: str = "lstm",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, hidden, states, layers, cell)
        self.score, self.window = score, window
        self.parts = hidden + states + width
        self.vector = nn.Linear(hidden + states, width)
        self.tap = Tap()
        self._walker(width, layers, cell, dropout)

    def _walker(self, width: int, layers: int, cell: str, dropout: float) -> None:
        self.recurrent = recurrent(cell, width, self.hidden, layers, dropout=dropout)

    def memory(self, source: Source) -> PreparedKeys:
        return PreparedKeys.of(source.states, source.values, score=self.score, mask=Padding(source.lengths))

    def run(self, words: Tensor, state: Writing, observe: Observe = NOTHING) -> Decoded:
        assert state.memory is not None
        states, _ = through(self.recurrent, words, state.cells)
        return self._look(states, words, state, observe)

    def step(self, word: Tensor, state: Writing) -> tuple[Decoded, Writing]:
        states, cells = through(self.recurrent, word.unsqueeze(1), state.cells)
        found = self._look(states, word.unsqueeze(1), state, WEIGHTS)
        return found, replace(state, cells=cells, at=state.at + 1)

    def _look(self, states: Tensor, words: Tensor, state: Writing, observe: Observe) -> Decoded:
        """What these states (B, T, H), of step `state.at` and those after it, look at."""
        assert state.memory is not None
        got = self.tap(states, state.memory, window=self._window(state), observe=observe)
        return self._joined(states, got, words)

    def _joined(self, states: Tensor, got: Attended, words: Tensor) -> Decoded:
        seen = torch.cat((states, got.output), -1)
        return Decoded(torch.tanh(self.vector(seen)), torch.cat((seen, words), -1), got.weights)

    def _window(self, state: Writing) -> LocalM | LocalP | None:
        """The window of step `state.at` and those after it."""
        return LocalM(self.window.half_width, state.at) if isinstance(self.window, LocalM) else self.window


class FedLuong(Luong):
    """Luong with input feeding: the vector that predicted a word goes into the next state beside that word."""

    def _walker(self, width: int, layers: int, cell: str, dropout: float) -> None:
        self.first = Cell(cell, width, self.hidden, fed=width)
        self.others = nn.ModuleList(Cell(cell, self.hidden, self.hidden) for _ in range(layers - 1))
        self.dropout = nn.Dropout(dropout)

    def begin(self, source: Source) -> Writing:
        return replace(super().begin(source), fed=source.last.new_zeros(len(source.last), self.vector.out_features))

    def run(self, words: Tensor, state: Writing, observe: Observe = NOTHING) -> Decoded:
        made = []
        for gates, word in zip(self.first.inputs(words).unbind(1), words.unbind(1), strict=True):
            found, state = self._go(gates, word, state, observe)
            made.append(found)
        vectors, parts = torch.cat([one.vectors for one in made], 1), torch.cat([one.parts for one in made], 1)
        weights = torch.cat([one.weights for one in made if one.weights is not None], 1) if observe.weights else None
        return Decoded(vectors, parts, weights)

    def step(self, word: Tensor, state: Writing) -> tuple[Decoded, Writing]:
        return self._go(self.first.inputs(word), word, state, WEIGHTS)

    def _go(self, gates: Tensor, word: Tensor, state: Writing, observe: Observe) -> tuple[Decoded, Writing]:
        cells: list[State] = [self.first(gates, state.cells[0], state.fed)]
        for cell, before in zip(self.others, state.cells[1:], strict=True):
            assert isinstance(cell, Cell)
            cells.append(cell(cell.inputs(self.dropout(cells[-1][0])), before))
        found = self._look(cells[-1][0].unsqueeze(1), word.unsqueeze(1), state, observe)
        return found, replace(state, cells=tuple(cells), fed=found.vectors.squeeze(1), at=state.at + 1)


def through(network: nn.RNNBase, words: Tensor, cells: tuple[State, ...]) -> tuple[Tensor, tuple[State, ...]]:
    """torch's recurrent layers over words (B, T, D) from these cells: all states of the last layer, and the cells."""
    parts = [torch.stack(part) for part in zip(*cells, strict=True)]  # (L, B, H), and as many of an LSTM's inner ones
    states, last = network(words, tuple(parts) if len(parts) == 2 else parts[0])
    return states, tuple(zip(*(part.unbind(0) for part in (last if isinstance(last, tuple) else (last,))), strict=True))
