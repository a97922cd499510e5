"""When it goes wrong: batches that can be looked at again, and errors that say what to lower."""

from pathlib import Path

import pytest
import torch

from regard.text.batches.batch import LabelledBatch, MaskedBatch
from regard.training.failures import is_out_of_memory, out_of_memory_error, read_batch, save_batch
from regard.training.tasks.classification import ClassificationRecipe
from training.little import little, reading, recipe


@pytest.mark.parametrize("make", [little, reading])
def test_a_batch_comes_back_as_it_was(make, tmp_path: Path) -> None:
    batches = iter(make(rank=0, ranks=2).train)
    next(batches)
    batch = next(batches)
    save_batch(batch, tmp_path / "faults" / "batch.safetensors")
    again = read_batch(tmp_path / "faults" / "batch.safetensors")
    assert type(again) is type(batch)
    for name, value in vars(batch).items():
        found = getattr(again, name)
        assert torch.equal(found, value) if isinstance(value, torch.Tensor) else found == value, name


def test_a_batch_without_some_of_its_parts_comes_back(tmp_path: Path) -> None:
    empty = torch.zeros(0, dtype=torch.int64)
    batch = MaskedBatch(empty, torch.zeros(0, 1, dtype=torch.int64), empty, empty.reshape(0, 1), empty, empty)
    save_batch(batch, tmp_path / "batch.safetensors")
    again = read_batch(tmp_path / "batch.safetensors")
    assert isinstance(again, MaskedBatch) and again.next is None and again.inputs.shape == (0, 1)


def test_what_memory_errors_look_like() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory."))
    assert not is_out_of_memory(RuntimeError("shapes cannot be multiplied"))


def test_the_error_names_the_shape_and_what_to_lower() -> None:
    rows = torch.zeros(7, dtype=torch.int64)
    batch = LabelledBatch(rows, torch.zeros(7, 31, dtype=torch.int64), rows, torch.zeros(7, 31), rows)
    said = str(out_of_memory_error([batch], ClassificationRecipe(name="mine")))
    assert "a LabelledBatch of 7 rows (inputs 7 x 31" in said
    assert "tokens=4096" in said and "train.accumulate" in said and "bf16" in said
    assert "bf16" not in str(out_of_memory_error([batch], recipe(train={"precision": "bf16"})))
