"""Packages whose public names load when they are first used, so that importing the package costs nothing."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

Exports = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


def lazy_exports(package: str, names: Mapping[str, Sequence[str]]) -> Exports:
    """The `__getattr__`, `__dir__` (PEP 562) and `__all__` of a package.

    `names`: the public names by the submodule that defines them; under "" the submodules that are public themselves.

    >>> __getattr__, __dir__, __all__ = lazy_exports(__name__, {"beam": ("Beam",), "": ("constraints",)})
    """
    homes = {name: module for module, own in names.items() for name in own}
    public = sorted(homes)

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it offers {', '.join(public)}")
        if not homes[name]:
            return import_module(f"{package}.{name}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    def __dir__() -> list[str]:
        return public

    return __getattr__, __dir__, public
