"""What the README and the book show runs as it stands."""

import re
from pathlib import Path

import pytest
import torch

from regard.pictures import write_pictures
from regard.text.grammar.corpus_files import write_corpus
from regard.training import read_recipe, train
from regard.training.tasks import TASKS

ROOT = Path(__file__).parents[1]


def blocks(file: str, heading: str) -> str:
    """The Python of one section."""
    section = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#+ |\Z)", (ROOT / file).read_text("utf-8"), re.M | re.S)
    assert section, f"{file} has no section {heading!r}"
    return "\n".join(re.findall(r"```python\n(.*?)```", section[1], re.S))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_corpus(tmp_path / "data", 1500)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_from_two_text_files_to_a_batch(folder: Path) -> None:
    shown = blocks("README.md", "From two text files to a batch")
    assert shown.count("\n") <= 25
    names: dict[str, object] = {}
    exec(shown, names)
    batch, pieces = names["batch"], names["pieces"]
    assert len(batch) > 1 and batch.source.shape[0] == batch.target_in.shape[0]  # type: ignore[arg-type, attr-defined]
    assert pieces.words[-1] == 6  # type: ignore[attr-defined]
    assert names["state"]["batch"] == 1  # type: ignore[index]
    assert (folder / "tokenizer.json").exists()


def test_the_alignment_of_the_book(folder: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    exec(blocks("docs/text.md", "A gold alignment, drawn"), {})
    assert (folder / "alignment.svg").read_text("utf-8").startswith("<?xml")


def test_the_built_in_corpus_of_the_book(capsys: pytest.CaptureFixture[str]) -> None:
    exec(blocks("docs/text.md", "The built-in corpus"), {})
    assert capsys.readouterr().out.count("|") == 6


def test_the_pictures_of_the_book(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(blocks("docs/pictures.md", "The built-in scenes"), {})
    assert capsys.readouterr().out.count("relation") >= 3 and (tmp_path / "scenes.png").exists()
    write_pictures(tmp_path / "pictures", 20)
    write_pictures(tmp_path / "classes", 40, view="labelled-pictures")
    names: dict[str, object] = {}
    exec(blocks("docs/pictures.md", "Image files of one's own"), names)
    assert names["pixels"].shape == (48, 48, 3)  # type: ignore[attr-defined]
    assert capsys.readouterr().out.endswith("(32, 32, 3)\n")


def test_the_captioner_of_the_book(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["data.examples=30", "data.valid=5", "train.steps=1", "model.width=8", "model.layers=1", "train.threads=1"]
    train(read_recipe("captioner", small, tasks=TASKS), tmp_path / "runs" / "captioner", notify=lambda text: None)
    exec(blocks("docs/pictures.md", "Using them"), {})
    assert "View(" in capsys.readouterr().out


def test_the_batches_of_the_book(folder: Path) -> None:
    for view in ("document", "opinion"):
        write_corpus(folder, 300, view=view)
    names: dict[str, object] = {}
    exec(blocks("docs/text.md", "Batches"), names)
    for name in ("bert", "lstm", "gpt", "packed", "classes"):
        batch = next(iter(names[name]))  # type: ignore[call-overload]
        assert batch.tokens > 0, name


def test_a_model_and_an_objective_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(blocks("docs/training.md", "A model and an objective of one's own"), names)
    assert names["ended"].reason == "finished"  # type: ignore[attr-defined]
    assert (tmp_path / "mine" / "model.safetensors").exists()
    assert names["ended"].metrics["accuracy"] > 0.9  # type: ignore[attr-defined]


def test_the_recipe_of_the_book(tmp_path: Path) -> None:
    from regard.training import TASKS, read_recipe

    [toml] = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "training.md").read_text("utf-8"), re.S)
    (tmp_path / "mine.toml").write_text(toml)
    recipe = read_recipe(tmp_path / "mine.toml", tasks=TASKS)
    assert recipe.train.precision == "bf16"


def test_using_what_was_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.training import TASKS, read_recipe, train

    monkeypatch.chdir(tmp_path)
    small = ["data.examples=200", "train.steps=3"]
    train(read_recipe("classifier", small, tasks=TASKS), Path("runs/classifier"), notify=lambda text: None)
    names: dict[str, object] = {}
    exec(blocks("docs/training.md", "Using what was trained"), names)
    assert names["logits"].shape == (1, 2)  # type: ignore[attr-defined]
    assert names["heard"]["pooling"].weights.sum() == pytest.approx(1, abs=1e-6)  # type: ignore[index]


def test_the_looking_of_the_book(folder: Path) -> None:
    names: dict[str, object] = {}
    exec("".join(blocks("docs/looking.md", part) for part in ("Hear it", "Look at it", "Measures")), names)
    assert names["heard"]["layers.1.self_attn"].weights.shape == (1, 4, 6, 6)  # type: ignore[index]
    assert (folder / "train.html").read_text("utf-8").startswith("<!doctype html>")


def test_groups_of_tokens() -> None:
    names: dict[str, object] = {}
    exec(blocks("docs/attention.md", "Groups of tokens"), names)
    context, new = names["context"], names["new"]
    assert isinstance(context, torch.Tensor) and isinstance(new, torch.Tensor)
    torch.testing.assert_close(context + new, torch.ones(1, 8, 40))


def test_the_looking_at_pictures_of_the_book() -> None:
    names: dict[str, object] = {}
    exec("import regard\n" + blocks("docs/looking.md", "Look at pictures"), names)
    grid, axis = names["grid"], names["axis"]
    assert axis.tokens[:2] == ("[CLS]", "patch 0,0") and grid.tokens[0, 0] == 1  # type: ignore[attr-defined]


def test_what_one_token_gets() -> None:
    names: dict[str, object] = {"torch": torch}
    exec(blocks("docs/attention.md", "What one token gets"), names)
    share = names["share"]
    assert isinstance(share, torch.Tensor) and share.shape == (3,) and bool(((share > 0) & (share < 1)).all())


def test_every_verb_and_recipe_is_in_the_readme() -> None:
    from regard.cli import app
    from regard.training import shipped_recipes

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    verbs = [str(command.name) for command in app.registered_commands]
    assert "look" in verbs and [verb for verb in verbs if f"\nregard {verb} " not in readme] == []
    assert [name for name in shipped_recipes() if f"[`{name}`](src/regard/recipes/{name}.toml)" not in readme] == []
