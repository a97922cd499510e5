"""The run or folder that a model was loaded from, so that its tokenizer and other files can be found."""

from __future__ import annotations

from pathlib import Path
from weakref import WeakKeyDictionary

from torch import nn

from regard.runs import Run

_SOURCES: WeakKeyDictionary[nn.Module, Run | Path] = WeakKeyDictionary()


def remember_origin(model: nn.Module, source: Run | Path) -> nn.Module:
    """Remember the run or folder of a model; returns the model."""
    _SOURCES[model] = source
    return model


def origin(model: nn.Module) -> Path | None:
    """The folder that a model was loaded from; None if unknown."""
    source = _SOURCES.get(model)
    return source.path if isinstance(source, Run) else source


def run_of(model: nn.Module) -> Run | None:
    """The run that a model was loaded from; None if it was not a run."""
    source = _SOURCES.get(model)
    return source if isinstance(source, Run) else None
