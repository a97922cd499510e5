"""Metrics against hand-worked tables, their laws, and what they say about impossible input."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, strategies as st

from regard.errors import DtypeError, RegardError, SettingError, ShapeError
from regard.training.metrics import CorpusScore, accuracy, bits_per_character, bleu, chrf, confusion, f1, perplexity

LABELS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40)
CATS = ["The black cat sleeps on the mat.", "He took a train to the city."]


def table(pairs: list[tuple[int, int]], classes: int = 4) -> torch.Tensor:
    numbers = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
    return confusion(numbers[:, 0], numbers[:, 1], classes)


def test_perplexity_of_a_uniform_guess_is_the_number_of_choices() -> None:
    assert perplexity(7 * math.log(50), 7) == pytest.approx(50)
    assert perplexity(0.0, 7) == 1


def test_perplexity_where_floats_end() -> None:
    assert perplexity(1e6, 1) == math.inf
    assert perplexity(math.inf, 3) == math.inf
    assert math.isnan(perplexity(math.nan, 3))
    assert math.isnan(perplexity(0.0, 0))


def test_bits_per_character() -> None:
    assert bits_per_character(10 * math.log(2), 5) == pytest.approx(2)
    assert 2 ** bits_per_character(3.7, 1) == pytest.approx(perplexity(3.7, 1))
    assert math.isnan(bits_per_character(1.0, 0))


def test_accuracy() -> None:
    assert accuracy(3, 4) == 0.75
    assert math.isnan(accuracy(0, 0))


def test_confusion_has_the_expected_in_rows() -> None:
    predicted, expected = torch.tensor([[0, 1], [1, 2]]), torch.tensor([[0, 1], [2, 2]])
    assert confusion(predicted, expected, 3).tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    assert confusion(predicted, expected, 3).dtype == torch.int64


@given(LABELS, LABELS)
def test_confusions_add_up(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    assert torch.equal(table(first) + table(second), table(first + second))
    assert int(table(first).sum()) == len(first)


def test_confusion_of_small_integers_does_not_run_over() -> None:
    many = torch.tensor([199, 199], dtype=torch.uint8)
    assert int(confusion(many, many, 200)[199, 199]) == 2


def test_confusion_refuses_in_words() -> None:
    with pytest.raises(ShapeError, match=r"predicted \(2,\) and expected \(3,\), expected the same shape"):
        confusion(torch.zeros(2).long(), torch.zeros(3).long(), 2)
    with pytest.raises(SettingError, match="expected from -100 to 1, expected class numbers from 0 to 1"):
        confusion(torch.tensor([0, 1]), torch.tensor([-100, 1]), 2)
    with pytest.raises(SettingError, match="predicted from 0 to 2"):
        confusion(torch.tensor([0, 2]), torch.tensor([0, 1]), 2)
    with pytest.raises(DtypeError, match=r"predicted of torch\.float32"):
        confusion(torch.zeros(2), torch.zeros(2), 2)


def test_f1_by_hand() -> None:
    """Class 0: TP 2, FP 1, FN 1. Class 1: TP 1, FP 1, FN 2. Class 2: TP 3, FP 1, FN 0."""
    counts = torch.tensor([[2, 1, 0], [1, 1, 1], [0, 0, 3]])
    assert f1(counts, "macro") == pytest.approx((4 / 6 + 2 / 5 + 6 / 7) / 3)
    assert f1(counts, "micro") == pytest.approx(6 / 9)
    assert f1(counts, "weighted") == pytest.approx((3 * 4 / 6 + 3 * 2 / 5 + 3 * 6 / 7) / 9)


def test_binary_f1_is_of_class_1() -> None:
    """TP 2, FN 2, FP 1: precision 2/3, recall 1/2."""
    counts = torch.tensor([[5, 1], [2, 2]])
    assert f1(counts, "binary") == pytest.approx(2 / (3 / 2 + 2 / 1))


def test_absent_classes_count_as_zero() -> None:
    assert f1(torch.tensor([[4, 0], [0, 0]]), "macro") == 0.5
    assert f1(torch.tensor([[4, 0], [0, 0]]), "binary") == 0
    assert f1(torch.tensor([[4, 0], [0, 0]]), "weighted") == 1
    assert [f1(torch.zeros(2, 2).long(), average) for average in ("macro", "micro", "weighted", "binary")] == [0] * 4


@given(LABELS, st.permutations(range(4)), st.sampled_from(["macro", "micro", "weighted"]))
def test_the_names_of_classes_do_not_matter(pairs: list[tuple[int, int]], order: list[int], average: str) -> None:
    renamed = [(order[predicted], order[expected]) for predicted, expected in pairs]
    assert f1(table(renamed), average) == pytest.approx(f1(table(pairs), average))


@given(LABELS.filter(bool))
def test_micro_f1_is_accuracy(pairs: list[tuple[int, int]]) -> None:
    right = sum(predicted == expected for predicted, expected in pairs)
    assert f1(table(pairs), "micro") == pytest.approx(accuracy(right, len(pairs)))


@given(LABELS)
def test_f1_is_the_harmonic_mean_of_precision_and_recall(pairs: list[tuple[int, int]]) -> None:
    """And does not tell predicted from expected."""
    each = []
    for one in range(4):
        hits = sum(pair == (one, one) for pair in pairs)
        precision = hits / max(1, sum(predicted == one for predicted, _ in pairs))
        recall = hits / max(1, sum(expected == one for _, expected in pairs))
        each.append(2 * precision * recall / (precision + recall) if hits else 0.0)
    assert f1(table(pairs), "macro") == pytest.approx(sum(each) / 4)
    assert f1(table(pairs).T, "macro") == pytest.approx(sum(each) / 4)


def test_f1_refuses_in_words() -> None:
    with pytest.raises(SettingError, match=r"Unknown average 'makro'. Did you mean 'macro'"):
        f1(torch.eye(2), "makro")
    with pytest.raises(ShapeError, match="average='binary' with 3 classes"):
        f1(torch.eye(3), "binary")
    with pytest.raises(ShapeError, match=r"confusion \(2, 3\)"):
        f1(torch.zeros(2, 3))


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_grades_of_texts(metric: Callable[[Sequence[str], Sequence[str]], CorpusScore]) -> None:
    worse = [CATS[0], "He took a bus to the city."]
    assert metric(CATS, CATS).value == pytest.approx(100)
    assert 0 < metric(worse, CATS).value < 100
    assert metric(["", ""], CATS).value == 0
    assert metric(tuple(worse), CATS) == metric(worse[::-1], CATS[::-1])  # a corpus has no order
    for got, expected in (([], []), (CATS, CATS[:1])):
        with pytest.raises(RegardError, match=f"{len(got)} outputs and {len(expected)} references"):
            metric(got, expected)


def test_a_grade_says_how_it_was_computed() -> None:
    assert bleu(CATS, CATS).signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert chrf(CATS, CATS).signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")


def test_bleu_by_hand() -> None:
    """Eight tokens of eight; matches 7/8, 6/7, 5/6, 4/5 of the n-grams, and no brevity penalty."""
    score = bleu(["a b c d e f g X"], ["a b c d e f g h"])
    assert score.value == pytest.approx(100 * (7 / 8 * 6 / 7 * 5 / 6 * 4 / 5) ** 0.25)
