"""The additive kernels against the definition in float64, in Triton's interpreter, and what they compile to for Hopper.

An interpreted kernel that writes where it must not damages its process, so the checks run in one of their own: this
file as a script. Each says there what went wrong, and the test repeats it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import Tensor

from attention.interpreter import Checks, disassembled, interpreted
from regard.attention import Attended, Observe, Spans, attend, masks, scores
from regard.attention.inputs import prepare
from regard.attention.kernels.statistics import request_of
from regard.attention.kernels.triton import additive, additive_workspace
from regard.attention.kernels.triton.additive_workspace import TILINGS
from regard.attention.operator_arguments import OperatorArguments

pytest.importorskip("triton", reason="Triton is not installed")

STATISTICS = Observe(top=3, entropy=True, received=True, thumbnail=(3, 2))
check = Checks(__file__)


Inputs = tuple[Tensor, Tensor, Tensor, scores.Additive]


def drawn(q: tuple[int, ...], k: tuple[int, ...], *, units: int = 5, values: int = 3, loud: float = 1.0) -> Inputs:
    """Queries of this shape, keys of that one, values and a score; `loud` multiplies what is inside the tanh."""
    source = torch.Generator().manual_seed(sum(q) + 7 * sum(k))
    score = scores.Additive(q[-1], units, k[-1])
    with torch.no_grad():
        for parameter in score.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=source))
        score.query.weight *= loud
        score.key.weight *= loud
    tensors = (torch.randn(*shape, generator=source) for shape in (q, k, (*k[:-1], values)))
    return *tensors, score  # type: ignore[return-value]


def kernel(q: Tensor, k: Tensor, v: Tensor, score: scores.Additive, mask: masks.Mask | None = None) -> Attended:
    prepared, v = prepare(q, k, v, score, mask, None, None)
    assert additive.unsupported_reason(prepared, v, 0.0) is None
    return additive.compute(prepared, v, 0.0, STATISTICS)


def plain(q: Tensor, k: Tensor, v: Tensor, score: scores.Additive, mask: masks.Mask | None = None) -> Attended:
    return attend(q, k, v, score=score, mask=mask, observe=STATISTICS, backend="plain")


def everything(
    how: Callable[..., Attended], inputs: Inputs, mask: masks.Mask | None, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Results, statistics and gradients by name."""
    score = deepcopy(inputs[3]).to(dtype)
    q, k, v = (x.detach().to(dtype).requires_grad_() for x in inputs[:3])
    leaves = {"q": q, "k": k, "v": v, **dict(score.named_parameters())}
    got = how(q, k, v, score, mask)
    assert got.top is not None
    found = {name: getattr(got, name) for name in ("output", "lse", "entropy", "received", "thumbnail")}
    found |= {"top values": got.top.values, "top keys": got.top.indices}
    source = torch.Generator().manual_seed(1)
    factors = [torch.randn(x.shape, generator=source).to(dtype) for x in (got.output, got.lse)]
    loss = (got.output * factors[0]).sum() + (torch.where(got.lse.isfinite(), got.lse, 0.0) * factors[1]).sum()
    told = torch.autograd.grad(loss, list(leaves.values()))
    found |= {f"gradient of {name}": grad for name, grad in zip(leaves, told, strict=True)}
    return {name: x.detach().double() for name, x in found.items()}


def agrees(inputs: Inputs, mask: masks.Mask | None = None) -> None:
    """No further from float64 than twice plain float32 is, or than some roundings of numbers of size 1."""
    want = everything(plain, inputs, mask, torch.float64)
    near = everything(plain, inputs, mask, torch.float32)
    got = everything(kernel, inputs, mask, torch.float32)
    for name, exact in want.items():
        assert got[name].shape == exact.shape, name
        known = exact.isfinite()
        assert torch.equal(got[name][~known], exact[~known]), f"{name}: -inf in other places"
        scale = max(1.0, float(exact[known].abs().max())) if known.any() else 1.0
        allowed = max(2 * float((near[name] - exact)[known].abs().max()), 5e-6 * scale) if known.any() else 0.0
        off = (got[name] - exact)[known].abs()
        if name == "top keys":  # weights too small for float32 are all 0, and so in another order
            told = (want["top values"] > 1e-30) | (exact < 0)
            assert torch.equal(got[name][told], exact[told]), "other keys are the largest"
        elif off.numel():
            assert float(off.max()) <= allowed, f"{name} is off by {float(off.max()):.1e}, allowed {allowed:.1e}"


