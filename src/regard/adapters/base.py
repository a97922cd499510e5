"""What every model family offers: put text to the model, and learn what it attends to and what it decides.

One adapter serves everybody who asks a model something. Inspection prepares a pass and captures it:

    ready = adapter.prepare("The black cat sleeps .")       # ids, and the tokens along each axis of its attention maps
    output = ready.forward()                                 # one run of the model: what it predicts

The tests of faithfulness ask for decisions, with tokens removed or masked:

    [case] = adapter.cases("The film was good .", 0, Random(0))
    adapter.log_probs([case.row, case.row.without([2])])     # ln p (B, C) of every class or token
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from regard.adapters.borrow import borrowed
from regard.adapters.case import Case, Example, Row
from regard.adapters.tokens import TokenRow
from regard.decoding import Translator
from regard.errors import SettingError

Kind = Literal["translates", "continues", "fills", "reads"]
Decision = Literal["class", "hidden word", "next word", "next word of the translation"]
Axes = tuple[int, int, Literal["self", "cross"]]
"""Of a place: the number of the axis that attends, of the one that is attended to, and how that is called."""

TEXT = 0  # the number of the axis of the text that a model reads
SOURCE, READ, WRITTEN = range(3)  # the axes of a translator: the source, the target as it is read and as it is written
CANDIDATES = 8  # that are given for each predicted token


@dataclass(frozen=True, eq=False)
class Predicted:
    """Tokens that a model wrote, or would put behind masks: `logs` (n, V), ln p before each of the n `tokens`, and
    their `positions` on the last axis."""

    logs: Tensor
    tokens: Sequence[int]
    positions: Sequence[int]
    spell: Callable[[int], str]


@dataclass(frozen=True, eq=False)
class Output:
    """What one run of a model gave.

    axes        rows of tokens that places attend from and to; None where only their number is known, see `unnamed`
    target      one number that gradients are taken of, such as ln p of what was written; None: the model says nothing
    predicted   tokens with their probabilities
    facts       what else it says: "classes", "estimate", "next"
    unnamed     the axis of inputs of which only their number is known
    """

    axes: tuple[TokenRow, ...] | None
    target: Tensor | None = None
    predicted: Predicted | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    unnamed: Callable[[int], TokenRow] | None = None


@dataclass(frozen=True, eq=False)
class Pass:
    """One run of a model, ready: `length` of its longest axis, and `forward`, which runs it."""

    length: int
    forward: Callable[[], Output]


class ModelAdapter(ABC):
    """A model that text can be put to; every family is one subclass, and the factory chooses it.

    model, name, description    the model, what it is called, and what its recipe says of it
    kind       translates: `other` is a translation that is given; without it the model writes one, which begins with
               the tokens `prefix`. continues: it reads, and writes on where it is told to or a prefix begins it.
               fills: tokens behind masks. reads: `other` is a second text.
    """

    model: Any
    tokenizer: Any
    name: str
    description: str
    attends: ClassVar[bool] = True

    @property
    def kind(self) -> Kind:
        return "reads"

    @property
    def alignment_place(self) -> int:
        """Which of the places of cross-attention tells alignments."""
        return -1

    @property
    def tokenizers(self) -> tuple[Any, ...]:
        """One, or that of the source and that of the target, where they differ."""
        return (self.tokenizer,)

    @property
    def longest(self) -> int | None:
        """The most tokens that the model reads at once; None: any number."""
        return None

    @property
    def frame(self) -> tuple[list[int], list[int]]:
        """The special tokens that stand before a text, and those that stand after it."""
        return [], []

    def batch_translator(self) -> Translator | None:
        """What translates and aligns many sentences at once, of a model of ours that can."""
        return None

    def word_numbers(self, source: str, target: str) -> tuple[list[int], list[int]]:
        """The word between spaces that each token of the source and of the target belongs to, NO_WORD if none."""
        raise SettingError(f"{self.name}, which {self.kind}", "a model that translates", where="align")

    @property
    def device(self) -> torch.device:
        found: torch.device = next((one.device for one in self.model.parameters()), torch.device("cpu"))
        return found

    def borrowed(self, *, evaluate: bool = False, through_regard: bool = False) -> AbstractContextManager[None]:
        """See `borrowed`."""
        return borrowed(self.model, evaluate=evaluate, through_regard=through_regard)

    @abstractmethod
    def prepare(self, text: str, other: str | None = None, prefix: Sequence[int] | None = None) -> Pass:
        """A run of the model over a text, with a second text or a translation."""

    def axes_of(self, place: str) -> Axes:
        """Which axes a place lies between."""
        return TEXT, TEXT, "self"

    def attends_to_text(self, place: str) -> bool:
        """Whether the keys of a place are the tokens of the text."""
        return self.axes_of(place)[1] == TEXT

    def attends_from_text(self, place: str) -> bool:
        """Whether the queries of a place are tokens of the text."""
        return self.axes_of(place)[0] == TEXT

    @property
    def decides(self) -> Decision:
        """What the model decides, in words; a model that decides nothing is refused."""
        raise SettingError(
            f"a {type(self.model).__name__}, which decides nothing that can be asked for",
            "a model that says classes, hidden words, next words or translations",
            where="audit",
        )

    def cases(self, example: Example, number: int, chance: Random) -> list[Case]:
        """The decisions that an example is good for."""
        raise self._undecided()

    def log_probs(self, rows: Sequence[Row]) -> Tensor:
        """ln p (B, C) of every class or token."""
        raise self._undecided()

    def input_ids(self, rows: Sequence[Row]) -> Tensor:
        """(B, S), padded: what the model looks up input embeddings for."""
        raise self._undecided()

    def readout_position(self, place: str, rows: Sequence[Row]) -> list[int] | None:
        """The query of this place that each decision is read from; None: no single one."""
        raise self._undecided()

    def label(self, number: int) -> str:
        """The name of a class or token."""
        raise self._undecided()

    def _undecided(self) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} decides {self.decides}, and does not say how")


def expect_known(prefix: Sequence[int], size: int) -> list[int]:
    """The tokens that a text is to begin with, each of which must be one that the model can say."""
    wrong = next((token for token in prefix if not 0 <= token < size), None)
    if wrong is not None:
        raise SettingError(f"token {wrong} in a prefix", f"numbers from 0 to {size - 1}", where="look")
    return list(prefix)


def likeliest(logs: Tensor, spell: Callable[[int], str], count: int = CANDIDATES) -> list[tuple[str, float]]:
    """What could come next: logs (V,), spelled, with its probability, likeliest first."""
    values, indices = logs.detach().float().topk(min(count, logs.size(-1)))
    return [(spell(number), math.exp(value)) for number, value in zip(indices.tolist(), values.tolist(), strict=True)]


def continued(model: Any, state: Any, last: Tensor, tokens: list[int], end: int | None, most: int) -> list[int]:
    """Greedy decoding with a prefix: `tokens` and the likeliest ones after them, until `end` or `most` in all.

    `state` and `last` (1,): where a Stepper begins, and the token to step with first.
    """
    tokens = list(tokens)
    for at in range(most):
        logs, _, state = model.step(state, last)
        if at >= len(tokens):
            best = int(logs[0].argmax())
            if best == end:
                break
            tokens.append(best)
        last = torch.tensor([tokens[at]], device=last.device)
    return tokens
