"""The KV cache: keys and values of earlier steps of a decoder; growing, or a static cache of fixed size."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import ShapeError


class KVCache:
    """Keys and values of earlier steps, (B, H, length, width); one cache for each attention, passed in by the caller.

    Without gradients it grows by doubling, so a step copies only its own keys; with gradients it concatenates. With
    `max_length` it is a static cache: all memory is allocated at the start and never moves, as torch.compile needs.
    """

    def __init__(self, max_length: int | None = None) -> None:
        self.length, self.max_length = 0, max_length
        self._k: Tensor | None = None
        self._v: Tensor | None = None

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append new keys and values and return all of them."""
        length = self.length + k.size(-2)
        if self.max_length is not None and length > self.max_length:
            raise ShapeError(f"{length} keys", f"at most max_length={self.max_length}", where="KVCache")
        if self._k is None or self._v is None:
            if self.max_length is None:
                self._k, self._v = k, v
            else:
                self._k, self._v = _preallocate(k, self.max_length), _preallocate(v, self.max_length)
        elif torch.is_grad_enabled() and (k.requires_grad or self._k.requires_grad):
            old_k, old_v = self.contents()
            self._k, self._v = torch.cat((old_k, k), -2), torch.cat((old_v, v), -2)
        else:
            self._k = _append(self._k, k, self.length)
            self._v = _append(self._v, v, self.length)
        self.length = length
        return self.contents()

    def contents(self) -> tuple[Tensor, Tensor]:
        """All keys and values so far."""
        if self._k is None or self._v is None:
            raise ShapeError("The cache is empty", where="KVCache", advice="Call extend first.")
        return self._k[..., : self.length, :], self._v[..., : self.length, :]

    def reorder(self, rows: Tensor) -> None:
        """Keep these rows of the batch, (B',), in this order: the surviving hypotheses of a beam."""
        if self._k is not None and self._v is not None:
            self._k, self._v = self._k.index_select(0, rows), self._v.index_select(0, rows)

    def __repr__(self) -> str:
        limit = "" if self.max_length is None else f" of at most {self.max_length}"
        shape = "empty" if self._k is None else f"{tuple(self.contents()[0].shape)}"
        return f"KVCache(length {self.length}{limit}, {shape})"


def _preallocate(first: Tensor, max_length: int) -> Tensor:
    """Memory for `max_length` vectors that begins with these."""
    buffer = first.new_zeros(*first.shape[:-2], max_length, first.size(-1))
    buffer[..., : first.size(-2), :] = first
    return buffer


def _append(held: Tensor, new: Tensor, length: int) -> Tensor:
    """`held` with `new` written after its first `length` vectors; in memory of twice the length where it is full."""
    need = length + new.size(-2)
    if held.size(-2) < need or held.requires_grad:
        larger = held.new_empty(*held.shape[:-2], max(2 * length, need), held.size(-1))
        larger[..., :length, :] = held[..., :length, :]
        held = larger
    held[..., length:need, :] = new
    return held
