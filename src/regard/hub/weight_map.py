"""Which of their tensors is which of ours: one table for each model, read in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.attention.layers import Fused
from regard.errors import CheckpointError
from regard.runs import fill, weights_of


@dataclass(frozen=True)
class Row:
    """One tensor of ours, and those of theirs that it is made of.

    sizes      how many rows each of theirs has, where several lie one below the other in ours
    turned     theirs is (in, out), ours (out, in)
    skip       rows at the top of theirs that ours does without; they are written as zeros
    flipped    theirs has its rows in the other order
    flat       theirs is (1, n), ours (n,)
    optional   theirs may be missing, and then ours is what `default` makes of it, zeros unless told; a row without
               theirs is so always
    """

    theirs: str | tuple[str, ...]
    ours: str
    sizes: tuple[int, ...] = ()
    turned: bool = False
    skip: int = 0
    flipped: bool = False
    flat: bool = False
    optional: bool = False
    default: Callable[[Tensor], Tensor] = torch.zeros_like

    @property
    def names(self) -> tuple[str, ...]:
        return (self.theirs,) if isinstance(self.theirs, str) else self.theirs

    def inwards(self, parts: Sequence[Tensor]) -> Tensor:
        parts = [part.t() if self.turned else part for part in parts]
        whole = (torch.cat(list(parts)) if len(parts) > 1 else parts[0])[self.skip :]
        whole = whole.squeeze(0) if self.flat else whole
        return whole.flip(0) if self.flipped else whole

    def outwards(self, ours: Tensor) -> list[Tensor]:
        if not self.names:
            return []
        ours = ours.flip(0) if self.flipped else ours
        ours = ours.unsqueeze(0) if self.flat else ours
        parts = ours.split(self.sizes) if self.sizes else [ours]
        if self.skip:
            parts = [torch.cat((part.new_zeros(self.skip, *part.shape[1:]), part)) for part in parts]
        return [(part.t() if self.turned else part).contiguous() for part in parts]

    def at(self, number: int) -> Row:
        """The row of one layer: {} stands for its number."""
        named = tuple(name.format(number) for name in self.names)
        return replace(self, theirs=named, ours=self.ours.format(number))


def layered(rows: Iterable[Row], layers: int) -> list[Row]:
    """Rows with {} in their names, once for each layer."""
    return [row.at(number) for number in range(layers) for row in rows]


def both(theirs: str, ours: str, bias: bool = True, turned: bool = False, optional: bool = False) -> list[Row]:
    """A matrix and its bias, or a norm and its."""
    matrix = Row(f"{theirs}.weight", f"{ours}.weight", turned=turned, optional=optional)
    return [matrix, Row(f"{theirs}.bias", f"{ours}.bias", optional=optional)] if bias else [matrix]


def unsaid(ours: str) -> list[Row]:
    """A matrix and its bias that they do not have."""
    return [Row((), f"{ours}.weight"), Row((), f"{ours}.bias")]


def stacked(theirs: Sequence[str], ours: str, project: nn.Module) -> list[Row]:
    """Their matrices of queries, keys and values, which are one here."""
    assert isinstance(project, Fused)
    sizes = tuple(count * project.width for count in (project.heads, project.key_heads, project.key_heads))
    kinds = ("weight", "bias") if project.bias else ("weight",)
    return [Row(tuple(f"{name}.{kind}" for name in theirs), f"{ours}.{kind}", sizes) for kind in kinds]


def bring_in(model: nn.Module, rows: Sequence[Row], tensors: Mapping[str, Tensor], where: str) -> None:
    """Fill a model of ours from their tensors: all of them, each of the right shape."""
    wanted = weights_of(model)
    known = {name for row in rows for name in row.names}
    missing = [n for row in rows for n in row.names if n not in tensors and not row.optional]
    extra = sorted(tensors.keys() - known)
    if missing or extra:
        came = f"a checkpoint without {_some(missing)}" if missing else f"a checkpoint with {_some(extra)}"
        advice = "Is it whole, and of the architecture that its config.json names?"
        raise CheckpointError(came, "the tensors of its architecture", where=where, advice=advice)
    found: dict[str, Tensor] = {}
    for row in rows:
        target = wanted[row.ours]
        if not row.names or any(name not in tensors for name in row.names):
            found[row.ours] = row.default(target)
            continue
        for name, shape in zip(row.names, (tuple(one.shape) for one in row.outwards(target)), strict=True):
            if tuple(tensors[name].shape) != shape:
                came = f"{name} of shape {tuple(tensors[name].shape)}"
                raise CheckpointError(came, f"{shape}, as config.json says", where=where)
        found[row.ours] = row.inwards([tensors[name] for name in row.names])
    fill(model, found, where)


def carry_out(model: nn.Module, rows: Sequence[Row]) -> dict[str, Tensor]:
    """Their tensors from a model of ours."""
    ours = weights_of(model)
    return {name: part for row in rows for name, part in zip(row.names, row.outwards(ours[row.ours]), strict=True)}


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
