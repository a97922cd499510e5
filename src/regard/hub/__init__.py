"""Checkpoints of Hugging Face, in and out of regard's own modules: `load` and `save`, `bring` and `carry` for runs; and
`enable`, with which transformers' own models attend through ours."""

from typing import TYPE_CHECKING

from regard.lazy import Home, door

if TYPE_CHECKING:
    from regard.hub.enabling import enable
    from regard.hub.exchange import bring, carry, load, save

__all__ = ["load", "save", "bring", "carry", "enable"]

_HOMES: dict[str, Home] = {name: ("regard.hub.exchange", name) for name in ("load", "save", "bring", "carry")}
_HOMES["enable"] = ("regard.hub.enabling", "enable")

__getattr__ = door(__name__, _HOMES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
