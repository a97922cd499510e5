"""The share of one token by Triton's kernels on a GPU: against float64, hostile inputs, bits, memory, a model."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
import torch
from error_bounds import loudest_score, statistics_bound
from torch import Tensor

from regard.attention import attend, masks, scores
from regard.attention.copy_attention import choose_copy_backend, copy_log_prob
from regard.attention.masks import Mask
from regard.attention.observe import Observe
from regard.models import attentive_rnn_lm
from regard.models.copy_gates import Sentinel
from regard.models.embedding import WordEmbedding
from regard.models.rnn import RecurrentLayers

pytestmark = pytest.mark.gpu

BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
MASKS = {
    "everything": lambda T, S: None,
    "past": lambda T, S: masks.Past(),
    "window": lambda T, S: masks.Window(170, 50),
    "padding": lambda T, S: masks.Padding([S, S // 3], [T, T // 2]),
    "past and texts": lambda T, S: masks.Past() & masks.Documents(torch.arange(S) // 37, torch.arange(T) // 37),
    "nothing": lambda T, S: masks.Padding([0, S]),
}


@pytest.fixture(autouse=True)
def fresh_memory_is_poison() -> Iterator[None]:
    """What a kernel leaves unwritten is NaN, or a huge whole number."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)


def drawn(T: int, S: int, D: int, dtype: torch.dtype, heads: int = 4, few: int = 2, tokens: int = 9) -> list[Tensor]:
    torch.manual_seed(T + 7 * S + 31 * D)
    q, k = (torch.randn(shape, device="cuda").to(dtype) for shape in ((2, heads, T, D), (2, few, S, D)))
    ids, targets = (torch.randint(tokens, (2, n), device="cuda") for n in (S, T))
    targets[:, ::7] = tokens  # nobody's
    return [q, k, ids, targets]


def told(q: Tensor, k: Tensor, ids: Tensor, targets: Tensor, mask: Mask | None, backend: str) -> list[Tensor]:
    """ln mass, and the gradients of q and k."""
    q, k = (x.detach().requires_grad_() for x in (q, k))
    got = copy_log_prob(q, k, ids, targets, mask=mask, backend=backend)
    come = torch.randn(got.shape, generator=torch.Generator("cuda").manual_seed(1), device="cuda")
    return [got.detach(), *torch.autograd.grad(got, (q, k), come.to(got.dtype))]


