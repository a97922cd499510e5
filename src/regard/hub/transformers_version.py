"""The version of transformers that is installed, and the earliest one that regard works with.

A module of its own because the attention interface asks for it too, which the fallback imports.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from regard.errors import SettingError

MINIMUM = (5, 2)
INSTALL = "pip install 'regard[hub]' installs it."


def installed_version() -> str | None:
    """The version of transformers; None where it is not installed."""
    try:
        return version("transformers")
    except PackageNotFoundError:
        return None


def has_transformers() -> bool:
    """Whether transformers is installed; an earlier version than regard works with is refused."""
    found = installed_version()
    if found is None:
        return False
    if tuple(int(part) for part in found.split(".")[:2] if part.isdecimal()) < MINIMUM:
        least = ".".join(map(str, MINIMUM))
        raise SettingError(f"transformers {found}", f"version {least} or later", advice=INSTALL)
    return True