@check
def check_lengths_that_are_no_multiple_of_a_block() -> None:
    agrees(drawn((2, 5, 6), (2, 70, 7)))
    agrees(drawn((67, 3), (33, 3), units=17, values=20))


@check
def check_one_query_one_key_one_unit() -> None:
    agrees(drawn((1, 1), (1, 1), units=1, values=1))


@check
def check_heads_that_share_keys_and_leading_dimensions_that_broadcast() -> None:
    agrees(drawn((2, 4, 5, 3), (2, 2, 6, 3)))
    agrees(drawn((3, 5, 3), (1, 6, 3)))
    agrees(drawn((5, 3), (2, 6, 3)))


@check
def check_masks_of_one_run_of_keys() -> None:
    inputs = drawn((3, 9, 4), (3, 40, 4))
    lengths = torch.tensor([0, 40, 13])  # the first of them sees nothing
    for mask in (
        masks.Causal(),
        masks.Past(offset=0),
        masks.Window(2, 1, offset=torch.tensor([0, 5, -3])),
        masks.Padding(lengths, queries=[9, 2, 0], side="left") & masks.Causal(),
    ):
        agrees(inputs, mask)


@check
def check_a_long_map_skips_tiles_that_nobody_sees() -> None:
    agrees(drawn((2, 150, 4), (2, 150, 4)), masks.Window(3, 0))


@check
def check_loud_units_that_cancel() -> None:
    """|a| = 60 with an opposite b: e^2a alone is no float32, and the sum is what counts."""
    q, k, v, score = drawn((2, 5, 5), (2, 70, 5), units=5)
    with torch.no_grad():
        score.query.weight.copy_(torch.eye(5))
        score.key.weight.copy_(torch.eye(5))
    shift = torch.tensor([60.0, -60.0, 0.0, 25.0, -12.0])
    agrees((q + shift, k - shift, v, score))
    agrees((q + shift, k, v, score))
    q[0, 1] += 80.0  # one query of a block alone
    agrees((q, k, v, score))


@check
def check_just_inside_and_outside_the_quick_way() -> None:
    for size in (9.9, 10.1, 19.0, 21.0):
        q, k, v, score = drawn((4, 5), (9, 5), units=5)
        with torch.no_grad():
            score.query.weight.copy_(torch.eye(5))
            score.key.weight.copy_(torch.eye(5))
        q, k = q.clamp(-1, 1) / 1 * size, k.sign() * size
        agrees((q, k, v, score))


@check
def check_huge_scores() -> None:
    q, k, v, score = drawn((2, 5, 6), (2, 21, 6), units=20)
    with torch.no_grad():
        score.vector *= 1e3
    agrees((q, k, v, score))


@check
def check_a_vector_that_would_overflow_the_shared_fraction() -> None:
    q, k, v, score = drawn((3, 4), (5, 4), units=4, loud=3.0)
    with torch.no_grad():
        score.vector.fill_(1e30)
    got = kernel(q, k, v, score)
    assert got.output.isfinite().all() and got.lse.isfinite().all()


@check
def check_equal_scores_give_the_lowest_keys() -> None:
    q, k, v, score = drawn((2, 5, 4), (2, 37, 4))
    agrees((q, k[:, :1].expand(2, 37, 4), v, score))


@check
def check_half_precision_values() -> None:
    q, k, v, score = drawn((2, 5, 4), (2, 9, 4), units=16)
    want = plain(q, k, v, score).output.detach()
    half = [x.half() for x in (q, k, v)]
    with torch.no_grad():
        got = kernel(*half, deepcopy(score).half())  # type: ignore[arg-type]
    assert got.output.dtype == torch.float16 and got.lse.dtype == torch.float32
    assert float((got.output.float() - want).abs().max()) < 1e-2


