"""Planned kernel launches: what of a launch depends on shapes alone is worked out once, and kept.

Triton looks at every argument of every launch anew, which takes longer than many a kernel runs. A PlannedLaunch keeps
the compiled kernel, its grid, its numbers and constants; a call passes tensors alone. Whoever keeps one must use it for
tensors of the same dtypes, strides and alignment only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from regard.attention.kernels.spans import Spans

ALIGNMENT = 16  # bytes: a compiled kernel may rely on it where the first tensors had it


class PlannedLaunch:
    """One launch of `kernel` whose tensors come first among its parameters; `numbers` and `constants` are the rest."""

    __slots__ = ("compiled", "grid", "kernel", "options", "rest", "runner")

    def __init__(self, kernel: Any, grid: tuple[int, ...], numbers: Sequence[Any], **constants: Any) -> None:
        names = list(kernel.arg_names)
        self.kernel, self.grid = kernel, (*grid, 1, 1)[:3]
        self.options = {name: value for name, value in constants.items() if name not in names}
        given = [constants[name] for name in names if name in constants]
        self.rest = (*numbers, *given)
        self.compiled: Any = None
        self.runner: Any = None

    def __call__(self, *tensors: Any) -> None:
        if self.runner is not None:
            self.runner(*tensors, *self.rest)
            return
        self._first(self.grid, *tensors, *self.rest)
        self.runner = None if self.compiled is None else self.compiled[self.grid]

    def at(self, grid: tuple[int, ...], tensors: Sequence[Any], sizes: Sequence[int]) -> None:
        """A launch on another grid, with sizes between tensors and numbers that the kernel is not specialised on."""
        grid = (*grid, 1, 1)[:3]
        if self.compiled is None:
            self._first(grid, *tensors, *sizes, *self.rest)
        else:
            self.compiled[grid](*tensors, *sizes, *self.rest)

    def _first(self, grid: tuple[int, ...], *args: Any) -> None:
        compiled = self.kernel[grid](*args, **self.options)
        if hasattr(compiled, "packed_metadata"):  # nothing is compiled for the interpreter
            self.compiled = compiled


class DescriptorPlan:
    """A tensor (B, H, n, D) for the tensor memory accelerator, `rows` of a head at a time: all but its address."""

    __slots__ = ("fields", "is_copied", "kind")

    def __init__(self, x: Tensor, rows: int) -> None:
        from regard.attention.kernels.triton.descriptors import tma_descriptor

        found = tma_descriptor(x, rows)
        self.kind, self.is_copied = type(found), found.base is not x
        self.fields = dict(vars(found))

    def of(self, x: Tensor) -> Any:
        """The descriptor of a tensor with the same shape, strides and dtype."""
        found = object.__new__(self.kind)  # its checks were made when it was planned
        found.__dict__.update(self.fields)
        found.__dict__["base"] = x.contiguous() if self.is_copied else x
        return found


Launches = dict[Any, Any]
"""The planned launches of one signature, by what they compute."""

_kept: dict[tuple[Any, ...], Launches] = {}
MAX_KEPT = 4096  # signatures; a program that meets more of them begins anew


def launches_of(
    tensors: Sequence[Tensor], spans: Spans, scale: float, cap: float, sink: Tensor | None = None
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
