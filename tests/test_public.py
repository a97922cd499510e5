"""The public names are pinned, and neither `import regard` nor `regard --help` loads anything heavy."""

import json
import subprocess
import sys
from types import ModuleType

import pytest

import regard

PUBLIC = {
    "attend",
    "Attended",
    "Observe",
    "capture",
    "Tap",
    "choose",
    "scores",
    "masks",
    "biases",
    "windows",
    "positions",
    "layers",
    "text",
    "training",
    "hub",
    "load",
    "look",
    "intervene",
    "audit",
    "RegardError",
    "__version__",
}
HEAVY = {"torch", "numpy", "matplotlib", "pydantic", "fastapi", "transformers"}


def test_public_names_are_pinned() -> None:
    assert set(regard.__all__) == PUBLIC
    assert len(regard.__all__) == len(PUBLIC)
    assert set(dir(regard)) >= PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(regard, name) is not None


@pytest.mark.parametrize("name", ["scores", "masks", "biases", "windows", "positions", "layers"])
def test_the_modules_are_modules(name: str) -> None:
    module = getattr(regard, name)
    assert isinstance(module, ModuleType)
    assert module.__name__ == f"regard.attention.{name}"


def test_every_public_name_of_text_is_there() -> None:
    assert len(set(regard.text.__all__)) == len(regard.text.__all__) > 50
    for name in regard.text.__all__:
        assert getattr(regard.text, name) is not None
    with pytest.raises(AttributeError, match=r"no attribute 'Tokeniser'.*Tokenizer"):
        _ = regard.text.Tokeniser


TRAINING = set(
    "train dry_run load read_recipe write_recipe TASKS Recipe Prepared Objective Loss Measured Output Grade Classify "
    "PredictNext ReadOn PredictTarget PredictNeighbours TagWords translator Loop World Keeping LogFile read_log".split()
)


def test_the_names_of_training_are_pinned() -> None:
    assert set(regard.training.__all__) == TRAINING
    for name in regard.training.__all__:
        assert getattr(regard.training, name) is not None


def test_import_text_is_light() -> None:
    """Worker processes import it: they need neither torch nor numpy to draw from the grammar."""
    loaded = modules_after("from regard.text.grammar import corpus_files")
    assert "regard.text.grammar.corpus_files" in loaded and not loaded & {*HEAVY, "tokenizers", "rich.console"}


def test_the_functions_are_not_modules() -> None:
    assert callable(regard.attend)
    assert callable(regard.capture)


def test_an_unknown_name_is_refused_in_words() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'atend'.*attend"):
        _ = regard.atend


def test_import_regard_is_light() -> None:
    added = modules_after("import regard") - modules_after("")
    assert not added & HEAVY
    assert "regard" in added
    assert len(added) <= 20, sorted(added)


def test_help_is_light() -> None:
    program = (
        "import sys\nsys.argv = ['regard', '--help']\nfrom regard.cli import main\ntry: main()\nexcept SystemExit: pass"
    )
    loaded = modules_after(program)
    assert "regard.cli.lookup" in loaded
    assert not loaded & {*HEAVY, "rich.console"}


def modules_after(program: str) -> set[str]:
    """The modules a fresh interpreter holds after running a program."""
    report = "\nimport json, sys\nprint(); print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program + report], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))
