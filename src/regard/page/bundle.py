"""The page's modules as one script: each after those that it imports, without imports and exports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

IMPORT = re.compile(r'^import\s+\{[^}]*\}\s+from\s+"\./([a-z0-9_]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async function|function|class|const|let)\b)", re.MULTILINE)
DECLARED = re.compile(
    r"^(?:export )?(?:async function\*?|function\*?|class|const|let)\s+([A-Za-z_$][\w$]*)", re.MULTILINE
)


@cache
def static(name: str) -> str:
    """A file of the page."""
    return files("regard.page").joinpath("static", name).read_text(encoding="utf-8")


def bundle(entry: str = "main.js") -> str:
    """One script that does what the module `entry` does; `export default` of the entry stays."""
    sources = {name: static(name) for name in reached(entry)}
    return "\n".join(EXPORT.sub("", IMPORT.sub("", sources[name])) for name in order(sources, entry))


def reached(entry: str) -> list[str]:
    """The module and all that it needs."""
    found, waiting = {entry}, [entry]
    while waiting:
        new = set(IMPORT.findall(static(waiting.pop()))) - found
        found |= new
        waiting += sorted(new)
    return sorted(found)


def order(sources: Mapping[str, str], entry: str) -> list[str]:
    """Names of modules, each after those that it imports; a circle is an error of whoever wrote it."""
    done: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> Iterator[str]:
        assert name not in above, f"a circle of imports: {' -> '.join((*above, name))}"
        for needed in IMPORT.findall(sources[name]):
            if needed not in done:
                yield from visit(needed, (*above, name))
        done.append(name)
        yield name

    return list(visit(entry, ()))


def declared(source: str) -> list[str]:
    """The names that a module declares at its top level."""
    return DECLARED.findall(source)
