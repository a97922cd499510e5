"""Audit settings: invalid ones are refused, and they survive JSON."""

from __future__ import annotations

import json

import pytest

from regard.errors import SettingError
from regard.faithfulness.decision_scores import AuditSettings


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"permutations": 0}, "permutations=0, expected at least 1"),
        ({"random_orders": 0}, "random_orders=0"),
        ({"bootstrap_samples": -1}, "bootstrap_samples=-1"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"confidence": 1.0}, "confidence=1.0, expected a number between 0 and 1"),
        ({"rationale_sizes": ()}, "expected shares of the tokens"),
        ({"rationale_sizes": (0.5, 1.5)}, "expected shares of the tokens"),
    ],
)
def test_invalid_settings_are_refused(wrong: dict, said: str) -> None:
    with pytest.raises(SettingError, match=said.replace("(", r"\(")):
        AuditSettings(**wrong)


def test_settings_survive_json() -> None:
    for places in ("*.self", ["a", "b"]):
        told = AuditSettings(places=places).to_dict()
        assert json.loads(json.dumps(told))["places"] == (["*.self"] if places == "*.self" else places)
        assert told["search"]["starts"] >= 1 and told["seed"] == 0
