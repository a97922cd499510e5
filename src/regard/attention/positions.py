"""Where a token stands: attention by itself knows no order, so positions are added, turned in, or biased in.

Sinusoidal and Learned are added to the vectors, Rotary turns queries and keys, Alibi and Relative are biases of the
scores. Everywhere `offset` says where the first vector stands: an int, or a tensor (B,) with one for each row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.attention.biases import Bias, offset_by
from regard.attention.grid import Grid, Lead
from regard.errors import SettingError, ShapeError

Offset = int | Tensor


class Sinusoidal(nn.Module):
    """x + PE with PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d)); any length."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = _even(dim, "Sinusoidal")

    def table(self, positions: Tensor) -> Tensor:
        """The vectors (..., dim) of these positions (...)."""
        angles = _angles(positions, self.dim, 10000.0)
        return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)

    def forward(self, x: Tensor, offset: Offset = 0) -> Tensor:
        _expect_width(x, self.dim, "Sinusoidal")
        return x + self.table(places(x, offset)).to(x.dtype)


class Learned(nn.Module):
    """x + a learned vector for each of `longest` positions; padding that stands before the first takes its vector."""

    def __init__(self, dim: int, longest: int) -> None:
        super().__init__()
        self.table = nn.Embedding(longest, dim)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, x: Tensor, offset: Offset = 0) -> Tensor:
        _expect_width(x, self.table.embedding_dim, "Learned")
        positions = places(x, offset)
        longest, last = self.table.num_embeddings, _last(x, offset)
        if last >= longest:
            raise ShapeError(
                f"position {last}",
                f"at most {longest - 1}, the last of {longest} learned ones",
                where="Learned",
            )
        return x + self.table(positions if isinstance(offset, int) else positions.clamp(min=0))


WIDE = "That is how wide a head is: as a rule the model's width, divided by its heads."


class Rotary(nn.Module):
    """Turn pairs of numbers by an angle that grows with the position, so that q.k depends on the distance alone.

    `dim`: how many of each vector's numbers are turned, from the left (all of them as a rule). `pairs`: "halves" puts
    number i beside i + dim/2 (Llama), "neighbours" puts 2i beside 2i + 1 (the paper, GPT-J).
    """

    def __init__(self, dim: int, base: float = 10000.0, pairs: str = "halves") -> None:
        super().__init__()
        if pairs not in ("halves", "neighbours"):
            raise SettingError(f"pairs={pairs!r}", "'halves' or 'neighbours'", where="Rotary")
        self.dim, self.base, self.pairs = _even(dim, "Rotary", WIDE), float(base), pairs

    def forward(self, x: Tensor, offset: Offset = 0) -> Tensor:
        """x (..., T, D), turned."""
        if x.size(-1) < self.dim:
            raise ShapeError(f"vectors of width {x.size(-1)}", f"a width of at least {self.dim}", where="Rotary")
        angles = _angles(places(x, offset), self.dim, self.base)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        turned, rest = x[..., : self.dim], x[..., self.dim :]
        split = -1 if self.pairs == "neighbours" else -2
        a, b = turned.unflatten(-1, (-1, 2) if split == -1 else (2, -1)).unbind(split)
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), split).flatten(-2)
        return torch.cat((turned, rest), -1) if rest.size(-1) else turned

    def extra_repr(self) -> str:
        return f"{self.dim}, base={self.base}, pairs={self.pairs!r}"


@dataclass(frozen=True, eq=False)
class Alibi(Bias):
    """score - m_h |distance|: a head h with a steep slope m_h looks nearby, one with a gentle slope looks far.

    The slopes are Press, Smith & Lewis 2022's: 2^(-8h/H) for H a power of two, else every other of the next power's
    between them.
    """

    heads: int
    offset: Offset | None = None
    slopes: Tensor | None = None  # (heads,); None: the paper's
    finite = True

    def __post_init__(self) -> None:
        if self.heads < 1:
            raise SettingError(f"heads={self.heads}", "at least 1", where="Alibi")
        if self.slopes is None:
            object.__setattr__(self, "slopes", _slopes(self.heads))

    def tile(self, rows: Tensor, cols: Tensor) -> Tensor:
        assert self.slopes is not None
        distance = cols - (rows.unsqueeze(-1) + (0 if self.offset is None else self.offset))
        return -self.slopes.to(rows.device)[:, None, None] * distance.abs()

    def placed(self, grid: Grid) -> Bias:
        _expect_heads(self.heads, grid, "Alibi")
        return replace(self, offset=offset_by(self.offset, grid, "Alibi"))

    def part(self, lead: Lead) -> Bias:
        assert self.slopes is not None
        slopes = self.slopes[lead[-1]]
        return replace(self, heads=len(slopes), slopes=slopes, offset=_part(self.offset, lead))


