"""Rows of different lengths as one tensor."""

from __future__ import annotations

import torch

from regard.adapters.bert_inputs import padded


def test_rows_are_filled_up_on_the_right() -> None:
    ids, lengths = padded([(5, 6, 7), (8,), ()], 9, torch.device("cpu"))
    assert ids.tolist() == [[5, 6, 7], [8, 9, 9], [9, 9, 9]] and lengths.tolist() == [3, 1, 0]
