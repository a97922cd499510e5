"""Kernel launches by CUDA's driver itself (cuLaunchKernel), for a compiled kernel of Triton whose numbers are known.

Triton's launcher checks and converts every argument in Python, which takes longer than many a kernel runs. Here the
parameters lie ready in memory, and a call writes addresses alone. What a kernel expects is read from its signature and
compared with what the driver says of the size of each parameter; where they differ, Triton's launcher stays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from struct import Struct
from threading import Lock, local
from typing import Any

import torch
from torch import Tensor

NUMBERS: dict[str, Any] = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float, "f32": ctypes.c_float}
MAP_BYTES, MAP_ALIGNMENT = 128, 64  # of a CUtensorMap
SUCCESS = 0
_thread = local()


class DriverLaunch:
    """A compiled kernel with its parameters. Tensors come first among its arguments, then sizes; the rest stays."""

    def __init__(self, compiled: Any, args: Sequence[Any], tensors: int, sizes: int) -> None:
        self.function = ctypes.c_void_p(compiled.function)
        self.threads, self.shared = 32 * compiled.metadata.num_warps, compiled.metadata.shared
        self.compiled, self.lock = compiled, Lock()  # the parameters are one call's until it is launched
        self.maps: list[_TensorMap] = []
        self.sizes: list[Any] = []
        kinds = list(compiled.src.signature.values())
        described = list(compiled.metadata.tensordesc_meta or [])
        self.addresses = (ctypes.c_uint64 * (tensors + 1))()  # one for each tensor; the last is a null pointer
        pointers: list[int] = []
        parameters: list[Any] = []
        kept: list[Any] = []
        for at, (kind, arg) in enumerate(zip(kinds, args, strict=True)):
            if kind == "constexpr":
                if at < tensors:
                    raise Unlaunchable(f"tensor {at} is a constant")
            elif kind.startswith("tensordesc"):
                found = _TensorMap(arg, described[len(self.maps)])
                self.maps.append(found)
                lengths = [ctypes.c_int32(n) for n in arg.shape]
                parameters += [found.address, *lengths, *(ctypes.c_int64(n) for n in arg.strides)]
            elif kind.startswith("*"):
                parameters.append(ctypes.addressof(self.addresses) + 8 * len(pointers))
                pointers.append(at)
            elif kind in NUMBERS:
                parameters.append(NUMBERS[kind](arg))
                if tensors <= at < tensors + sizes:
                    self.sizes.append(parameters[-1])
            else:
                raise Unlaunchable(f"an argument of kind {kind}")
        if [*range(len(self.maps)), *pointers] != list(range(tensors)):
            raise Unlaunchable("tensors are not first, descriptors before others")
        if len(self.sizes) != sizes:
            raise Unlaunchable("a size is a constant")
        null = ctypes.addressof(self.addresses) + 8 * tensors
        parameters += [null, null]  # Triton's memory for the kernel and its profiler, of which it needs none
        self.parameters = (ctypes.c_void_p * len(parameters))()
        for at, one in enumerate(parameters):
            if not isinstance(one, int):
                kept.append(one)
                one = ctypes.addressof(one)
            self.parameters[at] = one
        self.kept = kept
        self.first = len(self.maps)
        self.pack = Struct(f"{len(pointers)}Q").pack_into
        self._check_sizes(kinds)

    def __call__(self, grid: Sequence[int], tensors: Sequence[Any], stream: int, sizes: Sequence[int] = ()) -> None:
        with self.lock:
            for kept, size in zip(self.sizes, sizes, strict=True):
                kept.value = size
            for found, one in zip(self.maps, tensors, strict=False):
                found.point_at(one.data_ptr())
            self.pack(self.addresses, 0, *[x.data_ptr() for x in tensors[self.first :]])
            code = _driver().cuLaunchKernel(
                self.function, *grid, self.threads, 1, 1, self.shared, stream, self.parameters, None
            )
        if code != SUCCESS:
            raise RuntimeError(f"CUDA could not launch {self.compiled.name}: error {code} of the driver")

    def _check_sizes(self, kinds: Sequence[str]) -> None:
        """Compare the parameters with those of the kernel, as the driver knows them."""
        expected: list[int] = []
        for kind in kinds:
            if kind.startswith("tensordesc"):
                rank = kind.partition("[")[2].partition("]")[0].count(",") + 1
                expected += [MAP_BYTES, *[4] * rank, *[8] * rank]
            elif kind != "constexpr":
                expected.append(8 if kind.startswith("*") else ctypes.sizeof(NUMBERS[kind]))
        expected += [8, 8]
        if (found := _parameter_sizes(self.function)) != expected:
            raise Unlaunchable(f"parameters of {found} bytes, not {expected}")


class Unlaunchable(Exception):
    """A kernel that Triton's own launcher must start."""


