"""`regard embed` and the call behind it: words and their vectors, layers, pieces, files without pickles, refusals."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from regard import cli
from regard.adapters.encoder import ELMoAdapter
from regard.inspection.embeddings import Embedder
from regard.models.char_cnn import CharCNN, WordTable
from regard.models.elmo import BiLSTMStack, ELMo, Tagger
from regard.text.tokenizers.char_ids import spell_vocabulary
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.trainers import BPE, WordLevel
from regard.training.config.recipes import read_recipe
from regard.training.tasks import TASKS
from regard.training.train_run import train

TEXT = "he took a train Yellenish"
SMALL = ["data.examples=40", "data.valid=0", "train.steps=1", "model.width=8", "train.threads=1"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One step of three recipes, as the command line trains them."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("elmo", "elmo-tagger", "classifier"):
        train(read_recipe(name, SMALL, tasks=TASKS), folder / name, notify=lambda text: None)
    return {name: folder / name for name in ("elmo", "elmo-tagger", "classifier")}


class Command:
    """Runs the command line in this process: its exit code, what it printed, what it complained."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: object, given: str = "") -> tuple[int, str, str]:
        self.monkeypatch.setattr(sys, "argv", ["regard", "embed", *map(str, arguments)])
        self.monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = self.capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err


@pytest.fixture
def embed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.mark.parametrize("name", ["elmo", "elmo-tagger"])
def test_a_summary_names_each_word_and_its_nearest(name: str, runs: dict[str, Path], embed: Command) -> None:
    code, out, err = embed(runs[name], TEXT)
    assert code == 0, err
    first, *lines = out.splitlines()
    assert first == "5 words, 16 numbers each"
    assert [line.split()[0] for line in lines] == TEXT.split()
    assert all(word in TEXT.split() and -1 <= float(cosine) <= 1 for _, cosine, word in map(str.split, lines))


