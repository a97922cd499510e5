"""Where a loaded model came from, so that what lies beside it, such as its tokenizer, can be found."""

from __future__ import annotations

from pathlib import Path
from weakref import WeakKeyDictionary

from torch import nn

_FOLDERS: WeakKeyDictionary[nn.Module, Path] = WeakKeyDictionary()


def remember(model: nn.Module, folder: Path) -> nn.Module:
    """The same model, of which it is known from now on where it came from."""
    _FOLDERS[model] = folder
    return model


def origin(model: nn.Module) -> Path | None:
    """The folder that a model was loaded from; None where nobody knows."""
    return _FOLDERS.get(model)
