"""The report of an audit: means with their intervals and verdicts, saved as one page or as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.errors import RecordError, SettingError
from regard.faithfulness.findings import DIFFERENT, VERSION, Finding, Findings, Kind, Verdict, judge
from regard.faithfulness.pages.page import page
from regard.faithfulness.run_tests import RANDOM, Settings
from regard.files import write_whole
from regard.inspection import Bootstrap, Estimate


class Report(Findings):
    """What an audit found; it can be saved, and read back."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """As JSON, or as one page (.html) with figures."""
        target = expect_writable(Path(path))
        text = page(self) if target.suffix == ".html" else json.dumps(self.told(), ensure_ascii=False)
        write_whole(target, text.encode())
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Report:
        """Read the JSON back."""
        try:
            told = json.loads(Path(path).read_text(encoding="utf-8"))
            version = told.get("version")
            if version == VERSION:
                findings = [Finding(one["map"], one["kind"], one["test"], _estimate(one)) for one in told["findings"]]
                return cls(told["facts"], findings, [Verdict(**one) for one in told["verdicts"]], told["examined"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(f"a file that cannot be read ({error})", "a report", where=str(path)) from None
        raise RecordError(f"a report of version {version}", f"version {VERSION}", where=str(path))


def expect_writable(path: Path) -> Path:
    """The same path, if a report can be written there."""
    if path.suffix not in (".json", ".html"):
        raise SettingError(str(path), "a name that ends in .html or .json", where="audit")
    if not path.parent.is_dir():
        raise SettingError(str(path), f"a folder that is there; {path.parent} is not", where="audit")
    return path


def _estimate(one: Mapping[str, Any]) -> Estimate:
    return Estimate(one["value"], one["low"], one["high"], one["count"])


CONTROLS = (RANDOM, "gradient")


def summarise(facts: Mapping[str, Any], examined: Sequence[Mapping[str, Any]], settings: Settings) -> Report:
    """`examined`: every decision as `Examined.told` tells it, in the order of the examples."""
    draws = Bootstrap([one["number"] for one in examined], settings.samples, settings.level, settings.seed)
    names = list(dict.fromkeys(name for one in examined for name in one["maps"]))
    findings: list[Finding] = []
    verdicts: list[Verdict] = []
    for name in sorted(names, key=lambda one: _rank(one, names)):
        kind = _kind(name, names)
        found = _estimates(name, examined, draws)
        findings += [Finding(name, kind, test, estimate) for test, estimate in found.items()]
        if kind != "control":
            verdicts.append(judge(name, kind, found))
    right = [None if one["right"] is None else float(one["right"]) for one in examined]
    told = {**facts, "decisions": len(examined), "accuracy": _plain(draws.mean(right))}
    return Report(told, findings, verdicts, examined)


def _estimates(name: str, examined: Sequence[Mapping[str, Any]], draws: Bootstrap) -> dict[str, Estimate]:
    rows = [dict(one["maps"].get(name, {})) for one in examined]
    for row, one in zip(rows, examined, strict=True):
        row.update(_derived(row, one["maps"].get(RANDOM, {})))
    found = {}
    for test in dict.fromkeys(test for row in rows for test in row):
        estimate = draws.mean([row.get(test) for row in rows])
        if estimate is not None:
            found[test] = estimate
    return found


def _derived(row: Mapping[str, float], chance: Mapping[str, float]) -> dict[str, float]:
    """What is told of a decision by comparing its numbers."""
    found = {}
    if "comprehensiveness" in row and "comprehensiveness" in chance:
        found["points"] = row["comprehensiveness"] - chance["comprehensiveness"]
    if "precision" in row and "precision" in chance:
        found["true"] = row["precision"] - chance["precision"]
    if "erased flips" in row:
        found["erased more"] = row["erased flips"] - row["erased random flips"]
    if "adversarial jsd" in row:
        different = row["adversarial jsd"] >= DIFFERENT
        found["other map"] = float(different)
        if different:
            found["other map shares"] = row["adversarial shared"]
    return found


def _kind(name: str, names: Sequence[str]) -> Kind:
    if name in CONTROLS:
        return "control"
    if _is_head(name):
        return "head"
    return "layer" if any(_is_head(one) and one.rpartition("/")[0] == name for one in names) else "method"


def _is_head(name: str) -> bool:
    place, slash, head = name.rpartition("/")
    return bool(place and slash and head.isdecimal())


def _rank(name: str, names: Sequence[str]) -> tuple[int, int]:
    """Methods first, then layers, then heads, each in the order of the model; controls last."""
    order: dict[Kind, int] = {"method": 0, "layer": 1, "head": 2, "control": 3}
    return order[_kind(name, names)], names.index(name)


def _plain(estimate: Estimate | None) -> dict[str, float | int | None] | None:
    if estimate is None:
        return None
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "count": estimate.count}