@check
def check_parts_of_rows_and_of_leading_indices_change_nothing() -> None:
    """A workspace too small for the whole map: rows of one leading index at a time, keys' gradients summed up."""
    inputs = drawn((2, 70, 4), (2, 70, 4))
    whole = everything(kernel, inputs, masks.Causal(), torch.float32)
    free = additive_workspace.MIN_WORKSPACE
    for room in (11_000, 1):
        additive_workspace.MIN_WORKSPACE = room  # type: ignore[misc]
        cut = everything(kernel, inputs, masks.Causal(), torch.float32)
        for name, x in whole.items():
            torch.testing.assert_close(
                cut[name], x, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
            )
    additive_workspace.MIN_WORKSPACE = free  # type: ignore[misc]


@check
def check_powers_that_fit_into_gradients() -> None:
    """Lengths in whole tiles: what is borrowed from the gradients is not needed once they are written."""
    agrees(drawn((2, 64, 4), (2, 64, 4), units=16), masks.Causal())
    free, additive_workspace.MIN_WORKSPACE = additive_workspace.MIN_WORKSPACE, 1  # type: ignore[misc]
    agrees(drawn((128, 4), (64, 4), units=16))
    additive_workspace.MIN_WORKSPACE = free  # type: ignore[misc]


@check
def check_long_sums_keep_their_digits() -> None:
    """Gradients that are sums over many queries: off by no more than three times what plain float32 is.

    Three, not two: here a product and a sum are rounded apart, which on a GPU are one instruction. Sums of 1 / d and
    of its square, subtracted at the end, were off by ten times as much.
    """
    source = torch.Generator().manual_seed(3)
    a, b, v = (torch.randn(2, length, width, generator=source) for length, width in ((400, 16), (12, 16), (12, 4)))
    vector, factor = torch.randn(16, generator=source), torch.randn(2, 400, 4, generator=source)

    def plainly(a: Tensor, b: Tensor, v: Tensor, vector: Tensor) -> Tensor:
        return (torch.tanh(a.unsqueeze(2) + b.unsqueeze(1)) * vector).sum(-1).softmax(-1) @ v

    def grads(how: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
        leaves = [x.to(dtype).requires_grad_() for x in (a, b, v, vector)]
        return [x.double() for x in torch.autograd.grad((how(*leaves) * factor.to(dtype)).sum(), leaves)]

    want, near = grads(plainly, torch.float64), grads(plainly, torch.float32)
    got = grads(lambda *leaves: additive.additive_forward(*leaves, None, None)[0], torch.float32)
    for name, x, y, exact in zip(("a", "b", "v", "vector"), got, near, want, strict=True):
        ours, plains = (float((z - exact).norm()) for z in (x, y))
        assert ours <= 3 * plains, f"gradient of {name} is off by {ours:.1e}, plain by {plains:.1e}"


@check
def check_every_tiling_gives_the_same() -> None:
    q, k, v, score = drawn((1, 40, 4), (1, 70, 4), units=16)
    a, b = score.prepare(q, k)
    source = torch.Generator().manual_seed(2)
    factor = torch.randn(1, 40, 3, generator=source)
    found = {}
    for name in ("auto", *TILINGS):
        leaves = [x.detach().clone().requires_grad_() for x in (a, b, v, score.vector)]
        output, lse, entropy = additive.additive_forward(*leaves, None, None, name)
        found[name] = (output, lse, entropy, *torch.autograd.grad((output * factor).sum(), leaves))
    for name, got in found.items():
        for x, y in zip(got, found["auto"], strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@check
def check_the_rules_of_operators() -> None:
    """Schema, fake tensors, autograd and ahead-of-time dispatch, with spans and without."""
    q, k, v, score = drawn((2, 5, 4), (2, 9, 4))
    a, b = (x.detach().requires_grad_() for x in score.prepare(q, k))
    vector = score.vector.detach().requires_grad_()
    lo, hi = torch.zeros(2, 5, dtype=torch.int32), torch.full((2, 5), 7, dtype=torch.int32)
    ops = torch.ops.regard
    for ends in ((None, None), (lo, hi)):
        torch.library.opcheck(ops.additive.default, (a, b, v.requires_grad_(), vector, *ends))
        observe = Observe(top=2, received=True, thumbnail=(3, 2), peak=True, distance=True, spans=Spans(None, [(0, 4)]))
        packed = OperatorArguments([], [vector.new_empty(0)])
        request = packed.text(request_of(observe))
        tensors, _, sizes, numbers = packed.all()
        given = (a.detach(), b.detach(), vector.detach(), *ends, tensors, sizes, numbers, request)
        torch.library.opcheck(ops.additive_statistics.default, given)
        output, lse, _ = ops.additive(*(x.detach() for x in (a, b, v, vector)), *ends)
        told = (torch.ones_like(output), torch.ones_like(lse))
        held = tuple(x.detach() for x in (a, b, v, vector))
        torch.library.opcheck(ops.additive_backward.default, (*held, *ends, output, lse, *told))


@check
def check_the_same_bits_twice() -> None:
    inputs = drawn((2, 70, 4), (2, 70, 4))
    first, second = (everything(kernel, inputs, masks.Causal(), torch.float32) for _ in range(2))
    for name, x in first.items():
        assert torch.equal(x, second[name]), name


@interpreted
@pytest.mark.parametrize("part", range(4))
def test_in_the_interpreter(part: int) -> None:
    check.repeat(part, parts=4)


@pytest.mark.parametrize(
    ("N", "T", "S", "U"), [(8, 1024, 1024, 256), (1, 16384, 16384, 8), (3, 100_000, 50, 16), (2, 7, 2**20, 4)]
)
def test_the_workspace_is_linear_in_the_length(N: int, T: int, S: int, U: int) -> None:
    """Every row is in one part, and no part asks for more than the inputs' size, a fixed room, or 64 rows of pairs."""
    a, b = (torch.empty(N, length, U, device="meta") for length in (T, S))
    rows = torch.zeros(N, T, dtype=torch.int8)
    for part in additive_workspace.map_parts(a, b, a.numel() + b.numel(), tables=2):
        here = part.cut(rows)
        here += 1
        room = here.size(0) * ((here.size(1) + S) * U + 2 * here.size(1) * S)
        least = additive_workspace.MIN_ROWS * (U + 2 * S) + S * U
        assert room <= max(a.numel() + b.numel(), additive_workspace.MIN_WORKSPACE, least)
    assert bool((rows == 1).all())


class Unlaunched:
    """In a kernel's place: counts how often it would have been launched."""

    def __init__(self) -> None:
        self.launches = 0

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        self.launches += 1
        return lambda *args, **options: None


def peak(step: Callable[[], object]) -> int:
    """The most bytes that tensors made in a step had at one time."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    assert profile.profiler is not None and profile.profiler.kineto_results is not None
    events = profile.profiler.kineto_results.events()
    return max(accumulate(event.nbytes() for event in events if event.name() == "[memory]"))


@pytest.mark.parametrize(("N", "T", "U", "launches"), [(8, 1024, 256, 30), (16, 512, 512, 9), (8, 1000, 250, 54)])
def test_both_passes_take_twice_the_memory_of_their_inputs(
    N: int, T: int, U: int, launches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output and gradients are 4/3 of the inputs, so the workspace has 2/3; a number for each query comes on top.

    Nothing is computed but products of matrices: only what is allocated is looked at, and how much is launched.
    """
    from regard.attention.kernels.triton import additive_kernels as kernels

    stubs = [Unlaunched() for _ in range(5)]
    for name, stub in zip(
        ("write_powers", "write_scores", "softmax_rows", "write_score_gradients", "gather_gradients"),
        stubs,
        strict=True,
    ):
        monkeypatch.setattr(kernels, name, stub)
    inputs = [torch.zeros(*size).requires_grad_() for size in ((N, T, U), (N, T, U), (N, T, U), (U,))]
    asked = torch.zeros(N, T, U)
    size = sum(x.numel() * x.element_size() for x in inputs)

    def forward() -> tuple[Tensor, Tensor, Tensor]:
        return additive.additive_forward(*inputs, None, None)

    with torch.no_grad():
        assert peak(forward) <= 1.4 * size
    for stub in stubs:
        stub.launches = 0
    assert peak(lambda: torch.autograd.grad(forward()[0], inputs, asked)) <= 2 * size + 10 * N * T
    assert sum(stub.launches for stub in stubs) <= launches


def test_refusals_are_in_words() -> None:
    q, k, v, score = drawn((2, 5, 4), (2, 9, 4))

    def said(**changes: Any) -> str | None:
        asked = {"score": score, "mask": None, "bias": None, "window": None, "dropout": 0.0} | changes
        *how, dropout = asked.values()
        return additive.unsupported_reason(*prepare(q, k, v, *how), dropout)

    assert said() == "it runs on cuda, not on cpu"
    assert (
        said(score=scores.ScaledDot(), mask=masks.Causal())
        == "it computes the additive score, and ScaledDot is another"
    )


def sass_of(kernel: Any, types: dict[str, str], constants: dict[str, Any], limit: dict[str, int]) -> str:
    """The machine code that a kernel compiles to for Hopper; no GPU is needed for that."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else types[name] for name in names}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in types}
    source = ASTSource(kernel, signature, constants, attrs=aligned)
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 1, **limit})
    return disassembled(built.asm["cubin"])


def loops(sass: str) -> list[Counter[str]]:
    """How often each instruction stands in each innermost loop."""
    lines, starts, found = [line.strip() for line in sass.splitlines()], {}, []
    for number, line in enumerate(lines):
        if label := re.match(r"\.(L_x_\d+):", line):
            starts[label.group(1)] = number
        jump = re.search(r"BRA.*`\(\.(L_x_\d+)\)", line)
        if jump and jump.group(1) in starts:
            body = lines[starts[jump.group(1)] + 1 : number + 1]
            if not any(re.match(r"\.L_x_\d+:", inner) for inner in body):
                words = (re.match(r"/\*[0-9a-f]+\*/\s+(?:@!?U?P\d+\s+)?([A-Z0-9_.]+)", inner) for inner in body)
                found.append(Counter(word.group(1) for word in words if word))
    return found


@pytest.mark.parametrize(
    "name", ["write_scores", "write_score_gradients", "gather_gradients", "gather_gradients and vector"]
)
def test_hot_loops_are_lean(name: str) -> None:
    """Per pair and unit: half a reciprocal, no division, no spilled register, no barrier, few instructions besides."""
    from regard.attention.kernels.triton import additive_kernels as kernels

    kernel = getattr(kernels, name.split()[0])
    tiling, constants = TILINGS["square"], {"PADDED": 256, "ASM": True}
    if name.startswith("gather"):
        constants |= {"BLOCK": tiling.rows, "OTHER": tiling.columns, "WIDTH": tiling.width, "PAIRS": tiling.pairs}
        constants |= {"VECTOR": "vector" in name} | ({} if "vector" in name else {"parts": None})
        work, most = tiling.rows * tiling.width * 2 * tiling.pairs / 128, 7.0
    else:
        constants |= {"ROWS": tiling.rows, "COLUMNS": tiling.columns, "UNITS": tiling.units}
        constants |= {"SPANS": False, "lo": None, "hi": None}
        work, most = tiling.rows * tiling.columns * tiling.units / 128, 4.2
    whole = ("T", "S", "U", "D", "L", "C", "accumulate")
    types = {arg: "i32" if arg in whole else "*fp32" for arg in kernel.arg_names if arg not in constants}
    limit = {} if name == "write_scores" else {"maxnreg": tiling.registers}
    hot = max(loops(sass_of(kernel, types, constants, limit)), key=lambda loop: loop["MUFU.RCP"])
    assert hot["MUFU.RCP"] == work / 2
    assert hot.total() / work <= most, dict(hot)
    slow = [word for word in hot if word.startswith(("LDL", "STL", "BAR", "LDS", "STS", "CALL", "MUFU.EX2"))]
    assert not slow, dict(hot)


if __name__ == "__main__":
    check.run()
