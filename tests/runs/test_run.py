"""A run is a folder that is read once; one whose training was interrupted serves from its newest whole checkpoint."""

import shutil
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import regard
from regard.cli import main
from regard.errors import CheckpointError, RunError, RunWarning
from regard.runs import Run
from regard.runs.checkpoint_reader import Checkpoint, checkpoint_at
from regard.runs.weights import weights_of
from regard.training import TASKS, read_recipe, train

SMALL = [
    "data.examples=200",
    "data.valid=8",
    "model.width=8",
    "train.steps=4",
    "train.threads=1",
    "evaluate.every=4",
    "checkpoint.every=2",
    "checkpoint.keep_last=2",
]
AVERAGES = {
    "none": [],
    "ema": ["weight_average.kind=ema", "weight_average.decay=0.5"],
    "last": ["weight_average.kind=last"],
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A classifier for each kind of average."""
    folder = tmp_path_factory.mktemp("finished")
    for name, more in AVERAGES.items():
        train(read_recipe("classifier", [*SMALL, *more], tasks=TASKS), folder / name, notify=lambda text: None)
    return {name: folder / name for name in AVERAGES}


def interrupted(finished: Path, folder: Path) -> Path:
    """The same run before its weights were written."""
    copy = shutil.copytree(finished, folder / "run")
    (copy / "model.safetensors").unlink()
    return copy


def weights(run: Run) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in weights_of(run.model()).items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("average", AVERAGES)
def test_a_finished_run_takes_the_weights_that_training_kept(average: str, finished: dict[str, Path]) -> None:
    run = Run.open(finished[average])
    assert run.provenance.path.name == "model.safetensors" and run.provenance.step is None
    with warnings.catch_warnings():
        warnings.simplefilter("error", RunWarning)
        model = run.model()
    assert run.model() is model and not model.training
    assert Run.open(run) is run


@pytest.mark.parametrize("average", AVERAGES)
def test_an_interrupted_run_takes_its_newest_checkpoint_and_says_so(
    average: str, finished: dict[str, Path], tmp_path: Path
) -> None:
    run = Run.open(interrupted(finished[average], tmp_path))
    assert run.provenance.step == 4
    with pytest.warns(RunWarning, match=r"weights of step 4, from state/step-00000004: training had not finished"):
        got = weights(run)
    kept = checkpoint_at(run.path / "state", 4).tensors("average." if average == "ema" else "weights.")
    assert same(got, {name: kept[name] for name in got})
    whole = weights(Run.open(finished[average]))
    assert same(got, whole) == (average != "last"), "the last step's are final, but not the average of several"
    assert ("not made yet" in run.provenance.note) == (average == "last")


def test_a_damaged_checkpoint_is_passed_over_and_named(finished: dict[str, Path], tmp_path: Path) -> None:
    folder = interrupted(finished["none"], tmp_path)
    hurt = next((folder / "state" / "step-00000004" / "tensors").glob("*.safetensors"))
    hurt.write_bytes(hurt.read_bytes()[:-1] + b"\x00")
    before = sorted(path.name for path in (folder / "state").iterdir())
    with pytest.warns(RunWarning, match=r"of step 2, .*; the checkpoint of step 4 is damaged"):
        Run.open(folder).model()
    assert sorted(path.name for path in (folder / "state").iterdir()) == before, "reading moves nothing"


def test_a_run_without_weights_is_refused(finished: dict[str, Path], tmp_path: Path) -> None:
    folder = interrupted(finished["none"], tmp_path)
    shutil.rmtree(folder / "state")
    with pytest.raises(CheckpointError, match=r"nor an undamaged checkpoint.*--resume"):
        Run.open(folder).model()
    with pytest.raises(RunError, match="is not a run"):
        Run.open(tmp_path / "nowhere")


def test_load_and_the_command_line_use_it(
    finished: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = interrupted(finished["none"], tmp_path)
    with pytest.warns(RunWarning, match="step 4"):
        model = regard.load(folder)
    assert same(weights_of(model), weights(Run.open(finished["none"])))
    monkeypatch.setattr("sys.argv", ["regard", "classify", str(folder), "what a lovely film ."])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert not ended.value.code and said.out
    assert "weights of step 4" in said.err and "Traceback" not in said.err


def test_shards_are_joined(tmp_path: Path) -> None:
    whole = torch.arange(12.0).view(4, 3)
    (tmp_path / "tensors").mkdir()
    for number, (part, offsets) in enumerate([(whole[:2], "[0, 0]"), (whole[2:], "[2, 0]")]):
        told = {"DCP_SHARDING_INFO": f'{{"weights.w": {{"saved_offsets": {offsets}}}}}'}
        save_file({"weights.w": part.contiguous()}, tmp_path / "tensors" / f"{number}.safetensors", told)
    checkpoint = Checkpoint(tmp_path, 1)
    assert torch.equal(checkpoint.tensors("weights.")["w"], whole)
    (tmp_path / "tensors" / "0.safetensors").unlink()
    with pytest.raises(CheckpointError, match="Some shards of w are missing"):
        checkpoint.tensors("weights.")
