"""Attention scores (dot product, scaled dot product, bilinear, additive attention, cosine): score(q, k) -> (..., T, S).

Each score works in two steps: `prepare` takes every query and every key once, `compare` takes every pair of prepared
ones. The score of a pair depends on that pair alone, so any part of the map can be computed by itself, and a score that
compares by dot product (Dot and its children) runs on every fast kernel.

Letters: T queries, S keys, Dq and Dk their widths.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.errors import DtypeError, SettingError, ShapeError


class Score(nn.Module, ABC):
    """The base class of all scores: prepare queries and keys, then compare pairs."""

    by_pair = True  # False: the score must see all leading dimensions (heads, batch) at once
    finite = True  # False: it may give -inf, which hides a key

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """What `compare` needs of each query (..., T, D') and of each key (..., S, D')."""
        return self.queries(q), self.keys(k)

    def queries(self, q: Tensor) -> Tensor:
        """What `compare` needs of each query."""
        return q

    def keys(self, k: Tensor) -> Tensor:
        """What `compare` needs of each key; PreparedKeys keep it where queries come one after another."""
        return k

    @abstractmethod
    def compare(self, q: Tensor, k: Tensor, out: Tensor | None = None) -> Tensor:
        """Scores (..., T, S) of prepared queries and keys, in a tensor that the caller may overwrite.

        `out`: memory of the right shape that may hold the result; not every score uses it.
        """

    def pair_size(self, k: Tensor) -> int:
        """How many numbers `compare` holds for one pair of a query and a key."""
        return 1

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.compare(*self.prepare(q, k))


class Dot(Score):
    """score = q.k, and the parent of all scores that are a dot product of prepared queries and keys.

    >>> Dot()(torch.ones(1, 2), torch.ones(3, 2))
    tensor([[2., 2., 2.]])
    """

    cap: float | None = None  # the soft cap of the scores; None: none

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        q, k = super().prepare(q, k)
        _same_width(q, k, where=type(self).__name__)
        return q, k

    def scale(self, width: int) -> float:
        """The number that multiplies every dot product of prepared vectors of this width."""
        return 1.0

    def compare(self, q: Tensor, k: Tensor, out: Tensor | None = None) -> Tensor:
        scale = self.scale(k.size(-1))
        return soft_cap(torch.matmul(q if scale == 1.0 else q * scale, k.mT, out=out), self.cap)


class ScaledDot(Dot):
    """score = q.k / sqrt(Dk) (scaled dot-product attention): unscaled, dot products grow like sqrt(Dk) and saturate it.

    `scale` replaces 1 / sqrt(Dk): a small one gives a nearly uniform attention, a large one a nearly hard one.
    `cap`: a soft cap, cap tanh(score / cap), that no score passes (Gemma 2).
    """

    def __init__(self, scale: float | None = None, cap: float | None = None) -> None:
        super().__init__()
        self.fixed = None if scale is None else float(scale)
        if cap is not None and not 0 < cap < float("inf"):
            raise SettingError(f"cap={cap}", "a finite number above 0, or None", where="ScaledDot")
        self.cap = None if cap is None else float(cap)

    def scale(self, width: int) -> float:
        return width**-0.5 if self.fixed is None else self.fixed

    def extra_repr(self) -> str:
        given = {"scale": self.fixed, "cap": self.cap}
        return ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)


class Bilinear(Dot):
    """score = q.(W k): Luong's "general", the only dot product between vectors of different widths."""

    def __init__(self, dim: int, keys: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(_width(dim, "dim"), _width(keys or dim, "keys")))
        nn.init.xavier_uniform_(self.weight)

    def queries(self, q: Tensor) -> Tensor:
        _expect_width(q, self.weight.size(0), "queries", "Bilinear")
        return upcast(q) @ upcast(self.weight)

    def keys(self, k: Tensor) -> Tensor:
        _expect_width(k, self.weight.size(1), "keys", "Bilinear")
        return k

    def extra_repr(self) -> str:
        return f"{self.weight.size(0)}, keys={self.weight.size(1)}"


class Cosine(Dot):
    """score = cos(q, k) / temperature: only directions count, so the scores never leave [-1, 1] / temperature."""

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        if not temperature > 0:
            raise SettingError(f"temperature={temperature}", "a number above 0", where="Cosine")
        self.temperature = float(temperature)

    def queries(self, q: Tensor) -> Tensor:
        return _normalised(q)

    def keys(self, k: Tensor) -> Tensor:
        return _normalised(k)

    def scale(self, width: int) -> float:
        return 1 / self.temperature

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"


