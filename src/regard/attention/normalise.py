"""Attention normalisers: softmax, softmax with an attention sink (learned extra logit), sparsemax, entmax.

A normaliser turns a row of scores into weights. What `attend` calls lse is the one number a row that, with its scores,
gives any of its weights: the log-sum-exp of a softmax, the threshold of sparsemax and entmax.

Sparsemax: Martins and Astudillo 2016. Entmax: Peters, Niculae and Martins 2019, equation 8.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.grid import Grid, Lead, cut, short_repr
from regard.errors import DeviceError, DtypeError, SettingError, ShapeError


class Normaliser(ABC):
    """How the scores (..., t, s) of some queries become weights: whole rows, -inf where a key is hidden."""

    is_softmax = False  # True: the weights are exp(score - lse), so kernels can compute them key by key

    @abstractmethod
    def normalise(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The weights (..., t, s), and lse (..., t). Every row has a finite score."""

    def weights(self, scores: Tensor, lse: Tensor) -> Tensor:
        """The weights of any part of a map: scores (..., t, s), lse (..., t) of their rows, -inf for an empty row."""
        return torch.exp((scores - _column(lse)).clamp(max=0.0))  # rounding may put a huge score above its own lse

    def sink(self, lse: Tensor) -> Tensor | None:
        """What a learned sink took of each row, (..., t); None where there is none."""
        return None

    def part(self, lead: Lead) -> Normaliser:
        """The same for a part of the leading dimensions."""
        return self

    def check(self, grid: Grid, like: Tensor) -> None:
        """Raise an error if this does not fit the map, or the device of the queries."""

    def tensors(self) -> Iterable[Tensor]:
        """The tensors that may need a gradient."""
        return ()


