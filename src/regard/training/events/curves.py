"""Learning curves: what the logs of one or more runs say about a quantity, as numbers; drawing.py draws them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import RunError, SettingError, unknown
from regard.training.events.log import Entry, read_log, series

LOG = "log.jsonl"
TRAINED = ("loss", "rate", "norm", "tokens_per_second")  # what training itself tells, beside the metrics
AGAINST = ("step", "tokens", "seconds")


@dataclass(frozen=True)
class Curve:
    """Values `y` of a quantity, one at each `x`; they may be nan or infinite. Both (N,) of float64."""

    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Run:
    """A run's name, and its log as if it had never been interrupted."""

    name: str
    path: Path
    entries: Sequence[Entry]

    @property
    def steps(self) -> int:
        """How many were done."""
        return self.entries[-1]["step"] if self.entries else 0

    @property
    def names(self) -> tuple[str, ...]:
        """What there is to draw: the loss, the other metrics of evaluations, the learning rate."""
        told = ("loss", "rate") if any(one["event"] == "trained" for one in self.entries) else ()
        metrics = chain.from_iterable(one["metrics"] for one in self.entries if one["event"] == "evaluated")
        return _ordered(chain(told, metrics))

    def trained(self, name: str, against: str = "step") -> Curve:
        """A quantity during training, where training tells it: one of TRAINED."""
        return self._curve("trained", name, against) if name in TRAINED else Curve(np.empty(0), np.empty(0))

    def evaluated(self, name: str, against: str = "step") -> Curve:
        """A metric of the evaluations."""
        return self._curve("evaluated", name, against)

    @property
    def best(self) -> Entry | None:
        """The best evaluation: the last that was better than all before it."""
        found = [one for one in self.entries if one["event"] == "evaluated" and one["best"]]
        return found[-1] if found else None

    def at(self, steps: Sequence[int], against: str) -> np.ndarray:
        """Where steps lie on an axis of AGAINST; between two entries of training that tell, on a line."""
        if against not in AGAINST:
            raise unknown(against, AGAINST, kind="axis", where="curves")
        if against == "step":
            return np.asarray(steps, float)
        known, places = series(self.entries, "trained", against)
        if steps and not known:
            raise SettingError(
                f"{self.path} without a training step", f"a log that tells the {against}", where="curves"
            )
        return np.interp(steps, [0, *known], [0, *places])

    def _curve(self, event: str, name: str, against: str) -> Curve:
        steps, values = series(self.entries, event, name)
        return Curve(self.at(steps, against), np.asarray(values, float))


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """The runs in these folders, or of these logs; named after their folders, or by their paths where names clash."""
    logs = {path: _log(path) for path in dict.fromkeys(paths)}
    names = [log.resolve().parent.name if log.name == LOG else log.stem for log in logs.values()]
    return [
        Run(name if names.count(name) == 1 else str(path), path, read_log(log))
        for (path, log), name in zip(logs.items(), names, strict=True)
    ]


def panels(runs: Sequence[Run], wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of what to draw: the wanted ones, or else all that any of the runs has."""
    there = _ordered(chain.from_iterable(run.names for run in runs))
    if not there:
        raise SettingError(
            f"nothing but the start of {', '.join(run.name for run in runs)}",
            "a log with at least one training step or evaluation",
            where="curves",
        )
    for name in wanted:
        if name not in (*there, *TRAINED):
            raise unknown(name, {*there, *TRAINED}, kind="metric", where="curves")
    return tuple(dict.fromkeys(wanted)) or there


def smoothed(values: np.ndarray, share: float) -> np.ndarray:
    """Exponential moving mean: m_t = share m_{t-1} + (1 - share) y_t from m_0 = 0, divided by 1 - share^t, so that the
    first values are not drawn towards 0. (N,) to (N,); what is not finite is nan and leaves the mean as it was."""
    if not 0 <= share < 1:
        raise SettingError(f"smooth={share}", "at least 0 and less than 1", where="curves")
    means, mean, weight = np.full(len(values), np.nan), 0.0, 0.0
    for i, value in enumerate(values.tolist()):
        if np.isfinite(value):
            mean, weight = share * mean + (1 - share) * value, share * weight + (1 - share)
            means[i] = mean / weight
    return means


def numbers(run: Run, names: Sequence[str], against: str = "step") -> dict[str, Any]:
    """The curves of a run in lists: {"train": {name: {against: [...], "value": [...]}}, "valid": ...}."""

    def listed(curves: Mapping[str, Curve]) -> dict[str, Any]:
        return {
            name: {against: curve.x.tolist(), "value": curve.y.tolist()}
            for name, curve in curves.items()
            if curve.x.size
        }

    return {
        "train": listed({name: run.trained(name, against) for name in names}),
        "valid": listed({name: run.evaluated(name, against) for name in names}),
    }


def _ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once: the loss first, the learning rate last, and what is between as it comes."""
    return tuple(sorted(dict.fromkeys(names), key=lambda name: (name != "loss", name == "rate")))


def _log(path: Path) -> Path:
    log = path / LOG if path.is_dir() else path
    if not path.exists():
        raise RunError(f"{path}, which is not there", "the folder of a run, or its log", where="curves")
    if not log.is_file():
        raise RunError(
            f"{path}, which has no {LOG}", "the folder of a run", where="curves", advice="`regard train` writes it."
        )
    return log
