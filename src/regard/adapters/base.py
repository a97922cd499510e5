"""The interface of model adapters: run any model on text, get its attention axes, and get its decisions.

Inspection prepares a forward pass and captures its attention:

    ready = adapter.prepare("The black cat sleeps .")       # ids, and the tokens along each axis of its attention maps
    output = ready.forward()                                 # one forward pass: what the model predicts

The tests of faithfulness ask for decisions, with tokens removed or masked:

    [case] = adapter.make_cases("The film was good .", 0, Random(0))
    adapter.log_probs([case.row, case.row.without([2])])     # ln p (B, C) of every class or token
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from regard.adapters.borrow import borrow_model
from regard.adapters.case import Case, Example, InputRow
from regard.adapters.token_row import TokenRow
from regard.adapters.vision.images import GivenImage
from regard.decoding import Translator
from regard.errors import SettingError
from regard.pictures import Picture

Kind = Literal["translates", "continues", "fills", "reads"]
Decision = Literal["class", "hidden word", "next word", "next word of the translation"]
Axes = tuple[int, int, Literal["self", "cross"]]
"""Of a place: the number of its query axis, the number of its key axis, and the kind of attention between them."""

TEXT = 0  # the axis of the input text
SOURCE, DECODER_INPUT, DECODER_OUTPUT = range(3)  # the axes of a translator; its target, as decoder input and as output


class Positions(NamedTuple):
    """The queries or keys of a place: how many in each of its sequences, and how these are joined. `in_order`: False
    where other places of the same part attend in windows, so that the order of positions is uncertain."""

    place: str
    sizes: tuple[int, ...]
    join: str = "steps"
    is_key: bool = False
    in_order: bool = True


CANDIDATES = 8  # alternatives reported for each predicted token


@dataclass(frozen=True, eq=False)
class PredictedTokens:
    """Tokens that a model generated, or predicts at masks.

    log_probs   (n, V), ln p of every token at the n steps
    tokens      the n tokens themselves
    positions   where they are on the last axis
    decode      the text of a token id
    """

    log_probs: Tensor
    tokens: Sequence[int]
    positions: Sequence[int]
    decode: Callable[[int], str]


@dataclass(frozen=True, eq=False)
class ModelOutput:
    """The result of one forward pass.

    axes          rows of tokens that places attend from and to; none if the inputs were tensors
    target        a scalar to differentiate, such as ln p of the generated tokens; None: the model has no output layer
    predicted     tokens with their probabilities
    facts         other results: "classes", "estimate", "next"
    rows          how many rows the batch had, or several numbers that the inputs leave open
    even          whether every input had one entry for each row, so that several sequences of a call may be a row's own
    known_axis    of inputs that were tensors: the tokens of positions at a place, where they are known
    pictures      what the model looked at: the pictures to which the grids of the axes refer
    notes         what is not known of the inputs, in sentences; complete when all axes are known
    """

    axes: tuple[TokenRow, ...]
    target: Tensor | None = None
    predicted: PredictedTokens | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[int, ...] = (1,)
    even: bool = True
    known_axis: Callable[[Positions], TokenRow | None] | None = None
    pictures: tuple[Picture, ...] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """A forward pass that is ready to run: `length` of its longest axis, and `forward`, which runs it."""

    length: int
    forward: Callable[[], ModelOutput]


class ModelAdapter(ABC):
    """The interface to a model that reads text; each model family is a subclass, and the factory chooses it.

    model, name, description    the model, its name, and the description in its recipe
    kind       translates: `other` is a given translation; without it the model generates one, which begins with the
               tokens `prefix`. continues: a language model, which generates on request or after a prefix. fills: a
               masked language model. reads: any other; `other` is a second text.
    """

    model: Any
    tokenizer: Any
    name: str
    description: str
    has_attention: ClassVar[bool] = True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {type(self.model).__name__}, {self.kind})"

    @property
    def kind(self) -> Kind:
        return "reads"

    @property
    def alignment_place(self) -> int:
        """The index of the cross-attention place whose weights align words best."""
        return -1

    @property
    def tokenizers(self) -> tuple[Any, ...]:
        """The tokenizer, or those of the source and of the target where they differ."""
        return (self.tokenizer,)

    @property
    def max_length(self) -> int | None:
        """The maximum number of input tokens; None: no limit."""
        return None

    @property
    def special_tokens(self) -> tuple[list[int], list[int]]:
        """The special tokens before a text, and those after it."""
        return [], []

    def batch_translator(self) -> Translator | None:
        """The translator that aligns sentences in batches; None where the model has none."""
        return None

    def word_ids(self, source: str, target: str) -> tuple[list[int], list[int]]:
        """The number of the whitespace-separated word of each source and target token, NO_WORD if none."""
        raise SettingError(
            f"{self.name} is not a translation model ({type(self.model).__name__})",
            where="align",
            advice="Word alignments need an encoder-decoder with cross-attention.",
        )

    @property
    def device(self) -> torch.device:
        found: torch.device = next((one.device for one in self.model.parameters()), torch.device("cpu"))
        return found

    def borrow(self, *, evaluate: bool = False, through_regard: bool = False) -> AbstractContextManager[None]:
        """See `borrow_model`."""
        return borrow_model(self.model, evaluate=evaluate, through_regard=through_regard)

    @abstractmethod
    def prepare(self, text: str, other: str | None = None, prefix: Sequence[int] | None = None) -> ForwardPass:
        """A forward pass over a text, with a second text or a translation."""

    def prepare_tensors(self, inputs: Mapping[str, Tensor], row: int = 0) -> ForwardPass:
        """A forward pass over inputs that are tensors, as keyword arguments; its outcome is that of one row."""
        raise SettingError(
            f"{self.name} reads text, and got tensors ({', '.join(inputs)})",
            where="look",
            advice="Models of transformers and other torch modules take tensors; give this one a text.",
        )

    def prepare_images(
        self, images: Sequence[GivenImage], text: str | None = None, prefix: Sequence[int] | None = None
    ) -> ForwardPass:
        """A forward pass over images, with a text for models that read one too: a caption, a phrase, a question."""
        raise SettingError(
            f"{self.name} reads no images",
            where="look",
            advice="Models with an image encoder take images; give this one a text.",
        )

    def axes_of(self, place: str) -> Axes:
        """The axes of a place."""
        return TEXT, TEXT, "self"

    def has_text_keys(self, place: str) -> bool:
        """Whether the keys of a place are the tokens of the text."""
        return self.axes_of(place)[1] == TEXT

    def has_text_queries(self, place: str) -> bool:
        """Whether the queries of a place are the tokens of the text."""
        return self.axes_of(place)[0] == TEXT

    @property
    def decision(self) -> Decision:
        """What the model decides, in words; a model without an output layer is refused."""
        raise SettingError(
            f"A {type(self.model).__name__} predicts nothing that can be tested",
            where="audit",
            advice="Use a model that predicts classes, masked words, next words or translations.",
        )

    def make_cases(self, example: Example, number: int, rng: Random) -> list[Case]:
        """The decisions to ask for about an example."""
        raise self._no_decisions()

    def log_probs(self, rows: Sequence[InputRow]) -> Tensor:
        """ln p (B, C) of every class or token."""
        raise self._no_decisions()

    def input_ids(self, rows: Sequence[InputRow]) -> Tensor:
        """(B, S), padded: the ids that the model embeds."""
        raise self._no_decisions()

    def readout_position(self, place: str, rows: Sequence[InputRow]) -> list[int] | None:
        """The query of this place that each decision is read from; None: several."""
        raise self._no_decisions()

    def label(self, number: int) -> str:
        """The name of a class or token."""
        raise self._no_decisions()

    def _no_decisions(self) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} declares the decision {self.decision!r} without its methods")


def check_prefix(prefix: Sequence[int], size: int) -> list[int]:
    """The tokens that an output begins with; each must be in the vocabulary."""
    wrong = next((token for token in prefix if not 0 <= token < size), None)
    if wrong is not None:
        raise SettingError(f"token {wrong} in a prefix", f"numbers from 0 to {size - 1}", where="look")
    return list(prefix)


def top_tokens(logs: Tensor, decode: Callable[[int], str], count: int = CANDIDATES) -> list[tuple[str, float]]:
    """The most likely next tokens of logs (V,), decoded, with their probabilities, largest first."""
    values, indices = logs.detach().float().topk(min(count, logs.size(-1)))
    return [(decode(number), math.exp(value)) for number, value in zip(indices.tolist(), values.tolist(), strict=True)]


def generate_greedy(
    model: Any, state: Any, last: Tensor, tokens: list[int], end: int | None, max_length: int
) -> list[int]:
    """Greedy decoding after the prefix `tokens`, until `end` or `max_length` tokens in all, the prefix included.

    `state` and `last` (1,): the initial state of a Stepper, and the token to step with first.
    """
    tokens = list(tokens)
    for at in range(max_length):
        logs, _, state = model.step(state, last)
        if at >= len(tokens):
            best = int(logs[0].argmax())
            if best == end:
                break
            tokens.append(best)
        last = torch.tensor([tokens[at]], device=last.device)
    return tokens
