"""The keys and values of a decoder that writes token by token, kept between its steps."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import ShapeError


class Cache:
    """Keys and values of the steps before, (B, H, length, width); one for each attention, handed in by the caller.

    Without gradients it grows by doubling, so a step copies only itself; with gradients it concatenates. Where
    `longest` is told there is room for so many from the start, and the memory never moves: for torch.compile.
    """

    def __init__(self, longest: int | None = None) -> None:
        self.length, self.longest = 0, longest
        self._k: Tensor | None = None
        self._v: Tensor | None = None

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add new keys and values at the end and return all of them."""
        if self.longest is not None and self.length + k.size(-2) > self.longest:
            came = f"{self.length + k.size(-2)} keys"
            raise ShapeError(came, f"at most {self.longest}, for which there is room", where="Cache")
        if self._k is None or self._v is None:
            self._k, self._v = (k, v) if self.longest is None else (_room(k, self.longest), _room(v, self.longest))
        elif torch.is_grad_enabled() and (k.requires_grad or self._k.requires_grad):
            old_k, old_v = self.kept()
            self._k, self._v = torch.cat((old_k, k), -2), torch.cat((old_v, v), -2)
        else:
            self._k = _appended(self._k, k, self.length)
            self._v = _appended(self._v, v, self.length)
        self.length += k.size(-2)
        return self.kept()

    def kept(self) -> tuple[Tensor, Tensor]:
        """All keys and values so far."""
        if self._k is None or self._v is None:
            raise ShapeError("an empty cache", "one that something was added to", where="Cache")
        return self._k[..., : self.length, :], self._v[..., : self.length, :]

    def reorder(self, rows: Tensor) -> None:
        """Go on with these rows of the batch, (B',): the survivors of a beam."""
        if self._k is not None and self._v is not None:
            self._k, self._v = self._k.index_select(0, rows), self._v.index_select(0, rows)


def _room(first: Tensor, longest: int) -> Tensor:
    """Memory for `longest` vectors that begins with these."""
    whole = first.new_zeros(*first.shape[:-2], longest, first.size(-1))
    whole[..., : first.size(-2), :] = first
    return whole


def _appended(held: Tensor, new: Tensor, length: int) -> Tensor:
    """`held` with `new` written after its first `length` places, twice as long if there is no room."""
    need = length + new.size(-2)
    if held.size(-2) < need or held.requires_grad:
        larger = held.new_empty(*held.shape[:-2], max(2 * length, need), held.size(-1))
        larger[..., :length, :] = held[..., :length, :]
        held = larger
    held[..., length:need, :] = new
    return held
