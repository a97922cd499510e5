"""The page over HTTP, on this machine: visitors put text to models and look at what they attend to."""

from typing import TYPE_CHECKING

from regard.lazy import Home, door

if TYPE_CHECKING:
    from regard.page.serve.application import make_app
    from regard.page.serve.limits import Limits
    from regard.page.serve.running import serve

__all__ = ["make_app", "serve", "Limits"]

_HOMES: dict[str, Home] = {
    "make_app": ("regard.page.serve.application", "make_app"),
    "serve": ("regard.page.serve.running", "serve"),
    "Limits": ("regard.page.serve.limits", "Limits"),
}

__getattr__ = door(__name__, _HOMES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
