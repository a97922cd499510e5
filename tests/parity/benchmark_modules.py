"""Modules of benchmarks/ for tests: the zoo of transformers' architectures, which finds its neighbours by name."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from regard import hub

ROOT = Path(__file__).resolve().parents[2]


def zoo_module(name: str) -> ModuleType:
    """A module of benchmarks/, imported with its folder on the path; "regard" is registered with transformers."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        found = import_module(name)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    hub.enable()
    return found
