"""Reads the imports of a set of modules and says which ones break the order of the rooms."""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOMS = (
    "errors",
    "lazy",
    "bounded_files",
    "files",
    "html",
    "attention",
    "text",
    "pictures",
    "models",
    "decoding",
    "runs",
    "hub",
    "training",
    "adapters",
    "exports",
    "inspection",
    "faithfulness",
    "page",
    "cli",
    "recipes",
)
ATTENTION = (
    "scores",
    "grid",
    "groups",
    "transforms",
    "masks",
    "normalise",
    "biases",
    "positions",
    "operator_arguments",
    "mask_analysis",
    "windows",
    "inputs",
    "observe",
    "kernels",
    "attend",
    "copy_attention",
    "compiled_capture",
    "tap",
    "eager_hooks",
    "torch_hooks",
    "capture",
    "residual",
    "kv_cache",
    "layers",
    "pooling",
    "__init__",
)
TEXT = ("examples", "words", "corpora", "tokenizers", "store", "batches", "grammar", "__init__")
TRAINING = (
    "metrics",
    "objectives",
    "section",
    "optimisers",
    "schedules",
    "recipe",
    "events",
    "config",
    "distributed",
    "checkpoint",
    "random_state",
    "precision",
    "weight_average",
    "early_stopping",
    "state",
    "step",
    "evaluation",
    "run_writer",
    "resource_estimate",
    "failures",
    "interrupts",
    "loop",
    "tasks",
    "train_run",
    "text_perplexity",
    "__init__",
)
INSIDE = {"attention": ATTENTION, "text": TEXT, "training": TRAINING}  # the order of what lies in a room
DOOR = ("regard", "regard.__main__")  # they may import anything; nothing but __version__ is imported from them

Sources = Mapping[str, str]  # module name -> its text; a package goes by its own name
Graph = dict[str, set[str]]  # module name -> the names it imports


def read_sources(root: Path) -> dict[str, str]:
    """Every module under root/regard."""
    names = {path: ".".join(path.relative_to(root).with_suffix("").parts) for path in sorted(root.rglob("*.py"))}
    return {name.removesuffix(".__init__"): path.read_text(encoding="utf-8") for path, name in names.items()}


def problems(sources: Sources) -> list[str]:
    """Everything that is wrong with the imports, in words; empty when all point upward."""
    graph = {name: set(_imports(ast.parse(text), sources)) for name, text in sources.items()}
    inner = {name: targets for name, targets in graph.items() if name not in DOOR}
    return [*_downward(inner), *_strangers(inner), *_circles(inner)]


def _imports(tree: ast.Module, known: Sources) -> Iterator[str]:
    """What a module imports, wherever in it: at the top, in functions, under TYPE_CHECKING, by import_module("...")."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            for alias in node.names:
                if (source, alias.name) != ("regard", "__version__"):
                    submodule = f"{source}.{alias.name}"
                    yield submodule if submodule in known else source
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from (arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant))


def _downward(graph: Graph) -> Iterator[str]:
    for name, targets in graph.items():
        place = _place(name)
        if None in place:
            yield f"{name} has no place in the order of the rooms; give it one in tests/imports.py"
            continue
        for target in sorted(targets):
            if target.startswith("."):
                yield f"{name} imports {target}: write the full name"
            elif target in DOOR:
                yield f"{name} imports the door {target}: import the room itself"
            elif target.startswith("regard.") and None not in _place(target) and _place(target) > place:
                yield f"{name} imports {target}, which is below it"


def _place(name: str) -> tuple[int | None, ...]:
    """Where a module stands: its room, and its turn in rooms that have an order; None where it is not in the list."""
    _, room, *rest = name.split(".")
    place = ROOMS.index(room) if room in ROOMS else None
    if room not in INSIDE:
        return (place,)
    module = rest[0] if rest else "__init__"
    return (place, INSIDE[room].index(module) if module in INSIDE[room] else None)


def _strangers(graph: Graph) -> Iterator[str]:
    """attention/ needs torch alone; its Triton kernels, which load on request, need triton too."""
    for name, targets in graph.items():
        if name.split(".")[1] != "attention":
            continue
        allowed = {"torch", "regard", *sys.stdlib_module_names}
        if name.startswith(("regard.attention.kernels.triton.", "regard.attention.kernels.hopper.")):
            allowed.add("triton")
        for target in sorted(targets):
            if target.split(".")[0] not in allowed:
                yield f"{name} imports {target}, but attention/ needs torch alone"


def _circles(graph: Graph) -> Iterator[str]:
    """One circle for each module that can reach itself, named once, from its first module in the alphabet."""
    seen: set[frozenset[str]] = set()
    for start in sorted(graph):
        path = _way_back(start, graph)
        if path and frozenset(path) not in seen:
            seen.add(frozenset(path))
            yield f"a circle: {' -> '.join([*path, start])}"


def _way_back(start: str, graph: Graph) -> list[str] | None:
    """The shortest path from a module back to itself."""
    queue, visited = [[start]], {start}
    while queue:
        path = queue.pop(0)
        for target in sorted(graph.get(path[-1], ())):
            if target == start:
                return path
            if target in graph and target not in visited:
                visited.add(target)
                queue.append([*path, target])
    return None
