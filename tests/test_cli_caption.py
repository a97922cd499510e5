"""`regard caption`, `classify` and `look` with runs of models that look at pictures, as their users meet them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from regard.decoding import Beam
from regard.inspection import PictureClassifier
from regard.pictures import SceneCorpus, captioned, read_image
from regard.runs import Run
from regard.training import read_recipe, train as train_run
from regard.training.tasks import TASKS
from test_cli_fill import Command

SMALL = ["data.examples=40", "data.valid=10", "train.steps=2", "evaluate.every=2", "train.threads=1"]
SIZE = ["model.width=8", "model.layers=1", "model.patch=8", "model.heads=2"]
RECIPES = ("captioner", "transformer-captioner", "image-classifier-registers", "phrase-pointer")


@pytest.fixture
def regard(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hardly trained runs of every kind of model that looks at pictures, and three pictures, one of them large."""
    folder = tmp_path_factory.mktemp("runs")
    for name in RECIPES:
        train_run(read_recipe(name, [*SMALL, *SIZE], tasks=TASKS), folder / name, notify=lambda text: None)
    for number, example in enumerate(SceneCorpus(captioned, 3, "test")):
        image = Image.fromarray(example.scene.draw())
        (image if number else image.resize((300, 200))).save(folder / f"{number}.png")
    return folder


def paths(runs: Path) -> list[str]:
    return [str(runs / f"{number}.png") for number in range(3)]


@pytest.mark.parametrize("name", ["captioner", "transformer-captioner"])
def test_a_caption_of_each_picture(name: str, runs: Path, regard: Command) -> None:
    code, out, _ = regard("caption", runs / name, *paths(runs), "--max-length", 5)
    assert code == 0
    captioner = Run.open(runs / name).captioner()
    pictures = [read_image(path) for path in paths(runs)]
    expected = [best.text for (best,) in captioner(pictures, None, captioner.rules(5))]
    assert out.splitlines() == [f"{path}\t{text}" for path, text in zip(paths(runs), expected, strict=True)]
    _, out, _ = regard("caption", runs / name, paths(runs)[0], "--max-length", 5, "--beam", 3, "--attention", "--json")
    told = json.loads(out)
    [[best]] = captioner(pictures[:1], Beam(3), captioner.rules(5), attention=True)
    assert told["caption"] == best.text and told["log_prob"] == pytest.approx(sum(best.log_probs))
    assert len(told["attention"]) == len(told["tokens"]) == len(best.log_probs)
    assert sum(map(sum, told["attention"][0])) == pytest.approx(1)
    _, out, _ = regard("caption", runs / name, paths(runs)[0], "--max-length", 5, "--attention")
    assert all(" row " in line and line.endswith("%") for line in out.splitlines()[1:])


def test_the_class_of_each_picture(runs: Path, regard: Command) -> None:
    run = runs / "image-classifier-registers"
    code, out, _ = regard("classify", run, *paths(runs))
    assert code == 0 and len(out.splitlines()) == 3 and out.startswith(f"{paths(runs)[0]}\t")
    _, out, _ = regard("classify", run, paths(runs)[1], "--json")
    told, [found] = json.loads(out), PictureClassifier.of(run)([read_image(paths(runs)[1])])
    assert (told["label"], told["image"]) == (found.label, paths(runs)[1])
    assert told["probabilities"] == pytest.approx(found.probabilities) and len(found.probabilities) == 6


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("captioner", None, "decoder"),
        ("captioner", "the small red circle", "decoder"),
        ("transformer-captioner", "the small red circle", "decoder.1.cross"),
        ("image-classifier-registers", None, "encoder.blocks.0.self"),
        ("phrase-pointer", "the red circle", "pointer"),
    ],
)
def test_a_page_of_a_picture(
    name: str, text: str | None, place: str, runs: Path, tmp_path: Path, regard: Command
) -> None:
    given = [] if text is None else [text]
    out = tmp_path / "page.html"
    code, said, err = regard("look", runs / name, paths(runs)[0], *given, "-o", out, "--json")
    assert code == 0, err
    told = json.loads(said)
    assert place in {one["place"] for one in told["places"]} and out.stat().st_size > 10_000
    if text is not None and name != "phrase-pointer":
        assert told["axes"]["decoder output"][:-1] == text.split()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["caption", "image-classifier-registers", "0.png"], "expected a run of task 'captioning'"),
        (["caption", "captioner", "nothing.png"], "nothing.png: File not found"),
        (["classify", "image-classifier-registers"], "There is no image"),
        (["classify", "captioner", "a text"], "expected a run of task 'classification'"),
        (["look", "captioner", "a text"], "looks at pictures, and got a text. Give an image file"),
        (["look", "phrase-pointer", "0.png"], "A phrase pointer needs a phrase beside the picture"),
        (["look", "image-classifier-registers", "0.png", "a text"], "expected a picture alone"),
        (["look", "captioner", "recipe.png"], "recipe.png: This is not a PNG, JPEG or WebP image"),
        (["caption", "captioner"], "Missing argument"),
    ],
)
def test_each_mistake_is_one_sentence(words: list[str], said: str, runs: Path, monkeypatch, regard: Command) -> None:
    monkeypatch.chdir(runs)
    Path("recipe.png").write_text("task = 'captioning'")
    code, out, err = regard(*words)
    assert code == 2 and not out and said in " ".join(err.split())
