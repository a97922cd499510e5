"""Weights as a file: each tensor once, and only into a model they fit."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from regard.errors import CheckpointError
from regard.models.gpt import GPT
from regard.runs.weights import load_weights, save_weights, weights_of


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.out.weight = self.words.weight
        self.register_buffer("kept", torch.arange(2.0))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)


def test_tied_weights_are_kept_once_and_come_back_tied(tmp_path: Path) -> None:
    model, other = Tied(), Tied()
    assert set(weights_of(model)) == {"words.weight", "kept"}
    save_weights(weights_of(model), tmp_path / "model.safetensors")
    load_weights(other, tmp_path)
    assert other.out.weight is other.words.weight
    assert torch.equal(other.out.weight, model.words.weight)


def test_a_model_takes_only_its_own(tmp_path: Path) -> None:
    save_weights(weights_of(GPT(11, 8, 1, 2, 4)), tmp_path / "small.safetensors")
    for model, words in (
        (GPT(12, 8, 1, 2, 4), "vocabulary of 11, the tokenizer of this model has 12"),
        (GPT(11, 16, 1, 2, 4), "a model of another size"),
        (GPT(11, 8, 2, 2, 4), "Weights are missing: decoder.1"),
        (Tied(), "Weights are missing"),
    ):
        before = {name: tensor.clone() for name, tensor in weights_of(model).items()}
        with pytest.raises(CheckpointError, match=words):
            load_weights(model, tmp_path / "small.safetensors")
        assert all(torch.equal(before[name], tensor) for name, tensor in weights_of(model).items())


def test_weights_with_more_than_the_model_has_are_refused(tmp_path: Path) -> None:
    save_file({**weights_of(Tied()), "more": torch.zeros(1)}, tmp_path / "more.safetensors")
    with pytest.raises(CheckpointError, match="Unknown weights: more"):
        load_weights(Tied(), tmp_path / "more.safetensors")


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"Could not read the weights"):
        load_weights(Tied(), tmp_path / "nothing.safetensors")
    torch.save({}, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match="never opened"):
        load_weights(Tied(), tmp_path / "model.pt")


def test_other_libraries_read_the_file(tmp_path: Path) -> None:
    save_weights({"a": torch.ones(2, 2).t()}, tmp_path / "one.safetensors")
    assert torch.equal(load_file(tmp_path / "one.safetensors")["a"], torch.ones(2, 2))
