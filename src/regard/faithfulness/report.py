"""The report of an audit: findings and verdicts, summarised from single decisions, saved as one page or as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.bounded_files import DATA_LIMIT, read_json
from regard.errors import RecordError, SettingError
from regard.faithfulness.decision_scores import RANDOM, AuditSettings
from regard.faithfulness.findings import MIN_DIVERGENCE, VERSION, Finding, Findings, MapKind, Verdict, judge
from regard.faithfulness.pages.report_page import render_report
from regard.files import write_atomic
from regard.inspection import Bootstrap, ConfidenceInterval


class Report(Findings):
    """What an audit found, with `save` and `load`."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write JSON (.json), or one page with figures (.html)."""
        target = expect_writable(Path(path))
        text = render_report(self) if target.suffix == ".html" else json.dumps(self.to_dict(), ensure_ascii=False)
        write_atomic(target, text.encode())
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Report:
        """Read a report from JSON."""
        try:
            data = read_json(path, RecordError, DATA_LIMIT)
            version = data.get("version")
            if version == VERSION:
                findings = [
                    Finding(one["map"], one["kind"], one["test"], _interval_from_dict(one)) for one in data["findings"]
                ]
                return cls(data["facts"], findings, [Verdict(**one) for one in data["verdicts"]], data["examples"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(f"Cannot read the report: {error}", where=str(path)) from None
        raise RecordError(f"report version {version}", f"version {VERSION}", where=str(path), advice="Audit again.")


def expect_writable(path: Path) -> Path:
    """The same path, if a report can be written there."""
    if path.suffix not in (".json", ".html"):
        raise SettingError(str(path), "a file name that ends in .html or .json", where="audit")
    if not path.parent.is_dir():
        raise SettingError(f"Cannot write {path}: there is no folder {path.parent}", where="audit")
    return path


def _interval_from_dict(one: Mapping[str, Any]) -> ConfidenceInterval:
    return ConfidenceInterval(one["value"], one["low"], one["high"], one["count"])


CONTROLS = (RANDOM, "gradient")


def summarise(facts: Mapping[str, Any], results: Sequence[Mapping[str, Any]], settings: AuditSettings) -> Report:
    """The report on single decisions, as `ExampleResult.to_dict` gives them, in the order of the examples."""
    numbers = [one["number"] for one in results]
    draws = Bootstrap(numbers, settings.bootstrap_samples, settings.confidence, settings.seed)
    names = list(dict.fromkeys(name for one in results for name in one["maps"]))
    findings: list[Finding] = []
    verdicts: list[Verdict] = []
    for name in sorted(names, key=lambda one: _sort_key(one, names)):
        kind = _kind(name, names)
        estimates = _estimates(name, results, draws)
        findings += [Finding(name, kind, test, estimate) for test, estimate in estimates.items()]
        if kind != "control":
            verdicts.append(judge(name, kind, estimates))
    correct = [None if one["correct"] is None else float(one["correct"]) for one in results]
    facts = {**facts, "decisions": len(results), "accuracy": _interval_to_dict(draws.mean(correct))}
    return Report(facts, findings, verdicts, results)


def _estimates(name: str, results: Sequence[Mapping[str, Any]], draws: Bootstrap) -> dict[str, ConfidenceInterval]:
    rows = [dict(one["maps"].get(name, {})) for one in results]
    for row, one in zip(rows, results, strict=True):
        row.update(_derive_gains(row, one["maps"].get(RANDOM, {})))
    found = {}
    for test in dict.fromkeys(test for row in rows for test in row):
        estimate = draws.mean([row.get(test) for row in rows])
        if estimate is not None:
            found[test] = estimate
    return found


def _derive_gains(row: Mapping[str, float], control: Mapping[str, float]) -> dict[str, float]:
    """Scores of a decision that compare others: gains over random maps, and whether an alternative map exists."""
    found = {}
    if "comprehensiveness" in row and "comprehensiveness" in control:
        found["comprehensiveness_gain"] = row["comprehensiveness"] - control["comprehensiveness"]
    if "precision" in row and "precision" in control:
        found["precision_gain"] = row["precision"] - control["precision"]
    if "erased_flips" in row:
        found["erased_flips_gain"] = row["erased_flips"] - row["erased_random_flips"]
    if "adversarial_jsd" in row:
        different = row["adversarial_jsd"] >= MIN_DIVERGENCE
        found["alternative_exists"] = float(different)
        if different:
            found["alternative_overlap"] = row["adversarial_overlap"]
    return found


def _kind(name: str, names: Sequence[str]) -> MapKind:
    if name in CONTROLS:
        return "control"
    if _is_head(name):
        return "head"
    return "layer" if any(_is_head(one) and one.rpartition("/")[0] == name for one in names) else "method"


def _is_head(name: str) -> bool:
    place, slash, head = name.rpartition("/")
    return bool(place and slash and head.isdecimal())


def _sort_key(name: str, names: Sequence[str]) -> tuple[int, int]:
    """Methods first, then layers, then heads, each in the order of the model; controls last."""
    order: dict[MapKind, int] = {"method": 0, "layer": 1, "head": 2, "control": 3}
    return order[_kind(name, names)], names.index(name)


def _interval_to_dict(estimate: ConfidenceInterval | None) -> dict[str, float | int | None] | None:
    if estimate is None:
        return None
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "count": estimate.count}
