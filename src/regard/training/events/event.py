"""The events of a training, which every listener gets: the log, the progress bar, TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from regard.training.objectives.base import ExampleOutput


@dataclass(frozen=True)
class Event:
    """`step`: the number of steps done so far."""

    step: int


@dataclass(frozen=True)
class Started(Event):
    """`steps`: their total number; `facts`: threads, ranks, versions, the size of the model."""

    steps: int
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Resumed(Event):
    """Training continues after `step`; what was logged for later steps was lost and is repeated."""

    steps: int
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trained(Event):
    """The steps since the last such event: mean loss a token, last learning rate and gradient norm, tokens a second."""

    epoch: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens: int  # targets, since the start
    tokens_per_second: float
    seconds: float  # since the start, in all processes
    memory: int  # bytes at the peak


@dataclass(frozen=True)
class Evaluated(Event):
    metrics: Mapping[str, float]
    best: bool
    samples: Sequence[ExampleOutput] = ()
    signatures: Mapping[str, str] = field(default_factory=dict)  # of metrics that have one, such as BLEU


@dataclass(frozen=True)
class Saved(Event):
    """A checkpoint was written, in the background."""

    path: str
    seconds: float  # for which training was stopped


@dataclass(frozen=True)
class Skipped(Event):
    """A step that was skipped, because its loss or gradient was not finite."""

    reason: str
    count: int  # so far


@dataclass(frozen=True)
class Ended(Event):
    """`reason`: "finished", "stopped early" or "interrupted"; `metrics`: of the weights in model.safetensors."""

    reason: str
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    skipped: int = 0  # steps


class EventListener(Protocol):
    """Whatever follows a training, such as a log: it gets every event."""

    def on_event(self, event: Event) -> None: ...