def driver_launch(compiled: Any, args: Sequence[Any], tensors: int, sizes: int = 0) -> DriverLaunch | None:
    """The launch of a compiled kernel with these arguments, of which the first `tensors`, and `sizes` after them, may
    change; None where only Triton's launcher can."""
    about = compiled.metadata
    extra = [
        getattr(about, name, 0)
        for name in ("global_scratch_size", "profile_scratch_size", "launch_cooperative_grid", "launch_pdl")
    ]
    if torch.version.hip is not None or any(extra) or about.num_ctas != 1:
        return None
    try:
        return DriverLaunch(compiled, args, tensors, sizes)
    except Unlaunchable:
        return None


def current_stream(device: int) -> int:
    """The stream that work of this thread goes to. A thread that has not touched the device yet gets its context."""
    if not getattr(_thread, "ready", False):
        torch.cuda.set_device(torch.cuda.current_device())
        _thread.ready = True
    stream: int = torch._C._cuda_getCurrentRawStream(device)
    return stream


class _TensorMap:
    """A tensor for the tensor memory accelerator: a CUtensorMap whose address can change."""

    def __init__(self, described: Any, about: Any) -> None:
        room = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
        self.room, self.address = room, -(-ctypes.addressof(room) // MAP_ALIGNMENT) * MAP_ALIGNMENT
        self.base = described.base.data_ptr()
        if about is None or about.get("fp4_padded") or described.padding != "zero":
            raise Unlaunchable("a descriptor of another kind")
        self._encode(list(described.shape)[::-1], list(described.strides)[::-1], about)

    def point_at(self, base: int) -> None:
        if base != self.base:
            code = _driver().cuTensorMapReplaceAddress(self.address, base)
            if code != SUCCESS:
                raise RuntimeError(f"CUDA could not move a tensor map: error {code} of the driver")
            self.base = base

    def _encode(self, shape: list[int], strides: list[int], about: Any) -> None:
        """As Triton encodes it; sizes begin with the innermost."""
        from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST  # type: ignore[import-untyped]

        rank, size = len(shape), about["elem_size"]
        sizes, steps = (ctypes.c_uint64 * rank)(*shape), (ctypes.c_uint64 * rank)(*[size * n for n in strides[1:]], 0)
        steps[rank - 1] = prod(shape[-1:]) * steps[rank - 2]
        block, ones = (ctypes.c_uint32 * rank)(*list(about["block_size"])[::-1]), (ctypes.c_uint32 * rank)(*[1] * rank)
        dtype = TMA_DTYPE_DEVICE_TO_HOST[about["elem_type"]]
        l2_promotion_128 = 2
        code = _driver().cuTensorMapEncodeTiled(
            self.address, dtype, rank, self.base, sizes, steps, block, ones, 0, about["swizzle"], l2_promotion_128, 0
        )
        if code != SUCCESS:
            raise Unlaunchable(f"error {code} of cuTensorMapEncodeTiled")


@cache
def _driver() -> Any:
    """CUDA's driver library, with the kinds of the arguments."""
    found = ctypes.CDLL("libcuda.so.1")
    pointer, number, unsigned = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint
    kinds: dict[str, list[Any]] = {
        "cuLaunchKernel": [pointer, *[unsigned] * 7, pointer, pointer, pointer],
        "cuTensorMapReplaceAddress": [pointer, pointer],
        "cuTensorMapEncodeTiled": [pointer, number, unsigned, *[pointer] * 5, *[number] * 4],
        "cuFuncGetParamInfo": [pointer, ctypes.c_size_t, pointer, pointer],
    }
    for name, arguments in kinds.items():
        function: Callable[..., int] = getattr(found, name)
        function.argtypes, function.restype = arguments, number  # type: ignore[attr-defined]
    return found


def _parameter_sizes(function: Any) -> list[int]:
    """The bytes of each parameter of a kernel."""
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    found: list[int] = []
    while _driver().cuFuncGetParamInfo(function, len(found), ctypes.byref(offset), ctypes.byref(size)) == SUCCESS:
        found.append(size.value)
    return found


def device_of(tensors: Sequence[Any]) -> int:
    """The number of the device that tensors, or their descriptors, are on."""
    first = tensors[0]
    on: Tensor = first if isinstance(first, Tensor) else first.base
    return int(on.device.index)
