"""Learning curves of runs as numbers, from their logs; plot_curves.py draws them."""

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
TRAINED = ("loss", "learning_rate", "gradient_norm", "tokens_per_second")  # logged by training, besides metrics
X_AXES = ("step", "tokens", "seconds")


@dataclass(frozen=True)
class Curve:
    """Values `y` of a quantity, one at each `x`; they may be nan or infinite. Both (N,) of float64."""

    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class RunCurves:
    """The name and the log of a run, as if it had never been interrupted."""

    name: str
    path: Path
    entries: Sequence[Entry]

    @property
    def steps(self) -> int:
        """The number of steps done."""
        return self.entries[-1]["step"] if self.entries else 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its curves: the loss, the other metrics of evaluations, the learning rate."""
        trained = ("loss", "learning_rate") if any(one["event"] == "trained" for one in self.entries) else ()
        metrics = chain.from_iterable(one["metrics"] for one in self.entries if one["event"] == "evaluated")
        return _ordered(chain(trained, metrics))

    def trained(self, name: str, x_axis: str = "step") -> Curve:
        """A quantity during training, one of TRAINED; empty for others."""
        return self._curve("trained", name, x_axis) if name in TRAINED else Curve(np.empty(0), np.empty(0))

    def evaluated(self, name: str, x_axis: str = "step") -> Curve:
        """A metric of the evaluations."""
        return self._curve("evaluated", name, x_axis)

    @property
    def best(self) -> Entry | None:
        """The best evaluation: the last that was better than all before it."""
        found = [one for one in self.entries if one["event"] == "evaluated" and one["best"]]
        return found[-1] if found else None

    def at(self, steps: Sequence[int], x_axis: str) -> np.ndarray:
        """The position of steps on one of the axes X_AXES, interpolated between log entries of training."""
        if x_axis not in X_AXES:
            raise unknown(x_axis, X_AXES, kind="axis", where="curves")
        if x_axis == "step":
            return np.asarray(steps, float)
        known, positions = series(self.entries, "trained", x_axis)
        if steps and not known:
            problem = f"{self.path} has no training step, so its {x_axis} are unknown"
            raise SettingError(problem, where="curves", advice="Draw against step.")
        return np.interp(steps, [0, *known], [0, *positions])

    def _curve(self, event: str, name: str, x_axis: str) -> Curve:
        steps, values = series(self.entries, event, name)
        return Curve(self.at(steps, x_axis), np.asarray(values, float))


def read_runs(paths: Sequence[Path]) -> list[RunCurves]:
    """The runs in these folders, or of these logs; named after their folders, or by path where names clash."""
    logs = {path: _log_path(path) for path in dict.fromkeys(paths)}
    names = [log.resolve().parent.name if log.name == LOG else log.stem for log in logs.values()]
    return [
        RunCurves(name if names.count(name) == 1 else str(path), path, read_log(log))
        for (path, log), name in zip(logs.items(), names, strict=True)
    ]


def panel_names(runs: Sequence[RunCurves], wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of the panels: the wanted ones, or else all curves that any of the runs has."""
    there = _ordered(chain.from_iterable(run.names for run in runs))
    if not there:
        raise SettingError(
            f"{', '.join(run.name for run in runs)} has no training step and no evaluation to draw", where="curves"
        )
    for name in wanted:
        if name not in (*there, *TRAINED):
            raise unknown(name, {*there, *TRAINED}, kind="metric", where="curves")
    return tuple(dict.fromkeys(wanted)) or there


def smoothed(values: np.ndarray, share: float) -> np.ndarray:
    """Exponential moving average, unbiased at the start: m_t = share m_{t-1} + (1 - share) y_t from m_0 = 0, divided by
    1 - share^t. (N,) to (N,); a value that is not finite gives NaN and is left out."""
    if not 0 <= share < 1:
        raise SettingError(f"smoothing={share}", "at least 0 and less than 1", where="curves")
    means, mean, weight = np.full(len(values), np.nan), 0.0, 0.0
    for i, value in enumerate(values.tolist()):
        if np.isfinite(value):
            mean, weight = share * mean + (1 - share) * value, share * weight + (1 - share)
            means[i] = mean / weight
    return means


def curve_values(run: RunCurves, names: Sequence[str], x_axis: str = "step") -> dict[str, Any]:
    """The curves of a run as lists: {"train": {name: {x_axis: [...], "value": [...]}}, "valid": ...}."""

    def listed(curves: Mapping[str, Curve]) -> dict[str, Any]:
        return {
            name: {x_axis: curve.x.tolist(), "value": curve.y.tolist()}
            for name, curve in curves.items()
            if curve.x.size
        }

    return {
        "train": listed({name: run.trained(name, x_axis) for name in names}),
        "valid": listed({name: run.evaluated(name, x_axis) for name in names}),
    }


def _ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once: the loss first, the learning rate last, the others in their order."""
    return tuple(sorted(dict.fromkeys(names), key=lambda name: (name != "loss", name == "learning_rate")))


def _log_path(path: Path) -> Path:
    log = path / LOG if path.is_dir() else path
    if not path.exists():
        raise RunError(f"File not found: {path}", where="curves", advice="Pass the folder of a run, or its log.")
    if not log.is_file():
        raise RunError(f"{path} has no {LOG}", where="curves", advice="`regard train` writes one: pass a run folder.")
    return log
