"""Hidden queries and keys never take part, where a score or a window hides keys too: whatever they hold, eager, in
blocks and compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from attention.cases import seeded
from regard.attention import attend, masks, windows
from regard.attention.masks import Mask
from regard.attention.scores import Match, Score

T, S, B = 6, 7, 3
POISON = {"NaN": math.nan, "inf": math.inf, "-inf": -math.inf, "huge": 1e30}


def cliff(q: Tensor, k: Tensor) -> Tensor:
    """-inf beyond a distance."""
    distance = (q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1)
    return torch.where(distance < 2.0, -distance, -torch.inf)


def bare_cosine(q: Tensor, k: Tensor) -> Tensor:
    """0 / 0 of a vector of zeros, and gradients that are no numbers."""
    return (q @ k.mT) / (q.norm(dim=-1).unsqueeze(-1) * k.norm(dim=-1).unsqueeze(-2))


class Threshold(Score):
    """A score with a preparation of its own, of which only large ones count."""

    finite = False

    def keys(self, k: Tensor) -> Tensor:
        return -k

    def compare(self, q: Tensor, k: Tensor, out: Tensor | None = None) -> Tensor:
        found = -(q @ k.mT)
        return found.masked_fill(~(found > 0.5), -torch.inf)


SCORES: dict[str, Callable[[], Any]] = {
    "Match": Match,
    "cliff": lambda: cliff,
    "bare cosine": lambda: bare_cosine,
    "threshold": Threshold,
}
MASKS: dict[str, Callable[[], Mask]] = {
    "everything": masks.Everything,
    "past": lambda: masks.Past(offset=0),
    "padding": lambda: masks.Padding([7, 4, 0], [6, 3, 2]),
    "padding left": lambda: masks.Padding([7, 4, 1], side="left"),
    "table": lambda: masks.Dense(torch.rand(B, T, S, generator=seeded(1)) < 0.25),
}


def drawn(name: str) -> list[Tensor]:
    """Queries, keys and values; whole numbers for Match, so that some are equal, zeros among them."""
    source = seeded(3)
    if name == "Match":
        q, k = (torch.randint(0, 2, (B, n, 2), generator=source) * torch.tensor([1, 5]) for n in (T, S))
        q[:, 1] = 9
    else:
        q, k = (torch.randn(B, n, 2, generator=source) for n in (T, S))
        q[:, 1] = k[:, 2] = 9.0
    return [x.double() for x in (q, k, torch.randn(B, S, 3, generator=source))]


def seen(score: Any, mask: Mask, q: Tensor, k: Tensor) -> Tensor:
    """Which keys each query sees, pair by pair."""
    found = torch.zeros(B, T, S, dtype=torch.bool)
    table = mask.dense(T, S, (B,))
    for b, i, j in table.nonzero().tolist():
        found[b, i, j] = score(q[b, i : i + 1], k[b, j : j + 1]).item() > -math.inf
    return found


def poisoned(tensors: list[Tensor], mask: Mask, live: Tensor, poison: float) -> list[Tensor]:
    """Queries and keys that no mask hides keep a score of -inf only with NaN: infinite ones may score anything."""
    q, k, v = (x.clone() for x in tensors)
    table = live if math.isnan(poison) else mask.dense(T, S, (B,))
    q[~table.any(-1)] = k[~table.any(-2)] = v[~live.any(-2)] = poison
    return [q, k, v]


def expected(score: Any, live: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The average of what is seen, one query at a time."""
    rows = []
    for b, i in [(b, i) for b in range(B) for i in range(T)]:
        js = live[b, i].nonzero().squeeze(-1)
        if len(js):
            weights = torch.cat([score(q[b, i : i + 1], k[b, j : j + 1]) for j in js.tolist()], -1).softmax(-1)
            rows.append((weights @ v[b, js]).squeeze(0))
        else:
            rows.append(v[0, 0] * 0)
    return torch.stack(rows).reshape(B, T, -1)


