"""A memory that is looked at query by query is attend over all of them."""

import pytest
import torch

from regard.attention import Memory, Observe, Tap, attend, capture, masks, scores, windows
from regard.errors import ShapeError

LENGTHS = torch.tensor([5, 3, 0])
SCORES = [scores.Dot(), scores.ScaledDot(), scores.Cosine(0.5), scores.Bilinear(4), scores.Additive(4, 6)]
ALL = Observe(weights=True, top=2, entropy=True, received=True)


def tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(3, n, w, generator=chance).double() for n, w in ((2, 4), (5, 4), (5, 3)))
    return q, k, v


@pytest.mark.parametrize("score", SCORES, ids=lambda one: type(one).__name__)
def test_looking_is_attending(score: scores.Score) -> None:
    (q, k, v), mask = tensors(), masks.Padding(LENGTHS)
    memory = Memory.of(k, v, score=score.double(), mask=mask)
    got, expected = memory.look(q, observe=ALL), attend(q, k, v, score=score, mask=mask, observe=ALL, backend="plain")
    for name in ("output", "lse", "weights", "entropy", "received"):
        torch.testing.assert_close(getattr(got, name), getattr(expected, name))
    assert torch.equal(got.top.indices, expected.top.indices)


@pytest.mark.parametrize("window", [windows.LocalM(1, offset=1), windows.LocalP(4, 2).double()])
def test_a_window_is_looked_through(window: object) -> None:
    (q, k, v), mask = tensors(), masks.Padding(LENGTHS)
    got = Memory.of(k, v, mask=mask).look(q, window=window)
    torch.testing.assert_close(got.output, attend(q, k, v, mask=mask, window=window, backend="plain").output)


def test_keys_that_nobody_sees_may_hold_anything() -> None:
    (q, k, v), mask = tensors(), masks.Padding(LENGTHS)
    before = Memory.of(k, v, mask=mask).look(q).output
    k[1, 3:], v[1, 4] = torch.nan, torch.inf
    torch.testing.assert_close(Memory.of(k, v, mask=mask).look(q).output, before)
    assert not before[2].any()


def test_some_rows_of_a_memory_are_the_memory_of_those_rows() -> None:
    (q, k, v), rows = tensors(), torch.tensor([1, 0, 0])
    memory = Memory.of(k, v, score=scores.Additive(4, 6).double(), mask=masks.Padding(LENGTHS))
    torch.testing.assert_close(memory.rows(rows).look(q[rows]).output, memory.look(q).output[rows])


def test_a_tap_hears_looks_and_may_answer() -> None:
    q, k, v = tensors()
    tap, memory = Tap(), Memory.of(k, v)
    model = torch.nn.ModuleDict({"cross": tap})
    with capture(model) as heard:
        one = tap.look(memory, q[:, :1])
        tap.look(memory, q[:, 1:])
    torch.testing.assert_close(one.output, memory.look(q[:, :1]).output)
    assert one.weights is None
    assert [call.weights.shape for call in heard.calls("cross")] == [(3, 1, 5), (3, 1, 5)]


def test_queries_of_other_rows_are_refused_in_words() -> None:
    q, k, v = tensors()
    with pytest.raises(ShapeError, match=r"Memory\.look"):
        Memory.of(k, v).look(q[:2])
