"""Runs as ONNX: graphs that say what the run says, for other batches than they were drawn with; and what is refused."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from regard.errors import RegardError
from regard.exports.onnx import check, export
from regard.exports.onnx.export_graph import Graph
from regard.models.gpt import GPT
from regard.models.transformer import Transformer
from regard.runs import Run
from regard.training.config.recipes import read_recipe
from regard.training.tasks import TASKS
from regard.training.train_run import train

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

SMALL = ["data.examples=60", "data.valid=4", "train.steps=1", "evaluate.every=1", "train.threads=1"]
SMALL += ["evaluate.generations=0", "evaluate.samples=0"]
TRANSLATOR = ["model.hidden=8", "model.encoder_dim=8", "model.width=8", "evaluate.monitor=loss"]
BERT = ["model.width=16", "model.layers=1", "model.heads=2"]
RUNS = {
    "masked": ("bert", [*BERT, "data.reviews=0.2"]),
    "classifier": ("classifier", ["model.width=8"]),
    "language": ("recurrent-lm", ["model.hidden=8", "model.width=8"]),
    "bahdanau": ("bahdanau", TRANSLATOR),
    "bert classifier": ("bert-classifier", [*BERT, "model.pooling=attention", "model.layer=mix"]),
    "bert tagger": ("elmo-tagger", ['model={kind="bert",width=16,layers=1,heads=2}']),
    "gru language": ("recurrent-lm", ["model.hidden=8", "model.width=8", "model.cell=gru", "model.layers=2"]),
    "rnn language": ("recurrent-lm", ["model.hidden=8", "model.width=8", "model.cell=rnn"]),
    "elmo": ("elmo", ["model.width=8"]),
    "luong": ("luong", TRANSLATOR),
    "luong, local-m": (
        "luong",
        [*TRANSLATOR, "model.window=local-m", "model.input_feeding=false", "model.half_width=2"],
    ),
    "luong, local-p": ("luong", [*TRANSLATOR, "model.window=local-p", "model.cell=lstm"]),
    "seq2seq": ("seq2seq", [*TRANSLATOR, "model.layers=2"]),
    "french": ("bahdanau", [*TRANSLATOR, "data.direction=fr-en"]),
}
QUICK = ("masked", "classifier")  # to draw a graph takes torch a few seconds: the others are tested at leisure


def trained(folder: Path, kind: str) -> Path:
    name, sets = RUNS[kind]
    train(read_recipe(name, [*SMALL, *sets], tasks=TASKS), folder, notify=lambda text: None)
    return folder


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """The run and the folder of the quick kinds."""
    return {kind: drawn(tmp_path_factory.mktemp("onnx"), kind) for kind in QUICK}


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return drawn(tmp_path_factory.mktemp("onnx"), "bahdanau")


def drawn(home: Path, kind: str) -> tuple[Path, Path]:
    run, told = trained(home / "run", kind), StringIO()
    with redirect_stdout(told):
        checked = export(run, home / "out")
    assert told.getvalue() == ""
    assert checked.checked == checked.equal >= 4
    return run, home / "out"


def session(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def about(folder: Path) -> dict:
    return json.loads((folder / "regard.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("rows", "length"), [(1, 1), (2, 3), (7, 23)])
def test_a_batch_of_any_size_is_read_as_the_run_reads_it(exported, rows: int, length: int) -> None:
    run, folder = exported["masked"]
    ids, lengths = torch.randint(0, 50, (rows, length)), torch.randint(1, length + 1, (rows,))
    segments = torch.randint(0, 2, (rows, length))
    given = {"ids": ids.numpy(), "lengths": lengths.numpy(), "segments": segments.numpy()}
    states, logits = session(folder / "model.onnx").run(["states", "logits"], given)
    model = Run.open(run).model()
    with torch.no_grad():
        ours = model.bert(ids, lengths, segments)
        words = model.lm_head(ours, model.bert.words)
    np.testing.assert_allclose(states, ours.numpy(), atol=1e-4)
    np.testing.assert_allclose(logits, words.numpy(), atol=1e-4)
    assert abs(states - model.bert(ids, lengths, 1 - segments).detach().numpy()).max() > 1e-3  # segments count


def test_padding_changes_nothing(exported) -> None:
    _, folder = exported["classifier"]
    graph, told = session(folder / "model.onnx"), about(folder)
    ids = np.random.default_rng(0).integers(0, 50, (1, 6))
    (alone,) = graph.run(["logits"], {"ids": ids, "lengths": np.array([6])})
    wide = np.pad(ids, ((0, 1), (0, 4)), constant_values=told["special"]["unknown"])
    both, _ = graph.run(["logits"], {"ids": wide, "lengths": np.array([6, 10])})[0]
    np.testing.assert_allclose(both, alone[0], atol=1e-5)
    assert alone.shape[1] == len(told["labels"]) == 2


def test_the_folder_says_what_a_program_must_know(exported) -> None:
    for _, folder in exported.values():
        told = about(folder)
        assert told["before"] == [told["special"]["cls"]] and told["after"] == [told["special"]["sep"]]
        told_right(folder)
    assert (told["kind"], told["model"], told["labels"]) == ("classification", "pooling", ["negative", "positive"])
    assert about(exported["masked"][1])["longest"] == 128


def told_right(folder: Path) -> None:
    told = about(folder)
    assert all((folder / told[name]).exists() for name in ("tokenizer", "target_tokenizer") if name in told)
    for file, names in told["graphs"].items():
        graph = session(folder / file)
        assert [one.name for one in graph.get_inputs()] == list(names["inputs"])
        assert [one.name for one in graph.get_outputs()] == names["outputs"]


@pytest.mark.long
def test_a_step_of_the_decoder_is_a_step_of_the_run(translator: tuple[Path, Path]) -> None:
    run, folder = translator
    told_right(folder)
    assert about(folder)["after"] == [about(folder)["special"]["end"]]
    model, ids, lengths = Run.open(run).model(), torch.randint(0, 50, (2, 9)), torch.tensor([9, 4])
    encoder, decoder = (session(folder / f"{name}.onnx") for name in ("encoder", "decoder"))
    names = [one.name for one in encoder.get_outputs()]
    state = dict(zip(names, encoder.run(None, {"ids": ids.numpy(), "lengths": lengths.numpy()}), strict=True))
    with torch.no_grad():
        standing = model.start(ids, lengths)
        for word in (torch.tensor([2, 2]), torch.tensor([5, 9])):
            said = dict(
                zip(
                    [one.name for one in decoder.get_outputs()],
                    decoder.run(None, {"word": word.numpy(), **state}),
                    strict=True,
                )
            )
            logs, weights, standing = model.step(standing, word)
            np.testing.assert_allclose(said["log_probs"], logs.numpy(), atol=1e-4)
            np.testing.assert_allclose(said["weights"], weights.numpy(), atol=1e-4)
            assert (said["weights"][1, 4:] == 0).all()
            state |= {name: said[f"next_{name}"] for name in state if f"next_{name}" in said}


def test_a_spoiled_weight_is_found(exported, tmp_path: Path) -> None:
    spoiled(*exported["classifier"], tmp_path, "model.onnx")
    (tmp_path / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(RegardError, match="onnxruntime cannot run the graph"):
        check(exported["classifier"][0], tmp_path)


@pytest.mark.long
def test_a_spoiled_weight_of_a_translator_is_found(translator: tuple[Path, Path], tmp_path: Path) -> None:
    spoiled(*translator, tmp_path, "decoder.onnx")


def spoiled(run: Path, folder: Path, copy: Path, file: str) -> None:
    """A copy of a folder is as good as the folder, until its largest matrix is changed a little."""
    for one in folder.iterdir():
        (copy / one.name).write_bytes(one.read_bytes())
    assert check(run, copy).equal >= 4
    graph = onnx.load(copy / file)
    floats = [one for one in graph.graph.initializer if one.data_type == onnx.TensorProto.FLOAT]
    largest = max(floats, key=lambda one: len(one.raw_data))
    values = onnx.numpy_helper.to_array(largest) + 0.05 * np.random.default_rng(0).normal(size=largest.dims)
    largest.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float32), largest.name))
    onnx.save(graph, copy / file)
    with pytest.raises(RegardError, match=r"(differ by|another token).*The graph and the run disagree"):
        check(run, copy)


def test_a_graph_that_fails_its_trial_is_not_left_behind(
    exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, folder = exported["classifier"]

    def copied(graph: Graph, out: Path, max_length: int | None) -> None:
        (out / graph.file).write_bytes((folder / graph.file).read_bytes())

    monkeypatch.setattr("regard.exports.onnx.write_graph", copied)
    monkeypatch.setattr("regard.exports.onnx.onnx_verify.TOLERANCE", -1.0)
    with pytest.raises(RegardError, match="logits of text 1 that differ by"):
        export(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_not_drawn_is_refused_in_words(exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, folder = exported["classifier"]
    with pytest.raises(RegardError, match=r"exists already\. Name a new folder"):
        export(run, folder)
    with pytest.raises(RegardError, match="is not a run"):
        export(tmp_path / "nothing", tmp_path / "out")
    for model in (GPT(9, 4, 1, 1, 3), Transformer.__new__(Transformer)):  # by what they are, whatever their sizes
        found = SimpleNamespace(model=model)
        monkeypatch.setattr("regard.exports.onnx.adapter", lambda run, require_attention, found=found: found)
        refused = rf"got a model of type {type(model).__name__}, expected a BERT .*`--to ctranslate2` or `--to hf`"
        with pytest.raises(RegardError, match=refused):
            export(run, tmp_path / "out")
    monkeypatch.setattr("regard.exports.onnx.find_spec", lambda name: None if name == "onnxscript" else name)
    with pytest.raises(RegardError, match=r"Missing packages: onnxscript.*pip install 'regard\[onnx\]'"):
        export(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.long
@pytest.mark.parametrize("kind", [kind for kind in RUNS if kind not in (*QUICK, "bahdanau")])
def test_every_other_kind_says_what_its_run_says(tmp_path: Path, kind: str) -> None:
    run = trained(tmp_path / "run", kind)
    checked = export(run, tmp_path / "out")
    assert checked.checked == checked.equal >= 4


@pytest.mark.long
def test_a_run_on_text_of_its_own_is_tried_with_random_tokens(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat .\nthe dog saw the cat .\n" * 30, encoding="utf-8")
    data = f'data={{kind="text",train="{tmp_path / "text.txt"}"}}'
    sets = [*SMALL[2:], data, "model.hidden=8", "model.width=8", "batches.lanes=2"]
    train(read_recipe("recurrent-lm", sets, tasks=TASKS), tmp_path / "run", notify=lambda text: None)
    assert export(tmp_path / "run", tmp_path / "out").equal == 6
