"""The share of one token by Triton's kernels against float64, in its interpreter; what they become for Hopper."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from attention.interpreter import Checks, for_hopper, interpreted, poisoned_memory, signature
from regard.attention import DenseBias, masks, scores
from regard.attention.copy_attention import copy_log_prob
from regard.attention.masks import Mask
from regard.errors import BackendError

pytest.importorskip("triton", reason="Triton is not installed")

from regard.attention.kernels.shapes import Tiling
from regard.attention.kernels.triton.copy_kernels import FLOAT32_TILINGS, TILINGS

checks = Checks(__file__)
F16, F32, F64 = torch.float16, torch.float32, torch.float64


@dataclass(frozen=True)
class Case:
    """Queries (B, H, T, D), keys (B, few, S, D), their tokens (B, S), those asked about (B, T), who may look where."""

    q: Tensor
    k: Tensor
    ids: Tensor
    targets: Tensor
    mask: Mask | None = None
    score: object = None


def drawn(
    mask: Mask | None = None, T: int = 37, S: int = 85, D: int = 24, heads: int = 2, few: int = 2, *,
    loud: float = 1.0, tokens: int = 6,
) -> Case:  # fmt: skip
    source = torch.Generator().manual_seed(T + 7 * S + 11 * D)
    q, k = (torch.randn(shape, generator=source) for shape in ((2, heads, T, D), (2, few, S, D)))
    ids, targets = (torch.randint(tokens, (2, n), generator=source) for n in (S, T))
    targets[:, ::7] = tokens  # nobody's
    return Case((q * loud).half().float(), k.half().float(), ids, targets, mask)


def told(case: Case, dtype: torch.dtype, backend: str, come: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
    """ln mass, and the gradients of q and k for a gradient that comes in."""
    q, k = (x.to(dtype).detach().requires_grad_() for x in (case.q, case.k))
    got = copy_log_prob(q, k, case.ids, case.targets, mask=case.mask, score=case.score, backend=backend)
    if come is None:
        come = torch.randn(got.shape, generator=torch.Generator().manual_seed(1))
    return got.detach(), list(torch.autograd.grad(got, (q, k), come.to(got.dtype)))


def composed(case: Case, dtype: torch.dtype) -> list[Tensor]:
    """The same in plain PyTorch: a softmax, a sum over what matches, a logarithm."""
    q, k = (x.to(dtype).detach().requires_grad_() for x in (case.q, case.k))
    group, (T, S) = q.size(1) // k.size(1), (q.size(2), k.size(2))
    scaled = (q * q.size(-1) ** -0.5) @ k.repeat_interleave(group, 1).mT
    seen = torch.ones(T, S, dtype=torch.bool) if case.mask is None else case.mask.dense(T, S, (2, q.size(1)))
    weights = scaled.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num()
    share = (weights * (case.targets[:, None, :, None] == case.ids[:, None, None, :])).sum(-1)
    logs = share.where(share > 0, 1.0).log()
    come = torch.randn(share.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    return [logs.masked_fill(share == 0, -torch.inf).detach(), *torch.autograd.grad(logs, (q, k), come)]


def agrees(case: Case, dtype: torch.dtype = F32) -> None:
    """No further from float64 than twice plain PyTorch in this dtype is, or than some roundings of its inputs."""
    logs, slopes = told(case, F64, "plain")
    mine, own = told(case, dtype, "triton")
    near, *theirs = composed(case, dtype)
    assert mine.dtype == F32 and torch.equal(mine.isfinite(), logs.isfinite()), "-inf in other places"
    assert all(x.dtype == dtype for x in own)
    eps = torch.finfo(dtype).eps
    known = logs.isfinite() & near.isfinite()
    compared = [("mass", mine[known], near[known], logs[known])]
    compared += list(zip(("dq", "dk"), own, theirs, slopes, strict=True))
    for name, got, usual, exact in compared:
        if not exact.numel():
            continue
        off, allowed = (float((x.double() - exact).abs().max()) for x in (got, usual))
        allowed = 2 * allowed + 8 * eps * max(1.0, float(exact.abs().max()))
        assert off <= allowed, f"{name} is off by {off:.1e}, allowed {allowed:.1e}"


def both(case: Case) -> None:
    agrees(case, F32)
    agrees(case, F16)


@checks
def check_every_mask_at_lengths_that_are_no_multiple_of_a_block() -> None:
    T, S = 37, 85
    for mask in (
        None,
        masks.Causal(),
        masks.Past(),
        masks.Past(offset=0),
        masks.Window(5, 3),
        masks.Window(40, 30, 0),
        masks.Window(5, 3, torch.tensor([2, 9])),
        masks.Padding([S, S // 3], [T, T // 2]),
        masks.Padding([S, 4], side="left"),
        masks.Past() & masks.Padding([S, S // 2]) & masks.Window(30, 0),
        masks.Documents(torch.arange(S) // 5 % 3, torch.arange(T) // 5 % 3),
        masks.Past() & masks.Documents(torch.stack((torch.arange(S) // 7, torch.arange(S) // 30))),
    ):
        both(drawn(mask))


@checks
def check_lengths_of_many_blocks() -> None:
    agrees(drawn(masks.Past(), T=200, S=200, heads=1, few=1))
    agrees(drawn(masks.Window(70, -3), T=200, S=200, heads=1, few=1))
    agrees(drawn(masks.Padding([190, 70], [200, 130]), T=200, S=190, heads=1, few=1))
    agrees(drawn(T=1, S=85))
    agrees(drawn(T=37, S=1))


@checks
def check_heads_that_share_keys_and_widths() -> None:
    both(drawn(masks.Past(), heads=6, few=2))
    agrees(drawn(masks.Padding([60, 31]), heads=4, few=1))
    for D in (1, 16, 40, 64, 130):
        agrees(drawn(masks.Past(), T=9, S=20, D=D))


@checks
def check_three_dimensions_and_tokens_that_rows_share() -> None:
    case = drawn(masks.Past())
    q, k = case.q[:, 0], case.k[:, 0]
    want, got = (
        copy_log_prob(q.to(dtype), k.to(dtype), case.ids[0], case.targets[0].int(), mask=case.mask, backend=backend)
        for dtype, backend in ((F64, "plain"), (F32, "triton"))
    )
    torch.testing.assert_close(got.double(), want, rtol=0, atol=2e-6)


@checks
def check_huge_scores() -> None:
    agrees(drawn(masks.Causal(), loud=10.0))
    case = drawn(masks.Causal(), loud=10.0)  # composition of float16 has gradients that are no numbers here
    for got, want in zip(told(case, F16, "triton")[1], told(case, F64, "plain")[1], strict=True):
        assert float((got.double() - want).abs().max()) <= 2 * torch.finfo(F16).eps * float(want.abs().max())
    case = drawn(masks.Causal(), loud=2e3)  # most shares are too small for a float32, their logarithms are not
    (want, slopes), (got, own) = told(case, F64, "plain"), told(case, F32, "triton")
    assert torch.equal(got.isfinite(), want.isfinite()) and float(want[want.isfinite()].min()) < -1000
    for x, y in ((got[want.isfinite()], want[want.isfinite()]), *zip(own, slopes, strict=True)):
        torch.testing.assert_close(x.double(), y, rtol=1e-5, atol=2e-3)


@checks
def check_equal_scores_and_one_token() -> None:
    case = drawn(masks.Causal())
    both(replace(case, k=case.k[:, :, :1].expand_as(case.k)))
    one = replace(case, ids=case.ids * 0, targets=case.targets * 0)
    for dtype in (F32, F16):
        got, slopes = told(one, dtype, "triton")
        assert not got.any() and not any(slope.any() for slope in slopes)


@checks
def check_a_token_that_is_nowhere_has_no_gradient_whatever_comes_in() -> None:
    for mask in (masks.Past(0), masks.Padding([85, 0])):
        case = drawn(mask)
        for dtype in (F32, F16):
            nan = torch.where(told(case, dtype, "triton")[0] == -torch.inf, torch.nan, 1.0)
            got, (dq, dk) = told(case, dtype, "triton", nan)
            assert not dq[got == -torch.inf].any() and dq.isfinite().all() and dk.isfinite().all() and dk.any()


@checks
def check_any_scale_and_any_strides() -> None:
    case = drawn(masks.Past())
    want = told(case, F32, "triton")
    q, k = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (case.q, case.k))
    got = told(replace(case, q=q, k=k), F32, "triton")
    assert torch.equal(want[0], got[0]) and all(map(torch.equal, want[1], got[1]))
    for score in (scores.ScaledDot(3.0), scores.ScaledDot(1e-3), scores.Cosine(0.2)):
        (exact, slopes), (mine, own) = (
            told(replace(case, score=score), *how) for how in ((F64, "plain"), (F32, "triton"))
        )
        for x, y in ((mine, exact), *zip(own, slopes, strict=True)):
            torch.testing.assert_close(x.double(), y, rtol=2e-5, atol=1e-5)


@checks
def check_whatever_lay_in_the_outputs_is_overwritten() -> None:
    with poisoned_memory():
        both(drawn(masks.Window(9, -3)))


@checks
def check_operators_are_known_to_the_compiler() -> None:
    from regard.attention.kernels.triton import copy as operators

    case = drawn(T=6, S=9, D=16)
    q, k = (x.requires_grad_() for x in (case.q, case.k))
    none = (None, None, None, None)
    torch.library.opcheck(operators._copy_log_prob, (q, k, case.ids, case.targets, *none, -(2**30), 4, 0.25))

    def share(q: Tensor, k: Tensor) -> Tensor:
        return copy_log_prob(q, k, case.ids, case.targets, mask=masks.Causal(), backend="triton")

    torch.testing.assert_close(torch.compile(share, backend="aot_eager")(q, k), share(q, k))


@checks
def check_what_cannot_be_served_is_said_in_words() -> None:
    case = drawn(T=4, S=6)
    q, k = case.q, case.k
    dense, wide = masks.Dense(torch.ones(4, 6, dtype=torch.bool)), torch.zeros(1, 1, 4, 300)
    two = masks.Documents(torch.zeros(6).int(), torch.zeros(4).int())
    requests: list[tuple[str, tuple[Tensor, Tensor], dict[str, Any]]] = [
        ("Dense is none of them", (q, k), {"mask": dense}),
        ("one document mask, not several", (q, k), {"mask": two & two}),
        ("a scale from", (q, k), {"score": scores.ScaledDot(-1.0)}),
        ("Match is none", (q, k), {"score": scores.Match()}),
        ("got torch.float64", (q.double(), k.double()), {}),
        ("up to 256, and got 300", (wide, wide[..., :6, :]), {}),
        ("no bias", (q, k), {"bias": DenseBias(torch.zeros(4, 6))}),
    ]
    for why, (asking, asked), how in requests:
        ids, targets = case.ids[0, : asked.size(-2)], case.targets[0, :4]
        with pytest.raises(BackendError, match=why):
            copy_log_prob(asking, asked, ids, targets, backend="triton", **how)


@interpreted
@pytest.mark.parametrize("part", range(3))
def test_in_the_interpreter(part: int) -> None:
    checks.repeat(part, parts=3)


def compiled(name: str, kind: str, width: int, tiling: Tiling, *, bounded: bool) -> Any:
    """A kernel for Hopper; `bounded`: with ends and documents that are read, else without."""
    from triton.compiler import ASTSource  # type: ignore[import-untyped]

    from regard.attention.kernels.triton import copy_kernels as kernels

    kernel = getattr(kernels, name)
    constants: dict[str, object] = {"D": width, "BD": width, "BM": tiling.queries, "BN": tiling.keys, "GROUP": 1}
    constants |= {"ENDS": bounded, "DOCUMENTS": bounded, "EXACT": kind == "*fp32"}
    if not bounded:
        constants |= dict.fromkeys(("LO", "HI", "QUERY_TILES", "QDOC", "KDOC"), None)
    constants = {key: value for key, value in constants.items() if key in kernel.arg_names}
    kinds = {"*fp32": ["MASS", "SAVED", "GRAD"], "*i32": ["LO", "HI", "QUERY_TILES"], "fp32": ["c", "scale"]}
    kinds["*i64"] = ["IDS", "TARGETS", "QDOC", "KDOC"]
    kinds[kind] = [*kinds.get(kind, []), "Q", "K", "DQ", "DK"]
    source = ASTSource(**signature(kernel, constants, kinds))
    return for_hopper(source, num_warps=tiling.warps, num_stages=tiling.stages)


@pytest.mark.parametrize("name", ["log_prob_forward", "compute_dq", "compute_dk"])
@pytest.mark.parametrize("width", [64, 128, 256])
def test_runs_on_hoppers_tensor_cores_and_in_registers(width: int, name: str) -> None:
    tiling = getattr(TILINGS[width], "forward" if name == "log_prob_forward" else name)
    for bounded in (False, True):
        done = compiled(name, "*bf16", width, tiling, bounded=bounded)
        assert done.instructions["HGMMA"] and not done.instructions["HMMA"]
        assert done.spilled == 0


@pytest.mark.parametrize("name", ["log_prob_forward", "compute_dq", "compute_dk"])
def test_float32_is_split_for_tensor_cores_not_rounded(name: str) -> None:
    """Three products for one, each of half as many numbers at a time as of bfloat16's."""
    tiling = getattr(FLOAT32_TILINGS[128], "forward" if name == "log_prob_forward" else name)
    done, half = (compiled(name, kind, 128, tiling, bounded=False) for kind in ("*fp32", "*bf16"))
    used, once = (one.instructions["HGMMA"] + one.instructions["HMMA"] for one in (done, half))
    assert used == 3 * 2 * once > 0
    assert done.spilled <= 400  # bytes, measured as quicker than smaller tiles that fit
    wide = compiled(
        name,
        "*fp32",
        256,
        getattr(FLOAT32_TILINGS[256], "forward" if name == "log_prob_forward" else name),
        bounded=False,
    )
    assert not wide.instructions["HGMMA"] and not wide.instructions["HMMA"]


if __name__ == "__main__":
    checks.run()
