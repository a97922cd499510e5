"""What a model says about the next token: a distribution that can be asked how surprised it is, or for everything.

Logits is a softmax over the vocabulary, Sampled one over some of it, for training. Mixture shares its mass with tokens
that were seen, so it can also say words that the vocabulary does not have: their ids are `len(vocabulary)` or more, and
count in both `seen` and the targets.

All are tuples of tensors, so that whatever wraps a model (DDP, FSDP, torch.compile) finds those.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.scores import wide
from regard.models.lazy_copy_weights import Looked
from regard.text import IGNORED


class Prediction(Protocol):
    """A distribution over the next token at each of (...) places."""

    def surprise(self, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """- ln p of each target (...), 0 where it is IGNORED; in float32 at least. `smoothing` spreads that share."""

    def log_probs(self) -> Tensor:
        """ln p of every token, (..., V), or (..., V + extra) where tokens outside the vocabulary were seen."""


class Logits(NamedTuple):
    """p = softmax(logits), logits (..., V)."""

    logits: Tensor

    def surprise(self, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        flat: Tensor = _CrossEntropy.apply(wide(self.logits.flatten(0, -2)), targets.flatten(), smoothing)
        return flat.view(targets.shape)

    def log_probs(self) -> Tensor:
        return wide(self.logits).log_softmax(-1)


class Sampled(NamedTuple):
    """p = softmax over candidates alone: what a softmax over a large vocabulary costs in training, most of it saved.

    logits (..., C) of the words `ids` (C,), ascending, `size` words in all. Every target must be a candidate; a word
    that was drawn with probability s stands for 1 / s of its kind, so its logit comes with - ln s added, and the sum
    under the softmax is right on average (Bengio & Senecal 2008, Jean et al. 2015).
    """

    logits: Tensor
    ids: Tensor
    size: int

    def surprise(self, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """`smoothing` spreads over the candidates."""
        there = targets != IGNORED
        at = torch.searchsorted(self.ids, targets.where(there, self.ids[0])).clamp(max=len(self.ids) - 1)
        found = Logits(self.logits).surprise(at.where(there, IGNORED), smoothing)
        return found.masked_fill(there & (self.ids[at] != targets), torch.inf)  # no candidate: it has no chance at all

    def log_probs(self) -> Tensor:
        """Over the vocabulary; words that were not drawn have no chance."""
        logs = wide(self.logits).log_softmax(-1)
        whole = logs.new_full((*logs.shape[:-1], self.size), -torch.inf)
        return whole.index_copy(-1, self.ids, logs)


class _CrossEntropy(torch.autograd.Function):
    """torch's cross_entropy of rows (N, V), IGNORED ones 0; the way back passes twice over (N, V), not four times."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        logs = logits.log_softmax(-1)
        there = targets != IGNORED
        picked = targets.where(there, 0)
        ctx.save_for_backward(logs, picked, there)
        ctx.smoothing = smoothing
        surprise = -logs.gather(-1, picked.unsqueeze(-1)).squeeze(-1)
        if smoothing:
            surprise = (1 - smoothing) * surprise - smoothing * logs.mean(-1)
        return surprise * there

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, towards: Tensor) -> tuple[Tensor, None, None]:
        logs, picked, there = ctx.saved_tensors
        share = (towards * there).unsqueeze(-1)
        slope = logs.exp()
        if ctx.smoothing:
            slope -= ctx.smoothing / logs.size(-1)
        slope.mul_(share).scatter_add_(-1, picked.unsqueeze(-1), (ctx.smoothing - 1) * share)
        return slope, None, None


class Mixture(NamedTuple):
    """p(w) = share softmax(logits)(w) + the copied weight of every seen token that is w; copied sums to 1 - share.

    logits (B, T, V), share (B, T), copied (B, T, S), seen (B, S) or, where rows of T saw different tokens, (B, T, S).
    Where (B, T, S) numbers are too many to hold, `copied` is a Looked, that knows what each token gets.
    """

    logits: Tensor
    share: Tensor
    copied: Tensor | Looked
    seen: Tensor

    def surprise(self, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """`smoothing` of a mixture spreads over the vocabulary alone."""
        size = self.logits.size(-1)
        known = (targets >= 0) & (targets < size)
        logs = wide(self.logits).log_softmax(-1)
        generated = logs.gather(-1, targets.where(known, 0).unsqueeze(-1)).squeeze(-1).exp() * known * self.share
        copied = self._copied(targets)
        # the smallest normal number keeps a target that nobody can say finite, and its gradient zero
        nll = -(generated + copied).clamp(min=torch.finfo(torch.float32).tiny).log()
        if smoothing:
            nll = (1 - smoothing) * nll - smoothing * logs.mean(-1)
        return nll.masked_fill(targets == IGNORED, 0.0)

    def log_probs(self) -> Tensor:
        """Over the vocabulary and all numbers up to the largest that was seen."""
        size = self.logits.size(-1)
        width = max(size, int(self.seen.max()) + 1) if self.seen.numel() else size
        shares = wide(self.logits).softmax(-1) * self.share.unsqueeze(-1)
        shares = torch.nn.functional.pad(shares, (0, width - size))
        copied = self.weights()
        places = self._places().clamp(min=0).expand_as(copied)  # what was not seen at all (-1) has no weight
        return shares.scatter_add(-1, places, copied.to(shares.dtype)).log()

    def weights(self) -> Tensor:
        """What each seen token gets, (B, T, S)."""
        return self.copied.weights() if isinstance(self.copied, Looked) else self.copied

    def sees(self, targets: Tensor) -> Tensor:
        """Whether the targets (B, T) can be said by copying."""
        if isinstance(self.copied, Looked):
            with torch.no_grad():
                return self._copied(targets) > 0
        return ((self._places() == targets.unsqueeze(-1)) & (self.copied > 0)).any(-1)

    def _copied(self, targets: Tensor) -> Tensor:
        """What the targets (B, T) get by copying, (B, T)."""
        if isinstance(self.copied, Looked):
            return self.copied.mass(self.seen, targets)
        return (self.copied * (self._places() == targets.unsqueeze(-1))).sum(-1)

    def _places(self) -> Tensor:
        return self.seen if self.seen.dim() == 3 else self.seen.unsqueeze(-2)


def sayable(prediction: Prediction, targets: Tensor, unknown: int | None) -> Tensor:
    """The targets (B, T), `unknown` in place of words outside the vocabulary that could not be copied there."""
    if isinstance(prediction, Sampled):
        return targets  # such a model has no words outside its vocabulary
    assert isinstance(prediction, Logits | Mixture)
    outside = targets >= prediction.logits.size(-1)
    if unknown is None or not bool(outside.any()):
        return targets
    if isinstance(prediction, Mixture):
        outside = outside & ~prediction.sees(targets)
    return targets.masked_fill(outside, unknown)
