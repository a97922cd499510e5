"""Where a loaded model came from, so that what lies beside it, such as its tokenizer, can be found."""

from __future__ import annotations

from pathlib import Path
from weakref import WeakKeyDictionary

from torch import nn

from regard.runs import Run

_SOURCES: WeakKeyDictionary[nn.Module, Run | Path] = WeakKeyDictionary()


def remember(model: nn.Module, source: Run | Path) -> nn.Module:
    """The same model, of which it is known from now on which run or folder it came from."""
    _SOURCES[model] = source
    return model


def origin(model: nn.Module) -> Path | None:
    """The folder that a model was loaded from; None where nobody knows."""
    source = _SOURCES.get(model)
    return source.path if isinstance(source, Run) else source


def run_of(model: nn.Module) -> Run | None:
    """The run that a model was loaded from; None where it came from elsewhere."""
    source = _SOURCES.get(model)
    return source if isinstance(source, Run) else None
