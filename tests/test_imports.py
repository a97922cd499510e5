"""Imports point only upward in the list of rooms, without circles, and attention/ needs torch alone."""

from pathlib import Path

import pytest

from imports import problems, read_sources

SOURCE = Path(__file__).parent.parent / "src"


def test_the_rooms_are_in_order() -> None:
    sources = read_sources(SOURCE)
    assert {"regard", "regard.errors", "regard.attention", "regard.attention.attend", "regard.cli"} <= set(sources)
    assert problems(sources) == []


GOOD = {
    "regard": "from regard.cli import main",
    "regard.__main__": "from regard.cli import main",
    "regard.errors": "",
    "regard.attention": "from regard.attention.attend import attend",
    "regard.attention.scores": "import math\nimport torch.nn as nn\nfrom regard.errors import RegardError",
    "regard.attention.kernels": "",
    "regard.attention.kernels.triton.forward": "import triton\nfrom regard.attention import scores",
    "regard.attention.attend": "from regard.attention import kernels, scores",
    "regard.cli": "from regard import __version__\nfrom regard.cli import demo",
    "regard.cli.demo": "def f():\n    from regard.attention import attend, scores",
}


def test_a_tree_in_order_has_no_problems() -> None:
    assert problems(GOOD) == []


@pytest.mark.parametrize(
    ("module", "text", "said"),
    [
        ("regard.errors", "import regard.attention", "below it"),
        ("regard.errors", "def f():\n    from regard.attention.scores import Dot", "below it"),
        ("regard.attention.scores", "if TYPE_CHECKING:\n    from regard.attention.attend import attend", "below it"),
        ("regard.attention.scores", "from regard.attention import attend", "below it"),
        ("regard.attention.scores", "import importlib\nimportlib.import_module('regard.cli')", "below it"),
        ("regard.attention.attend", "from regard.attention import Observe", "below it"),
        ("regard.cli.demo", "from regard import attend", "the door"),
        ("regard.cli.demo", "from .lookup import look_up", "full name"),
        ("regard.attention.novel", "", "no place"),
        ("regard.novel", "", "no place"),
        ("regard.attention.scores", "import numpy as np", "torch alone"),
        ("regard.attention.attend", "import triton", "torch alone"),
        ("regard.cli.demo", "from regard.cli import app", "a circle: regard.cli -> regard.cli.demo -> regard.cli"),
    ],
)
def test_one_bad_import_is_found(module: str, text: str, said: str) -> None:
    found = problems({**GOOD, module: text})
    assert len(found) >= 1
    assert any(said in problem and module in problem for problem in found), found


def test_a_circle_of_three_is_named_once() -> None:
    circle = {
        "regard.models.a": "from regard.models.b import B",
        "regard.models.b": "def f():\n    import regard.models.c",
        "regard.models.c": "from regard.models import a",
    }
    assert problems(circle) == ["a circle: regard.models.a -> regard.models.b -> regard.models.c -> regard.models.a"]
