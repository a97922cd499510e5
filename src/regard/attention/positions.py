"""Positions: sinusoidal positional encoding, learned embeddings, rotary (RoPE), ALiBi and relative position biases.

Attention by itself knows no order. Sinusoidal and Learned are added to the vectors, Rotary rotates queries and keys,
Alibi and Relative are biases of the scores. `offset` is the position of the first vector: an int, or a tensor (B,) with
one for each batch row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.attention.biases import Bias, resolve_offset
from regard.attention.grid import Grid, Lead
from regard.errors import SettingError, ShapeError

Offset = int | Tensor


class Sinusoidal(nn.Module):
    """Sinusoidal positional encoding, x + PE, of any length.

    PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d)).
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = _check_even(dim, "Sinusoidal")

    def table(self, positions: Tensor) -> Tensor:
        """The vectors (..., dim) of these positions (...)."""
        angles = _angles(positions, self.dim, 10000.0)
        return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)

    def forward(self, x: Tensor, offset: Offset = 0) -> Tensor:
        _expect_width(x, self.dim, "Sinusoidal")
        return x + self.table(token_positions(x, offset)).to(x.dtype)


class Learned(nn.Module):
    """Learned position embeddings for `max_length` positions; padding before the first position takes its vector."""

    def __init__(self, dim: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_length, dim)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, x: Tensor, offset: Offset = 0) -> Tensor:
        _expect_width(x, self.table.embedding_dim, "Learned")
        positions = token_positions(x, offset)
        max_length, last = self.table.num_embeddings, _last(x, offset)
        if last >= max_length:
            raise ShapeError(
                f"position {last}",
                f"at most {max_length - 1}, since max_length={max_length}",
                where="Learned",
            )
        return x + self.table(positions if isinstance(offset, int) else positions.clamp(min=0))


HEAD_WIDTH_ADVICE = "This is the width of a head: usually the model's width divided by its heads."


class Rotary(nn.Module):
    """Rotary position embedding (RoPE): rotate pairs of dimensions by position, so that q.k depends on the distance.

    `base`: of the frequencies; a GPT has its own (`GPTConfig.rotary_base`). `dim`: how many dimensions of each vector
    are rotated, from the left (usually all). `pairs`: "halves" pairs i with i + dim/2 (Llama), "interleaved" pairs 2i
    with 2i + 1 (the paper, GPT-J).
    """

    def __init__(self, dim: int, base: float = 10000.0, pairs: str = "halves") -> None:
        super().__init__()
        if pairs not in ("halves", "interleaved"):
            raise SettingError(f"pairs={pairs!r}", "'halves' or 'interleaved'", where="Rotary")
        self.dim, self.base, self.pairs = _check_even(dim, "Rotary", HEAD_WIDTH_ADVICE), float(base), pairs

    def forward(self, x: Tensor, offset: Offset = 0) -> Tensor:
        """x (..., T, D), rotated."""
        if x.size(-1) < self.dim:
            raise ShapeError(f"vectors of width {x.size(-1)}", f"a width of at least {self.dim}", where="Rotary")
        angles = _angles(token_positions(x, offset), self.dim, self.base)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        rotated, rest = x[..., : self.dim], x[..., self.dim :]
        split = -1 if self.pairs == "interleaved" else -2
        a, b = rotated.unflatten(-1, (-1, 2) if split == -1 else (2, -1)).unbind(split)
        rotated = torch.stack((a * cos - b * sin, b * cos + a * sin), split).flatten(-2)
        return torch.cat((rotated, rest), -1) if rest.size(-1) else rotated

    def extra_repr(self) -> str:
        return f"{self.dim}, base={self.base}, pairs={self.pairs!r}"


@dataclass(frozen=True, eq=False)
class Alibi(Bias):
    """ALiBi, score - m_h |distance|: a head h with a steep slope m_h attends nearby, one with a gentle slope far away.

    The slopes are Press, Smith & Lewis 2022's: 2^(-8h/H) for H a power of two, else every other of the next power's
    between them.
    """

    heads: int
    offset: Offset | None = None
    slopes: Tensor | None = None  # (heads,); None: the paper's, in float64
    dtype: torch.dtype = torch.float32
    finite = True

    def __post_init__(self) -> None:
        if self.heads < 1:
            raise SettingError(f"heads={self.heads}", "at least 1", where="Alibi")
        if self.slopes is None:
            object.__setattr__(self, "slopes", _alibi_slopes(self.heads))

    def tile(self, rows: Tensor, cols: Tensor) -> Tensor:
        assert self.slopes is not None
        distance = cols - (rows.unsqueeze(-1) + (0 if self.offset is None else self.offset))
        return -self.slopes.to(self.dtype).to(rows.device)[:, None, None] * distance.abs()

    def bind(self, grid: Grid) -> Bias:
        _expect_heads(self.heads, grid, "Alibi")
        return replace(self, offset=resolve_offset(self.offset, grid, "Alibi"))

    def cast(self, dtype: torch.dtype) -> Bias:
        return replace(self, dtype=dtype)

    def part(self, lead: Lead) -> Bias:
        assert self.slopes is not None
        slopes = self.slopes[lead[-1]]
        return replace(self, heads=len(slopes), slopes=slopes, offset=_offset_part(self.offset, lead))


