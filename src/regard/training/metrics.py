"""Metrics: perplexity, bits per character, accuracy, F1, Pearson correlation, BLEU and chrF, each with its formula.

A mean over nothing is NaN; F1 over nothing is 0, as in scikit-learn.
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
class CorpusScore:
    """A score of generated texts; `signature` says how it was computed (sacrebleu), where it has one."""

    value: float
    signature: str = ""


def perplexity(nll: float, tokens: float) -> float:
    """exp(nll / tokens): the model is as uncertain as among this many equally likely tokens; `nll` in nats, summed.

    Too large for a float, it is inf.
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
    """Pearson correlation of two variables, from the sums over `count` pairs of x, y, xy, x^2 and y^2; NaN if one is
    constant."""
    if count < 2:
        return nan
    variances = (xx - x * x / count) * (yy - y * y / count)
    return (xy - x * y / count) / variances**0.5 if variances > 0 else nan


def confusion(predicted: Tensor, expected: Tensor, classes: int) -> Tensor:
    """The confusion matrix, (C, C) int64: row i, column j counts examples of class i predicted as class j. Matrices of
    several batches add up.

    `predicted` and `expected`: class numbers, of the same shape.
    """
    if predicted.shape != expected.shape:
        raise ShapeError(
            f"predicted {tuple(predicted.shape)} and expected {tuple(expected.shape)}",
            "the same shape",
            where="confusion",
        )
    for name, numbers in (("predicted", predicted), ("expected", expected)):
        if numbers.is_floating_point() or numbers.is_complex():
            raise DtypeError(f"{name} of {numbers.dtype}", "integer class numbers", where="confusion")
        if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < classes:
            raise SettingError(
                f"{name} from {int(numbers.min())} to {int(numbers.max())}",
                f"class numbers from 0 to {classes - 1}",
                where="confusion",
            )
    cells = expected.flatten().long() * classes + predicted.flatten().long()
    return torch.bincount(cells, minlength=classes**2).reshape(classes, classes)


def f1(confusion: Tensor, average: str = "macro") -> float:
    """F1 = 2 TP / (2 TP + FP + FN) of a confusion matrix, averaged over classes. 0 / 0 counts as 0.

    "macro": the mean over all classes, absent ones counting as 0; "weighted": the mean weighted by the examples of each
    class; "micro": of TP, FP and FN summed over classes, which here is accuracy; "binary": of class 1 of two. Equal to
    scikit-learn's f1_score(labels=range(C), zero_division=0).
    """
    if average not in AVERAGES:
        raise unknown(average, AVERAGES, kind="average", where="f1")
    if confusion.ndim != 2 or confusion.shape[0] != confusion.shape[1]:
        raise ShapeError(f"confusion {tuple(confusion.shape)}", "(C, C)", where="f1")
    if average == "binary" and len(confusion) != 2:
        raise ShapeError(
            f"average='binary' with {len(confusion)} classes", "two classes", where="f1", advice="Use 'macro'."
        )
    hits = confusion.diagonal().double()  # TP of each class, (C,)
    predicted, support = confusion.sum(0).double(), confusion.sum(1).double()  # TP + FP and TP + FN
    if average == "micro":
        return float(_safe_divide(2 * hits.sum(), predicted.sum() + support.sum()))
    each = _safe_divide(2 * hits, predicted + support)
    if average == "binary":
        return float(each[1])
    if average == "weighted":
        return float(_safe_divide((each * support).sum(), support.sum()))
    return float(each.mean())


def classification_metrics(nll: Tensor, confusion: Tensor) -> dict[str, float]:
    """Loss, accuracy and macro F1, from a sum of -ln p and a confusion matrix (C, C)."""
    total = confusion.sum()
    return {
        "loss": float(nll / total),
        "accuracy": accuracy(float(confusion.trace()), float(total)),
        "f1": f1(confusion, average="macro"),
    }


def bleu(got: Sequence[str], expected: Sequence[str]) -> CorpusScore:
    """Corpus BLEU of detokenized texts, from 0 to 100, by sacrebleu with its tokenizer 13a; with its signature."""
    from sacrebleu.metrics import BLEU

    return _corpus_score(
        "bleu", BLEU(force=True), got, expected
    )  # force: no warning about tokenized text, such as the grammar's


def chrf(got: Sequence[str], expected: Sequence[str]) -> CorpusScore:
    """chrF2, the F-score of character n-grams, from 0 to 100, by sacrebleu, with its signature."""
    from sacrebleu.metrics import CHRF

    return _corpus_score("chrf", CHRF(), got, expected)


def _corpus_score(name: str, metric: Any, got: Sequence[str], expected: Sequence[str]) -> CorpusScore:
    if len(got) != len(expected) or not got:
        raise SettingError(
            f"{len(got)} outputs and {len(expected)} references",
            "one reference for each output, and at least one pair",
            where=name,
        )
    score = metric.corpus_score(list(got), [list(expected)]).score
    return CorpusScore(float(score), str(metric.get_signature()))


def _mean(total: float, count: float) -> float:
    return total / count if count else nan


def _safe_divide(part: Tensor, total: Tensor) -> Tensor:
    """part / total, where 0 / 0 counts as 0."""
    return torch.where(total > 0, part / total, 0.0)