class Relative(nn.Module, Bias):
    """score + b_h(distance): a learned number for each head and distance, those beyond `reach` sharing the last."""

    finite = True

    def __init__(self, heads: int, reach: int, offset: Offset | None = None) -> None:
        super().__init__()
        if heads < 1 or reach < 1:
            raise SettingError(f"heads={heads}, reach={reach}", "both at least 1", where="Relative")
        self.table = nn.Parameter(torch.zeros(heads, 2 * reach + 1))
        self.offset = offset

    def tile(self, rows: Tensor, cols: Tensor) -> Tensor:
        return RelativeTable(self.table, self.offset).tile(rows, cols)

    def placed(self, grid: Grid) -> Bias:
        _expect_heads(self.table.size(0), grid, "Relative")
        return RelativeTable(self.table, offset_by(self.offset, grid, "Relative"))

    def tensors(self) -> Iterable[Tensor]:
        return (self.table,)

    def extra_repr(self) -> str:
        return f"heads={self.table.size(0)}, reach={self.table.size(1) // 2}"


@dataclass(frozen=True, eq=False)
class RelativeTable(Bias):
    """Relative's numbers (heads, 2 reach + 1) as a value that can be placed and parted; the module stays as it is."""

    table: Tensor
    offset: Offset | None
    finite = True

    def tile(self, rows: Tensor, cols: Tensor) -> Tensor:
        reach = self.table.size(-1) // 2
        distance = cols - (rows.unsqueeze(-1) + (0 if self.offset is None else self.offset))
        index = distance.clamp(-reach, reach) + reach  # (t, s), or (B, 1, t, s) with an offset for each row
        if index.dim() == 2:
            return self.table[:, index]
        heads = torch.arange(self.table.size(0), device=index.device)[:, None, None]
        return self.table[heads, index]

    def part(self, lead: Lead) -> Bias:
        return RelativeTable(self.table[lead[-1]], _part(self.offset, lead))

    def tensors(self) -> Iterable[Tensor]:
        return (self.table,)


def places(x: Tensor, offset: Offset = 0) -> Tensor:
    """The positions of x (..., T, D): (T,), or (B, 1, ..., T) to go with x when there is an offset for each row."""
    here = torch.arange(x.size(-2), device=x.device)
    if not isinstance(offset, Tensor) or not offset.dim():
        return here + int(offset)
    if offset.dim() != 1 or x.dim() < 3 or offset.size(0) != x.size(0):
        raise ShapeError(f"offsets {tuple(offset.shape)}", f"one for each row of {tuple(x.shape)}", where="positions")
    return here + offset.to(x.device).reshape(-1, *(1,) * (x.dim() - 2))


def _last(x: Tensor, offset: Offset) -> int:
    """The largest position in x, -1 where there is none; of a plain number without waiting for a device."""
    if not x.size(-2) or (isinstance(offset, Tensor) and not offset.numel()):
        return -1
    return x.size(-2) - 1 + (int(offset.max()) if isinstance(offset, Tensor) else offset)


def _angles(positions: Tensor, dim: int, base: float) -> Tensor:
    """pos / base^(2i/dim) for i = 0 .. dim/2 - 1; in float64, since float32 is off by 0.01 at position 100,000."""
    power = torch.arange(0, dim, 2, device=positions.device, dtype=torch.float64) / dim
    return positions.unsqueeze(-1).double() / base**power


def _slopes(heads: int) -> Tensor:
    power = 2 ** (heads.bit_length() - 1)  # the largest power of two that is not above heads
    steep = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-4 * h / power) for h in range(1, 2 * (heads - power), 2)]
    return torch.tensor(steep + between)


def _part(offset: Offset | None, lead: Lead) -> Offset | None:
    return offset[lead[0]] if isinstance(offset, Tensor) and offset.dim() else offset


def _even(dim: int, where: str, advice: str = "") -> int:
    if dim < 2 or dim % 2:
        raise SettingError(f"dim={dim}", "an even width of at least 2", where=where, advice=advice)
    return dim


def _expect_width(x: Tensor, dim: int, where: str) -> None:
    if x.size(-1) != dim:
        raise ShapeError(f"vectors of width {x.size(-1)}", f"width {dim}", where=where)


def _expect_heads(heads: int, grid: Grid, where: str) -> None:
    if not grid.lead or grid.lead[-1] != heads:
        came = f"{grid.lead[-1]} heads" if grid.lead else "queries without a dimension of heads"
        raise ShapeError(came, f"{heads} heads", where=where)
