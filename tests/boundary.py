"""Reads imports and says which ones reach past the public names of a room: what is in no `__all__` is private."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from imports import ROOMS, Sources

PACKAGES = (
    *(
        f"regard.{room}"
        for room in ROOMS
        if room not in ("errors", "lazy", "bounded_files", "files", "html", "cli", "recipes")
    ),
    "regard.text.grammar",
    "regard.models.config",
    "regard.training.tasks",
    "regard.training.events",
    "regard.exports.ctranslate2",
    "regard.exports.onnx",
    "regard.inspection.atlas",
    "regard.inspection.heads",
    "regard.page.serve",
)
MODULES = (  # public as they are: everything in them that does not begin with _
    "regard.errors",
    "regard.lazy",
    "regard.bounded_files",
    "regard.files",
    "regard.html",
    *(
        f"regard.attention.{name}"
        for name in ("scores", "masks", "biases", "windows", "positions", "layers", "normalise")
    ),
    "regard.attention.kernels.recurrent",
    "regard.attention.kernels.devices",
    "regard.attention.kernels.triton.reduce",
    "regard.runs.toml",
)
CODE = re.compile(r"```python\n(.*?)```", re.S)


def private_imports(sources: Sources) -> list[str]:
    """Every import between rooms of something that is not public, in words."""
    return [
        f"{name} imports {what}, which is private to its room"
        for name, text in sources.items()
        for room, what in _private(ast.parse(text))
        if name not in ("regard", "regard.__main__") and name.split(".")[1] != room
    ]


def private_in_docs(root: Path) -> list[str]:
    """Every import of something that is not public in the Python that README and docs show."""
    return [
        f"{file.relative_to(root)} imports {what}, which is private"
        for file in [root / "README.md", *sorted((root / "docs").glob("*.md"))]
        for code in CODE.findall(file.read_text(encoding="utf-8"))
        for _, what in _private(ast.parse(code))
    ]


def _private(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(room, what) of every import of something in regard that is not public."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("regard.") and alias.name not in (*PACKAGES, *MODULES):
                    yield alias.name.split(".")[1], alias.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "regard":
            module = node.module or ""
            for alias in node.names:
                if not _is_public(module, alias.name):
                    yield f"{module}.{alias.name}".split(".")[1], f"{module}.{alias.name}"


def _is_public(module: str, name: str) -> bool:
    if module in MODULES:
        return not name.startswith("_")
    if f"{module}.{name}" in (*PACKAGES, *MODULES):
        return True
    return module in ("regard", *PACKAGES) and name in import_module(module).__all__
