"""Benchmarks are scripts, not a package: a test loads the one it is about by its file."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


def benchmark(name: str) -> ModuleType:
    """The module benchmarks/NAME.py, without its folder on sys.path, where a name could hide a package; its import of
    run_record is served all the same."""
    if name != "run_record":
        sys.modules.setdefault("run_record", benchmark("run_record"))
    known = f"benchmark_{name}"
    if known not in sys.modules:
        spec = importlib.util.spec_from_file_location(known, FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[known] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[known])
    return sys.modules[known]