@dataclass(frozen=True)
class Softmax(Normaliser):
    """w = exp(s) / sum exp(s): the weights of a row sum to 1."""

    is_softmax = True

    def normalise(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        return scores.softmax(-1), scores.logsumexp(-1)


@dataclass(frozen=True, eq=False, repr=False)
class Sink(Normaliser):
    """An attention sink: softmax with one more logit a head, which takes weight and has no value (gpt-oss).

    `logits` broadcast to the leading dimensions; (H,) is one a head. The weights of a row sum to less than 1, and lse
    includes the logit; `Attended.sink` tells its share.
    """

    logits: Tensor
    is_softmax = True

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if not isinstance(self.logits, Tensor) or not self.logits.is_floating_point():
            given = f"a tensor of {self.logits.dtype}" if isinstance(self.logits, Tensor) else repr(self.logits)
            raise DtypeError(given, "a floating-point tensor, one logit a head", where="Sink")

    def normalise(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        return self.fold(scores.softmax(-1), scores.logsumexp(-1))

    def column(self, dtype: torch.dtype) -> Tensor:
        """The logits as a column beside the queries: (..., 1)."""
        return self.logits.to(dtype).unsqueeze(-1)

    def fold(self, output: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
        """Output (..., T, D) and log-sum-exp (..., T) of a plain softmax with this sink in them; empty rows stay."""
        empty = lse == -torch.inf
        alone = lse.masked_fill(empty, 0.0)
        total = torch.logaddexp(alone, self.column(lse.dtype))
        share = torch.exp(alone - total).unsqueeze(-1)
        return (output * share).to(output.dtype), total.masked_fill(empty, -torch.inf)

    def sink(self, lse: Tensor) -> Tensor:
        empty = lse == -torch.inf
        return torch.exp(self.column(lse.dtype) - lse.masked_fill(empty, 0.0)).masked_fill(empty, 0.0)

    def part(self, lead: Lead) -> Sink:
        return Sink(cut(self.logits, lead, trailing=0))

    def check(self, grid: Grid, like: Tensor) -> None:
        sizes = list(zip(reversed(self.logits.shape), reversed(grid.lead), strict=False))
        if self.logits.dim() > len(grid.lead) or any(given != 1 and given != size for given, size in sizes):
            raise ShapeError(
                f"logits of shape {tuple(self.logits.shape)}",
                f"a shape that broadcasts to the leading dimensions {grid.lead}",
                where="Sink",
            )
        if self.logits.device != like.device:
            raise DeviceError(f"logits on {self.logits.device}", f"the queries' {like.device}", where="Sink")

    def tensors(self) -> Iterable[Tensor]:
        return (self.logits,)


@dataclass(frozen=True, repr=False)
class Entmax(Normaliser):
    """w = [(alpha - 1) s - tau]+ ^ (1 / (alpha - 1)): sparse weights that sum to 1; alpha 1 is softmax, 2 sparsemax.

    The threshold tau comes exactly from sorted scores for alpha 1.5 and 2, else from bisection. lse is tau.
    """

    alpha: float = 1.5

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if isinstance(self.alpha, bool) or not isinstance(self.alpha, int | float) or not 1 < self.alpha <= MAX_ALPHA:
            advice = "Softmax() is the limit for 1." if self.alpha == 1 else ""
            raise SettingError(
                f"alpha={self.alpha!r}", f"a number above 1 and up to {MAX_ALPHA}", where="Entmax", advice=advice
            )

    def normalise(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        if not scores.size(-1):
            return scores, scores.new_full(scores.shape[:-1], -torch.inf)
        scaled = (self.alpha - 1) * scores
        peak = scaled.detach().amax(-1, keepdim=True)
        shifted = scaled - peak
        with torch.no_grad():
            tau = _threshold(shifted, self.alpha)
        for _ in range(2):  # Newton's steps from the root itself: they move nothing, and carry its derivatives
            base, power = _powers(shifted - tau, self.alpha)
            slope = torch.where(base > 0, base ** ((2 - self.alpha) / (self.alpha - 1)), 0.0).sum(-1, keepdim=True)
            tau = tau + (power.sum(-1, keepdim=True) - 1) * (self.alpha - 1) / slope
        return _powers(shifted - tau, self.alpha)[1], (tau + peak).squeeze(-1)

    def weights(self, scores: Tensor, lse: Tensor) -> Tensor:
        weights = _powers((self.alpha - 1) * scores - _column(lse), self.alpha)[1]
        return weights.masked_fill((lse == -torch.inf).unsqueeze(-1), 0.0)


class Sparsemax(Entmax):
    """w = [s - tau]+: the Euclidean projection of the scores onto weights that sum to 1. lse is tau."""

    def __init__(self) -> None:
        super().__init__(2.0)

    def __repr__(self) -> str:
        return "Sparsemax()"


MAX_ALPHA = 8.0  # beyond it, powers of 1 / (alpha - 1) magnify rounding
BISECTIONS = 60  # halvings of the interval: beyond the precision of float64

_DEFAULT = Softmax()


def as_normaliser(normalise: object) -> Normaliser:
    """The normaliser a user passed: None means Softmax()."""
    if normalise is None:
        return _DEFAULT
    if isinstance(normalise, Normaliser):
        return normalise
    raise DtypeError(f"normalise={normalise!r}", "Softmax(), Sink(logits), Sparsemax() or Entmax(1.5)", where="attend")


def _column(lse: Tensor) -> Tensor:
    """lse beside the keys; 0 for an empty row, whose scores are all -inf."""
    return lse.masked_fill(lse == -torch.inf, 0.0).unsqueeze(-1)


def _powers(above: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Where a scaled score lies above the threshold: by how much, and that to the power 1 / (alpha - 1); else 1 and 0,
    so that no gradient is that of 0 to a power."""
    inside = above > 0
    base = torch.where(inside, above, 1.0)
    return torch.where(inside, base, 0.0), torch.where(inside, base ** (1 / (alpha - 1)), 0.0)


def _threshold(shifted: Tensor, alpha: float) -> Tensor:
    """tau (..., 1) of scaled scores (..., s) whose largest is 0."""
    if alpha == 2.0:
        return _sparsemax_threshold(shifted)
    if alpha == 1.5:
        return _entmax15_threshold(shifted)
    low, high = torch.full_like(shifted[..., :1], -1.0), torch.zeros_like(shifted[..., :1])
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        above = _powers(shifted - middle, alpha)[1].sum(-1, keepdim=True) >= 1
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return low


def _sparsemax_threshold(shifted: Tensor) -> Tensor:
    """Martins and Astudillo 2016, algorithm 1."""
    ordered, count = _ordered(shifted)
    sums = ordered.cumsum(-1)
    support = (1 + count * ordered > sums).sum(-1, keepdim=True)
    return (sums.gather(-1, support - 1) - 1) / support


def _entmax15_threshold(shifted: Tensor) -> Tensor:
    """Peters, Niculae and Martins 2019, algorithm 2: the largest support whose threshold lies below its last score."""
    ordered, count = _ordered(shifted)
    mean, squares = ordered.cumsum(-1) / count, (ordered**2).cumsum(-1) / count
    tau = mean - ((1 - count * (squares - mean**2)) / count).clamp(min=0.0).sqrt()
    support = (tau <= ordered).sum(-1, keepdim=True)
    return tau.gather(-1, support - 1)


def _ordered(shifted: Tensor) -> tuple[Tensor, Tensor]:
    """The scores from the largest down, none below -2 (the threshold lies within 1 of the largest), and 1, 2, 3 ..."""
    ordered = shifted.clamp(min=-2.0).sort(-1, descending=True).values
    return ordered, torch.arange(1, shifted.size(-1) + 1, device=shifted.device, dtype=shifted.dtype)
