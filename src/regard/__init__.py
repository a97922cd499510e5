"""The door: regard's public names, each loaded when it is first used, so that `import regard` stays quick."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.attention import (
        Attended,
        Observe,
        Tap,
        attend,
        biases,
        capture,
        choose,
        layers,
        masks,
        positions,
        scores,
        windows,
    )
    from regard.errors import RegardError

__version__ = "0.1.0"

__all__ = [
    "attend",
    "Attended",
    "Observe",
    "capture",
    "Tap",
    "choose",
    "scores",
    "masks",
    "biases",
    "windows",
    "positions",
    "layers",
    "RegardError",
    "__version__",
]

# public name -> (module, the name in it; None where the module itself is the public thing)
_HOMES: dict[str, tuple[str, str | None]] = {
    "attend": ("regard.attention", "attend"),
    "Attended": ("regard.attention", "Attended"),
    "Observe": ("regard.attention", "Observe"),
    "capture": ("regard.attention", "capture"),
    "Tap": ("regard.attention", "Tap"),
    "choose": ("regard.attention", "choose"),
    "scores": ("regard.attention.scores", None),
    "masks": ("regard.attention.masks", None),
    "biases": ("regard.attention.biases", None),
    "windows": ("regard.attention.windows", None),
    "positions": ("regard.attention.positions", None),
    "layers": ("regard.attention.layers", None),
    "RegardError": ("regard.errors", "RegardError"),
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use and keep it, so that the second use is a plain look-up."""
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}; it offers {', '.join(sorted(__all__))}")
    module_name, attribute = _HOMES[name]
    module = import_module(module_name)
    found = module if attribute is None else getattr(module, attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
