"""Made-up reports for tests of the report page: two layers of two heads, a method, and names with markup."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regard.faithfulness.decision_scores import AuditSettings
from regard.faithfulness.report import Report, summarise

SETTINGS = AuditSettings(bootstrap_samples=100)
NASTY = '<script>alert("x")</script>&$a_1$'
TRIED = {
    "permuted": 0.3,
    "permuted_flips": 0.2,
    "uniform": 0.1,
    "uniform_flips": 0.0,
    "adversarial_jsd": 0.6,
    "adversarial_overlap": 0.04,
    "largest_weight": 0.5,
    "erased_attention_share": 0.2,
    "erased_gradient_share": 0.3,
    "erased_gradient_x_attention_share": 0.4,
    "erased_random_share": 0.9,
    "erased_flips": 0.5,
    "erased_random_flips": 0.1,
}
WORDS = {
    "tau_gradient": 0.4,
    "tau_leave_one_out": 0.3,
    "comprehensiveness": 0.5,
    "sufficiency": 0.1,
    "class_sensitivity": 0.2,
}
TRUTH = {"precision": 0.6, "recall": 0.5, "precision_at_1": 1.0, "average_precision": 0.7}
TOKENS = [NASTY, "▁not", "▁good", "[SEP]"]


def decision(number: int, layers: int = 2, truth: bool = True, shown: bool = True) -> dict[str, Any]:
    """Decision `number` of a made-up model; each map's numbers are a little lower than those of the one before it."""
    planted = TRUTH if truth else {}
    maps: dict[str, dict[str, float]] = {}
    for layer in range(layers):
        for name in (f"enc.{layer}.self/0", f"enc.{layer}.self/1", f"enc.{layer}.self"):
            maps[name] = _lower(WORDS | TRIED | planted, layer + number % 3)
    maps["rollout"] = _lower(WORDS | planted, 5)
    maps["random"] = {"tau_gradient": 0.0, "tau_leave_one_out": 0.0, "comprehensiveness": 0.1, "sufficiency": 0.3}
    maps["random"] |= dict.fromkeys(planted, 0.1)
    maps["gradient"] = {"tau_leave_one_out": 0.5}
    values = {"enc.0.self": [0.1, 0.2, 0.7, 0.0], "enc.1.self": [0.2] * 4, "rollout": [0.0, -0.5, 1.0, 0.0]}
    return {
        "number": number,
        "tokens": TOKENS,
        "predicted": "<b>positive",
        "p": 0.9,
        "correct": number % 4 != 0,
        "maps": maps,
        "attributions": values if shown else {},
    }


def made(count: int = 12, **how: Any) -> Report:
    facts = {"model": f"toy {NASTY}", "decision": "class", "settings": SETTINGS.to_dict()}
    return summarise(facts, [decision(number, **how) for number in range(count)], SETTINGS)


def only(report: Report, *tests: str) -> Report:
    """The report with the findings of these tests only."""
    return replace(report, findings=[one for one in report.findings if one.test in tests])


def _lower(numbers: dict[str, float], steps: int) -> dict[str, float]:
    return {test: value * (1 - 0.05 * steps) for test, value in numbers.items()}
