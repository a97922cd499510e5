"""Rules that cannot be are refused in words, and rows can be taken out of them."""

from __future__ import annotations

import pytest

from decoding.toys import END, Toy, begin
from regard.decoding import Beam, Greedy, Rules, Sample
from regard.errors import SettingError


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_length": 0}, "max_length=0, expected at least 1"),
        ({"max_length": 3, "min_length": 4}, "min_length=4, expected 0 to max_length=3"),
        ({"max_length": 3, "min_length": -1}, "min_length=-1"),
        ({"max_length": 3, "banned": [[]]}, r"Rules\.banned: A sequence is empty"),
        ({"max_length": 3, "required": [[[]]]}, r"Rules\.required: A sequence is empty"),
        ({"max_length": 3, "prefix": [[1, 2, 3, 4]]}, r"Rules\.prefix: got a sequence of 4 tokens, expected at most"),
        ({"max_length": 1, "required": [[[1, 2]]]}, r"Rules\.required: got a sequence of 2 tokens, expected at most"),
        ({"max_length": 3, "prefix": [[1, END]]}, r"Rules\.prefix: The end token 0 may not be in a sequence"),
        ({"max_length": 3, "required": [[[END]]]}, r"Rules\.required: The end token 0 may not be in a sequence"),
        ({"max_length": 3, "banned": [[-1]]}, "a negative token id"),
    ],
)
def test_rules_that_cannot_be(settings, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Rules(END, **settings)


@pytest.mark.parametrize("search", [Greedy(), Sample(), Beam()])
@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (Rules(END, 3, prefix=[[1]]), "prefix for 1 rows, expected one for each of 2"),
        (Rules(END, 3, rows=[1, 2, 3]), "rows for 3 rows, expected one for each of 2"),
        (Rules(END, 3, banned=[[7]]), "token 7, expected 0 to 3, the tokens of the model"),
        (Rules(END, 3, prefix=[[4], []]), "token 4, expected 0 to 3"),
        (Rules(4, 3), "token 4, expected 0 to 3"),
    ],
)
def test_rules_that_do_not_fit_the_rows(search, rules: Rules, words: str) -> None:
    toy = Toy(4)
    with pytest.raises(SettingError, match=words):
        search(toy, *begin(toy, [0, 1]), rules)


def test_the_rules_of_some_rows() -> None:
    rules = Rules(END, 5, prefix=[[1], [2], [3]], required=[[], [[1]], [[2]]], banned=[[4]])
    some = rules.select([2, 0])
    assert some == Rules(END, 5, prefix=[[3], [1]], required=[[[2]], []], banned=[[4]], rows=[2, 0])
    assert some.select([1, 1]).rows == [0, 0]
    assert Rules(END, 5).select([4, 2]) == Rules(END, 5, rows=[4, 2])
