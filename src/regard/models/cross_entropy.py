"""Cross-entropy with label smoothing of a predicted distribution: full softmax, sampled softmax, or copy mixture.

GPT and BERT learn by chunked_cross_entropy.py. Logits is a softmax over the vocabulary, SampledSoftmax one over part
of it, for training. Mixture adds the probability of copying a token, so it can also predict words outside the
vocabulary: their ids are `len(vocabulary)` or more, in `copy_tokens` and targets alike.

All are tuples of tensors, so that wrappers of a model (DDP, FSDP, torch.compile) find those.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.scores import upcast
from regard.models.lazy_copy_weights import LazyCopyWeights
from regard.text import IGNORED


class Prediction(Protocol):
    """A distribution over the next token at each of (...) positions."""

    def nll(self, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Cross-entropy: - ln p of each target (...), 0 where it is IGNORED, in float32 at least; `smoothing`: label
        smoothing."""

    def log_probs(self) -> Tensor:
        """ln p of every token, (..., V), or (..., V + extra) where tokens outside the vocabulary can be copied."""


class Logits(NamedTuple):
    """p = softmax(logits), logits (..., V)."""

    logits: Tensor

    def nll(self, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        flat: Tensor = _CrossEntropy.apply(upcast(self.logits.flatten(0, -2)), targets.flatten(), smoothing)
        return flat.view(targets.shape)

    def log_probs(self) -> Tensor:
        return upcast(self.logits).log_softmax(-1)


class SampledSoftmax(NamedTuple):
    """Sampled softmax: p over candidate words alone, which is cheaper to train with a large vocabulary.

    logits (..., C) of the words `ids` (C,), ascending, of a vocabulary of `size`. Every target must be a candidate. A
    word that was drawn with probability s stands for 1 / s words, so its logit has - ln s added, and the softmax's
    denominator is unbiased (Bengio & Senecal 2008, Jean et al. 2015).
    """

    logits: Tensor
    ids: Tensor
    size: int

    def nll(self, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Label smoothing spreads over the candidates."""
        counted = targets != IGNORED
        at = torch.searchsorted(self.ids, targets.where(counted, self.ids[0])).clamp(max=len(self.ids) - 1)
        found = Logits(self.logits).nll(at.where(counted, IGNORED), smoothing)
        return found.masked_fill(counted & (self.ids[at] != targets), torch.inf)  # no candidate: probability 0

    def log_probs(self) -> Tensor:
        """Over the vocabulary; words that were not drawn have probability 0."""
        logs = upcast(self.logits).log_softmax(-1)
        full = logs.new_full((*logs.shape[:-1], self.size), -torch.inf)
        return full.index_copy(-1, self.ids, logs)


class _CrossEntropy(torch.autograd.Function):
    """torch's cross_entropy of rows (N, V), IGNORED ones 0; its backward passes twice over (N, V), not four times."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        logs = logits.log_softmax(-1)
        counted = targets != IGNORED
        picked = targets.where(counted, 0)
        ctx.save_for_backward(logs, picked, counted)
        ctx.smoothing = smoothing
        nll = -logs.gather(-1, picked.unsqueeze(-1)).squeeze(-1)
        if smoothing:
            nll = (1 - smoothing) * nll - smoothing * logs.mean(-1)
        return nll * counted

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logs, picked, counted = ctx.saved_tensors
        grad = (grad * counted).unsqueeze(-1)
        logits_grad = logs.exp()
        if ctx.smoothing:
            logits_grad -= ctx.smoothing / logs.size(-1)
        logits_grad.mul_(grad).scatter_add_(-1, picked.unsqueeze(-1), (ctx.smoothing - 1) * grad)
        return logits_grad, None, None


class Mixture(NamedTuple):
    """Generate or copy: p(w) = p_gen softmax(logits)(w) + the copy weight of every copy token that is w.

    logits (B, T, V), p_gen (B, T), copy_weights (B, T, S) which sum to 1 - p_gen, copy_tokens (B, S) or (B, T, S).
    Where (B, T, S) weights are too many to store, `copy_weights` are LazyCopyWeights.
    """

    logits: Tensor
    p_gen: Tensor
    copy_weights: Tensor | LazyCopyWeights
    copy_tokens: Tensor

    def nll(self, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Label smoothing of a mixture spreads over the vocabulary alone."""
        size = self.logits.size(-1)
        known = (targets >= 0) & (targets < size)
        logs = upcast(self.logits).log_softmax(-1)
        generated = logs.gather(-1, targets.where(known, 0).unsqueeze(-1)).squeeze(-1).exp() * known * self.p_gen
        copied = self._copy_prob(targets)
        # the smallest normal number keeps the loss of an impossible target finite, and its gradient zero
        nll = -(generated + copied).clamp(min=torch.finfo(torch.float32).tiny).log()
        if smoothing:
            nll = (1 - smoothing) * nll - smoothing * logs.mean(-1)
        return nll.masked_fill(targets == IGNORED, 0.0)

    def log_probs(self) -> Tensor:
        """Over the vocabulary and all ids up to the largest copy token."""
        size = self.logits.size(-1)
        width = max(size, int(self.copy_tokens.max()) + 1) if self.copy_tokens.numel() else size
        probs = upcast(self.logits).softmax(-1) * self.p_gen.unsqueeze(-1)
        probs = torch.nn.functional.pad(probs, (0, width - size))
        weights = self.weights()
        tokens = self._tokens().clamp(min=0).expand_as(weights)  # empty slots (-1) have no weight
        return probs.scatter_add(-1, tokens, weights.to(probs.dtype)).log()

    def weights(self) -> Tensor:
        """The weight of each copy token, (B, T, S)."""
        return self.copy_weights.weights() if isinstance(self.copy_weights, LazyCopyWeights) else self.copy_weights

    def can_copy(self, targets: Tensor) -> Tensor:
        """Whether the targets (B, T) can be copied."""
        if isinstance(self.copy_weights, LazyCopyWeights):
            with torch.no_grad():
                return self._copy_prob(targets) > 0
        return ((self._tokens() == targets.unsqueeze(-1)) & (self.copy_weights > 0)).any(-1)

    def _copy_prob(self, targets: Tensor) -> Tensor:
        """The probability of copying the targets (B, T)."""
        if isinstance(self.copy_weights, LazyCopyWeights):
            return self.copy_weights.mass(self.copy_tokens, targets)
        return (self.copy_weights * (self._tokens() == targets.unsqueeze(-1))).sum(-1)

    def _tokens(self) -> Tensor:
        return self.copy_tokens if self.copy_tokens.dim() == 3 else self.copy_tokens.unsqueeze(-2)


def map_unreachable_to_unk(prediction: Prediction, targets: Tensor, unknown: int | None) -> Tensor:
    """The targets (B, T), with `unknown` for words outside the vocabulary that cannot be copied there."""
    if isinstance(prediction, SampledSoftmax):
        return targets  # these models have no words outside their vocabulary
    assert isinstance(prediction, Logits | Mixture)
    outside = targets >= prediction.logits.size(-1)
    if unknown is None or not bool(outside.any()):
        return targets
    if isinstance(prediction, Mixture):
        outside = outside & ~prediction.can_copy(targets)
    return targets.masked_fill(outside, unknown)
