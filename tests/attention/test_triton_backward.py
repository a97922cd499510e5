"""The gradients of the dot family against float64, in Triton's interpreter, and what the kernels compile to for Hopper.

An interpreted kernel that writes where it must not damages its process, so the checks run in one of their own: this
file as a script. Each says there what went wrong, and the test repeats it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from attention.interpreter import Checks, disassembled, interpreted, poisoned_memory

pytest.importorskip("triton", reason="Triton is not installed")

from regard.attention import masks
from regard.attention.grid import Grid
from regard.attention.kernels.shapes import Tiling
from regard.attention.kernels.spans import FAR, KeySpans
from regard.attention.kernels.triton.backward import TILINGS, BackwardTilings, gradients

SMALL = BackwardTilings(Tiling(16, 32, 4, 1), Tiling(32, 16, 4, 1))  # several blocks of either kind, of different sizes
check = Checks(__file__)


@dataclass(frozen=True)
class Case:
    """Queries (B, H, T, D), keys and values (B, HK, S, D), what is seen, and the gradients of output and lse."""

    q: Tensor
    k: Tensor
    v: Tensor
    do: Tensor
    dlse: Tensor | None
    reach: KeySpans
    scale: float

    def to(self, dtype: torch.dtype) -> Case:
        q, k, v, do = (x.to(dtype) for x in (self.q, self.k, self.v, self.do))
        return replace(self, q=q, k=k, v=v, do=do)


def drawn(
    reach: KeySpans, B: int = 1, H: int = 1, HK: int = 1, T: int = 37, S: int = 53, D: int = 40, *,
    loud: float = 1.0, dlse: bool = True,
) -> Case:  # fmt: skip
    source = torch.Generator().manual_seed(T + 7 * S + 11 * D + H)
    shapes = ((B, H, T, D), (B, HK, S, D), (B, HK, S, D), (B, H, T, D), (B, H, T))
    q, k, v, do, more = (torch.randn(shape, generator=source).half().float() for shape in shapes)
    return Case((q * loud).half().float(), k, v, do, more if dlse else None, reach, D**-0.5)


def plain(case: Case) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Output, lse and the gradients of q, k, v by autograd, in the case's dtype; 0 for queries that see nothing."""
    q, k, v = (x.detach().requires_grad_() for x in (case.q, case.k, case.v))
    group = q.size(1) // k.size(1)
    scores = (q * case.scale) @ k.repeat_interleave(group, 1).mT
    seen = case.reach.dense(q.size(2), k.size(2)).expand(scores.shape)
    looks = seen.any(-1, keepdim=True)
    scores = scores.masked_fill(~seen & looks, -torch.inf)
    weights = scores.softmax(-1).masked_fill(~looks, 0.0)
    out = weights @ v.repeat_interleave(group, 1)
    lse = scores.logsumexp(-1)
    loss = (out * case.do).sum()
    if case.dlse is not None:
        loss = loss + (lse * case.dlse.to(lse.dtype).masked_fill(~looks[..., 0], 0.0)).sum()
    told = list(torch.autograd.grad(loss, [q, k, v]))
    return out.detach(), lse.detach().masked_fill(~looks[..., 0], -torch.inf), told


def agrees(
    case: Case, dtype: torch.dtype = torch.float32, tilings: BackwardTilings = SMALL, **how: Any
) -> list[Tensor]:
    """No further from float64 than twice plain PyTorch in this dtype is, or than some roundings of numbers of size 1.

    The kernels are given output and lse as exact as this dtype can hold them: what they make of these is at issue.
    """
    out, lse, want = plain(case.to(torch.float64))
    near = plain(case.to(dtype))[2]
    low = case.to(dtype)
    *got, sink = gradients(
        low.do, low.q, low.k, low.v, out.to(dtype), lse.float(), case.dlse, case.reach, case.scale, tilings, **how
    )
    assert not sink.numel()
    rounding = 5e-6 if dtype == torch.float32 else 4 * torch.finfo(dtype).eps
    for name, mine, theirs, exact in zip(("dq", "dk", "dv"), got, near, want, strict=True):
        assert mine.dtype == dtype and mine.shape == exact.shape, name
        off, allowed = float((mine - exact).abs().max()), 2 * float((theirs - exact).abs().max())
        allowed = max(allowed, rounding * max(1.0, float(exact.abs().max())))
        assert off <= allowed, f"{name} is off by {off:.1e}, allowed {allowed:.1e}"
    return list(got)


