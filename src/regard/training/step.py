"""One step: from batches to losses, gradients, and moved weights.

The loss is summed over tokens and divided by the tokens of all batches of the step on all ranks, so the same rows give
the same gradient however they are dealt out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.text.batches.batch import Batch
from regard.training.distributed import whole
from regard.training.objective import Objective
from regard.training.optimisers import set_rate
from regard.training.state import Carried, State


@dataclass(frozen=True)
class Step:
    """What a step found: the loss summed over this rank's tokens, and the gradient's norm and the tokens of all."""

    total: Tensor
    norm: float
    tokens: int
    carried: Carried | None


class Stepper:
    """Does steps on a state. `clip`: gradients longer than that are shortened to it."""

    def __init__(self, state: State, objective: Objective[Any], clip: float | None) -> None:
        self.state, self.objective, self.clip = state, objective, clip
        self.world, self.precision = state.world, state.precision

    def learn(self, batches: Sequence[Batch]) -> Step:
        """Gradients of the mean loss over all tokens."""
        tokens = sum(batch.all_tokens for batch in batches)
        share = self.world.ranks / max(1, tokens)  # times the ranks, because DDP and FSDP take the mean over them
        totals, carried = [], self.state.carried
        for number, batch in enumerate(batches, start=1):
            here = batch.to(self.world.device)
            with self.state.spread.summing(last=number == len(batches)):
                with self.precision.computing():
                    carry = None if carried is None else carried.of(here)
                    loss = self.objective.loss(self.state.spread.module, here, carry)
                self.precision.backward(loss.total * share)
            totals.append(loss.total.detach())
            kept = {name: tensor.detach() for name, tensor in (loss.carry or {}).items()}
            carried = Carried(here.indices, kept) if kept else None
        self.precision.unscale(self.state.optimiser)
        return Step(sum(totals[1:], start=totals[0]), self._clip(), tokens, carried)

    def _clip(self) -> float:
        """The norm of the whole gradient, before it is shortened."""
        parameters = [one for one in self.state.model.parameters() if one.grad is not None]
        norm = nn.utils.get_total_norm([one.grad for one in parameters if one.grad is not None])
        if self.clip is not None:
            nn.utils.clip_grads_with_norm_(parameters, self.clip, norm)
        return float(whole(norm))

    def wrong(self, step: Step) -> str | None:
        """What is not finite. With fp16 an overflow of the gradient is no fault while the scale can still go down.

        Several ranks go by the gradient's norm, which is the same for all, so that they agree.
        """
        if not self.world.several and not math.isfinite(float(step.total)):
            return f"a loss of {float(step.total)}"
        if math.isfinite(step.norm) or (self.precision.kind == "fp16" and self.precision.scale > 1):
            return None
        return f"a gradient of norm {step.norm}"

    def move(self, step: Step, rate: float) -> None:
        """Change the weights along the gradient, and take the averages along."""
        set_rate(self.state.optimiser, rate)
        self.precision.step(self.state.optimiser)
        self.state.carried = step.carried
        if self.state.average is not None:
            self.state.average.follow(self.state.progress.step + 1)
