"""Doors: packages whose public names load when they are first used, so that importing them costs nothing."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

Home = tuple[str, str | None]  # a module, and the name in it; None where the module itself is the public thing


def door(package: str, homes: Mapping[str, Home], namespace: dict[str, Any]) -> Callable[[str], Any]:
    """The `__getattr__` of a package (PEP 562): loads a name from its home and keeps it in the package's namespace."""

    def __getattr__(name: str) -> Any:
        if name not in homes:
            offered = ", ".join(sorted(namespace["__all__"]))
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it offers {offered}")
        module_name, attribute = homes[name]
        module = import_module(module_name)
        found = module if attribute is None else getattr(module, attribute)
        namespace[name] = found
        return found

    return __getattr__
