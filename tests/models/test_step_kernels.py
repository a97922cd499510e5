"""What the kernels of a training step become for Hopper: so few instructions that memory is what they wait for."""

from typing import Any, NamedTuple

import pytest

from attention.interpreter import Compiled, for_hopper, signature

pytest.importorskip("triton")

from regard.attention.kernels.triton import residual
from regard.models import chunked_cross_entropy_triton, gelu_triton

HALVES = [
    "product",
    "found",
    "grad",
    "product_grad",
    "branch",
    "normed",
    "grad_normed",
    "grad_branch",
    "logits",
]
WHOLES = ["bias", "sums", "x", "weight", "total", "mean", "inverse_std", "grad_total", "grad_x"]
WARPS = 4


class Kind(NamedTuple):
    """A kernel, its constants, and what it may need: registers of a thread, instructions in all for each number that a
    thread takes in one turn of its longest loop."""

    kernel: Any
    constants: dict[str, Any]
    warps: int
    registers: int
    numbers: int
    instructions: float


BENT = {"BIASED": True, "COLS": gelu_triton.COLS}
KINDS = {
    "gelu": Kind(gelu_triton._gelu_kernel, BENT | {"TANH": False, "ROWS": gelu_triton.FORWARD_ROWS}, WARPS, 64, 32, 20),
    "gelu, tanh": Kind(
        gelu_triton._gelu_kernel, BENT | {"TANH": True, "ROWS": gelu_triton.FORWARD_ROWS}, WARPS, 64, 32, 20
    ),
    "gelu, back": Kind(
        gelu_triton._gelu_backward_kernel, BENT | {"TANH": False, "ROWS": gelu_triton.BACKWARD_ROWS}, WARPS, 64, 16, 40
    ),
    "sum and norm": Kind(residual._add_norm_kernel, {"BLOCK": 1024}, 2, 96, 16, 42),
    "sum and norm, back": Kind(residual._add_norm_backward_kernel, {"BLOCK": 1024}, WARPS, 96, 8, 75),
}


def built(kernel: Any, constants: dict[str, Any], warps: int, wholes: list[str]) -> Compiled:
    """For rows whose width is a multiple of 16."""
    from triton.compiler import ASTSource  # type: ignore[import-untyped]

    kinds = {"*bf16": [one for one in HALVES if one not in wholes], "*fp32": wholes, "fp32": ["eps", "smoothing"]}
    told = signature(kernel, constants, kinds | {"*i64": ["targets"]})
    for name in ("width", "row", "rows"):
        if name in kernel.arg_names:
            told["attrs"][(kernel.arg_names.index(name),)] = [["tt.divisibility", 16]]
    return for_hopper(ASTSource(**told), num_warps=warps)


@pytest.mark.parametrize("name", KINDS)
def test_a_kernel_is_short_and_stays_in_its_registers(name: str) -> None:
    kind = KINDS[name]
    done = built(kind.kernel, kind.constants, kind.warps, WHOLES)
    assert done.registers <= kind.registers and not done.spilled
    assert sum(done.instructions.values()) <= kind.instructions * kind.numbers, "in all, not in the loop alone"


def test_gelu_takes_one_exponential_for_a_number() -> None:
    done = built(*KINDS["gelu"][:3], WHOLES)
    assert done.instructions["MUFU"] == KINDS["gelu"].numbers


def test_a_walk_over_logits_leaves_room_for_another_and_takes_little_but_exponentials() -> None:
    constants = {"SMOOTH": False, "IGNORED": -100, "LANES": chunked_cross_entropy_triton.LANES, "EACH": 8}
    done = built(
        chunked_cross_entropy_triton._nll_kernel, constants, chunked_cross_entropy_triton.WARPS, [*WHOLES, "nll"]
    )
    assert done.registers <= 64 and not done.spilled, "two programs on one processor"
    exponentials = done.instructions["MUFU"]
    assert sum(done.instructions.values()) <= 12 * exponentials
