"""Planned kernel launches: what of a launch depends on shapes alone is worked out once, and kept.

Triton looks at every argument of every launch anew, which takes longer than many a kernel runs. A PlannedLaunch keeps
the compiled kernel, its grid, its numbers and constants; a call passes tensors alone. Whoever keeps one must use it for
tensors of the same dtypes, strides and alignment only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.attention.kernels.spans import KeySpans
from regard.attention.kernels.triton.descriptors import is_hopper_supported, tma_descriptor
from regard.attention.kernels.triton.driver_launch import DriverLaunch, current_stream, device_of, driver_launch

ALIGNMENT = 16  # bytes: a compiled kernel may rely on it where the first tensors had it


class PlannedLaunch:
    """One launch of `kernel` whose tensors come first among its parameters; `numbers` and `constants` are the rest.

    `described`: the plans of tensors, the first ones, that are passed by descriptor."""

    __slots__ = ("by_driver", "compiled", "copies", "described", "device", "grid", "kernel", "options", "rest")

    def __init__(
        self, kernel: Any, grid: tuple[int, ...], numbers: Sequence[Any], described: Sequence[DescriptorPlan] = (),
        **constants: Any,
    ) -> None:  # fmt: skip
        names = list(kernel.arg_names)
        self.kernel, self.grid, self.described = kernel, (*grid, 1, 1)[:3], described
        self.copies = [at for at, plan in enumerate(described) if plan.is_copied]
        self.options = {name: value for name, value in constants.items() if name not in names}
        given = [constants[name] for name in names if name in constants]
        self.rest = (*numbers, *given)
        self.compiled: Any = None
        self.by_driver: DriverLaunch | None = None
        self.device = 0

    def __call__(self, *tensors: Tensor | Part, grid: tuple[int, ...] = (), sizes: Sequence[int] = ()) -> None:
        """`grid`: another one than planned; `sizes`: numbers between tensors and the rest, which change."""
        grid = (*grid, 1, 1)[:3] if grid else self.grid
        if self.by_driver is not None:
            if self.copies:
                tensors = tuple(x.contiguous() if at in self.copies else x for at, x in enumerate(tensors))  # type: ignore[union-attr]
            self.by_driver(grid, tensors, current_stream(self.device), sizes)
            return
        whole = [x.tensor() if isinstance(x, Part) else x for x in tensors]
        first = [plan.of(x) for plan, x in zip(self.described, whole, strict=False)]
        args = (*first, *whole[len(first) :], *sizes, *self.rest)
        if self.compiled is not None:
            self.compiled[grid](*args)
            return
        compiled = self.kernel[grid](*args, **self.options)
        if hasattr(compiled, "packed_metadata"):  # nothing is compiled for the interpreter
            self.compiled, self.device = compiled, device_of(args)
            self.by_driver = driver_launch(compiled, args, len(tensors), len(sizes))


class Part:
    """Some numbers of a scratch tensor, from byte `start` on: no tensor is made of them until one must be."""

    __slots__ = ("dtype", "numel", "scratch", "start")

    def __init__(self, scratch: Tensor, start: int, numel: int, dtype: torch.dtype) -> None:
        self.scratch, self.start, self.numel, self.dtype = scratch, start, numel, dtype

    def data_ptr(self) -> int:
        return self.scratch.data_ptr() + self.start

    def tensor(self) -> Tensor:
        return self.scratch[self.start : self.start + self.numel * self.dtype.itemsize].view(self.dtype)


class DescriptorPlan:
    """A tensor (B, H, n, D) for the tensor memory accelerator, `rows` of a head at a time: all but its address."""

    __slots__ = ("is_copied", "rows")

    def __init__(self, x: Tensor, rows: int) -> None:
        self.rows = rows
        self.is_copied = self.of(x).base is not x

    def of(self, x: Tensor) -> Any:
        """The descriptor of a tensor."""
        return tma_descriptor(x, self.rows)


Launches = dict[Any, Any]
"""The planned launches of one signature, by what they compute."""


def runs_on_hopper(launches: Launches, q: Tensor, k: Tensor, spans: KeySpans) -> bool:
    """Whether Hopper's kernels take such tensors and masks."""
    found: bool | None = launches.get("hopper")
    if found is None:
        found = launches["hopper"] = is_hopper_supported(q, k, spans)
    return found


_kept: dict[tuple[Any, ...], Launches] = {}
MAX_KEPT = 4096  # signatures; a program that meets more of them begins anew


def launches_of(
    tensors: Sequence[Tensor], spans: KeySpans, scale: float, cap: float, sink: Tensor | None = None
) -> Launches:
    """The launches that were planned for such tensors, masks and numbers: those of the first call are kept."""
    shapes = [(x.shape, x.stride(), x.data_ptr() % ALIGNMENT == 0) for x in tensors]
    sinks = None if sink is None else (sink.stride(), sink.dtype)
    key = (*shapes, tensors[0].dtype, tensors[0].device, spans.signature(), scale, cap, sinks)
    if (found := _kept.get(key)) is None:
        if len(_kept) >= MAX_KEPT:
            _kept.clear()
        found = _kept[key] = {}
    return found
