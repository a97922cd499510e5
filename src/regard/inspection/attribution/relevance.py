"""Relevance propagation through attention (Chefer, Gur & Wolf 2021b): which inputs a decision draws on, class by class.

Each map counts as far as it raises the target: A' = mean over heads of (dy/dA * A)+. Relevance starts as the identity
and follows the layers, streams as in `rollout`:

    self-attention of stream s       R_ss += A' R_ss,   R_sq += A' R_sq                             (equations 6 and 7)
    attention of stream s to q       R_sq += N(R_ss)^T A' N(R_qq),   R_ss += A' R_qs                (10 and 11)
    N(R) = (R - I) with rows that sum to 1, + I                                                     (8 and 9)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import SettingError, ShapeError

RelevanceShares = dict[int, dict[int, Tensor]]
"""By stream, and by the stream of the inputs: the relevance of each input to each vector, (..., T, N)."""


@dataclass(frozen=True, eq=False, repr=False)
class RelevanceLayer:
    """Attention of one place: its weights times the gradient of the target by each of them, (..., H, T, S), and the
    streams of its queries and keys."""

    weight_gradients: Tensor
    queries: int = 0
    keys: int = 0

    def __repr__(self) -> str:
        shape = tuple(self.weight_gradients.shape)
        return f"RelevanceLayer({shape}, queries={self.queries}, keys={self.keys})"

    @property
    def positive(self) -> Tensor:
        """A', (..., T, S): what raises the target, the mean over heads."""
        return self.weight_gradients.clamp(min=0).mean(-3)


def relevance(layers: Sequence[RelevanceLayer]) -> RelevanceShares:
    """The relevance of all inputs to the vectors of every stream after these layers, first to last."""
    sizes = _sizes(layers)
    first = layers[0].weight_gradients
    lead = first.shape[:-3]
    found: RelevanceShares = {
        stream: {stream: torch.eye(size, dtype=first.dtype, device=first.device).expand(*lead, size, size)}
        for stream, size in sizes.items()
    }
    for layer in layers:
        raised, own, below = layer.positive, found[layer.queries], found[layer.keys]
        if layer.queries == layer.keys:
            found[layer.queries] = {origin: share + raised @ share for origin, share in own.items()}
            continue
        through = _normalised(own[layer.queries]).mT @ raised @ _normalised(below[layer.keys])
        changed = dict(own)
        changed[layer.keys] = own[layer.keys] + through if layer.keys in own else through
        if layer.queries in below:
            changed[layer.queries] = own[layer.queries] + raised @ below[layer.queries]
        found[layer.queries] = changed
    return found


def _normalised(shares: Tensor) -> Tensor:
    """N(R) of a stream's relevance to itself (..., T, T)."""
    identity = torch.eye(shares.size(-1), dtype=shares.dtype, device=shares.device)
    rest = shares - identity
    total = rest.sum(-1, keepdim=True)
    return rest / total.masked_fill(total == 0, 1.0) + identity


def _sizes(layers: Sequence[RelevanceLayer]) -> dict[int, int]:
    """The number of tokens of each stream, if the layers fit together."""
    if not layers:
        raise SettingError("There are no layers", where="relevance")
    sizes: dict[int, int] = {}
    for layer in layers:
        shape = layer.weight_gradients.shape
        if len(shape) < 3:
            raise ShapeError(f"a layer {tuple(shape)}", "(..., heads, T, S)", where="relevance")
        for stream, count in zip((layer.queries, layer.keys), shape[-2:], strict=True):
            if sizes.setdefault(stream, count) != count:
                came = f"a layer {tuple(shape)}"
                raise ShapeError(came, f"{sizes[stream]} tokens of stream {stream}, as before it", where="relevance")
    return sizes
