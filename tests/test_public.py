"""The public names are pinned, rooms and docs use no others, and nothing loads what it does not need."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import regard
from boundary import PACKAGES, private_imports, private_in_docs
from imports import read_sources

ROOT = Path(__file__).resolve().parent.parent
PINNED: dict[str, list[str]] = json.loads((Path(__file__).parent / "public_names.json").read_text(encoding="utf-8"))
HEAVY = {"torch", "numpy", "matplotlib", "pydantic", "fastapi", "transformers"}


def test_every_room_has_public_names() -> None:
    assert set(PINNED) == {"regard", *PACKAGES}


@pytest.mark.parametrize("package", sorted(PINNED))
def test_public_names_are_pinned(package: str) -> None:
    """A change of them is meant: `make public-names` writes the file anew."""
    room = import_module(package)
    assert len(room.__all__) == len(set(room.__all__))
    assert sorted(room.__all__) == PINNED[package]
    assert set(dir(room)) >= set(PINNED[package]) - {"__version__"}
    for name in room.__all__:
        assert getattr(room, name) is not None


def test_public_functions_are_not_hidden_by_modules_of_their_name() -> None:
    """Whoever imports the module regard.room.name first makes it an attribute of the room."""
    for package in PINNED:
        for name in PINNED[package]:
            found = getattr(import_module(package), name)
            assert not isinstance(found, ModuleType) or found.__name__ in (
                f"{package}.{name}",
                f"regard.attention.{name}",
            )


def test_rooms_use_only_what_is_public() -> None:
    assert private_imports(read_sources(ROOT / "src")) == []


def test_docs_use_only_what_is_public() -> None:
    assert private_in_docs(ROOT) == []


def test_what_is_private_is_noticed() -> None:
    told = private_imports(
        {"regard.page.own": "from regard.attention.kernels.stream import compute\nimport regard.text.words"}
    )
    assert [line.split(", ")[0] for line in told] == [
        "regard.page.own imports regard.attention.kernels.stream.compute",
        "regard.page.own imports regard.text.words",
    ]


@pytest.mark.parametrize("name", ["scores", "masks", "biases", "windows", "positions", "layers", "normalise"])
def test_the_modules_are_modules(name: str) -> None:
    module = getattr(regard, name)
    assert isinstance(module, ModuleType)
    assert module.__name__ == f"regard.attention.{name}"


def test_the_functions_are_not_modules() -> None:
    for name in ("attend", "capture", "look", "load", "intervene", "audit", "align", "atlas"):
        assert callable(getattr(regard, name))


def test_an_unknown_name_is_refused_in_words() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'atend'.*attend"):
        _ = regard.atend
    with pytest.raises(AttributeError, match=r"no attribute 'Tokeniser'.*Tokenizer"):
        _ = regard.text.Tokeniser


def test_import_text_is_light() -> None:
    """Worker processes import it: they need neither torch nor numpy to draw from the grammar."""
    loaded = modules_after("from regard.text.grammar import corpus_files")
    assert "regard.text.grammar.corpus_files" in loaded and not loaded & {*HEAVY, "tokenizers", "rich.console"}


def test_import_regard_is_light() -> None:
    added = modules_after("import regard") - modules_after("")
    assert not added & HEAVY
    assert "regard" in added
    assert len(added) <= 20, sorted(added)


def test_attention_needs_torch_alone() -> None:
    """Not even triton, which is there on machines with a GPU: its kernels load when they are needed."""
    loaded = modules_after(
        "import regard.attention, torch; regard.attention.attend(torch.ones(1, 2), torch.ones(3, 2))"
    )
    assert not loaded & {"triton", "safetensors", "pydantic", "transformers"}


def test_help_is_light() -> None:
    loaded = modules_after(COMMAND, "--help")
    assert "regard.cli.lookup" in loaded
    assert not loaded & {*HEAVY, "rich.console"}


COMMAND = """
import sys
from regard.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
PARSES = """
import tomllib
real, parsed = tomllib.loads, []
def loads(text, *more, **named):
    parsed.append(text)
    return real(text, *more, **named)
tomllib.loads = loads
"""


def modules_after(program: str, *arguments: str) -> set[str]:
    """The modules a fresh interpreter holds after running a program."""
    report = "\nimport json, sys\nprint(); print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program + report, *arguments], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def unneeded(loaded: set[str]) -> list[str]:
    """What inference has no use for. (typer brings pydantic, whatever we do.)"""
    rooms = ("regard.training", "regard.text.grammar", "torch.distributed.checkpoint")
    return sorted(name for name in loaded if name.startswith(rooms))


def test_loading_a_hugging_face_folder_needs_nothing_of_training(tmp_path: Path) -> None:
    from regard.hub import save
    from regard.models.config import GPTConfig

    save(GPTConfig(vocabulary=50, max_positions=16, layers=1, heads=2, width=8).build(), tmp_path / "gpt2")
    loaded = modules_after("import sys, regard\nregard.load(sys.argv[1])", str(tmp_path / "gpt2"))
    assert "torch._dynamo" not in loaded, "the compiler takes a second to import"
    assert "regard.models.gpt" in loaded and unneeded(loaded) == []


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator and a language model, hardly trained."""
    from regard.training import TASKS, read_recipe, train

    folder = tmp_path_factory.mktemp("runs")
    small = [
        "data.examples=60",
        "data.valid=4",
        "train.steps=1",
        "evaluate.every=1",
        "train.threads=1",
        "model.width=8",
    ]
    pairs = [*small, "model.encoder_dim=8", "model.hidden=8", "evaluate.monitor=loss"]
    train(read_recipe("bahdanau", pairs, tasks=TASKS), folder / "bahdanau", notify=lambda text: None)
    texts = [*small, "model.layers=1", "model.heads=2"]
    train(read_recipe("gpt", texts, tasks=TASKS), folder / "gpt", notify=lambda text: None)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ("translate", "bahdanau", "He hit me .", "--max-length", "4"),
        ("generate", "gpt", "He hit", "--max-length", "4"),
        ("look", "bahdanau", "He hit me .", "-o", "look.json"),
        ("look", "gpt", "He hit me .", "-o", "look.json"),
    ],
    ids=lambda command: "-".join(command[:2]),
)
def test_inference_needs_nothing_of_training_and_reads_a_recipe_once(
    command: tuple[str, ...], runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verb, run, *rest = command
    once = PARSES + COMMAND + "\nassert len(parsed) == 1, len(parsed)\n"
    loaded = modules_after(once, verb, str(runs / run), *rest)
    assert "regard.runs.run" in loaded and unneeded(loaded) == []
    assert "torch._dynamo" not in loaded, "the compiler takes a second to import"