def test_json_is_what_the_call_gives(runs: dict[str, Path], embed: Command, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text(f"{TEXT}\n\na train\n", encoding="utf-8")
    said = [embed(runs["elmo"], source, "--json", given=file.read_text()) for source in (file, "-")]
    assert said[0] == said[1] and said[0][0] == 0
    told = [json.loads(line) for line in said[0][1].splitlines()]
    expected = Embedder.of(runs["elmo"]).embed([TEXT, "a train"])
    assert [one["words"] for one in told] == [TEXT.split(), ["a", "train"]]
    for one, other in zip(told, expected, strict=True):
        torch.testing.assert_close(torch.tensor(one["vectors"]), other.vectors)


@pytest.mark.parametrize("layer", ["2", "mix", "all"])
@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_files_hold_words_texts_and_vectors(ending, layer, runs: dict[str, Path], embed: Command, tmp_path) -> None:
    path = tmp_path / f"vectors.{ending}"
    code, out, err = embed(runs["elmo"], "-", "--layer", layer, "-o", path, given=f"{TEXT}\na train\n")
    assert code == 0, err
    assert "7 words of 2 texts" in out
    if ending == "npz":
        with np.load(path, allow_pickle=False) as file:
            words, texts, vectors = file["words"].tolist(), file["texts"], file["vectors"]
    else:
        with safe_open(path, framework="np") as file:
            words = json.loads(file.metadata()["words"])
            texts, vectors = file.get_tensor("texts"), file.get_tensor("vectors")
    assert words == [*TEXT.split(), "a", "train"] and texts.tolist() == [0] * 5 + [1] * 2
    chosen = int(layer) if layer.isdecimal() else layer
    expected = torch.cat([one.vectors for one in Embedder.of(runs["elmo"]).embed([TEXT, "a train"], chosen)])
    assert vectors.shape == ((7, 3, 16) if layer == "all" else (7, 16))
    np.testing.assert_array_equal(vectors, expected.numpy())


def elmo(tokenizer: Tokenizer) -> Embedder:
    torch.manual_seed(0)
    return Embedder(
        ELMoAdapter(ELMo(WordTable(len(tokenizer), 4, tokenizer.special.need("unknown")), 2).eval(), tokenizer)
    )


def test_a_word_has_the_mean_of_its_pieces() -> None:
    tokenizer = Tokenizer.train(BPE(24), ["a train tram rain", "strain"])
    embedder, text = elmo(tokenizer), "a strain tram"
    encoding = tokenizer.encode(text)
    assert len(encoding.ids) > 3
    ids = torch.tensor([[tokenizer.special.cls, *encoding.ids, tokenizer.special.sep]])
    states = embedder.adapter.encoder.states(ids, torch.tensor([ids.size(1)]))[0, :, 1:-1]  # without the frame
    (found,) = embedder.embed([text], "all")
    assert found.words == ("a", "strain", "tram")
    for number in range(3):
        pieces = [at for at, word in enumerate(encoding.words) if word == number]
        torch.testing.assert_close(found.vectors[number], states[:, pieces].mean(1).detach())


def test_company_does_not_matter_and_layers_are_those_of_all() -> None:
    tokenizer = Tokenizer.train(WordLevel(20), [TEXT])
    embedder = elmo(tokenizer)
    texts = ["a train", TEXT, "", "he"] * 10  # more than are read at once
    together = embedder.embed(texts, "all")
    assert [len(one.words) for one in together[:4]] == [2, 5, 0, 1]
    for text, one in zip(texts, together, strict=True):
        torch.testing.assert_close(embedder.embed([text], "all")[0].vectors, one.vectors)
        torch.testing.assert_close(embedder.embed([text], 1)[0].vectors, one.vectors[:, 1])
        torch.testing.assert_close(embedder.embed([text])[0].vectors, one.vectors.mean(1))


def test_a_tagger_mixes_as_it_has_learned() -> None:
    tokenizer = Tokenizer.train(WordLevel(20), [TEXT])
    torch.manual_seed(0)
    model = Tagger(BiLSTMStack(WordTable(len(tokenizer), 4, 1), 2), 3).eval()
    with torch.no_grad():
        model.mix.scores.copy_(torch.tensor([0.0, 1.0, 3.0]))
    embedder = Embedder(ELMoAdapter(model, tokenizer))
    every, mixed = (embedder.embed([TEXT], layer)[0].vectors for layer in ("all", "mix"))
    torch.testing.assert_close(mixed, torch.einsum("l,nld->nd", model.mix.weights.detach(), every))


def test_unknown_words_are_read_by_their_letters() -> None:
    tokenizer = Tokenizer.train(WordLevel(20), ["a train"])
    torch.manual_seed(0)
    words = CharCNN(spell_vocabulary(tokenizer), 4, tokenizer.special.need("unknown"))
    embedder = Embedder(ELMoAdapter(ELMo(words, 1).eval(), tokenizer))
    (found,) = embedder.embed(["Yellen Möbius Yellen"], 0)
    torch.testing.assert_close(found.vectors[0], found.vectors[2])
    assert (found.vectors[0] - found.vectors[1]).abs().max() > 1e-3
    assert found.nearest()[0][0] == 2 and found.nearest()[0][1] == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("elmo", TEXT, "--layer", "7"), "got layer 7, expected 0 to 2, mix or all"),
        (("elmo", TEXT, "--layer", "top"), "got --layer top, expected a number, mix or all"),
        (("elmo", TEXT, "-o", "vectors.pt"), "a file that ends in .npz or .safetensors"),
        (("elmo", "-"), "The text is empty"),
        (("elmo", TEXT, "-o", "no/folder.npz"), "Could not write no/folder"),
        (("elmo", TEXT, "-o", "no/folder.safetensors"), "Could not write no/folder"),
        (("classifier", TEXT), "has no layers of hidden states. Use a run of ELMo or BERT"),
        (("nowhere", TEXT), "is not a run"),
    ],
)
def test_each_mistake_is_one_sentence(
    arguments: tuple[str, ...],
    said: str,
    runs: dict[str, Path],
    embed: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path,
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *rest = arguments
    code, _, err = embed(runs.get(name, Path(name)), *rest)
    assert code == 2 and said in err and len(err.splitlines()) == 1, err