def both(case: Case) -> None:
    agrees(case, torch.float32)
    agrees(case, torch.float16)


@check
def check_everything_seen() -> None:
    both(drawn(KeySpans()))
    both(drawn(KeySpans(), dlse=False))
    agrees(drawn(KeySpans(), T=64, S=64, D=32))


@check
def check_causal() -> None:
    both(drawn(KeySpans(shift_hi=1), T=70, S=70))
    both(drawn(KeySpans(shift_hi=53 - 37 + 1)))  # the last query sees the last key
    both(drawn(KeySpans(shift_hi=1)))  # keys that nobody sees
    both(drawn(KeySpans(shift_hi=-20)))  # and queries that see nothing


@check
def check_windows() -> None:
    both(drawn(KeySpans(shift_lo=-9, shift_hi=1), T=100, S=100, D=16))
    both(drawn(KeySpans(shift_lo=-40, shift_hi=41), T=100, S=90, D=16))
    both(drawn(KeySpans(shift_lo=30, shift_hi=FAR), T=100, S=90, D=16))
    both(drawn(KeySpans(shift_lo=200, shift_hi=FAR)))  # nobody sees anything


@check
def check_explicit_ends() -> None:
    """Padding on either side, of rows, of heads, and spans that each query has for itself."""
    ones = torch.ones(2, 1, 100, dtype=torch.int32)
    size: dict[str, Any] = {"B": 2, "H": 2, "HK": 2, "T": 100, "S": 90, "D": 16}
    lengths = torch.tensor([0, 71], dtype=torch.int32)[:, None, None]
    both(drawn(KeySpans(lo=0 * ones, hi=ones * lengths), **size))
    both(drawn(KeySpans(shift_hi=1, lo=ones * 13, hi=ones * lengths), **size))
    source = torch.Generator().manual_seed(1)
    lo = torch.randint(0, 90, (1, 2, 100), generator=source, dtype=torch.int32)
    both(drawn(KeySpans(lo=lo, hi=lo + torch.randint(-9, 40, lo.shape, generator=source, dtype=torch.int32)), **size))
    begins = torch.arange(100, dtype=torch.int32)[None, None] // 35 * 35  # one sentence after another
    both(drawn(KeySpans(shift_hi=1, lo=begins, hi=begins + 35), **size))
    quiet = ones * 90
    quiet[:, :, 30:60] = 0  # queries that see nothing between blocks that see all
    both(drawn(KeySpans(lo=0 * ones, hi=quiet), **size))


@check
def check_documents() -> None:
    asking = torch.arange(37, dtype=torch.int32)[None] // 9
    asked = torch.arange(53, dtype=torch.int32)[None] // 11
    both(drawn(KeySpans(query_docs=asking, key_docs=asked), B=2))
    both(drawn(KeySpans(shift_hi=1, query_docs=asking % 2, key_docs=asked % 3)))
    each = torch.stack([asking[0], 3 - asking[0]])
    both(drawn(KeySpans(shift_lo=-20, query_docs=each, key_docs=asked, lo=torch.full((1, 1, 37), 5, dtype=torch.int32),
                     hi=torch.full((1, 1, 37), 50, dtype=torch.int32)), B=2))  # fmt: skip


