"""Ties the kernels to what was tested on a GPU: digests of their sources, the records of GPU test runs, and the report
that is made of them and kept in tests/gpu/report.json. Needs neither a GPU nor Triton.

A digest counts what a compiler would see: comments, docstrings and formatting change nothing.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "tests" / "gpu" / "report.json"
FOLDERS = ("src/regard/attention/kernels/triton", "src/regard/attention/kernels/hopper")
KERNEL = re.compile(r"^@(triton|gluon)\.jit\b", re.MULTILINE)
COMMAND = "on a machine with a GPU: make test-gpu PYTHON=python3, which writes tests/gpu/report.json"
Record = dict[str, Any]  # of one run: machine, commit, date, kernels, suite (all tests there are) and outcomes


def problems(report: Mapping[str, Any], now: Mapping[str, str]) -> list[str]:
    """What keeps a report from vouching for the kernels with these digests, a sentence each."""
    then = report["kernels"]
    said = [
        f"{file} is a kernel that tests/gpu/report.json does not know. Test it {COMMAND}."
        if file not in then
        else f"{file} has changed since the GPU tests of {report['date']} ran. Run them again {COMMAND}."
        for file, digest in sorted(now.items())
        if then.get(file) != digest
    ]
    said += [
        f"{file} was tested on a GPU and is gone. Make a new report {COMMAND}." for file in sorted(set(then) - set(now))
    ]
    if failed := report["failed"]:
        said.append(f"{len(failed)} GPU tests failed, the first is {failed[0]}. Mend it, and run them {COMMAND}.")
    if missing := report["not run"]:
        said.append(f"{len(missing)} GPU tests were not run, the first is {missing[0]}. Run them {COMMAND}.")
    if not any(counts["passed"] for counts in report["tests"].values()):
        said.append(f"No GPU test has passed. Run them {COMMAND}.")
    return said


def digests(root: Path = ROOT) -> dict[str, str]:
    """The digest of every file of the kernel folders, and of every other one under src that defines a kernel."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted((root / "src").rglob("*.py"))}
    named = {path.relative_to(root).as_posix(): text for path, text in sources.items()}
    return {
        name: digest(text)
        for name, text in named.items()
        if name.rpartition("/")[0] in FOLDERS or KERNEL.search(text) is not None
    }


def digest(source: str) -> str:
    """SHA-256 of a module's syntax tree without docstrings, the same by every Python from 3.11 on."""
    return hashlib.sha256(repr(_canonical(ast.parse(source))).encode()).hexdigest()


def _canonical(node: object) -> object:
    """A tree as nested tuples; fields that are empty are left out, since newer Pythons have more of those."""
    if isinstance(node, list):
        return [_canonical(one) for one in node]
    if not isinstance(node, ast.AST):
        return node
    fields = dict(ast.iter_fields(node))
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and _has_docstring(node):
        fields["body"] = fields["body"][1:]
    if isinstance(node, ast.JoinedStr):  # some Pythons end an f-string with an empty text
        fields["values"] = [one for one in node.values if not (isinstance(one, ast.Constant) and one.value == "")]
    kept = [(name, _canonical(value)) for name, value in fields.items() if value is not None and value != []]
    return type(node).__name__, kept


def _has_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return ast.get_docstring(node, clean=False) is not None


def merged(records: Iterable[Record]) -> dict[str, Any]:
    """The report of runs that shared out the tests; of a test that ran twice the later outcome counts. ValueError: they
    tested other kernels, or by another machine."""
    records = list(records)
    last = records[-1]
    for one in records[:-1]:
        if one["kernels"] != last["kernels"]:
            pairs = sorted(set(one["kernels"].items()) ^ set(last["kernels"].items()))
            raise ValueError(
                f"the runs of {one['date']} and {last['date']} tested other kernels: {pairs[0][0]} differs"
            )
        if one["machine"] != last["machine"]:
            raise ValueError(f"the runs are of two machines: {one['machine']} and {last['machine']}")
    outcomes = {name: outcome for one in records for name, outcome in outcomes_of(one).items()}
    suite = sorted(last["suite"])
    files = sorted({_file(name) for name in suite})
    counts = {
        file: Counter(outcomes[name] for name in suite if _file(name) == file and name in outcomes) for file in files
    }
    return {
        "machine": last["machine"],
        "commit": last["commit"],
        "date": last["date"],
        "tests": {file: {kind: counts[file][kind] for kind in ("passed", "failed", "skipped")} for file in files},
        "failed": [name for name in suite if outcomes.get(name) == "failed"],
        "not run": [name for name in suite if name not in outcomes],
        "kernels": last["kernels"],
    }


def outcomes_of(record: Record) -> dict[str, str]:
    """passed, failed or skipped, by the test's name."""
    return {one["name"]: one["outcome"] for one in record["outcomes"]}


def summary(report: Mapping[str, Any]) -> str:
    """One line."""
    total = Counter[str]()
    for counts in report["tests"].values():
        total.update(counts)
    parts = [f"{total[kind]} {kind}" for kind in ("passed", "failed", "skipped")]
    machine = report["machine"]
    return (
        f"GPU tests: {', '.join(parts)}, {len(report['not run'])} not run; {len(report['kernels'])} kernel files; "
        f"{machine['gpu']}, torch {machine['torch']}, Triton {machine['triton']}, commit {report['commit'][:12]}"
    )


def _file(name: str) -> str:
    return name.partition("::")[0].rpartition("/")[2]


def write(report: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
