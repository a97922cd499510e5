"""Two snapshots of benchmarks/equal_bits.py, compared by name and bit by bit: tensors, numbers and texts."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file

TABLE = tomllib.loads(Path(__file__).with_name("equal_bits.toml").read_text())
SNAPSHOT = "snapshot.json"
SHOWN = 3  # names of a file that differ


class Names:
    """The renames of a tree, as equal_bits_names.toml has them."""

    def __init__(self, tables: Mapping[str, Mapping[str, str]]) -> None:
        self.tables = {name: dict(rules) for name, rules in tables.items()}

    @classmethod
    def read(cls, path: Path | None) -> Names:
        return cls(tomllib.loads(path.read_text()) if path and path.exists() else {})

    def __sub__(self, other: Names) -> Names:
        """The rules that `other` does not have: from the names of its tree to those of this one."""
        kept = {}
        for table, rules in self.tables.items():
            known = other.tables.get(table, {})
            kept[table] = {old: new for old, new in rules.items() if known.get(old) != new}
        return Names(kept)

    def new(self, table: str, name: str, output: str = "") -> str:
        """A name in this tree's words; `output`: the file it stands in, for rules that hold in some alone."""
        for old, new in self.tables.get(table, {}).items():
            where, scoped, pattern = old.rpartition(": ")
            if scoped and not fnmatchcase(output, where):
                continue
            found = re.fullmatch("(.*)".join(map(re.escape, pattern.split("*"))), name, re.DOTALL)
            if found:
                parts = iter(found.groups())
                return re.sub(r"\*", lambda _: next(parts), new)
        return name

    def old(self, table: str, name: str) -> str:
        """The name that became `name`: the way back, for whole names alone."""
        return next((old for old, new in self.tables.get(table, {}).items() if new == name), name)

    def has(self, table: str, name: str, output: str) -> bool:
        """Whether a table lists a name, as [ignore] does."""
        scoped = (one.rpartition(": ")[::2] for one in self.tables.get(table, {}))
        return any(fnmatchcase(name, key) and fnmatchcase(output, where or "*") for where, key in scoped)

    def setting(self, told: str) -> str:
        """`a.b=c` in this tree's words: by a rule for the setting with its value, or else for the setting."""
        whole = self.new("settings", told)
        if whole != told:
            return whole
        name, _, value = told.partition("=")
        return f"{self.new('settings', name)}={value}"

    def command(self, words: list[str]) -> list[str]:
        """A command line in this tree's words: its verb and options."""
        verb, *rest = words
        new_verb = self.new("options", verb)
        options = [self.new("options", f"{verb} {one}").removeprefix(f"{verb} ") for one in rest]
        return [new_verb, *(one.removeprefix(f"{new_verb} ") for one in options)]


def leaves(path: Path, output: str, names: Names, root: Path) -> dict[str, Any]:
    """A file as names and values: arrays of tensors, and the numbers and texts of anything written."""
    if path.suffix in (".safetensors", ".npz"):
        tensors = load_file(path) if path.suffix == ".safetensors" else dict(np.load(path))
        found: dict[str, Any] = {}
        for name, tensor in tensors.items():
            if path.suffix == ".npz" and name == "record":  # JSON, as bytes
                found |= flat(json.loads(tensor.tobytes()), output, names, root, "record")
            else:
                found[names.new("parameters", name, output)] = tensor
        return found
    text = path.read_text()
    if path.suffix == ".toml":
        found = flat(tomllib.loads(text), output, Names({}), root)
        told = (names.setting(f"{name}={value}") for name, value in found.items())
        return dict(one.split("=", 1) for one in told)
    if path.suffix == ".json":
        return flat(json.loads(text), output, names, root)
    if path.suffix == ".jsonl":
        return flat(in_step(several(text)), output, names, root)
    return flat(text.splitlines(), output, names, root)


def several(text: str) -> list[Any]:
    """The JSON values that stand one behind the other, on a line each or on several."""
    decoder, values, at = json.JSONDecoder(), [], 0
    while at < len(text.rstrip()):
        value, at = decoder.raw_decode(text, at)
        values.append(value)
        at += len(text[at:]) - len(text[at:].lstrip())
    return values


def in_step(values: list[Any]) -> list[Any]:
    """The entries of a log without those of a thread beside the training, which come when it is done."""
    aside = TABLE["ignore"]["events"]
    return [value for value in values if not (isinstance(value, dict) and value.get("event") in aside)]


def flat(value: Any, output: str, names: Names, root: Path, at: str = "") -> dict[str, Any]:
    """Nested JSON as one table; its keys are dotted paths in the new names."""
    found: dict[str, Any] = {}
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in TABLE["ignore"]["keys"] or names.has("ignore", key, output):
                continue
            new = names.new("keys", key, output)
            new = names.new("values", key, output) if new == key else new
            found |= flat(inner, output, names, root, f"{at}.{new}" if at else new)
    elif isinstance(value, list):
        found[f"{at}.length"] = len(value)
        for number, inner in enumerate(value):
            found |= flat(inner, output, names, root, f"{at}.{number}" if at else str(number))
    elif isinstance(value, str):
        found[at] = names.new("values", value.replace(f"{root}/", ""), output)
    else:
        found[at] = value
    return found


