"""How much each head matters by gradients: |what the loss would change if the head spoke a little louder|.

    I_h = E |Att_h . dL / dAtt_h|        Michel et al. 2019, equation 2; Att_h is what the head says

That is the derivative of the loss by a gate on the head, one for each example, so it takes one backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from regard.attention import Attended, Observe
from regard.errors import SettingError
from regard.inspection.interventions import answered


def importance(
    model: nn.Module,
    losses: Iterable[Callable[[], Tensor]],
    places: str | Sequence[str] = "*",
    *,
    normalised: bool = True,
) -> dict[str, Tensor]:
    """The importance (H,) of the heads of each place that attends, the mean over all examples.

    `losses`: each runs the model, in eval(), on some rows that do not see each other, and gives the sum of their
    losses. `normalised`: divided by its length at each place, so that places compare, as published.
    """
    sums: dict[str, Tensor] = {}
    rows = 0
    for loss in losses:
        found = _slopes(model, loss, places)
        rows += max(len(slope) for slope in found.values())
        for place, slope in found.items():
            sums[place] = sums.get(place, 0.0) + slope.abs().sum(0)
    if not rows:
        raise SettingError("no losses", "at least one", where="importance")
    means = {place: total / rows for place, total in sums.items()}
    return {place: one / one.norm().clamp(min=1e-30) for place, one in means.items()} if normalised else means


def _slopes(model: nn.Module, loss: Callable[[], Tensor], places: str | Sequence[str]) -> dict[str, Tensor]:
    """The derivative of a loss by a gate for each row and head of every place, (B, H)."""
    gates: dict[str, Tensor] = {}

    def hear(place: str, got: Attended) -> Tensor:
        assert got.weights is not None
        by_head = got.weights if got.weights.dim() > 3 else got.weights.unsqueeze(-3)  # (B, H, T, S)
        if place not in gates:  # of a decoder's steps all have one
            gates[place] = by_head.new_ones(by_head.shape[:-2]).requires_grad_()
        return (by_head * gates[place][..., None, None]).reshape(got.weights.shape)

    with torch.enable_grad(), answered(model, places, Observe(weights=True), hear):
        said = loss()
    if not gates or not said.requires_grad:
        raise SettingError(
            "a loss that no head bears on",
            "one that a model with attention computes",
            where="importance",
            advice="Where gradients are switched off inside, as in a BERT that is not tuned, ablate instead.",
        )
    found = torch.autograd.grad(said, list(gates.values()), allow_unused=True, materialize_grads=True)
    return {place: slope.flatten(0, -2) for place, slope in zip(gates, found, strict=True)}
