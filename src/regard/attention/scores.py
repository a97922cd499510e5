"""How well does a key fit a query? A score compares pairs: score(q, k) -> (..., T, S).

Each score does its work in two steps: `prepare` looks once at every query and every key, `compare` looks at every
pair of prepared ones. What a pair gets depends on that pair alone, so any part of the map can be computed by itself,
and a score that compares by dot product (Dot and its children) runs on every fast kernel.

Letters: T queries, S keys, Dq and Dk their widths.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.errors import DtypeError, SettingError, ShapeError


class Score(nn.Module, ABC):
    """The common sentence of all scores: prepare each, then compare pairs."""

    by_pair = True  # False: the score must see all leading dimensions (heads, batch) at once
    finite = True  # False: it may give -inf, which hides a key

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """What `compare` needs of each query (..., T, D') and of each key (..., S, D')."""
        return self.queries(q), self.keys(k)

    def queries(self, q: Tensor) -> Tensor:
        """What `compare` needs of each query."""
        return q

    def keys(self, k: Tensor) -> Tensor:
        """What `compare` needs of each key: prepared once where many queries come one after another, see Ready."""
        return k

    @abstractmethod
    def compare(self, q: Tensor, k: Tensor, out: Tensor | None = None) -> Tensor:
        """Scores (..., T, S) of prepared queries and keys, in a tensor that the caller may overwrite.

        `out`: memory of the right shape that may be used for it; those that cannot leave it alone.
        """

    def pair_size(self, k: Tensor) -> int:
        """How many numbers `compare` holds for one pair of prepared queries and keys."""
        return 1

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.compare(*self.prepare(q, k))


class Dot(Score):
    """score = q.k, and the parent of all scores that are a dot product of prepared queries and keys.

    >>> Dot()(torch.ones(1, 2), torch.ones(3, 2))
    tensor([[2., 2., 2.]])
    """

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        q, k = super().prepare(q, k)
        _same_width(q, k, where=type(self).__name__)
        return q, k

    def scale(self, width: int) -> float:
        """The number that multiplies every dot product of prepared vectors of this width."""
        return 1.0

    def compare(self, q: Tensor, k: Tensor, out: Tensor | None = None) -> Tensor:
        scale = self.scale(k.size(-1))
        return torch.matmul(q if scale == 1.0 else q * scale, k.mT, out=out)


class ScaledDot(Dot):
    """score = q.k / sqrt(Dk): dot products of wide vectors grow like sqrt(Dk), which would freeze the softmax.

    `scale` replaces 1 / sqrt(Dk): a small one is a hot, nearly uniform attention, a large one a cold, nearly hard one.
    """

    def __init__(self, scale: float | None = None) -> None:
        super().__init__()
        self.fixed = None if scale is None else float(scale)

    def scale(self, width: int) -> float:
        return width**-0.5 if self.fixed is None else self.fixed

    def extra_repr(self) -> str:
        return "" if self.fixed is None else f"scale={self.fixed}"


class Bilinear(Dot):
    """score = q.(W k): Luong's "general", the only dot product between vectors of different widths."""

    def __init__(self, dim: int, keys: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(_width(dim, "dim"), _width(keys or dim, "keys")))
        nn.init.xavier_uniform_(self.weight)

    def queries(self, q: Tensor) -> Tensor:
        _expect_width(q, self.weight.size(0), "queries", "Bilinear")
        return wide(q) @ wide(self.weight)

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
        return _direction(q)

    def keys(self, k: Tensor) -> Tensor:
        return _direction(k)

    def scale(self, width: int) -> float:
        return 1 / self.temperature

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"


class Additive(Score):
    """score = v.tanh(Wq q + Wk k): Bahdanau's, and Luong's "concat" with W = [Wq Wk] cut in two."""

    def __init__(self, dim: int, hidden: int, keys: int | None = None) -> None:
        super().__init__()
        self.query = nn.Linear(_width(dim, "dim"), _width(hidden, "hidden"), bias=False)
        self.key = nn.Linear(_width(keys or dim, "keys"), hidden, bias=False)
        self.vector = nn.Parameter(torch.empty(hidden).uniform_(-(hidden**-0.5), hidden**-0.5))

    def queries(self, q: Tensor) -> Tensor:
        _expect_width(q, self.query.in_features, "queries", "Additive")
        return nn.functional.linear(wide(q), wide(self.query.weight))

    def keys(self, k: Tensor) -> Tensor:
        _expect_width(k, self.key.in_features, "keys", "Additive")
        return nn.functional.linear(wide(k), wide(self.key.weight))

    def compare(self, q: Tensor, k: Tensor, out: Tensor | None = None) -> Tensor:
        # tanh(x) = 2 sigmoid(2 x) - 1: this is where an additive score spends its time, and on a CPU a sigmoid is
        # six times as quick
        vector = self.vector.to(q.dtype)
        opened = (q.unsqueeze(-2) + k.unsqueeze(-3)).mul_(2).sigmoid_()
        return opened @ (2 * vector) - vector.sum()

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


class Custom(Score):
    """Anybody's function (q, k) -> (..., T, S) as a score; `attend` wraps callables in it."""

    by_pair = False  # it may hold a parameter per head
    finite = False

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def compare(self, q: Tensor, k: Tensor, out: Tensor | None = None) -> Tensor:
        scores = self.function(q, k)
        asked = (*torch.broadcast_shapes(q.shape[:-2], k.shape[:-2]), q.size(-2), k.size(-2))
        if not isinstance(scores, Tensor) or tuple(scores.shape) != asked:
            came = f"shape {tuple(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
            raise ShapeError(came, f"a tensor of shape {asked}", where=f"score {self.function!r}")
        return scores.to(q.dtype, copy=not torch.is_grad_enabled())


_USUAL = ScaledDot()


def as_score(score: object) -> Score:
    """The score a user passed, as a Score: None means ScaledDot(), a callable is wrapped."""
    if score is None:
        return _USUAL
    if isinstance(score, Score):
        return score
    if callable(score) and not isinstance(score, type):
        return Custom(score)
    raise DtypeError(f"score={score!r}", "a score such as ScaledDot(), or a callable (q, k) -> scores", where="attend")


def _direction(x: Tensor) -> Tensor:
    """x at length 1; measured in float32 at least, since the square of a half-precision number may not fit one."""
    return nn.functional.normalize(wide(x), dim=-1).to(x.dtype)


def wide(x: Tensor) -> Tensor:
    """x in float32 at least: a product of half-precision numbers may be larger than they can be."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _same_width(q: Tensor, k: Tensor, *, where: str) -> None:
    if not q.size(-1) and not k.size(-1):
        raise ShapeError("queries and keys of width 0", "at least one number in each", where=where)
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