class Relative(nn.Module, Bias):
    """Relative position bias, score + b_h(distance), learned; distances beyond `max_distance` share the last one."""

    finite = True

    def __init__(self, heads: int, max_distance: int, offset: Offset | None = None) -> None:
        super().__init__()
        if heads < 1 or max_distance < 1:
            raise SettingError(f"heads={heads}, max_distance={max_distance}", "both at least 1", where="Relative")
        self.table = nn.Parameter(torch.zeros(heads, 2 * max_distance + 1))
        self.offset = offset

    def tile(self, rows: Tensor, cols: Tensor) -> Tensor:
        return RelativeTable(self.table, self.offset).tile(rows, cols)

    def bind(self, grid: Grid) -> Bias:
        _expect_heads(self.table.size(0), grid, "Relative")
        return RelativeTable(self.table, resolve_offset(self.offset, grid, "Relative"))

    def tensors(self) -> Iterable[Tensor]:
        return (self.table,)

    def extra_repr(self) -> str:
        return f"heads={self.table.size(0)}, reach={self.table.size(1) // 2}"


@dataclass(frozen=True, eq=False)
class RelativeTable(Bias):
    """Relative's numbers (heads, 2 max_distance + 1) as a value that can be bound and cut, unlike the module."""

    table: Tensor
    offset: Offset | None
    finite = True

    def tile(self, rows: Tensor, cols: Tensor) -> Tensor:
        max_distance = self.table.size(-1) // 2
        distance = cols - (rows.unsqueeze(-1) + (0 if self.offset is None else self.offset))
        index = (
            distance.clamp(-max_distance, max_distance) + max_distance
        )  # (t, s), or (B, 1, t, s) with an offset for each row
        if index.dim() == 2:
            return self.table[:, index]
        heads = torch.arange(self.table.size(0), device=index.device)[:, None, None]
        return self.table[heads, index]

    def part(self, lead: Lead) -> Bias:
        return RelativeTable(self.table[lead[-1]], _offset_part(self.offset, lead))

    def tensors(self) -> Iterable[Tensor]:
        return (self.table,)


def token_positions(x: Tensor, offset: Offset = 0) -> Tensor:
    """The positions of x (..., T, D): (T,), or (B, 1, ..., T) to go with x when there is an offset for each row."""
    here = torch.arange(x.size(-2), device=x.device)
    if not isinstance(offset, Tensor) or not offset.dim():
        return here + int(offset)
    if offset.dim() != 1 or x.dim() < 3 or offset.size(0) != x.size(0):
        raise ShapeError(f"offsets {tuple(offset.shape)}", f"one for each row of {tuple(x.shape)}", where="positions")
    return here + offset.to(x.device).reshape(-1, *(1,) * (x.dim() - 2))


def _last(x: Tensor, offset: Offset) -> int:
    """The largest position in x, -1 where there is none; for an int offset, without waiting for a device."""
    if not x.size(-2) or (isinstance(offset, Tensor) and not offset.numel()):
        return -1
    return x.size(-2) - 1 + (int(offset.max()) if isinstance(offset, Tensor) else offset)


def _angles(positions: Tensor, dim: int, base: float) -> Tensor:
    """pos / base^(2i/dim) for i = 0 .. dim/2 - 1; in float64, since float32 is off by 0.01 at position 100,000."""
    power = torch.arange(0, dim, 2, device=positions.device, dtype=torch.float64) / dim
    return positions.unsqueeze(-1).double() / base**power


def _alibi_slopes(heads: int) -> Tensor:
    power = 2 ** (heads.bit_length() - 1)  # the largest power of two up to heads
    steep = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-4 * h / power) for h in range(1, 2 * (heads - power), 2)]
    return torch.tensor(steep + between, dtype=torch.float64)


def _offset_part(offset: Offset | None, lead: Lead) -> Offset | None:
    return offset[lead[0]] if isinstance(offset, Tensor) and offset.dim() else offset


def _check_even(dim: int, where: str, advice: str = "") -> int:
    if dim < 2 or dim % 2:
        raise SettingError(f"dim={dim}", "an even width of at least 2", where=where, advice=advice)
    return dim


def _expect_width(x: Tensor, dim: int, where: str) -> None:
    if x.size(-1) != dim:
        raise ShapeError(f"vectors of width {x.size(-1)}", f"width {dim}", where=where)


def _expect_heads(heads: int, grid: Grid, where: str) -> None:
    if not grid.lead or grid.lead[-1] != heads:
        given = f"{grid.lead[-1]} heads" if grid.lead else "queries without a dimension of heads"
        raise ShapeError(given, f"{heads} heads", where=where)
