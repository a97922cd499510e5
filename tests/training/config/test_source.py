"""--set: what its text means, what it does to a file's data, and that the order does not matter."""

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from regard.errors import SettingError
from regard.runs.toml import parse
from regard.training.config.source import RecipeSource, SetOption
from training.config.small_recipes import Counting

FILE = """\
task = "count"
name = "tiny"

[schedule]
kind = "cosine"
warmup = 5
floor = 0.1

[optimiser]
momentum = 0.5
"""


def merged(*sets: str, text: str = FILE) -> dict[str, Any]:
    return RecipeSource("r.toml", Path(), text, parse(text, "r.toml"), [SetOption.read(one) for one in sets]).merged(
        Counting
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1e-3", 1e-3),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ('"7"', "7"),
        ("{ a = 1 }", {"a": 1}),
        ("my.txt", "my.txt"),
        ("3 epochs", "3 epochs"),
        ("a=b", "a=b"),
        ("", ""),
        ("none", "none"),
        ("True", "True"),
        ("2024-01-01", "2024-01-01"),
        ("1\ny = 2", "1\ny = 2"),
        ("é 'x", "é 'x"),
        ("[" * 9999, "[" * 9999),
    ],
)
def test_a_value_is_toml_or_plain_text(text: str, value: object) -> None:
    assert SetOption.read(f"a.b={text}") == SetOption(f"a.b={text}", ("a", "b"), value)


@pytest.mark.parametrize(
    ("text", "came"),
    [
        ("train.steps", "There is no '='"),
        ("=3", "'' is not the name of a setting"),
        ("train.=3", "'train.' is not the name of a setting"),
        (".steps=3", "'.steps' is not the name of a setting"),
        ("a=0xfffffffffffffffff", "an integer of more than 64 bits"),
        ("a=\udce9", "The text is not UTF-8"),
    ],
)
def test_what_is_no_setting_is_refused(text: str, came: str) -> None:
    with pytest.raises(SettingError) as caught:
        SetOption.read(text)
    assert caught.value.problem == came
    assert caught.value.where.startswith("--set ")
    str(caught.value).encode()  # it can be printed


def test_another_kind_starts_a_section_anew_in_any_order() -> None:
    sets = ["schedule.kind=linear", "schedule.warmup=9", "train.steps=3"]
    for order in permutations(sets):
        assert merged(*order)["schedule"] == {"kind": "linear", "warmup": 9}
    assert merged("schedule.kind=linear")["schedule"] == {"kind": "linear"}


def test_the_same_kind_keeps_what_the_file_says() -> None:
    for order in permutations(["schedule.kind=cosine", "schedule.warmup=9"]):
        assert merged(*order)["schedule"] == {"kind": "cosine", "warmup": 9, "floor": 0.1}


def test_a_section_without_a_kind_has_the_kind_of_its_default() -> None:
    assert merged()["optimiser"] == {"kind": "adamw", "momentum": 0.5}
    assert merged("optimiser.kind=sgd")["optimiser"] == {"kind": "sgd"}
    assert merged("weight_average.kind=ema")["weight_average"] == {"kind": "ema"}
    assert merged("data.examples=3")["data"] == {"kind": "drawn", "examples": 3}


def test_a_table_takes_the_place_of_a_section_and_other_sets_go_into_it() -> None:
    for order in permutations(['schedule={ kind = "linear" }', "schedule.warmup=9"]):
        assert merged(*order)["schedule"] == {"kind": "linear", "warmup": 9}
    assert merged("schedule={ warmup = 7 }", "schedule.kind=linear")["schedule"] == {"warmup": 7, "kind": "linear"}


def test_the_last_of_two_wins() -> None:
    assert merged("train.steps=1", "train.steps=2")["train"] == {"steps": 2}
    assert merged("train.steps=2", "train.steps=1")["train"] == {"steps": 1}


def test_a_setting_inside_what_is_no_section_is_refused() -> None:
    with pytest.raises(SettingError, match=r'^--set name.x=1: got name = "tiny", expected a section \[name\].$'):
        merged("name.x=1")


def test_setting_inside_none_makes_a_section() -> None:
    assert merged("model.spare.note=a", text='[model]\nspare = "none"')["model"]["spare"] == {"note": "a"}


def test_merging_leaves_what_was_written_alone() -> None:
    data = parse(FILE, "r.toml")
    table = SetOption.read("model={ inner = { note = 'a' } }")
    written = RecipeSource(
        "r.toml", Path(), FILE, data, [table, SetOption.read("model.inner.note=b"), SetOption.read("train.steps=1")]
    )
    assert written.merged(Counting)["model"]["inner"]["note"] == "b"
    assert data == parse(FILE, "r.toml")
    assert table.value == {"inner": {"note": "a"}}