class Found(NamedTuple):
    """What comparing one file gave; `differences` are names, the largest first."""

    verdict: str  # equal, differs, missing, only in new
    values: int = 0
    largest: float = 0.0
    differences: Sequence[str] = ()

    def summary(self) -> dict[str, Any]:
        """What results/ keeps of a file that is not equal."""
        names = {"names": len(self.differences), "largest": self.largest, "first": list(self.differences[:2])}
        return {"verdict": self.verdict} | names


def distance(old: Any, new: Any) -> float | None:
    """None where two values are the same in every bit, NaN being NaN; else how far apart they are."""
    if isinstance(old, np.ndarray):
        if not isinstance(new, np.ndarray) or old.shape != new.shape or old.dtype != new.dtype:
            return float("inf")
        if old.tobytes() == new.tobytes():
            return None
        if old.dtype.kind not in "fiub":
            return float("inf")
        differ = old.view(f"V{old.itemsize}") != new.view(f"V{new.itemsize}")
        if old.dtype.kind == "f":
            differ &= ~(np.isnan(old) & np.isnan(new))
        if not differ.any():
            return None
        apart = np.abs(old[differ].astype(np.float64) - new[differ].astype(np.float64))
        return float("inf") if np.isnan(apart).any() else float(apart.max())
    if type(old) is not type(new):
        return float("inf")
    if isinstance(old, float):
        return distance(np.array([old]), np.array([new]))
    if old == new:
        return None
    return float(abs(old - new)) if isinstance(old, int) else float("inf")


def compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> Found:
    """Two files' values by name."""
    apart: dict[str, float] = {}
    for name in old.keys() | new.keys():
        if name not in new or name not in old:
            apart[f"{name} ({'not in new' if name in old else 'only in new'})"] = float("inf")
            continue
        far = distance(old[name], new[name])
        if far is not None:
            apart[f"{name} ({described(old[name])} -> {described(new[name])}: {far:.3g})"] = far
    order = sorted(apart, key=lambda name: (-apart[name], name))
    count = sum(one.size if isinstance(one, np.ndarray) else 1 for one in old.values())
    return Found("differs" if apart else "equal", count, max(apart.values(), default=0.0), order)


def described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    told = repr(value)
    return told if len(told) <= 40 else told[:37] + "..."


def files(root: Path, only: list[str]) -> dict[str, Path]:
    """Everything that a snapshot keeps, by its path in it."""
    paths = (path for path in sorted(root.rglob("*")) if path.is_file())
    named = {str(path.relative_to(root)): path for path in paths}
    ignored = TABLE["ignore"]["files"]
    kept = {name: path for name, path in named.items() if not any(fnmatchcase(name, one) for one in ignored)}
    return {name: path for name, path in kept.items() if not only or any(within(name, one) for one in only)}


def within(name: str, only: str) -> bool:
    """Whether a file belongs to a run or command of this name."""
    parts = name.split("/")[1:]
    parts += [part.partition(".")[0] for part in parts]
    return any(fnmatchcase(part, only) for part in parts)


def compare(old: Path, new: Path, only: list[str], names: Names) -> dict[str, Found]:
    """Every file of both snapshots, under its new name."""
    before = {names.new("files", name): (name, path) for name, path in files(old, only).items()}
    after = files(new, only)
    results: dict[str, Found] = {}
    for output in sorted(before.keys() | after.keys()):
        if output not in after:
            results[output] = Found("missing")
        elif output not in before:
            results[output] = Found("only in new")
        else:
            name, path = before[output]
            first = leaves(path, name.partition("/")[2], names, old.resolve())
            ignored = Names({"ignore": names.tables.get("ignore", {})})
            second = leaves(after[output], name.partition("/")[2], ignored, new.resolve())
            results[output] = compared(first, second)
    return results


def table(results: Mapping[str, Found]) -> Iterable[str]:
    """A line for each run and each command's output: how many values are equal, and what is not."""
    groups: dict[str, dict[str, Found]] = {}
    for output, found in results.items():
        kind, name, *rest = output.split("/")
        group = f"train {name}" if kind == "runs" else f"{name} {rest[0].partition('.')[0]}" if rest else name
        groups.setdefault(group, {})[output] = found
    for group, parts in sorted(groups.items()):
        bad = {output: found for output, found in parts.items() if found.verdict not in ("equal", "only in new")}
        count = sum(found.values for found in parts.values())
        if not bad:
            new = all(found.verdict == "only in new" for found in parts.values())
            yield f"{'only in new' if new else 'equal':11} {group:40} {count:,} values in {len(parts)} files"
            continue
        verdict = "missing" if all(found.verdict == "missing" for found in bad.values()) else "DIFFERS"
        yield f"{verdict:11} {group:40} {len(bad)} of {len(parts)} files"
        for output, found in bad.items():
            told = f": {len(found.differences)} names, by up to {found.largest:.3g}" if found.differences else ""
            yield f"{'':12}{output} {found.verdict}{told}"
            yield from (f"{'':16}{one}" for one in found.differences[:SHOWN])
