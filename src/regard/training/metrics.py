"""How well a model does, in the numbers people compare: each metric a small function with its formula.

A mean over nothing is nan, because nobody knows it; F1 over nothing is 0, as scikit-learn has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, nan
from typing import Any

import torch
from torch import Tensor

from regard.errors import DtypeError, SettingError, ShapeError, unknown

AVERAGES = ("macro", "micro", "weighted", "binary")


@dataclass(frozen=True)
class Grade:
    """A metric of texts; `signature` says how it was computed, where that matters (sacrebleu)."""

    value: float
    signature: str = ""


def perplexity(nll: float, tokens: float) -> float:
    """exp(nll / tokens): among how many equally likely tokens the model hesitates; `nll` in nats, summed over tokens.

    Too large for a float it is inf.
    """
    try:
        return exp(_mean(nll, tokens))
    except OverflowError:
        return inf


def bits_per_character(nll: float, characters: float) -> float:
    """nll / (characters ln 2): comparable between tokenizers; `nll` in nats, summed over all tokens of the text."""
    return _mean(nll, characters) / log(2)


def accuracy(correct: float, count: float) -> float:
    """correct / count."""
    return _mean(correct, count)


def pearson(count: float, x: float, y: float, xy: float, xx: float, yy: float) -> float:
    """The correlation of two variables, from the sums over `count` pairs of x, y, xy, x^2 and y^2; nan if one never
    changes."""
    if count < 2:
        return nan
    spread = (xx - x * x / count) * (yy - y * y / count)
    return (xy - x * y / count) / spread**0.5 if spread > 0 else nan


def confusion(predicted: Tensor, expected: Tensor, classes: int) -> Tensor:
    """(C, C) int64: in row i and column j, how many examples of class i were taken for class j. Tables add up.

    `predicted` and `expected`: class numbers, of one shape.
    """
    if predicted.shape != expected.shape:
        raise ShapeError(
            f"predicted {tuple(predicted.shape)} and expected {tuple(expected.shape)}", "one shape", where="confusion"
        )
    for name, numbers in (("predicted", predicted), ("expected", expected)):
        if numbers.is_floating_point() or numbers.is_complex():
            raise DtypeError(f"{name} of {numbers.dtype}", "class numbers, which are integers", where="confusion")
        if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < classes:
            raise SettingError(
                f"{name} from {int(numbers.min())} to {int(numbers.max())}",
                f"class numbers from 0 to {classes - 1}",
                where="confusion",
            )
    cells = expected.flatten().long() * classes + predicted.flatten().long()
    return torch.bincount(cells, minlength=classes**2).reshape(classes, classes)


def f1(confusion: Tensor, average: str = "macro") -> float:
    """F1 = 2 TP / (2 TP + FP + FN) of a table that `confusion` made, averaged over classes. 0 / 0 counts as 0.

    "macro": the mean over all classes, in which one that occurs nowhere counts as 0; "weighted": the mean over examples
    of their class's F1; "micro": of TP, FP and FN summed over classes, which here is accuracy; "binary": of class 1 of
    two. The same as scikit-learn's f1_score(labels=range(C), zero_division=0).
    """
    if average not in AVERAGES:
        raise unknown(average, AVERAGES, kind="average", where="f1")
    if confusion.ndim != 2 or confusion.shape[0] != confusion.shape[1]:
        raise ShapeError(f"a table of {tuple(confusion.shape)}", "(C, C)", where="f1")
    if average == "binary" and len(confusion) != 2:
        raise ShapeError(
            f"average='binary' for {len(confusion)} classes", "two classes", where="f1", advice="Take 'macro'."
        )
    hits = confusion.diagonal().double()  # TP of each class, (C,)
    given, support = confusion.sum(0).double(), confusion.sum(1).double()  # TP + FP and TP + FN
    if average == "micro":
        return float(_share(2 * hits.sum(), given.sum() + support.sum()))
    each = _share(2 * hits, given + support)
    if average == "binary":
        return float(each[1])
    if average == "weighted":
        return float(_share((each * support).sum(), support.sum()))
    return float(each.mean())


def of_classes(nll: Tensor, confusion: Tensor) -> dict[str, float]:
    """Loss, accuracy and macro F1 of a sum of -ln p and a table (C, C) of who was taken for whom."""
    total = confusion.sum()
    return {
        "loss": float(nll / total),
        "accuracy": accuracy(float(confusion.trace()), float(total)),
        "f1": f1(confusion, average="macro"),
    }


def bleu(got: Sequence[str], expected: Sequence[str]) -> Grade:
    """BLEU of a corpus of detokenised texts, from 0 to 100, by sacrebleu as it stands, with its signature."""
    from sacrebleu.metrics import BLEU

    return _graded("bleu", BLEU(force=True), got, expected)  # words may stand apart from signs, as in the grammar


def chrf(got: Sequence[str], expected: Sequence[str]) -> Grade:
    """chrF2, the F-score of character n-grams, from 0 to 100, by sacrebleu as it stands, with its signature."""
    from sacrebleu.metrics import CHRF

    return _graded("chrf", CHRF(), got, expected)


def _graded(name: str, metric: Any, got: Sequence[str], expected: Sequence[str]) -> Grade:
    if len(got) != len(expected) or not got:
        raise SettingError(
            f"{len(got)} outputs and {len(expected)} references",
            "one reference to each output, one pair at least",
            where=name,
        )
    score = metric.corpus_score(list(got), [list(expected)]).score
    return Grade(float(score), str(metric.get_signature()))


def _mean(total: float, count: float) -> float:
    return total / count if count else nan


def _share(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole, where 0 / 0 counts as 0."""
    return torch.where(whole > 0, part / whole, 0.0)
