"""Reports: saved and loaded as they are, with a badge for every head."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.errors import SettingError
from regard.faithfulness.findings import BADGES, Verdict
from regard.faithfulness.report import Finding, Report
from regard.inspection.statistics import Estimate

REPORT = Report(
    {"model": "toy", "decides": "class", "decisions": 2, "accuracy": None},
    [
        Finding("a.self", "layer", "permuted", Estimate(0.2, 0.1, 0.3, 9)),
        Finding("a.self/1", "head", "permuted", Estimate(0.4, None, None, 2)),
        Finding("a.self/1", "head", "points", Estimate(0.3, 0.2, 0.4, 9)),
    ],
    [
        Verdict("a.self", "layer", "explains", "Yes."),
        Verdict("a.self/0", "head", "points", "Perhaps."),
        Verdict("a.self/1", "head", "does not explain", "No."),
        Verdict("rollout", "method", "points", "Perhaps."),
    ],
    [{"number": 0, "tokens": ["é"], "chosen": "x", "p": 0.9, "right": None, "maps": {}, "shown": {}}],
)


def test_by_map() -> None:
    assert REPORT.maps == ["a.self", "a.self/1"]
    assert REPORT.of("a.self/1") == {"permuted": Estimate(0.4, None, None, 2), "points": Estimate(0.3, 0.2, 0.4, 9)}
    assert REPORT.of("nothing") == {} and REPORT.verdict("a.self/1").words == "No."


def test_badges_are_those_of_the_heads() -> None:
    assert REPORT.badges() == {"a.self": {"0": BADGES["points"], "1": BADGES["does not explain"]}}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    again = Report.load(REPORT.save(tmp_path / "audit.json"))
    assert again.told() == REPORT.told()
    assert list(again.findings) == list(REPORT.findings) and list(again.verdicts) == list(REPORT.verdicts)
    told = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert told["badges"] == REPORT.badges() and told["examined"][0]["tokens"] == ["é"]


def test_a_name_that_says_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"audit.txt, expected a name that ends in .html or .json"):
        REPORT.save(tmp_path / "audit.txt")
    assert list(tmp_path.iterdir()) == []
