"""Checkpoints of Hugging Face, in and out of regard's own modules: `load` and `save`, `bring` and `carry` for runs."""

from typing import TYPE_CHECKING

from regard.lazy import Home, door

if TYPE_CHECKING:
    from regard.hub.exchange import bring, carry, load, save

__all__ = ["load", "save", "bring", "carry"]

_HOMES: dict[str, Home] = {name: ("regard.hub.exchange", name) for name in __all__}

__getattr__ = door(__name__, _HOMES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
