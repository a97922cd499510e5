"""The settings of [model] are the fields of the model's configuration, with its defaults."""

from dataclasses import MISSING, fields
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from regard.models.config import KINDS, config_class
from regard.training.tasks import TASKS

GIVEN = {"vocabulary", "unknown", "classes"}  # the tokenizer and the data say these
PICTURES = ("captioning", "image-classification", "pointing")  # whose data say the size of a picture


def sections(task: str) -> dict[str, type[BaseModel]]:
    annotation: Any = TASKS[task].model_fields["model"].annotation
    found = [one for one in (get_args(annotation) or (annotation,)) if isinstance(one, type)]
    return {one.model_fields["kind"].default: one for one in found if "kind" in one.model_fields}


CASES = [(task, kind) for task in KINDS for kind in sections(task)]


def test_every_kind_has_a_section() -> None:
    assert {task: set(sections(task)) for task in KINDS} == {task: set(kinds) for task, kinds in KINDS.items()}


@pytest.mark.parametrize(("task", "kind"), CASES)
def test_they_are_its_fields(task: str, kind: str) -> None:
    made, section = config_class(task, kind), sections(task)[kind]
    known = {one.name: one for one in fields(made)}
    unused = set(getattr(made, "UNUSED", ()))
    settings = set(section.model_fields) - {"kind"}
    given = GIVEN | ({"max_positions"} if task == "language" else set())  # there it is the size of a batch
    given |= {"size"} if task in PICTURES else set()
    assert settings - unused == set(known) - given - unused
    for name in settings & set(known):
        default = known[name].default
        if default is not MISSING:
            assert section.model_fields[name].default == default, name
