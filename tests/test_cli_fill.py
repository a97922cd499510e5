"""`regard fill`, `classify` and `embed` with runs of BERT, as their users meet them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import torch

from regard import cli
from regard.inspection.classify import Classifier
from regard.inspection.embeddings import Embedder
from regard.inspection.fill_mask import MaskFiller
from regard.runs import Run
from regard.training.config.recipes import read_recipe
from regard.training.tasks import TASKS
from regard.training.train_run import train

TEXT = "The old [MASK] did not see us [MASK]"
SMALL = ["data.examples=40", "data.valid=10", "train.steps=2", "evaluate.every=2", "train.threads=1"]
SIZE = ["model.layers=2", "model.width=16", "model.heads=2", "model.max_positions=60"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT, hardly pre-trained; classifiers that go on from it, one with a learned question; one without BERT."""
    folder = tmp_path_factory.mktemp("runs")
    start = [f"model.pretrained={folder / 'bert'}"]
    for name, recipe, sets in (
        ("bert", "bert", [*SIZE, "tokenizer.size=300"]),
        ("tuned", "bert-classifier", start),
        ("asked", "bert-classifier", [*start, "model.pooling=attention", "model.layer=mix", "model.finetune=false"]),
        ("plain", "classifier", ["model.width=8"]),
    ):
        train(read_recipe(recipe, [*SMALL, *sets], tasks=TASKS), folder / name, notify=lambda text: None)
    return folder


