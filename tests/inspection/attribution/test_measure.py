"""Attribution maps by name: `view.measure`, `regard look --measure`, and what they refuse."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import regard
from regard.cli import main
from regard.errors import SettingError
from regard.inspection.attribution.measure import FLOW_MAX_TOKENS, MAX_TOKENS, MEASURES
from regard.inspection.attribution.rollout import rollout, rollout_layers
from regard.inspection.record.record import Record
from regard.page.payload import pack_payload, unpack_payload
from regard.page.view import View
from regard.runs import Run
from regard.training import TASKS, read_recipe, train

TEXT = "He hit me with a pie ."
SMALL = ["data.examples=60", "data.valid=4", "train.steps=1", "evaluate.every=1", "train.threads=1", "model.width=8"]
RECIPES = {
    "gpt": ["model.layers=2", "model.heads=2"],
    "transformer": ["model.layers=2", "model.heads=2", "evaluate.monitor=loss"],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("measured")
    for name, more in RECIPES.items():
        train(read_recipe(name, [*SMALL, *more], tasks=TASKS), folder / name, notify=lambda text: None)
    return {name: folder / name for name in RECIPES}


@pytest.fixture(scope="module")
def views(runs: dict[str, Path]) -> dict[str, View]:
    return {name: regard.look(runs[name], TEXT, "il m'a entarté ." if name == "transformer" else None) for name in runs}


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_measure_gives_maps_of_tokens(recipe: str, name: str, views: dict[str, View]) -> None:
    record = views[recipe].record
    found = views[recipe].measure(name)
    assert found
    for one in found:
        assert one.values.shape == tuple(map(len, one.axes)) and np.isfinite(one.values).all()
        assert [len(record.axes[side].tokens) for side in (one.rows, one.cols)] == [len(axis) for axis in one.axes]
    if name not in ("rollout", "flow", "relevance"):
        assert [one.place for one in found] == [place.name for place in record.places]
    again = views[recipe].measure(name)
    assert all(np.array_equal(one.values, other.values) for one, other in zip(found, again, strict=True))


def test_the_maps_are_those_of_the_functions(views: dict[str, View]) -> None:
    record = views["gpt"].record
    (found,) = views["gpt"].measure("rollout")
    layers = rollout_layers(record)
    np.testing.assert_array_equal(found.values, rollout(layers)[0][0].float().numpy())
    np.testing.assert_allclose(found.values.sum(1), 1, atol=1e-5)
    (first, *_) = views["gpt"].measure("norms")
    assert np.all(first.values[np.triu_indices(len(first.values), 1)] == 0), (
        "a causal model hears nothing of the future"
    )


def test_gradients_are_of_the_models_output(runs: dict[str, Path], views: dict[str, View]) -> None:
    """The map of a record that kept gradients is the one that a second run of the model gives."""
    kept = regard.look(runs["gpt"], TEXT, gradient=True)
    assert all(place.stored_gradients is not None for place in kept.record.places)
    for one, other in zip(kept.measure("gradients"), views["gpt"].measure("gradients"), strict=True):
        np.testing.assert_allclose(one.values, other.values, atol=1e-3 * np.abs(other.values).max())


def test_tokens_are_pooled_to_words(views: dict[str, View]) -> None:
    (pieces,), (words,) = (views["gpt"].measure("rollout", words=on) for on in (False, True))
    assert len(words.axes[1]) <= len(pieces.axes[1]) and words.values.shape == tuple(map(len, words.axes))
    np.testing.assert_allclose(words.values.sum(1), 1, atol=1e-5)


def test_what_is_stored_is_read_back_and_shown(runs: dict[str, Path], views: dict[str, View], tmp_path: Path) -> None:
    view = regard.look(runs["gpt"], TEXT, measures=["rollout", "value-zeroing"])
    assert {one.name for one in view.record.measures} == {"rollout", "value-zeroing"}
    back = View(Record.load(view.save(tmp_path / "a.regard")))
    for name in ("rollout", "value-zeroing"):
        for one, other in zip(back.measure(name), views["gpt"].measure(name), strict=True):
            np.testing.assert_allclose(one.values, other.values, atol=1e-6)
    shown, _ = unpack_payload(pack_payload(view.record))
    assert {one["name"] for one in shown["measures"]} == {"rollout", "value-zeroing"}
    assert view.save(tmp_path / "a.html").read_text().startswith("<!doctype html>")


def test_the_command_line_stores_them(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*more: str) -> int:
        monkeypatch.setattr(
            "sys.argv", ["regard", "look", str(runs["gpt"]), TEXT, "-o", str(tmp_path / "a.json"), *more]
        )
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    assert command("--measure", "rollout", "--measure", "norms") == 0
    told = json.loads((tmp_path / "a.json").read_text())
    assert {one["name"] for one in told["measures"]} == {"rollout", "norms"}
    capsys.readouterr()
    assert command("--measure", "rolout") != 0
    assert "rollout" in capsys.readouterr().err


def test_unknown_and_unusable_measures_are_refused(views: dict[str, View], monkeypatch: pytest.MonkeyPatch) -> None:
    bare = View(views["gpt"].record)
    with pytest.raises(SettingError, match="value-zeroing"):
        bare.measure("value-zeroing")
    with pytest.raises(SettingError, match="norms"):
        bare.measure("norm")
    monkeypatch.setattr("regard.inspection.attribution.measure.MAX_TOKENS", 3)
    with pytest.raises(SettingError, match="at most 3"):
        bare.measure("rollout")
    assert FLOW_MAX_TOKENS < MAX_TOKENS


class Letters:
    """A tokenizer of someone else's."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) % 32 for letter in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(96 + number) for number in ids)


class Encoder(nn.Module):
    """A module of someone else's, which says nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(32, 8)
        self.layer = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        found: Tensor = self.layer(x, x, x)[0]
        return found


def test_a_model_that_predicts_nothing_has_no_gradients() -> None:
    torch.manual_seed(0)
    view = regard.look(Encoder().eval(), "abcde", tokenizer=Letters())
    (found,) = view.measure("rollout")
    assert found.values.shape == (5, 5)
    with pytest.raises(SettingError, match="no logits"):
        view.measure("gradients")


@pytest.mark.parametrize("name", ["rollout", "gradients", "value-zeroing"])
def test_a_model_in_training_mode_is_measured_without_dropout_and_restored(
    name: str, runs: dict[str, Path], views: dict[str, View]
) -> None:
    model = regard.load(runs["gpt"])
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
    model.train()
    tokenizer = Run.open(runs["gpt"]).tokenizer
    view = regard.look(model, TEXT, tokenizer=tokenizer)
    for one, other in zip(view.measure(name), views["gpt"].measure(name), strict=True):
        np.testing.assert_array_equal(one.values, other.values)
    assert all(module.training for module in model.modules())
