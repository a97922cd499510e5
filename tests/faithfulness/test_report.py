"""Reports: saving, loading, estimates by map, and a badge for every head."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.errors import SettingError
from regard.faithfulness.findings import BADGES, Verdict
from regard.faithfulness.report import Finding, Report
from regard.inspection.bootstrap import ConfidenceInterval

REPORT = Report(
    {"model": "toy", "decision": "class", "decisions": 2, "accuracy": None},
    [
        Finding("a.self", "layer", "permuted", ConfidenceInterval(0.2, 0.1, 0.3, 9)),
        Finding("a.self/1", "head", "permuted", ConfidenceInterval(0.4, None, None, 2)),
        Finding("a.self/1", "head", "comprehensiveness_gain", ConfidenceInterval(0.3, 0.2, 0.4, 9)),
    ],
    [
        Verdict("a.self", "layer", "explains", "Yes."),
        Verdict("a.self/0", "head", "informative", "Perhaps."),
        Verdict("a.self/1", "head", "does not explain", "No."),
        Verdict("rollout", "method", "informative", "Perhaps."),
    ],
    [{"number": 0, "tokens": ["é"], "predicted": "x", "p": 0.9, "correct": None, "maps": {}, "attributions": {}}],
)


def test_estimates_by_map() -> None:
    assert REPORT.maps == ["a.self", "a.self/1"]
    assert REPORT.estimates("a.self/1") == {
        "permuted": ConfidenceInterval(0.4, None, None, 2),
        "comprehensiveness_gain": ConfidenceInterval(0.3, 0.2, 0.4, 9),
    }
    assert REPORT.estimates("nothing") == {} and REPORT.verdict("a.self/1").reason == "No."


def test_badges_are_those_of_the_heads() -> None:
    assert REPORT.badges() == {"a.self": {"0": BADGES["informative"], "1": BADGES["does not explain"]}}


def test_a_saved_report_is_loaded(tmp_path: Path) -> None:
    again = Report.load(REPORT.save(tmp_path / "audit.json"))
    assert again.to_dict() == REPORT.to_dict()
    assert list(again.findings) == list(REPORT.findings) and list(again.verdicts) == list(REPORT.verdicts)
    told = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert told["badges"] == REPORT.badges() and told["examples"][0]["tokens"] == ["é"]


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"audit.txt, expected a file name that ends in .html or .json"):
        REPORT.save(tmp_path / "audit.txt")
    assert list(tmp_path.iterdir()) == []
