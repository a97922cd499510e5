"""The door: regard's public names, each loaded when it is first used, so that `import regard` stays quick."""

from typing import TYPE_CHECKING

from regard.lazy import Home, door

if TYPE_CHECKING:
    from regard import hub, text, training
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
    from regard.faithfulness import audit
    from regard.hub import load
    from regard.inspection import intervene
    from regard.page import look

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
    "text",
    "training",
    "hub",
    "load",
    "look",
    "intervene",
    "audit",
    "RegardError",
    "__version__",
]

_HOMES: dict[str, Home] = {
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
    "text": ("regard.text", None),
    "training": ("regard.training", None),
    "hub": ("regard.hub", None),
    "load": ("regard.hub.convert", "load"),
    "look": ("regard.page.view", "look"),
    "intervene": ("regard.inspection.interventions", "intervene"),
    "audit": ("regard.faithfulness.audit", "audit"),
    "RegardError": ("regard.errors", "RegardError"),
}


__getattr__ = door(__name__, _HOMES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