def composed(q: Tensor, k: Tensor, ids: Tensor, targets: Tensor, mask: Mask | None) -> list[Tensor]:
    """The same in PyTorch's operations, scores and gradients in the dtype of the inputs."""
    q, k = (x.detach().requires_grad_() for x in (q, k))
    scored = (q @ k.repeat_interleave(q.size(1) // k.size(1), 1).mT).float() * q.size(-1) ** -0.5
    T, S = scored.shape[-2:]
    seen = torch.ones(T, S, dtype=torch.bool) if mask is None else mask.dense(T, S, tuple(scored.shape[:2]))
    weights = scored.masked_fill(~seen.cuda(), -torch.inf).softmax(-1).nan_to_num()
    share = (weights * (targets[:, None, :, None] == ids[:, None, None, :])).sum(-1)
    logs = share.where(share > 0, 1.0).log()
    come = torch.randn(logs.shape, generator=torch.Generator("cuda").manual_seed(1), device="cuda")
    return [logs.detach().masked_fill(share == 0, -torch.inf), *torch.autograd.grad(logs, (q, k), come)]


def agrees(given: list[Tensor], mask: Mask | None) -> None:
    """ln mass within the bound of float32 from float64, which it reaches in every dtype (1e-6 in bfloat16, 2e-6 in
    float32: benchmarks/RESULTS.md); gradients at most twice as far as PyTorch's operations in the same dtype, and two
    roundings of it."""
    dtype = given[0].dtype
    exact = told(*(x.double() for x in given[:2]), *given[2:], mask, "plain")  # type: ignore[call-arg]
    ours, usual = told(*given, mask, "triton"), composed(*given, mask)  # type: ignore[call-arg]
    known = exact[0].isfinite()
    assert torch.equal(ours[0].isfinite(), known)
    for x in (exact, ours, usual):
        x[0] = x[0][known]
    mass = (ours[0].double() - exact[0]).abs()
    allowed = statistics_bound("ln mass", exact[0], loudest_score(*given[:2]), even_cells=True)
    assert (mass <= allowed).all(), f"ln mass is off by {float(mass.max()):.1e}, allowed {float(allowed.max()):.1e}"
    for name, mine, near, want in zip(("dq", "dk"), ours[1:], usual[1:], exact[1:], strict=True):
        off, allowed = (float((x.double() - want).abs().max()) for x in (mine, near))
        allowed = 2 * allowed + 2 * torch.finfo(dtype).eps * float(want.abs().max())
        assert off <= allowed, f"{name} is off by {off:.1e}, allowed {allowed:.1e}"


@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_every_mask(mask: str, dtype: torch.dtype) -> None:
    agrees(drawn(233, 401, 64, dtype), MASKS[mask](233, 401))


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
@pytest.mark.parametrize("width", [8, 32, 100, 128, 256])
def test_every_width(width: int, dtype: torch.dtype) -> None:
    agrees(drawn(150, 150, width, dtype, 2, 2), masks.Past())


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_huge_scores_and_a_token_that_is_nowhere(dtype: torch.dtype) -> None:
    q, k, ids, targets = drawn(130, 130, 64, dtype)
    got = told(q * 1000, k, ids, targets, masks.Past(), "triton")
    want = told((q * 1000).double(), k.double(), ids, targets, masks.Past(), "plain")
    assert torch.equal(got[0].isfinite(), want[0].isfinite())
    assert all(x.isfinite().all() for x in got[1:])
    assert not got[1][want[0] == -torch.inf].any()
    known = want[0].isfinite()
    torch.testing.assert_close(got[0][known].double(), want[0][known], rtol=1e-5, atol=5e-3)


def test_the_same_bits_twice() -> None:
    given = drawn(500, 500, 128, BF16)
    first, again = (told(*given, masks.Past(), "triton") for _ in range(2))  # type: ignore[call-arg]
    assert all(map(torch.equal, first, again))


def test_memory_is_linear_and_auto_takes_it() -> None:
    q, k = (torch.randn(1, 16384, 64, device="cuda", dtype=BF16, requires_grad=True) for _ in range(2))
    ids = torch.randint(1000, (1, 16384), device="cuda")
    for length, name in ((4096, "plain"), (8192, "triton")):
        prepared = attend(q[:, :length], k[:, :length], observe=Observe(prepared=True)).prepared
        assert prepared is not None and choose_copy_backend(prepared) == name
    torch.use_deterministic_algorithms(False)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    copy_log_prob(q, k, ids, ids.roll(-1, 1), mask=masks.Past()).exp().sum().backward()
    assert torch.cuda.max_memory_allocated() - before < 16384**2 / 8  # bytes: a sixteenth of a bfloat16 map


@pytest.mark.parametrize("half", [False, True])
def test_a_model_that_holds_no_weights_has_the_same_loss(half: bool) -> None:
    torch.use_deterministic_algorithms(False)  # an LSTM of cuDNN's
    torch.manual_seed(0)
    look = attentive_rnn_lm.PastAttention(scores.Bilinear(64), copy=Sentinel(64))
    model = attentive_rnn_lm.AttentiveLM(WordEmbedding(50, 64), RecurrentLayers("lstm", 64, 64), look).cuda()
    text = torch.randint(50, (4, 201), device="cuda")
    texts = torch.arange(200, device="cuda").expand(4, 200) // 70
    found = []
    for most in (2**62, -1):
        rules = [
            patch(f"regard.{room}.max_materialized", lambda device, n=most: n)
            for room in ("models.attentive_rnn_lm", "attention.copy_attention")
        ]
        with rules[0], rules[1], torch.autocast("cuda", BF16, enabled=half):
            total = model(text[:, :-1], texts)[0].nll(text[:, 1:]).sum()
        found.append((total, *torch.autograd.grad(total, list(model.parameters()))))
    for loose, held in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(loose, held, rtol=0, atol=(2e-2 if half else 1e-4) * float(held.abs().max()))
