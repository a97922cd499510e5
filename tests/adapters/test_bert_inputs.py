"""Rows of different lengths as one tensor."""

from __future__ import annotations

import pytest
import torch

from regard.adapters.bert_inputs import add_special_tokens, build_bert_inputs, pad_ids, segment_ids
from regard.errors import SettingError
from regard.text.tokenizers.specials import SpecialIds


def test_rows_are_padded_on_the_right() -> None:
    ids, lengths = pad_ids([(5, 6, 7), (8,), ()], 9, torch.device("cpu"))
    assert ids.tolist() == [[5, 6, 7], [8, 9, 9], [9, 9, 9]] and lengths.tolist() == [3, 1, 0]


def test_texts_with_special_tokens() -> None:
    assert add_special_tokens("[CLS]", "[SEP]", [["a", "b"], ["c"]]) == ["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"]
    assert segment_ids([["a", "b"], ["c"]]) == [0, 0, 0, 0, 1, 1]
    assert add_special_tokens(1, 2, [[]]) == [1, 2] and segment_ids([[]]) == [0, 0]


def test_rows_with_second_texts_or_without() -> None:
    special = SpecialIds(pad=0, cls=1, sep=2)
    rows = build_bert_inputs([[5, 6], [7]], [[8], None], special, 6, "test")
    assert rows.inputs.tolist() == [[1, 5, 6, 2, 8, 2], [1, 7, 2, 0, 0, 0]] and rows.lengths.tolist() == [6, 3]
    assert rows.segments.tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]]
    with pytest.raises(SettingError, match=r"6 tokens in text 1, .*expected at most 5"):
        build_bert_inputs([[5, 6], [7]], [[8], None], special, 5, "test")
