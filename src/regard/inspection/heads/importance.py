"""Head importance by gradients (Michel et al. 2019): |d loss / d gate| for a gate that scales the output of each head.

    I_h = E |Att_h . dL / dAtt_h|        equation 2; Att_h is the output of the head

The gate has one value for each example, so that all heads take one backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from regard.attention import Attended, Observe
from regard.errors import SettingError
from regard.inspection.interventions import replace_weights


def importance(
    model: nn.Module,
    losses: Iterable[Callable[[], Tensor]],
    places: str | Sequence[str] = "*",
    *,
    normalised: bool = True,
) -> dict[str, Tensor]:
    """The importance (H,) of the heads of each place that attends, the mean over all examples.

    `losses`: each runs the model, in eval(), on some independent rows, and returns the sum of their losses.
    `normalised`: divided by the L2 norm over each place, so that places compare, as published.
    """
    sums: dict[str, Tensor] = {}
    rows = 0
    for loss in losses:
        found = _gate_gradients(model, loss, places)
        rows += max(len(grad) for grad in found.values())
        for place, grad in found.items():
            sums[place] = sums.get(place, 0.0) + grad.abs().sum(0)
    if not rows:
        raise SettingError("There are no losses to differentiate", where="importance")
    means = {place: total / rows for place, total in sums.items()}
    return {place: one / one.norm().clamp(min=1e-30) for place, one in means.items()} if normalised else means


def _gate_gradients(model: nn.Module, loss: Callable[[], Tensor], places: str | Sequence[str]) -> dict[str, Tensor]:
    """The derivative of a loss by a gate for each row and head of every place, (B, H)."""
    gates: dict[str, Tensor] = {}

    def on_attention(place: str, got: Attended) -> Tensor:
        assert got.weights is not None
        by_head = got.weights if got.weights.dim() > 3 else got.weights.unsqueeze(-3)  # (B, H, T, S)
        if place not in gates:  # the steps of a decoder share one
            gates[place] = by_head.new_ones(by_head.shape[:-2]).requires_grad_()
        return (by_head * gates[place][..., None, None]).reshape(got.weights.shape)

    with torch.enable_grad(), replace_weights(model, places, Observe(weights=True), on_attention):
        value = loss()
    if not gates or not value.requires_grad:
        raise SettingError(
            "The loss does not depend on any head by a gradient",
            where="importance",
            advice="Where gradients are disabled inside the model, as in a frozen BERT, use ablation.",
        )
    found = torch.autograd.grad(value, list(gates.values()), allow_unused=True, materialize_grads=True)
    return {place: grad.flatten(0, -2) for place, grad in zip(gates, found, strict=True)}
