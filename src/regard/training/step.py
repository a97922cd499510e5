"""One training step: forward and backward with gradient accumulation, gradient clipping, optimiser step; a step whose
gradient is not finite is skipped.

The loss is summed over tokens and divided by the tokens of all accumulated batches on all ranks, so the same rows give
the same gradient however they are split into batches and over ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.text import Batch
from regard.training.distributed import full_tensor
from regard.training.objectives.base import Objective
from regard.training.optimisers import set_learning_rate
from regard.training.state import CarriedState, TrainingState


@dataclass(frozen=True)
class StepResult:
    """What a step computed: the loss summed over this rank's tokens, and the gradient norm and the tokens of all ranks.

    `may_overflow`: a gradient that is not finite is no fault, because fp16 loss scaling reacts to it.
    """

    total: Tensor
    norm: Tensor
    tokens: int
    carried: CarriedState | None
    scalars: AsyncScalars
    may_overflow: bool = False

    @property
    def is_finite(self) -> Tensor:
        """Whether loss and gradient are finite, (), on the device that computed them."""
        return self.norm.isfinite() & self.total.isfinite()


class AsyncScalars:
    """Loss and gradient norm on their way to the CPU: reading them waits for these two, not for later GPU work."""

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


class TrainStep:
    """Trains a state by one step at a time. `clip`: the largest gradient norm (gradient clipping)."""

    def __init__(self, state: TrainingState, objective: Objective[Any], clip: float | None) -> None:
        self.state, self.objective, self.clip = state, objective, clip
        self.world, self.precision = state.world, state.precision

    def backward(self, batches: Sequence[Batch]) -> StepResult:
        """Accumulate the gradients of the mean loss over all tokens of the batches."""
        tokens = sum(batch.all_tokens for batch in batches)
        weight = self.world.ranks / max(1, tokens)  # times the ranks, because DDP and FSDP average over them
        totals, carried = [], self.state.carried
        for number, batch in enumerate(batches, start=1):
            here = _to_device(batch, self.world.device)
            if self.state.distributed.cuda_graphs:
                torch.compiler.cudagraph_mark_step_begin()  # the outputs of the last replay are not needed any more
            with self.state.distributed.gradient_sync(last=number == len(batches)):
                with self.precision.autocast():
                    carry = None if carried is None else carried.for_batch(here)
                    loss = self.objective.loss(self.state.distributed.module, here, carry)
                self.precision.backward(loss.total * weight)
            totals.append(self._detached(loss.total))
            kept = {name: self._detached(tensor) for name, tensor in (loss.carry or {}).items()}
            carried = CarriedState(here.indices, kept) if kept else None
            if number == 1 < len(batches):
                self._own_gradients()
        self.precision.unscale(self.state.optimiser)
        total, norm = sum(totals[1:], start=totals[0]), self._clip_gradients()
        may_overflow = self.precision.kind == "fp16" and self.precision.scale > 1
        return StepResult(total, norm, tokens, carried, AsyncScalars(total, norm), may_overflow)

    def _clip_gradients(self) -> Tensor:
        """Clip the gradients in place; their total norm before that."""
        parameters = [one for one in self.state.model.parameters() if one.grad is not None]
        norm = nn.utils.get_total_norm([one.grad for one in parameters if one.grad is not None])
        if self.clip is not None:
            nn.utils.clip_grads_with_norm_(parameters, self.clip, norm)
        return full_tensor(norm)

    def _detached(self, tensor: Tensor) -> Tensor:
        """A result that outlives the step: a CUDA graph overwrites its outputs when it is replayed."""
        return tensor.detach().clone() if self.state.distributed.cuda_graphs else tensor.detach()

    def _own_gradients(self) -> None:
        """Copy the gradients of the first batch out of the CUDA graph's memory; the other batches add to them."""
        for one in self.state.model.parameters() if self.state.distributed.cuda_graphs else ():
            one.grad = None if one.grad is None else one.grad.clone()

    def update(self, step: StepResult, learning_rate: float, after: StepResult | None = None) -> None:
        """Take the optimiser step and update the weight average; skip both if loss or gradient is not finite.

        `after`: an earlier step whose result has not been checked yet; if it was not finite, this one is skipped too.
        """
        set_learning_rate(self.state.optimiser, learning_rate)
        if self._skips_on_device:
            finite = step.is_finite if after is None else step.is_finite & after.is_finite
            self.state.optimiser.found_inf = (~finite).float()  # type: ignore[attr-defined]  # as a GradScaler sets it
            self.state.optimiser.step()
            if self.can_defer_check(step):
                return
        if self.failure(step) is not None:
            return
        if not self._skips_on_device:
            self.precision.step(self.state.optimiser)
        self.state.carried = step.carried
        if self.state.average is not None:
            self.state.average.update(self.state.progress.step + 1)

    def can_defer_check(self, step: StepResult) -> bool:
        """Whether the next step may start before `failure` of this one is read."""
        stateless = step.carried is None and self.state.carried is None and self.state.average is None
        return self._skips_on_device and stateless

    @property
    def _skips_on_device(self) -> bool:
        """Whether the optimiser kernel itself skips a step that is not finite, so that the CPU need not wait for it.

        The fused optimisers do; with fp16 the loss scaler decides, and several ranks must agree first.
        """
        return self.world.device.type == "cuda" and not self.world.is_distributed and self.precision.kind != "fp16"

    def failure(self, step: StepResult) -> str | None:
        """What is not finite, in words; waits for the device. Ranks go by the gradient norm, which they share."""
        if not self.world.is_distributed and not math.isfinite(step.scalars.total):
            return f"a loss of {step.scalars.total}"
        if math.isfinite(step.scalars.norm) or step.may_overflow:
            return None
        return f"a gradient of norm {step.scalars.norm}"


def _to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch on the device; to a GPU it is copied asynchronously, from pinned memory."""
    return batch.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else batch.to(device)
