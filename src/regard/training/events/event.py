"""What a training tells while it goes on; whoever listens (the log, the progress bar, TensorBoard) hears it all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from regard.training.objectives.base import Output


@dataclass(frozen=True)
class Event:
    """`step`: how many steps were done when it happened."""

    step: int


@dataclass(frozen=True)
class Started(Event):
    """`steps` is how many there will be; `facts` is what else is worth keeping: threads, ranks, versions, sizes."""

    steps: int
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Resumed(Event):
    """Everything logged for later steps was lost with the process that did them, and is done again."""

    steps: int
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trained(Event):
    """The steps since the last such event: mean loss a token, the last learning rate and gradient norm, the pace."""

    epoch: int
    loss: float
    rate: float
    norm: float
    tokens: int  # that carried loss, since the start
    tokens_per_second: float
    seconds: float  # spent since the start, those of earlier processes included
    memory: int  # bytes, the most so far


@dataclass(frozen=True)
class Evaluated(Event):
    metrics: Mapping[str, float]
    best: bool
    samples: Sequence[Output] = ()
    signatures: Mapping[str, str] = field(default_factory=dict)  # of metrics that have one, such as sacrebleu's


@dataclass(frozen=True)
class Saved(Event):
    """A checkpoint is on the disk, written while training went on."""

    path: str
    seconds: float  # for which training stood still


@dataclass(frozen=True)
class Skipped(Event):
    """A step without a change of the weights, because its loss or gradient was not finite."""

    reason: str
    count: int  # so far


@dataclass(frozen=True)
class Ended(Event):
    """`reason`: "finished", "stopped early" or "interrupted"; `metrics`: of the weights that were kept."""

    reason: str
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    skipped: int = 0  # steps


class Listener(Protocol):
    def hear(self, event: Event) -> None: ...
