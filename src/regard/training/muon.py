"""Muon: a step for a matrix is the nearest rotation to its averaged gradient, so every direction moves as far.

    M <- mu M + (1 - mu) G;   W <- W - rate 0.2 sqrt(max(rows, columns)) orthogonal((1 - mu) G + mu M)

Jordan et al. 2024; the factor is that of Liu et al. 2025, with which a rate means what it means for AdamW, and AdamW is
what moves everything that is no matrix inside the network: words, biases, scales.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, optim
from torch.optim.adamw import adamw

ROUNDS = 5
CURVE = (3.4445, -4.7750, 2.0315)  # of x, x^3 and x^5: singular values come near 1 in five rounds, and stay there


class Muon(optim.Optimizer):
    """`matrices` by Muon, `others` by AdamW, each a list of groups of parameters."""

    def __init__(
        self,
        matrices: Iterable[dict[str, Any]],
        others: Iterable[dict[str, Any]],
        lr: float,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        groups = [{**group, "turns": True} for group in matrices] + [{**group, "turns": False} for group in others]
        super().__init__(groups, {"lr": lr, "momentum": momentum, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if group["turns"]:
                self._turn(group, weights)
            elif weights:
                self._adamw(group, weights)
        return loss

    def _turn(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        alike = defaultdict(list)  # matrices of one shape take one product for all of them
        for weight in weights:
            alike[weight.shape, weight.device].append(weight)
        for same in alike.values():
            means = [self._memory(weight, "momentum_buffer") for weight in same]
            gradients = _gradients(same)
            torch._foreach_lerp_(means, gradients, 1 - group["momentum"])
            ahead = torch._foreach_lerp(gradients, means, group["momentum"])
            turns = orthogonal(torch.stack(ahead)).to(same[0].dtype)
            torch._foreach_mul_(same, 1 - group["lr"] * group["weight_decay"])
            size = 0.2 * max(same[0].shape) ** 0.5
            torch._foreach_add_(same, list(turns.unbind()), alpha=-group["lr"] * size)

    def _adamw(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        fused = all(weight.device.type in ("cpu", "cuda") for weight in weights)
        steps = []
        for weight in weights:
            counted = self.state[weight]
            if "step" not in counted:
                counted["step"] = torch.zeros((), device=weight.device)
            steps.append(counted["step"])
        adamw(
            weights,
            _gradients(weights),
            [self._memory(weight, "exp_avg") for weight in weights],
            [self._memory(weight, "exp_avg_sq") for weight in weights],
            [],
            steps,
            fused=fused,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )

    def _memory(self, weight: Tensor, name: str) -> Tensor:
        held = self.state[weight]
        if name not in held:
            held[name] = torch.zeros_like(weight)
        found: Tensor = held[name]
        return found


def _gradients(weights: list[Tensor]) -> list[Tensor]:
    return [weight.grad for weight in weights if weight.grad is not None]


def orthogonal(x: Tensor) -> Tensor:
    """x (n, rows, columns) with all singular values near 1 (0.7 to 1.2), by Newton-Schulz rounds in bfloat16."""
    a, b, c = CURVE
    turned = x.size(-2) > x.size(-1)
    y = (x.mT if turned else x).bfloat16()
    y = y / (y.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(ROUNDS):
        square = y @ y.mT
        y = torch.baddbmm(y, torch.baddbmm(square, square, square, beta=b, alpha=c), y, beta=a)
    return y.mT if turned else y