@check
def check_packed_masks() -> None:
    """Blocks of queries and keys of other sizes than the tiles that are known to have bits."""
    source = torch.Generator().manual_seed(2)
    grid = Grid((2, 2), 70, 90, torch.device("cpu"))
    size: dict[str, Any] = {"B": 2, "H": 2, "HK": 1, "T": 70, "S": 90, "D": 16}
    chosen = torch.randint(-1, 90, (2, 1, 70, 3), generator=source)
    blocks = masks.Blocks(torch.randint(-1, 9, (2, 70, 1), generator=source), 10)
    both(drawn(KeySpans.of(masks.Keys(chosen), grid), **size))
    both(drawn(KeySpans.of(blocks & masks.Causal(), grid), **size))


@check
def check_heads_that_share_keys() -> None:
    both(drawn(KeySpans(shift_hi=17), B=2, H=6, HK=2))
    hi = torch.arange(4, dtype=torch.int32)[None, :, None] * 15 + torch.zeros(2, 1, 37, dtype=torch.int32)
    both(drawn(KeySpans(lo=hi * 0, hi=hi), B=2, H=4, HK=1))


@check
def check_few() -> None:
    both(drawn(KeySpans(), T=1, S=1, D=16))
    both(drawn(KeySpans(), T=1, S=53))
    both(drawn(KeySpans(), T=37, S=1))


@check
def check_huge_scores() -> None:
    agrees(drawn(KeySpans(shift_hi=17), loud=1e3))
    agrees(drawn(KeySpans(shift_hi=17), loud=1e4))


@check
def check_equal_scores() -> None:
    case = drawn(KeySpans(shift_hi=17))
    both(replace(case, k=case.k[:, :, :1].expand_as(case.k)))


@check
def check_queries_that_see_nothing_have_no_gradient() -> None:
    """Even if an infinite or undefined gradient of their lse comes in."""
    case = drawn(KeySpans(shift_hi=-20))
    assert case.dlse is not None
    case.dlse[:, :, :21] = torch.nan
    dq, dk, dv = agrees(case)
    assert not dq[:, :, :21].any() and not dk[:, :, 17:].any() and not dv[:, :, 17:].any()


@check
def check_every_width() -> None:
    for D in (16, 24, 32, 64, 80, 128, 256):
        agrees(drawn(KeySpans(shift_hi=4), T=19, S=22, D=D))


@check
def check_any_strides() -> None:
    """Heads beside each other in memory, gradients that are one number expanded, lengths of one buffer."""
    case = drawn(KeySpans(shift_hi=17), B=2, H=2, HK=2)
    want = agrees(case)
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (case.q, case.k, case.v))
    apart = replace(case, q=q, k=k, v=v)
    got = agrees(apart)
    again = agrees(replace(apart, do=case.do.mT.contiguous().mT))
    for x, y, z in zip(want, got, again, strict=True):
        assert torch.equal(x, y) and torch.equal(x, z)
    agrees(replace(apart, do=torch.ones(1).expand_as(case.q)))


@check
def check_descriptors_give_the_same_bits() -> None:
    told = torch.full((1, 1, 37), 50, dtype=torch.int32)
    for reach in (KeySpans(shift_hi=17), KeySpans(shift_lo=-5, lo=told - 48, hi=told)):
        case = drawn(reach, B=2, H=2, HK=1)
        want, got = (agrees(case, descriptors=how) for how in (False, True))
        assert all(torch.equal(x, y) for x, y in zip(want, got, strict=True))


@check
def check_whatever_lay_in_the_outputs_is_overwritten() -> None:
    with poisoned_memory():
        agrees(drawn(KeySpans(shift_lo=-9, shift_hi=-3)))


@check
def check_the_tilings_that_ship() -> None:
    agrees(drawn(KeySpans(shift_hi=20), T=150, S=170, D=64), torch.float16, TILINGS[64])


