"""One step: from batches to losses, gradients, and moved weights.

The loss is summed over tokens and divided by the tokens of all batches of the step on all ranks, so the same rows give
the same gradient however they are dealt out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.text import Batch
from regard.training.distributed import whole
from regard.training.objectives.base import Objective
from regard.training.optimisers import set_rate
from regard.training.state import Carried, State


@dataclass(frozen=True)
class Step:
    """What a step found: the loss summed over this rank's tokens, and the gradient's norm and the tokens of all.

    `forgiven`: a gradient that is not finite is no fault, because fp16's scale goes down for it.
    """

    total: Tensor
    norm: Tensor
    tokens: int
    carried: Carried | None
    told: Told
    forgiven: bool = False

    @property
    def fine(self) -> Tensor:
        """Whether all is finite, (), where it was computed."""
        return self.norm.isfinite() & self.total.isfinite()


class Told:
    """Loss and norm on their way to where they can be read: reading them waits for these alone, not for what the device
    was given to do since."""

    def __init__(self, total: Tensor, norm: Tensor) -> None:
        self.numbers = torch.stack((total.detach().double(), norm.double())).to("cpu", non_blocking=True)
        self.ready = None
        if total.device.type == "cuda":
            self.ready = torch.cuda.Event()
            self.ready.record()

    @property
    def total(self) -> float:
        return self._read(0)

    @property
    def norm(self) -> float:
        return self._read(1)

    def _read(self, number: int) -> float:
        if self.ready is not None:
            self.ready.synchronize()
        return float(self.numbers[number])


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
            here = _moved(batch, self.world.device)
            if self.state.spread.graphs:
                torch.compiler.cudagraph_mark_step_begin()  # what the last run gave is not needed any more
            with self.state.spread.summing(last=number == len(batches)):
                with self.precision.computing():
                    carry = None if carried is None else carried.of(here)
                    loss = self.objective.loss(self.state.spread.module, here, carry)
                self.precision.backward(loss.total * share)
            totals.append(self._kept(loss.total))
            kept = {name: self._kept(tensor) for name, tensor in (loss.carry or {}).items()}
            carried = Carried(here.indices, kept) if kept else None
            if number == 1 < len(batches):
                self._keep_gradients()
        self.precision.unscale(self.state.optimiser)
        total, norm = sum(totals[1:], start=totals[0]), self._clip()
        forgiven = self.precision.kind == "fp16" and self.precision.scale > 1
        return Step(total, norm, tokens, carried, Told(total, norm), forgiven)

    def _clip(self) -> Tensor:
        """The norm of the whole gradient, before it is shortened."""
        parameters = [one for one in self.state.model.parameters() if one.grad is not None]
        norm = nn.utils.get_total_norm([one.grad for one in parameters if one.grad is not None])
        if self.clip is not None:
            nn.utils.clip_grads_with_norm_(parameters, self.clip, norm)
        return whole(norm)

    def _kept(self, tensor: Tensor) -> Tensor:
        """A result that stays: those of a recorded graph are overwritten when it runs again."""
        return tensor.detach().clone() if self.state.spread.graphs else tensor.detach()

    def _keep_gradients(self) -> None:
        """The first gradients of a step are the graph's own; the others are added to them."""
        for one in self.state.model.parameters() if self.state.spread.graphs else ():
            one.grad = None if one.grad is None else one.grad.clone()

    def move(self, step: Step, rate: float, after: Step | None = None) -> None:
        """Change the weights along the gradient, and take the averages along; or leave all as it is, if something is
        not finite.

        `after`: a step before, of which nobody knows yet; if it was not finite, neither are these weights moved.
        """
        set_rate(self.state.optimiser, rate)
        if self._by_itself:
            fine = step.fine if after is None else step.fine & after.fine
            self.state.optimiser.found_inf = (~fine).float()  # type: ignore[attr-defined]  # as a GradScaler tells it
            self.state.optimiser.step()
            if self.may_wait(step):
                return
        if self.wrong(step) is not None:
            return
        if not self._by_itself:
            self.precision.step(self.state.optimiser)
        self.state.carried = step.carried
        if self.state.average is not None:
            self.state.average.follow(self.state.progress.step + 1)

    def may_wait(self, step: Step) -> bool:
        """Whether the next step may begin before anybody asks what is `wrong` with this one."""
        return self._by_itself and self.state.average is None and step.carried is None and self.state.carried is None

    @property
    def _by_itself(self) -> bool:
        """Whether the device itself can leave the weights alone, so that it need not stand still until we have looked.

        The fused optimisers can; with fp16 they are told by the scaler, and several ranks must agree first.
        """
        return self.world.device.type == "cuda" and not self.world.several and self.precision.kind != "fp16"

    def wrong(self, step: Step) -> str | None:
        """What is not finite; waits for the device. Several ranks go by the gradient's norm, the same for all."""
        if not self.world.several and not math.isfinite(step.told.total):
            return f"a loss of {step.told.total}"
        if math.isfinite(step.told.norm) or step.forgiven:
            return None
        return f"a gradient of norm {step.told.norm}"


def _moved(batch: Batch, device: torch.device) -> Batch:
    """A batch where it is computed; a GPU fetches it by itself while we go on."""
    return batch.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else batch.to(device)
