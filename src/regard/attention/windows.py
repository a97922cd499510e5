"""Luong's local attention: a window around the query's position (local-m) or a predicted one (local-p).

Luong, Pham & Manning 2015, section 3.2; the half-width D of a recipe is `LuongConfig.half_width`. Positions count from
0. The location score (equation 8) is here too, since it scores positions, not contents.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.attention import masks
from regard.attention.scores import Dot
from regard.errors import DtypeError, SettingError, ShapeError


class LocalM:
    """local-m: softmax over the keys from t - D to t + D; the window of half-width D moves with the query.

    It is just a mask, so every backend serves it. `offset` as in masks.Window, but 0 by default.
    """

    def __init__(self, half_width: int, offset: int | Tensor | None = 0) -> None:
        self.half_width = _half_width(half_width, "LocalM")
        self.mask = masks.Window(half_width, half_width, offset)

    def __repr__(self) -> str:
        return f"LocalM({self.half_width})"


class LocalP(nn.Module):
    """local-p: predict a position p_t, softmax over the keys within D of it, times a Gaussian around it.

    p_t = S sigmoid(v.tanh(W h_t)) (equation 9) and a_t(s) = softmax(score)(s) exp(-(s - p_t)^2 / (2 sigma^2)) with
    sigma = D / 2 (equation 10). S is the row's own number of keys, and the result is not renormalised. The window's
    edges have no gradient; p_t learns through the Gaussian.
    """

    def __init__(self, dim: int, half_width: int, hidden: int | None = None) -> None:
        super().__init__()
        self.half_width = _half_width(half_width, "LocalP")
        self.hidden = nn.Linear(dim, hidden or dim, bias=False)
        self.vector = nn.Parameter(torch.empty(hidden or dim).uniform_(-(dim**-0.5), dim**-0.5))

    def predict(self, q: Tensor) -> Tensor:
        """The predicted position of each query, as a fraction of its keys: (..., T) in (0, 1)."""
        if q.size(-1) != self.hidden.in_features:
            raise ShapeError(f"queries of width {q.size(-1)}", f"width {self.hidden.in_features}", where="LocalP")
        return torch.sigmoid(torch.tanh(self.hidden(q)) @ self.vector)

    def centre(self, predicted: Tensor, allowed: Tensor) -> Tensor:
        """p_t (..., t, 1) among the keys that the mask leaves to each query, allowed (..., t, S)."""
        count = allowed.sum(-1, keepdim=True)
        # argmax returns the first of equals, and raises without keys
        first = allowed.byte().argmax(-1, keepdim=True) if allowed.size(-1) else count
        return first + count * predicted.unsqueeze(-1)

    def inside(self, centre: Tensor, cols: Tensor) -> Tensor:
        """The keys within the window."""
        return (cols - centre).abs() <= self.half_width

    def gaussian(self, centre: Tensor, cols: Tensor) -> Tensor:
        """The Gaussian (..., t, s) that multiplies the weights."""
        sigma = self.half_width / 2
        return torch.exp(-((cols - centre) ** 2) / (2 * sigma**2))

    def extra_repr(self) -> str:
        return f"half_width={self.half_width}"


class Location(Dot):
    """Luong's location score, a_t = softmax(W h_t) (equation 8): row j of W is the key of position j.

    So it is a dot product of the query with a learned key for each position; the contents of k are ignored.
    """

    def __init__(self, dim: int, max_length: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_length, dim))
        nn.init.xavier_uniform_(self.weight)

    def queries(self, q: Tensor) -> Tensor:
        if q.size(-1) != self.weight.size(1):
            raise ShapeError(f"queries of width {q.size(-1)}", f"width {self.weight.size(1)}", where="Location")
        return q

    def keys(self, k: Tensor) -> Tensor:
        max_length, dim = self.weight.shape
        if k.size(-2) > max_length:
            raise ShapeError(f"{k.size(-2)} keys", f"at most max_length={max_length}", where="Location")
        return self.weight[: k.size(-2)].expand(*k.shape[:-1], dim)


def as_window(window: object) -> LocalM | LocalP | None:
    """The window a user passed."""
    if window is None or isinstance(window, LocalM | LocalP):
        return window
    advice = "Pass a masks.Window as mask=." if isinstance(window, masks.Mask) else ""
    raise DtypeError(f"window={window!r}", "windows.LocalM or windows.LocalP", where="attend", advice=advice)


def _half_width(value: int, where: str) -> int:
    if value < 1:
        raise SettingError(f"half_width={value}", "at least 1", where=where)
    return value