@interpreted
@pytest.mark.parametrize("part", range(4))
def test_in_the_interpreter(part: int) -> None:
    check.repeat(part, parts=4)


def sass_of(kernel: Any, D: int, tiling: Tiling, capped: bool = False, packed: bool = False) -> str:
    """The machine code for Hopper of a kernel that fetches bfloat16 tiles by descriptors; no GPU is needed for that."""
    import triton  # type: ignore[import-untyped]
    from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]
    from triton.compiler import ASTSource  # type: ignore[import-untyped]

    constants: dict[str, Any] = {"D": D, "BD": D, "BM": tiling.queries, "BN": tiling.keys, "GROUP": 1, "TMA": True}
    constants |= {"ENDS": False, "DOCUMENTS": False, "CAPPED": capped, "PACKED": packed, "PER_BIT": 1}
    constants |= dict.fromkeys(("LO", "HI", "QDOC", "KDOC", "BOUNDS", "SHARE"), None)
    constants |= {} if packed else dict.fromkeys(("TILES", "COUNTS", "BITS"), None)
    types = dict.fromkeys(("DQ", "DK", "DV"), "*bf16") | dict.fromkeys(("SHIFT", "DELTA"), "*fp32")
    types |= dict.fromkeys(("DO", "Q"), f"tensordesc<bf16[1, 1, {tiling.queries}, {D}]>")
    types |= dict.fromkeys(("K", "V"), f"tensordesc<bf16[1, 1, {tiling.keys}, {D}]>")
    types |= {"c": "fp32", "g": "fp32", "scale": "fp32"} | dict.fromkeys(("TILES", "COUNTS", "BITS"), "*i32")
    names = kernel.arg_names
    constants = {name: value for name, value in constants.items() if name in names}
    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in names}
    aligned = [name for name in names if signature[name].startswith("*") or name.startswith("stride")]
    attrs = {(names.index(name),): [["tt.divisibility", 16]] for name in aligned}
    options = {"num_warps": tiling.warps, "num_stages": tiling.stages}
    built = triton.compile(
        ASTSource(kernel, signature, constants, attrs=attrs), target=GPUTarget("cuda", 90, 32), options=options
    )
    assert built.metadata.shared <= 227 * 1024, "a multiprocessor has no more shared memory"
    return disassembled(built.asm["cubin"])


@pytest.mark.parametrize("name", ["compute_dkdv", "compute_dq"])
@pytest.mark.parametrize("D", list(TILINGS))
def test_compiles_for_hopper_to_its_tensor_cores_without_spills(D: int, name: str) -> None:
    from regard.attention.kernels.triton import backward as kernels

    sass = sass_of(getattr(kernels, name), D, getattr(TILINGS[D], name))
    products = sass.count("HGMMA")
    assert products >= 9, "three or four products in each of three loops"
    assert "UTMALDG" in sass, "tiles are fetched by the tensor memory accelerator"
    assert sass.count("LDL") <= 2, "registers spilled, more than what one loop leaves for the next"
    assert sass.count("WARPGROUP.DEPBAR") < products, "the assembler makes each product wait for the one before"


@pytest.mark.parametrize("name", ["compute_dkdv", "compute_dq"])
@pytest.mark.parametrize(("D", "packed"), [(64, False), (128, False), (64, True)])
def test_soft_caps_and_packed_masks_compile_for_hopper(D: int, packed: bool, name: str) -> None:
    from regard.attention.kernels.triton import backward as kernels

    tiling = getattr(TILINGS[D], name)
    tiling = kernels.CAPPED_TILINGS.get(D, tiling) if name == "compute_dkdv" else tiling
    sass = sass_of(getattr(kernels, name), D, tiling, capped=True, packed=packed)
    assert sass.count("HGMMA") >= (3 if packed else 9) and sass.count("MUFU.TANH")
    assert sass.count("LDL") <= 40, "registers spilled"


if __name__ == "__main__":
    check.run()
