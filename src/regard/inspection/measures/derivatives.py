"""How a number that a model computes depends on tensors along its way: derivatives, and their integrals from nothing.

What those tensors are, weights of attention or vectors of tokens, is told by `Points`: a with-block in which each of
them passes through a function that may put another in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor

from regard.errors import DtypeError, PlaceError, SettingError, ShapeError

Change = Callable[[str, Tensor], Tensor]
"""What takes the place of a tensor that passes at a named point."""

Points = Callable[[Change], AbstractContextManager[None]]
"""Lets every tensor at some points pass through a Change until the block ends."""

Target = Callable[[], Tensor]
"""Runs the model and returns one number, such as a logit or a loss; the same each time, so the model is in eval()."""

Passed = list[tuple[str, Tensor]]


def gradients(points: Points, target: Target) -> list[tuple[str, Tensor, Tensor]]:
    """Every tensor that passed, in order: its point, its value, and d target / d it, all that follows from it included.

    What the target does not depend on has a gradient of zero.
    """
    passed: Passed = []

    def watched(point: str, x: Tensor) -> Tensor:
        x = x if x.requires_grad else x.detach().requires_grad_()
        passed.append((point, x))
        return x

    with torch.enable_grad(), points(watched):
        said = _number(target())
    slopes = _slopes(said, passed)
    return [(point, x.detach(), slope) for (point, x), slope in zip(passed, slopes, strict=True)]


def integrated(points: Points, target: Target, steps: int) -> list[tuple[str, Tensor]]:
    """Integrated gradients (Sundararajan et al. 2017) of every tensor x that passes: x times the mean of d target / dx
    while all of them together grow from 0 to what they are, and nothing else bears on them.

    They add up to target(x) - target(0), the better the more `steps` there are (Gauss and Legendre's places).
    """
    if steps < 1:
        raise SettingError(f"steps={steps}", "at least 1", where="integrated gradients")
    whole: Passed = []

    def kept(point: str, x: Tensor) -> Tensor:
        whole.append((point, x.detach()))
        return x

    with torch.no_grad(), points(kept):
        _number(target())
    sums = [torch.zeros_like(x) for _, x in whole]
    for share, part in _places(steps):
        passed: Passed = []

        def scaled(point: str, x: Tensor, share: float = share, passed: Passed = passed) -> Tensor:
            number = len(passed)
            if number >= len(whole) or whole[number][0] != point or whole[number][1].shape != x.shape:
                raise ShapeError(
                    f"{tuple(x.shape)} at {point} in call {number}", "the calls of the first run", where="integrated"
                )
            passed.append((point, (share * whole[number][1]).requires_grad_()))
            return passed[-1][1]

        with torch.enable_grad(), points(scaled):
            said = _number(target())
        if len(passed) != len(whole):
            raise ShapeError(f"{len(passed)} calls", f"the {len(whole)} of the first run", where="integrated")
        for total, slope in zip(sums, _slopes(said, passed), strict=True):
            total += part * slope
    return [(point, x * total) for (point, x), total in zip(whole, sums, strict=True)]


def _places(steps: int) -> list[tuple[float, float]]:
    """Places between 0 and 1 and what each of them weighs in a mean."""
    at, weight = np.polynomial.legendre.leggauss(steps)
    return [(float(one), float(share)) for one, share in zip((at + 1) / 2, weight / 2, strict=True)]


def _number(said: Tensor) -> Tensor:
    if not isinstance(said, Tensor) or said.numel() != 1 or not said.is_floating_point():
        came = f"{said.dtype} of shape {tuple(said.shape)}" if isinstance(said, Tensor) else type(said).__name__
        raise DtypeError(f"a target of {came}", "one number, as a tensor", where="gradients")
    return said.sum()


def _slopes(said: Tensor, passed: Passed) -> tuple[Tensor, ...]:
    if not passed:
        raise PlaceError("a target that passes none of these points", "one that runs the model", where="gradients")
    if not said.requires_grad:
        raise DtypeError(
            "a target without a gradient",
            "one that is computed from the model's output",
            where="gradients",
            advice="It must not be detached, nor run under no_grad.",
        )
    return torch.autograd.grad(said, [x for _, x in passed], allow_unused=True, materialize_grads=True)
