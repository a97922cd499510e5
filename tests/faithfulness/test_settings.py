"""Settings: what cannot be is refused, and what is told is JSON."""

from __future__ import annotations

import json

import pytest

from regard.errors import SettingError
from regard.faithfulness.run_tests import Settings


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"permutations": 0}, "permutations=0, expected at least 1"),
        ({"orders": 0}, "orders=0"),
        ({"samples": -1}, "samples=-1"),
        ({"chunk": 0}, "chunk=0"),
        ({"level": 1.0}, "level=1.0, expected a share between 0 and 1"),
        ({"sizes": ()}, "expected shares of the tokens"),
        ({"sizes": (0.5, 1.5)}, "expected shares of the tokens"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict, said: str) -> None:
    with pytest.raises(SettingError, match=said.replace("(", r"\(")):
        Settings(**wrong)


def test_what_is_told_goes_through_json() -> None:
    for places in ("*.self", ["a", "b"]):
        told = Settings(places=places).told()
        assert json.loads(json.dumps(told))["places"] == (["*.self"] if places == "*.self" else places)
        assert told["search"]["starts"] >= 1 and told["seed"] == 0
