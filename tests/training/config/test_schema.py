"""What classes say of data: which types, which kind, and what pydantic's places are the user's keys."""

from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Optional

import pytest

from regard.training.config.schema import (
    alternatives,
    annotation_at,
    fill_kinds,
    kinds,
    literal_choices,
    locate_setting,
    map_values,
    section_of,
)
from regard.training.optimisers import AdamW
from regard.training.recipe import Recipe, TrainSettings
from regard.training.schedules import CosineSchedule
from regard.training.section import Fraction, InputPath
from training.config.small_recipes import Counting, Drawn, Files, Inner, Model, Sorting


@pytest.mark.parametrize(
    ("annotation", "types"),
    [
        (int, (int,)),
        (InputPath | Fraction | None, (Path, float, NoneType)),
        (Optional[Annotated[int | str, "x"]], (int, str, NoneType)),  # noqa: UP045 (both spellings are met)
        (tuple[int, ...] | None, (tuple[int, ...], NoneType)),
        (Any, (Any,)),
    ],
)
def test_alternatives(annotation: Any, types: tuple[Any, ...]) -> None:
    assert alternatives(annotation) == types


def test_the_kind_chooses_the_class() -> None:
    schedule = Recipe.model_fields["schedule"].annotation
    assert section_of(schedule, {"kind": "cosine"}) is CosineSchedule
    for odd in ({}, {"kind": "cosin"}, {"kind": []}, 3, None):
        assert section_of(schedule, odd) is None
    assert section_of(Inner | None, None) is Inner
    assert section_of(int | tuple[str, ...], {}) is None
    assert kinds(schedule) == ("constant", "linear", "cosine", "inverse-root", "noam", "plateau")
    assert literal_choices(TrainSettings.model_fields["precision"].annotation) == ("float32", "bf16", "fp16")


def test_only_a_default_gives_a_kind() -> None:
    assert fill_kinds(Counting, {"data": {}})["data"] == {"kind": "drawn"}
    assert fill_kinds(Sorting, {"data": {}})["data"] == {}
    assert fill_kinds(Counting, {"data": {"kind": "files"}, "model": {}}) == {"data": {"kind": "files"}, "model": {}}
    assert fill_kinds(Counting, {"data": 3, "odd": {}}) == {"data": 3, "odd": {}}


@pytest.mark.parametrize(
    ("annotation", "key", "expected"),
    [
        (Model, "layers", Model.model_fields["layers"].annotation),
        (Model, "layerz", Any),
        (dict[str, float] | None, "x", float),
        (tuple[int, float], 1, float),
        (tuple[int, float], 2, Any),
        (tuple[str, ...], 7, str),
        (list[str] | None, 7, str),
        (str, 0, Any),
    ],
)
def test_inside(annotation: Any, key: str | int, expected: Any) -> None:
    assert annotation_at(annotation, key) == expected


@pytest.mark.parametrize(
    ("loc", "keys", "section"),
    [
        ((), (), Counting),
        (("name",), ("name",), Counting),
        (("data", "drawn", "examples"), ("data", "examples"), Drawn),
        (("data", "drawn", "drawn"), ("data", "drawn"), Drawn),
        (("data", "files", "valid", "constrained-float"), ("data", "valid"), Files),
        (("data", "files", "words", 1, 0), ("data", "words", 1, 0), Files),
        (("train", "steps", "constrained-int"), ("train", "steps"), TrainSettings),
        (("optimiser", "adamw", "betas", 1), ("optimiser", "betas", 1), AdamW),
        (("model", "spare", "note"), ("model", "spare", "note"), Inner),
        (("modle",), ("modle",), Counting),
    ],
)
def test_the_alternatives_tried_are_nobodys_keys(loc: Any, keys: Any, section: Any) -> None:
    place = locate_setting(Counting, loc)
    assert (place.keys, place.section) == (keys, section)


def test_none_may_stand_in_its_place_alone() -> None:
    assert locate_setting(Counting, ("train", "clip")).may_be_none
    assert locate_setting(Counting, ("model", "spare")).may_be_none
    assert not locate_setting(Counting, ("model", "spare", "flags")).may_be_none
    assert not locate_setting(Counting, ("train", "seed")).may_be_none
    assert not locate_setting(Counting, ()).may_be_none


def test_every_known_part_is_changed_once() -> None:
    seen: list[tuple[Any, ...]] = []

    def change(types: tuple[Any, ...], value: Any, keys: tuple[str | int, ...]) -> Any:
        seen.append((keys, types))
        return -value if isinstance(value, int) else value

    data = {"model": {"layers": 2, "pair": [1, 2], "inner": {"note": "a"}}, "odd": {"x": 1}}
    assert map_values(Counting, data, change) == {
        "model": {"layers": -2, "pair": [-1, -2], "inner": {"note": "a"}},
        "odd": {"x": -1},
    }
    assert (("model", "inner", "note"), (str, NoneType)) in seen
    assert (("odd", "x"), (Any,)) in seen
    assert len(seen) == len(set(seen)) == 10  # the whole, 4 sections and lists, 5 single values
