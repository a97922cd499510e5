"""Reports made up of a few numbers, for what shows them: two layers of two heads, a method, and names that bite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regard.faithfulness.report import Report, summarise
from regard.faithfulness.run_tests import Settings

SETTINGS = Settings(samples=100)
NASTY = '<script>alert("x")</script>&$a_1$'
TRIED = {
    "permuted": 0.3,
    "permuted flips": 0.2,
    "uniform": 0.1,
    "uniform flips": 0.0,
    "adversarial jsd": 0.6,
    "adversarial shared": 0.04,
    "largest weight": 0.5,
    "erased attention share": 0.2,
    "erased gradient share": 0.3,
    "erased gradient x attention share": 0.4,
    "erased random share": 0.9,
    "erased flips": 0.5,
    "erased random flips": 0.1,
}
WORDS = {"tau gradient": 0.4, "tau left out": 0.3, "comprehensiveness": 0.5, "sufficiency": 0.1, "class change": 0.2}
TRUTH = {"precision": 0.6, "recall": 0.5, "first": 1.0, "average": 0.7}
TOKENS = [NASTY, "▁not", "▁good", "[SEP]"]


def decision(number: int, layers: int = 2, truth: bool = True, shown: bool = True) -> dict[str, Any]:
    """Decision `number` of a made-up model; each map's numbers are a little lower than those of the one before it."""
    planted = TRUTH if truth else {}
    maps: dict[str, dict[str, float]] = {}
    for layer in range(layers):
        for name in (f"enc.{layer}.self/0", f"enc.{layer}.self/1", f"enc.{layer}.self"):
            maps[name] = _lower(WORDS | TRIED | planted, layer + number % 3)
    maps["rollout"] = _lower(WORDS | planted, 5)
    maps["random"] = {"tau gradient": 0.0, "tau left out": 0.0, "comprehensiveness": 0.1, "sufficiency": 0.3}
    maps["random"] |= dict.fromkeys(planted, 0.1)
    maps["gradient"] = {"tau left out": 0.5}
    values = {"enc.0.self": [0.1, 0.2, 0.7, 0.0], "enc.1.self": [0.2] * 4, "rollout": [0.0, -0.5, 1.0, 0.0]}
    return {
        "number": number,
        "tokens": TOKENS,
        "chosen": "<b>positive",
        "p": 0.9,
        "right": number % 4 != 0,
        "maps": maps,
        "shown": values if shown else {},
    }


def made(count: int = 12, **how: Any) -> Report:
    facts = {"model": f"toy {NASTY}", "decides": "class", "settings": SETTINGS.told()}
    return summarise(facts, [decision(number, **how) for number in range(count)], SETTINGS)


def only(report: Report, *tests: str) -> Report:
    """As if no other tests had been made."""
    return replace(report, findings=[one for one in report.findings if one.test in tests])


def _lower(numbers: dict[str, float], steps: int) -> dict[str, float]:
    return {test: value * (1 - 0.05 * steps) for test, value in numbers.items()}
