"""Every refusal is a RegardError that says what is wrong, with the numbers, and what to do."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention import DenseBias, Observe, attend, choose, masks, scores, windows
from regard.errors import BackendError, DeviceError, DtypeError, RegardError, SettingError, ShapeError, unknown


def r(*shape: int, **kind: Any) -> Tensor:
    return torch.zeros(*shape, **kind)


Q, K = r(2, 3, 4), r(2, 5, 4)

REFUSED: dict[str, tuple[Callable[[], Any], type[RegardError], list[str]]] = {
    # tensors
    "widths of a dot product": (lambda: attend(r(3, 4), r(5, 6)), ShapeError, ["width 4", "width 6", "Bilinear"]),
    "widths of cosine": (lambda: attend(r(3, 4), r(5, 6), score=scores.Cosine()), ShapeError, ["Cosine", "4", "6"]),
    "widths of match": (lambda: attend(r(3, 4), r(5, 6), score=scores.Match()), ShapeError, ["Match", "4", "6"]),
    "queries of bilinear": (
        lambda: attend(r(3, 4), r(5, 6), score=scores.Bilinear(7, 6)),
        ShapeError,
        ["Bilinear", "queries of width 4", "width 7"],
    ),
    "keys of bilinear": (
        lambda: attend(r(3, 4), r(5, 6), score=scores.Bilinear(4, 8)),
        ShapeError,
        ["Bilinear", "keys of width 6", "width 8"],
    ),
    "queries of additive": (
        lambda: attend(r(3, 4), r(5, 6), score=scores.Additive(7, 2, 6)),
        ShapeError,
        ["Additive", "queries of width 4", "width 7"],
    ),
    "keys of additive": (
        lambda: attend(r(3, 4), r(5, 6), score=scores.Additive(4, 2, 9)),
        ShapeError,
        ["Additive", "keys of width 6", "width 9"],
    ),
    "queries of local-p": (
        lambda: attend(Q, K, window=windows.LocalP(7, 2)),
        ShapeError,
        ["LocalP", "width 4", "width 7"],
    ),
    "queries of location": (
        lambda: attend(Q, K, score=windows.Location(7, 9)),
        ShapeError,
        ["Location", "width 4", "width 7"],
    ),
    "keys of location": (
        lambda: attend(Q, K, score=windows.Location(4, 3)),
        ShapeError,
        ["Location", "5 keys", "max_length=3"],
    ),
    "no width": (lambda: attend(r(3, 0), r(5, 0)), ShapeError, ["width", "0"]),
    "heads that do not divide": (
        lambda: attend(r(2, 4, 3, 8), r(2, 3, 5, 8)),
        ShapeError,
        ["4 query heads", "3 key heads", "divides 4"],
    ),
    "value heads that do not divide": (
        lambda: attend(r(2, 4, 3, 8), r(2, 2, 5, 8), r(2, 3, 5, 8)),
        ShapeError,
        ["4 query heads", "3 value heads", "divides 4"],
    ),
    "more key heads than query heads": (
        lambda: attend(r(2, 2, 3, 8), r(2, 4, 5, 8)),
        ShapeError,
        ["2 query heads", "4 key heads", "divides 2"],
    ),
    "batches that do not broadcast": (
        lambda: attend(r(2, 3, 4), r(3, 5, 4)),
        ShapeError,
        ["(2, 3, 4)", "(3, 5, 4)", "broadcast"],
    ),
    "values without keys": (lambda: attend(Q, K, r(2, 6, 4)), ShapeError, ["5 keys", "6 values"]),
    "a vector": (lambda: attend(r(4), r(5, 4)), ShapeError, ["q of shape (4,)", "(..., length, width)"]),
    "no tensor": (lambda: attend(Q, [[1.0]]), DtypeError, ["k of type list", "a tensor"]),
    "whole numbers": (lambda: attend(Q, K.long()), DtypeError, ["k of torch.int64", "floating-point"]),
    "mixed dtypes": (
        lambda: attend(Q, K.double(), K),
        DtypeError,
        ["q of torch.float32", "k of torch.float64", "v of torch.float32", "one dtype"],
    ),
    "mixed devices": (
        lambda: attend(Q, K.to("meta"), K),
        DeviceError,
        ["q on cpu", "k on meta", "v on cpu", "one device"],
    ),
    "a score of another dtype": (
        lambda: attend(Q, K, score=scores.Bilinear(4).double()),
        DtypeError,
        ["Bilinear.weight", "torch.float64", "torch.float32"],
    ),
    "a score on another device": (
        lambda: attend(Q, K, score=scores.Additive(4, 3).to("meta")),
        DeviceError,
        ["Additive.vector", "meta", "cpu"],
    ),
    "a window of another dtype": (
        lambda: attend(Q, K, window=windows.LocalP(4, 1).double()),
        DtypeError,
        ["LocalP", "torch.float64", "torch.float32"],
    ),
    # masks
    "a dense mask that does not fit": (
        lambda: attend(Q, K, mask=masks.Dense(torch.ones(3, 4).bool())),
        ShapeError,
        ["masks.Dense", "(3, 4)", "(2, 3, 5)"],
    ),
    "a dense mask of one dimension": (
        lambda: attend(Q, K, mask=masks.Dense(torch.ones(5).bool())),
        ShapeError,
        ["(5,)", "(2, 3, 5)"],
    ),
    "a dense mask larger than the map": (
        lambda: attend(Q, K, mask=masks.Dense(torch.ones(7, 2, 3, 5).bool())),
        ShapeError,
        ["(7, 2, 3, 5)", "(2, 3, 5)"],
    ),
    "a mask inside another": (
        lambda: attend(Q, K, mask=masks.Causal() & ~masks.Dense(torch.ones(3, 4).bool())),
        ShapeError,
        ["(3, 4)", "(2, 3, 5)"],
    ),
    "a float mask as Dense": (
        lambda: masks.Dense(r(3, 5)),
        DtypeError,
        ["masks.Dense", "torch.float32", "booleans", "DenseBias"],
    ),
    "a list as Dense": (lambda: masks.Dense([[True]]), DtypeError, ["masks.Dense", "list", "booleans"]),
    "a raw tensor as mask": (
        lambda: attend(Q, K, mask=r(3, 5).bool()),
        DtypeError,
        ["Tensor", "a mask", "masks.Dense"],
    ),
    "a raw tensor joined to a mask": (
        lambda: masks.Causal() & r(3, 5).bool(),
        DtypeError,
        ["Tensor", "a mask", "masks.Dense"],
    ),
    "a class for a mask": (lambda: attend(Q, K, mask=masks.Causal), DtypeError, ["Causal", "a mask"]),
    "lengths too long": (
        lambda: attend(Q, K, mask=masks.Padding([5, 6])),
        ShapeError,
        ["Padding lengths", "6", "at most 5"],
    ),
    "queries too long": (
        lambda: attend(Q, K, mask=masks.Padding([5, 5], [3, 4])),
        ShapeError,
        ["Padding queries", "4", "at most 3"],
    ),
    "negative lengths": (lambda: masks.Padding([5, -1]), SettingError, ["Padding lengths", "-1", "at least 0"]),
    "lengths of another batch": (
        lambda: attend(Q, K, mask=masks.Padding([5, 5, 5])),
        ShapeError,
        ["Padding lengths", "3 rows", "2 rows"],
    ),
    "lengths without a batch": (
        lambda: attend(r(3, 4), r(5, 4), mask=masks.Padding([5])),
        ShapeError,
        ["Padding lengths", "1 rows", "leading dimension"],
    ),
    "lengths in two dimensions": (lambda: masks.Padding([[1], [2]]), ShapeError, ["(2, 1)", "(B,)"]),
    "lengths that are no whole numbers": (lambda: masks.Padding([1.5, 2.0]), ShapeError, ["torch.float32", "integer"]),
    "a side that is none": (lambda: masks.Padding([1], side="top"), SettingError, ["'top'", "'left'", "'right'"]),
    "offsets of another batch": (
        lambda: attend(Q, K, mask=masks.Causal(torch.tensor([1, 2, 3]))),
        ShapeError,
        ["Causal offset", "3 rows", "2 rows"],
    ),
    "an empty window": (lambda: masks.Window(1, -2), SettingError, ["left=1", "right=-2", "at least 0"]),
    "document ids that do not fit": (
        lambda: attend(Q, K, mask=masks.Documents(torch.zeros(4).long())),
        ShapeError,
        ["Documents ids", "(4,)", "(5,)"],
    ),
    "document ids of queries that do not fit": (
        lambda: attend(Q, K, mask=masks.Documents(torch.zeros(5).long(), torch.zeros(2, 4).long())),
        ShapeError,
        ["Documents queries", "(2, 4)", "(B, 3)"],
    ),
    "document ids for keys only": (
        lambda: attend(r(2, 6, 4), K, mask=masks.Documents(torch.zeros(5).long())),
        ShapeError,
        ["Documents", "6 queries", "5 keys"],
    ),
    # biases
    "a bias that does not fit": (
        lambda: attend(Q, K, bias=DenseBias(r(3, 4))),
        ShapeError,
        ["DenseBias", "(3, 4)", "(2, 3, 5)"],
    ),
    "a boolean bias": (
        lambda: DenseBias(torch.ones(3, 5).bool()),
        DtypeError,
        ["DenseBias", "torch.bool", "floats", "masks.Dense"],
    ),
    "a raw tensor as bias": (lambda: attend(Q, K, bias=r(3, 5)), DtypeError, ["a tensor", "DenseBias(tensor)"]),
    "a raw boolean tensor as bias": (
        lambda: attend(Q, K, bias=r(3, 5).bool()),
        DtypeError,
        ["a tensor", "masks.Dense(tensor)"],
    ),
    "a bias that gives no tiles": (lambda: attend(Q, K, bias=3.0), DtypeError, ["3.0", "tile(rows, cols)"]),
    # scores
    "a callable of the wrong shape": (
        lambda: attend(Q, K, score=lambda q, k: q @ k.mT[..., :2]),
        ShapeError,
        ["(2, 3, 2)", "3, 5"],
    ),
    "a callable of the wrong batch": (
        lambda: attend(Q, K, score=lambda q, k: r(7, 3, 5)),
        ShapeError,
        ["(7, 3, 5)", "2, 3, 5"],
    ),
    "a callable that forgets the batch": (
        lambda: attend(Q, K, score=lambda q, k: r(3, 5)),
        ShapeError,
        ["shape (3, 5)", "(2, 3, 5)"],
    ),
    "a callable that gives no tensor": (lambda: attend(Q, K, score=lambda q, k: 0.0), ShapeError, ["float", "3, 5"]),
    "a class for a score": (lambda: attend(Q, K, score=scores.Dot), DtypeError, ["Dot", "ScaledDot()"]),
    "a name for a score": (lambda: attend(Q, K, score="dot"), DtypeError, ["'dot'", "ScaledDot()"]),
    "a score of no width": (lambda: scores.Additive(4, 0), SettingError, ["hidden=0", "at least 1"]),
    "no temperature": (lambda: scores.Cosine(0.0), SettingError, ["temperature=0.0", "above 0"]),
    # windows
    "a mask as window": (lambda: attend(Q, K, window=masks.Window(1, 1)), DtypeError, ["Window", "LocalM", "mask="]),
    "no half-width": (lambda: windows.LocalM(0), SettingError, ["LocalM", "half_width=0", "at least 1"]),
    "no half-width for local-p": (
        lambda: windows.LocalP(4, -1),
        SettingError,
        ["LocalP", "half_width=-1", "at least 1"],
    ),
    # settings
    "dropout of one": (lambda: attend(Q, K, dropout=1.0), SettingError, ["dropout=1.0", "below 1"]),
    "negative dropout": (lambda: attend(Q, K, dropout=-0.1), SettingError, ["dropout=-0.1", "at least 0"]),
    "dropout that is no number": (lambda: attend(Q, K, dropout=float("nan")), SettingError, ["dropout=nan"]),
    "dropout in words": (lambda: attend(Q, K, dropout="0.1"), RegardError, ["dropout='0.1'", "at least 0"]),
    "a negative top": (lambda: Observe(top=-1), SettingError, ["top=-1", "at least 0"]),
    "half a top": (lambda: Observe(top=1.5), SettingError, ["top=1.5", "whole number"]),
    "a top of True": (lambda: Observe(top=True), SettingError, ["top=True", "whole number"]),
    "an empty thumbnail": (lambda: Observe(thumbnail=(0, 3)), SettingError, ["(0, 3)", "at least 1"]),
    "a thumbnail of three": (lambda: Observe(thumbnail=(1, 2, 3)), SettingError, ["(1, 2, 3)", "(rows, columns)"]),
    "a thumbnail of one number": (lambda: Observe(thumbnail=256), SettingError, ["256", "(rows, columns)"]),
    "half a thumbnail": (lambda: Observe(thumbnail=(2.5, 3)), SettingError, ["2.5", "at least 1"]),
    "a switch for an observe": (lambda: attend(Q, K, observe=True), RegardError, ["True", "Observe"]),
    # backends
    "an unknown backend": (
        lambda: attend(Q, K, backend="strem"),
        SettingError,
        ["'strem'", "auto", "plain", "sdpa", "stream", "Did you mean 'stream'"],
    ),
    "an unknown backend for choose": (lambda: choose(Q, K, backend="flash"), SettingError, ["'flash'", "plain"]),
    "local-p on sdpa": (
        lambda: attend(Q, K, window=windows.LocalP(4, 1), backend="sdpa"),
        BackendError,
        ["'sdpa'", "window", "'plain'", "'stream'"],
    ),
    "additive on sdpa": (
        lambda: attend(Q, K, score=scores.Additive(4, 3), backend="sdpa"),
        BackendError,
        ["'sdpa'", "dot products", "Additive"],
    ),
    "dropout on sdpa": (lambda: attend(Q, K, dropout=0.1, backend="sdpa"), BackendError, ["'sdpa'", "dropout"]),
    "wide values on sdpa": (lambda: attend(Q, K, r(2, 5, 7), backend="sdpa"), BackendError, ["7 and 4"]),
    "a learned bias on sdpa": (
        lambda: attend(Q, K, bias=DenseBias(r(3, 5, requires_grad=True)), backend="sdpa"),
        BackendError,
        ["gradient", "bias"],
    ),
    "no keys on sdpa": (lambda: attend(Q, K[:, :0], backend="sdpa"), BackendError, ["at least one"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_words(case: str) -> None:
    call, kind, words = REFUSED[case]
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert [word for word in words if word not in message] == [], message
    assert ("got" in message and "expected" in message) or caught.value.advice, "it says what to do"
    assert isinstance(caught.value, RegardError)


def test_an_error_is_also_the_python_error_one_would_expect() -> None:
    pairs = {ShapeError: ValueError, DtypeError: TypeError, DeviceError: ValueError, SettingError: ValueError}
    assert all(issubclass(ours, theirs) and issubclass(ours, RegardError) for ours, theirs in pairs.items())
    assert issubclass(BackendError, RegardError)


def test_a_message_says_where_what_came_what_was_expected_and_what_to_do() -> None:
    error = ShapeError("3 rows", "2 rows", where="Padding", advice="Count again.")
    assert str(error) == "Padding: got 3 rows, expected 2 rows. Count again."
    assert str(unknown("drop", ["dropout", "top"], kind="setting", where="here")) == (
        "here: Unknown setting 'drop'. Did you mean 'dropout'? Known: dropout, top."
    )
    assert "Did you mean" not in str(unknown("zzz", ["dropout"], kind="setting", where="here"))


def test_a_request_is_refused_before_anything_is_computed() -> None:
    """`choose` refuses with the same words as `attend`."""
    for call in (attend, choose):
        with pytest.raises(BackendError, match="no predicted window"):
            call(Q, K, window=windows.LocalP(4, 1), backend="sdpa")