def attended(q: Tensor, k: Tensor, v: Tensor, **how: Any) -> Tensor:
    return attend(q, k, v, **how).output


def outcome(run: Callable[..., Tensor], tensors: list[Tensor]) -> list[Tensor]:
    """The output, and the gradients of a sum of its squares."""
    leaves = [x.clone().requires_grad_() for x in tensors]
    output = run(*leaves)
    found = torch.autograd.grad(output.square().sum(), leaves, allow_unused=True)
    return [output.detach(), *(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True))]


@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", SCORES)
def test_what_a_score_hides_stays_hidden(name: str, mask: str, poison: str) -> None:
    score, hiding = SCORES[name](), MASKS[mask]()
    tensors = drawn(name)
    live = seen(score, hiding, *tensors[:2])
    sick = poisoned(tensors, hiding, live, POISON[poison])
    want = outcome(lambda q, k, v: expected(score, live, q, k, v), tensors)
    for backend in ("plain", "stream"):
        average = partial(attended, score=score, mask=hiding, backend=backend)
        for given in (tensors, sick):
            got = outcome(average, given)
            for ours, theirs in zip(got, want, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
        got = attend(*sick, score=score, mask=hiding, backend=backend)
        assert torch.equal(got.lse == -torch.inf, ~live.any(-1)) and not got.lse.isnan().any()


@pytest.mark.parametrize("name", SCORES)
def test_what_a_score_hides_stays_hidden_in_compiled_code(name: str) -> None:
    """Numbers cannot be read while a graph is made, so everything is cleaned there."""
    score, tensors = SCORES[name](), drawn(name)
    for mask in ("everything", "past", "table"):
        torch._dynamo.reset()
        hiding = MASKS[mask]()
        compiled = torch.compile(partial(attended, score=score, mask=hiding), backend="aot_eager")
        live = seen(score, hiding, *tensors[:2])
        want = expected(score, live, *tensors)
        for given in (tensors, poisoned(tensors, hiding, live, math.nan)):
            torch.testing.assert_close(compiled(*given), want, rtol=1e-9, atol=1e-9)


def test_the_example_of_the_docs() -> None:
    """A query that equals no key gets nothing, though it and unused keys are set aside."""
    q, k, v = torch.tensor([[0.0, 0], [5, 5]]), torch.tensor([[0.0, 0], [1, 1]]), torch.tensor([[10.0], [math.nan]])
    assert attend(q, k, v, score=Match()).output.tolist() == [[10.0], [0.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("backend", ["plain", "stream"])
def test_a_query_whose_window_holds_no_key_sees_none(backend: str, dtype: torch.dtype) -> None:
    """Its position is predicted from what it is, not from what it is set to."""
    torch.manual_seed(0)
    window = windows.LocalP(2, 1).to(dtype)
    with torch.no_grad():
        window.hidden.weight.copy_(torch.eye(2) * 9)
        window.vector.copy_(torch.tensor([20.0, 0.0]))
    q = torch.tensor([[[1.0, 0], [-1, 0], [1, 1]]], dtype=dtype)  # at the end, at the start, at the end
    k, v = torch.randn(1, 9, 2, dtype=dtype), torch.randn(1, 9, 2, dtype=dtype)
    hiding = masks.Dense(torch.tensor([1, 1, 0, 0, 0, 0, 0, 1, 1]).bool().expand(1, 3, 9))  # four keys: centres 0 to 4
    want = attend(q, k, v, window=window, mask=hiding, backend=backend)
    sick = v.clone()
    sick[:, 4] = math.nan
    got = attend(q, k, sick, window=window, mask=hiding, backend=backend)
    assert want.lse[0].isfinite().tolist() == [False, True, False]
    for name in ("output", "lse"):
        torch.testing.assert_close(getattr(got, name), getattr(want, name))
