"""Batches of the plain tasks, row by row against what the columns hold; what max_length truncates is counted."""

import numpy as np
import pytest

from regard.errors import SettingError
from regard.text.batches.collate import AnswerCollator, LabelCollator, TagCollator, TranslationCollator
from regard.text.batches.seeded_rng import Epoch
from regard.text.examples import IGNORED
from regard.text.store.columns import Columns, RaggedArray
from regard.text.tokenizers.specials import SpecialIds
from text.batches.batching import SPECIAL, numbered

EPOCH = Epoch(0)
ROWS = np.array([2, 0])


def padded(row, width, pad=0):
    return row + [pad] * (width - len(row))


def test_translation():
    columns = Columns({"source": numbered([2, 3, 4]), "target": numbered([5, 1, 2])})
    collate = TranslationCollator(columns, SPECIAL)
    batch = collate(ROWS, EPOCH)
    x, y = ([columns[side][row].tolist() for row in ROWS] for side in ("source", "target"))
    assert batch.source.tolist() == [padded([*row, SPECIAL.end], 5) for row in x]
    assert batch.target_in.tolist() == [padded([SPECIAL.start, *row], 6) for row in y]
    assert batch.target_out.tolist() == [padded([*row, SPECIAL.end], 6, IGNORED) for row in y]
    assert batch.source_lengths.tolist() == [5, 3] and batch.target_lengths.tolist() == [3, 6]
    assert collate.lengths.tolist() == [[3, 6], [4, 2], [5, 3]]
    assert batch.indices.tolist() == [2, 0] and batch.tokens == 9 and collate.truncated == 0


def test_translation_between_two_tokenizers_and_within_a_max_length():
    columns = Columns({"source": numbered([2, 3, 9]), "target": numbered([5, 1, 2])})
    collate = TranslationCollator(columns, SpecialIds(pad=0, end=3), SpecialIds(pad=20, start=21, end=22), max_length=4)
    batch = collate(np.arange(3), EPOCH)
    assert collate.truncated == 2 and collate.lengths.max() == 4
    assert batch.source[2].tolist() == [*columns["source"][2][:3].tolist(), 3]
    assert batch.target_in.tolist() == [
        [21, *columns["target"][0][:3].tolist()],
        [21, *columns["target"][1].tolist(), 20, 20],
        [21, *columns["target"][2].tolist(), 20],
    ]
    assert batch.target_out[:, -1].tolist() == [22, IGNORED, IGNORED]


def test_labels_of_one_text_and_of_two():
    label = RaggedArray.of([[7], [8], [9]])
    one = Columns({"text": numbered([2, 3, 4]), "label": label})
    batch = LabelCollator(one, SPECIAL)(ROWS, EPOCH)
    assert batch.inputs.tolist() == [padded([4, *one["text"][row].tolist(), 5], 6) for row in ROWS]
    assert batch.labels.tolist() == [9, 7] and not batch.segments.any() and batch.tokens == 2

    two = Columns({"text": numbered([2, 3, 4]), "other": numbered([9, 1, 1]), "label": label})
    collate = LabelCollator(two, SPECIAL, max_length=9)
    batch = collate(ROWS, EPOCH)
    assert collate.truncated == 1 and collate.lengths.tolist() == [9, 7, 8]
    assert batch.inputs.tolist() == [
        padded([4, *two["text"][2].tolist(), 5, *two["other"][2].tolist(), 5], 9),
        [4, *two["text"][0].tolist(), 5, *two["other"][0][:4].tolist(), 5],
    ]
    assert batch.segments.tolist() == [[0] * 6 + [1, 1, 0], [0] * 4 + [1] * 5]


def test_tags():
    tags = RaggedArray.of([[3, IGNORED], [1, 2, 3], [4, IGNORED, 5, 6]])
    columns = Columns({"text": numbered([2, 3, 4]), "tag": tags})
    collate = TagCollator(columns, SPECIAL, max_length=5)
    batch = collate(ROWS, EPOCH)
    assert batch.inputs.tolist() == [padded([4, *columns["text"][row][:3].tolist(), 5], 5) for row in ROWS]
    assert batch.tags.tolist() == [[IGNORED, 4, IGNORED, 5, IGNORED], [IGNORED, 3, IGNORED, IGNORED, IGNORED]]
    assert collate.truncated == 1 and batch.tokens == collate.tokens(ROWS, EPOCH) == 3


def answers(**settings) -> AnswerCollator:
    spans = RaggedArray.of([(1, 3), (0, 0), (7, 8)])
    return AnswerCollator(
        Columns({"question": numbered([2, 3, 4]), "passage": numbered([5, 1, 9]), "span": spans}), SPECIAL, **settings
    )


def test_answer_spans_hold_the_answer():
    collate = answers()
    batch = collate(ROWS, EPOCH)
    for row, number in enumerate(ROWS):
        question, passage = (collate.columns[name][number].tolist() for name in ("question", "passage"))
        first, last = collate.columns["span"][number]
        found = batch.inputs[row, batch.starts[row] : batch.ends[row] + 1].tolist()
        assert found == passage[first : last + 1]
        assert batch.inputs[row].tolist() == padded([4, *question, 5, *passage, 5], 16)
        segments = [0] * (len(question) + 2) + [1] * (len(passage) + 1)
        assert batch.segments[row].tolist() == padded(segments, 16)


def test_answers_cut_off_are_refused_or_left_out_and_never_wrong():
    with pytest.raises(SettingError, match=r"max_length=15 cuts off some answers \(1\), the first in example 2"):
        answers(max_length=15)
    collate = answers(max_length=15, cut_off="leave out")
    assert (
        collate.truncated_answers.tolist() == [2] and collate.answerable.tolist() == [0, 1] and collate.truncated == 1
    )
    assert collate(collate.answerable, EPOCH).tokens == 2
    with pytest.raises(SettingError, match="The answer of example 2 is cut off"):
        collate(ROWS, EPOCH)
    assert answers(max_length=16).truncated_answers.tolist() == []
    assert answers(max_length=5, cut_off="leave out").answerable.tolist() == []  # the questions alone fill it


def test_roles_that_a_tokenizer_lacks_are_named():
    columns = Columns({"source": numbered([2]), "target": numbered([5])})
    with pytest.raises(SettingError, match="'start'"):
        TranslationCollator(columns, SpecialIds(pad=0, end=1))(np.array([0]), EPOCH)


def test_max_lengths_without_room_are_refused():
    columns = Columns({"text": numbered([2]), "tag": numbered([2]), "label": numbered([1])})
    for make in (TagCollator, LabelCollator):
        with pytest.raises(SettingError, match="max_length=2"):
            _ = make(columns, SPECIAL, max_length=2).lengths