class Command:
    """Runs the command line in this process: exit code, what it printed, what it complained of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: object, given: str = "") -> tuple[int, str, str]:
        self.monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        self.monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = self.capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err


@pytest.fixture
def regard(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def test_the_likeliest_words_and_their_probabilities(runs: Path, regard: Command) -> None:
    code, out, err = regard("fill", runs / "bert", TEXT, "-k", 3)
    assert code == 0, err
    first, *masks = out.splitlines()
    assert len(masks) == 2 and "[MASK]" not in first and first.startswith("The old ")
    assert all(line.count("%") == 3 for line in masks)
    said = [json.loads(regard("fill", runs / "bert", source, "--json", given=TEXT + "\n")[1]) for source in (TEXT, "-")]
    assert said[0] == said[1] and said[0]["text"] == TEXT and len(said[0]["masks"]) == 2
    words = first.split()
    assert (words[2], words[7]) == tuple(mask["words"][0] for mask in said[0]["masks"])


def test_guesses_are_those_of_the_model_without_special_tokens(runs: Path) -> None:
    filler, model = MaskFiller.of(runs / "bert"), Run.open(runs / "bert").model()
    tokenizer = filler.adapter.tokenizer
    size, special = len(tokenizer), tokenizer.special
    (found,) = filler([TEXT], 10_000)
    assert [len(one.words) for one in found] == [size - len(special.all)] * 2
    assert all(sum(one.probabilities) == pytest.approx(1, abs=1e-4) for one in found)
    ids = tokenizer.encode(TEXT, specials=True).ids
    row = torch.tensor([[special.cls, *ids, special.sep]])
    place = torch.tensor([1 + ids.index(special.mask)])
    with torch.no_grad():
        shares = model(row, torch.tensor([row.size(1)]), None, place).logits[0].softmax(0)
    shares[sorted(special.all)] = 0
    best = int(shares.argmax())
    assert found[0].words[0] == tokenizer.decode([best])
    assert found[0].probabilities[0] == pytest.approx(float(shares[best] / shares.sum()), rel=1e-4)
    alone, together = filler([TEXT]), filler([TEXT, "[MASK] sat in the old house of the king", TEXT])
    for one, other in zip(alone[0], together[2], strict=True):
        assert one.words == other.words and one.probabilities == pytest.approx(other.probabilities, rel=1e-4)


@pytest.mark.parametrize("name", ["tuned", "asked", "plain"])
def test_a_classifier_names_the_label(name: str, runs: Path, regard: Command, tmp_path: Path) -> None:
    texts = ["the film was good", "the meal was not bad"]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    code, out, err = regard("classify", runs / name, tmp_path / "in.txt")
    assert code == 0, err
    expected = Classifier.of(runs / name)(texts)
    assert [line.split()[0] for line in out.splitlines()] == [one.label for one in expected]
    _, told, _ = regard("classify", runs / name, texts[0], "--json")
    assert json.loads(told)["probabilities"] == pytest.approx(expected[0].probabilities, rel=1e-4)
    assert sum(expected[0].probabilities.values()) == pytest.approx(1, abs=1e-5)


def test_two_texts_are_read_as_a_pair(runs: Path, regard: Command) -> None:
    use = Classifier.of(runs / "tuned")
    [one], [pair], [turned] = use(["the film"]), use(["the film"], ["was good"]), use(["was good"], ["the film"])
    assert len({tuple(found.probabilities.values()) for found in (one, pair, turned)}) == 3
    code, out, _ = regard("classify", runs / "tuned", "the film", "was good", "--json")
    assert code == 0 and json.loads(out)["probabilities"] == pytest.approx(pair.probabilities)


def test_words_have_states_and_texts_are_pooled(runs: Path, regard: Command, tmp_path: Path) -> None:
    texts = ["he took a train .", "he likes to train"]
    embedder = Embedder.of(runs / "bert")
    every = embedder.embed(texts, "all")
    assert [one.vectors.shape for one in every] == [(5, 3, 16), (4, 3, 16)]
    [train_1, train_2] = every[0].vectors[3], every[1].vectors[3]
    assert (train_1[1:] - train_2[1:]).abs().amax(-1).min() > 1e-3  # the same word, another context
    special, ids = embedder.adapter.tokenizer.special, embedder.adapter.tokenizer.encode(texts[0]).ids
    row = torch.tensor([[special.cls, *ids, special.sep]])
    states = embedder.adapter.encoder.states(row, torch.tensor([row.size(1)]))[0]
    for by, expected in (("cls", states[2, 0]), ("mean", states[2].mean(0))):
        torch.testing.assert_close(embedder.pool(texts, by, 2)[0].vectors[0], expected)
    code, out, err = regard("embed", runs / "bert", "-", "--pool", "mean", given="\n".join(texts))
    assert code == 0, err
    assert out.splitlines()[0] == "2 texts, 16 numbers each"
    code, out, _ = regard("embed", runs / "asked", texts[0], "--pool", "attention", "--json")
    vector = torch.tensor(json.loads(out)["vector"])
    model = Run.open(runs / "asked").model()
    with torch.no_grad():
        length = torch.tensor([row.size(1)])
        torch.testing.assert_close(vector, model.pooler(model.features(row, length), length)[0])
    code, out, _ = regard("embed", runs / "bert", "-", "--pool", "cls", "-o", tmp_path / "v.npz", given="a\nb")
    assert code == 0 and out.strip().endswith("2 texts, 16 numbers each")


@pytest.mark.parametrize(
    ("verb", "name", "arguments", "said"),
    [
        ("fill", "bert", ["no mask here"], "There is no mask in 'no mask here'. Put [MASK]"),
        ("fill", "bert", ["[MASK] " * 70], "got 72 tokens in text 1, [CLS] and [SEP] included, expected at most 60"),
        ("fill", "plain", [TEXT], "a run of task 'classification', expected a run of task 'masked'"),
        ("fill", "nowhere", [TEXT], "is not a run"),
        ("fill", "bert", ["-"], "The text is empty"),
        ("classify", "bert", ["a text"], "a run of task 'masked', expected a run of task 'classification'"),
        ("classify", "tuned", ["old " * 70], "expected at most 60, the positions of this model"),
        ("classify", "tuned", ["-"], "The text is empty"),
        ("embed", "bert", ["old " * 70], "expected at most 60"),
        ("embed", "bert", ["a", "--pool", "attention"], "This run has no attention pooling"),
        ("embed", "bert", ["a", "--pool", "max"], "Unknown pooling 'max'. Known: attention, cls, mean"),
        ("embed", "bert", ["a", "--layer", "5"], "got layer 5, expected 0 to 2"),
        ("embed", "bert", ["a", "--layer", "all", "--pool", "mean"], "Pooling takes one layer, not all"),
        ("embed", "plain", ["a"], "Use a run of ELMo or BERT"),
    ],
)
def test_each_mistake_is_one_sentence(
    verb: str, name: str, arguments: list[str], said: str, runs: Path, regard: Command
) -> None:
    code, _, err = regard(verb, runs / name, *arguments)
    assert code == 2 and said in err and len(err.splitlines()) == 1, err
