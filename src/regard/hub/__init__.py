"""Checkpoints of Hugging Face, in and out of regard's own modules: `load` and `save`, `import_checkpoint` and
`export_checkpoint` for runs; and `enable`, with which transformers' own models attend through ours."""

from typing import TYPE_CHECKING

from regard.lazy import Home, door

if TYPE_CHECKING:
    from regard.hub.attention_interface import enable
    from regard.hub.convert import export_checkpoint, import_checkpoint, load, save

__all__ = ["load", "save", "import_checkpoint", "export_checkpoint", "enable"]

_HOMES: dict[str, Home] = {name: ("regard.hub.convert", name) for name in __all__}
_HOMES["enable"] = ("regard.hub.attention_interface", "enable")

__getattr__ = door(__name__, _HOMES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