class Additive(Score):
    """Additive attention, score = v.tanh(Wq q + Wk k): Bahdanau's, and Luong's "concat" with W = [Wq Wk]."""

    def __init__(self, dim: int, hidden: int, keys: int | None = None) -> None:
        super().__init__()
        self.query = nn.Linear(_width(dim, "dim"), _width(hidden, "hidden"), bias=False)
        self.key = nn.Linear(_width(keys or dim, "keys"), hidden, bias=False)
        self.vector = nn.Parameter(torch.empty(hidden).uniform_(-(hidden**-0.5), hidden**-0.5))

    def queries(self, q: Tensor) -> Tensor:
        _expect_width(q, self.query.in_features, "queries", "Additive")
        return nn.functional.linear(upcast(q), upcast(self.query.weight))

    def keys(self, k: Tensor) -> Tensor:
        _expect_width(k, self.key.in_features, "keys", "Additive")
        return nn.functional.linear(upcast(k), upcast(self.key.weight))

    def compare(self, q: Tensor, k: Tensor, out: Tensor | None = None) -> Tensor:
        # tanh(x) = 2 sigmoid(2 x) - 1: an additive score spends its time here, and on a CPU a sigmoid is six times as
        # fast
        vector = self.vector.to(q.dtype)
        activated = (q.unsqueeze(-2) + k.unsqueeze(-3)).mul_(2).sigmoid_()
        return activated @ (2 * vector) - vector.sum()

    def pair_size(self, k: Tensor) -> int:
        return k.size(-1)


class Match(Score):
    """score = 0 where q equals k, -inf where it does not: a Python dict's look-up; several equal keys are averaged."""

    finite = False

    def compare(self, q: Tensor, k: Tensor, out: Tensor | None = None) -> Tensor:
        _same_width(q, k, where="Match")
        equal = (q.unsqueeze(-2) == k.unsqueeze(-3)).all(-1)
        return torch.zeros_like(equal, dtype=q.dtype).masked_fill_(~equal, -torch.inf)

    def pair_size(self, k: Tensor) -> int:
        return k.size(-1)


class CustomScore(Score):
    """A user's function (q, k) -> (..., T, S) as a score; `attend` wraps callables in it."""

    by_pair = False  # it may hold a parameter per head
    finite = False

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def compare(self, q: Tensor, k: Tensor, out: Tensor | None = None) -> Tensor:
        scores = self.function(q, k)
        expected = (*torch.broadcast_shapes(q.shape[:-2], k.shape[:-2]), q.size(-2), k.size(-2))
        if not isinstance(scores, Tensor) or tuple(scores.shape) != expected:
            given = f"shape {tuple(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
            raise ShapeError(given, f"a tensor of shape {expected}", where=f"score {self.function!r}")
        return scores.to(q.dtype, copy=not torch.is_grad_enabled())


_DEFAULT = ScaledDot()


def as_score(score: object) -> Score:
    """The score a user passed, as a Score: None means ScaledDot(), a callable is wrapped."""
    if score is None:
        return _DEFAULT
    if isinstance(score, Score):
        return score
    if callable(score) and not isinstance(score, type):
        return CustomScore(score)
    raise DtypeError(f"score={score!r}", "a score such as ScaledDot(), or a callable (q, k) -> scores", where="attend")


def _normalised(x: Tensor) -> Tensor:
    """x normalised to length 1, in float32 at least, since the square of a half-precision number may overflow."""
    return nn.functional.normalize(upcast(x), dim=-1).to(x.dtype)


def soft_cap(scores: Tensor, cap: float | None) -> Tensor:
    """cap tanh(score / cap), which never passes the cap; in place where no gradient is needed."""
    if cap is None:
        return scores
    if torch.is_grad_enabled():
        return torch.tanh(scores / cap) * cap
    return scores.div_(cap).tanh_().mul_(cap)


def upcast(x: Tensor) -> Tensor:
    """x in float32 at least: a product of half-precision numbers may overflow."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _same_width(q: Tensor, k: Tensor, *, where: str) -> None:
    if not q.size(-1) and not k.size(-1):
        raise ShapeError("queries and keys of width 0", "a width of at least 1", where=where)
    if q.size(-1) != k.size(-1):
        raise ShapeError(
            f"queries of width {q.size(-1)} and keys of width {k.size(-1)}",
            "the same width",
            where=where,
            advice="Bilinear and Additive compare vectors of different widths.",
        )


def _expect_width(x: Tensor, width: int, who: str, where: str) -> None:
    if x.size(-1) != width:
        raise ShapeError(f"{who} of width {x.size(-1)}", f"width {width}", where=where)


def _width(value: int, name: str) -> int:
    if value < 1:
        raise SettingError(f"{name}={value}", "a width of at least 1", where="score")
    return value
