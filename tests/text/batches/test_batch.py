"""Batches as values: frozen, counted, movable."""

from dataclasses import FrozenInstanceError, fields

import pytest
import torch

from regard.text.batches.batch import LabelledBatch, TranslationBatch
from regard.text.batches.plan import Batches
from text.batches.batching import KINDS, assert_same


@pytest.mark.parametrize("name", sorted(KINDS))
def test_moving_moves_every_tensor_and_nothing_else(name):
    batch = next(iter(Batches(*KINDS[name], rank=0, ranks=2)))
    moved = batch.to("meta")
    for entry in fields(batch):
        before, after = getattr(batch, entry.name), getattr(moved, entry.name)
        if isinstance(before, torch.Tensor):
            assert after.device.type == "meta" and after.shape == before.shape and before.dtype == torch.int64
        else:
            assert after == before
    assert_same(batch, batch.to("cpu", non_blocking=True))
    with pytest.raises(FrozenInstanceError):
        batch.indices = None


def test_tokens_count_what_carries_loss():
    ones = torch.ones(3, 4, dtype=torch.long)
    lengths = torch.tensor([4, 2, 1])
    batch = TranslationBatch(lengths, ones, lengths, ones, ones, lengths)
    assert len(batch) == 3 and batch.tokens == batch.all_tokens == 7
    labelled = LabelledBatch(lengths, ones, lengths, ones, lengths, all_tokens=30)
    assert (labelled.tokens, labelled.all_tokens) == (3, 30)
