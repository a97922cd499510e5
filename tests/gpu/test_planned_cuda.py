"""Planned calls on a GPU: launches by the driver, plans that serve their own kind alone, CUDA graphs, threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from error_bounds import STATISTIC, UNEVEN_CELL
from torch import Tensor

from regard.attention import Attended, Observe, attend, masks, scores
from regard.attention.kernels import planned
from regard.attention.kernels.triton import launch
from regard.attention.mask_analysis import mask_of_table

pytestmark = pytest.mark.gpu

ALL = Observe(top=8, entropy=True, received=True, thumbnail=(64, 64))


def drawn(B: int, H: int, key_heads: int, T: int, S: int, D: int, seed: int = 0) -> list[Tensor]:
    torch.manual_seed(seed)
    shapes = ((B, H, T, D), (B, key_heads, S, D), (B, key_heads, S, D))
    return [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]


def found(got: Attended) -> dict[str, Tensor]:
    named = {name: getattr(got, name) for name in ("output", "lse", "entropy", "received", "thumbnail")}
    assert got.top is not None
    return named | {"values": got.top.values, "indices": got.top.indices}


def same(one: Attended, other: Attended) -> None:
    for name, x in found(one).items():
        assert torch.equal(x, found(other)[name]), name


def agrees(got: Attended, q: Tensor, k: Tensor, v: Tensor, **how: Any) -> None:
    want = attend(q.double(), k.double(), v.double(), observe=ALL, backend="plain", **how)
    for name in ("lse", "entropy", "received", "thumbnail"):
        exact = getattr(want, name)
        rate = UNEVEN_CELL if name == "thumbnail" else STATISTIC
        mine = getattr(got, name).double()
        if name == "lse":  # -inf of queries that see nothing
            assert torch.equal(mine == -torch.inf, exact == -torch.inf)
            mine, exact = mine.masked_fill(mine == -torch.inf, 0.0), exact.masked_fill(exact == -torch.inf, 0.0)
        off = (mine - exact).abs() / exact.abs().clamp(min=1.0)
        assert float(off.max()) < rate, f"{name} is off by {float(off.max()):.1e}"
    assert got.top is not None and want.top is not None
    assert float((got.top.values.double() - want.top.values).abs().max()) < STATISTIC
    torch.testing.assert_close(got.output.double(), want.output, atol=2e-2, rtol=2e-2)


def forget() -> None:
    planned._kept.clear()
    launch._kept.clear()


@pytest.fixture(autouse=True)
def _without_gradients() -> Any:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("backend", ["auto", "triton-fused"])
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_a_planned_call_is_the_first_one_again(backend: str, width: int, causal: bool) -> None:
    forget()
    q, k, v = drawn(2, 4, 2, 1024, 1024, width)
    mask = masks.Causal() if causal else None
    first = attend(q, k, v, mask=mask, observe=ALL, backend=backend)
    for _ in range(2):
        same(first, attend(q, k, v, mask=mask, observe=ALL, backend=backend))
    assert planned._kept
    agrees(first, q, k, v, mask=mask)
    others = drawn(2, 4, 2, 1024, 1024, width, seed=1)
    agrees(attend(*others, mask=mask, observe=ALL, backend=backend), *others, mask=mask)


def test_kernels_are_started_by_the_driver_and_by_triton_alike() -> None:
    forget()
    q, k, v = drawn(1, 4, 4, 512, 512, 64)
    first = attend(q, k, v, observe=ALL)
    by_driver = attend(q, k, v, observe=ALL)
    launches = [one for kept in launch._kept.values() for one in kept.values()]
    for plan in planned._kept.values():
        launches += (plan.request.launches or {}).values()
    mine = [getattr(one, "launch", one) for one in launches]
    mine = [one for one in mine if isinstance(one, launch.PlannedLaunch) and one.compiled is not None]
    assert mine and all(one.by_driver is not None for one in mine)
    for one in mine:
        one.by_driver = None
    by_triton = attend(q, k, v, observe=ALL)
    same(first, by_driver)
    same(first, by_triton)


def test_a_plan_serves_its_own_kind_alone() -> None:
    """Other strides, addresses, scales, masks and lengths after one plan."""
    forget()
    q, k, v = drawn(2, 4, 4, 1024, 1024, 64)
    attend(q, k, v, observe=ALL)
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    odd = [torch.cat([x.flatten()[:4], x.flatten()])[4:].view(x.shape) for x in (q, k, v)]  # 8 bytes past a multiple
    wide = [torch.nn.functional.pad(x, (0, 4))[..., :64] for x in (q, k, v)]  # strides that no descriptor takes
    few = [x[:, :, :640] for x in (q, k, v)]
    for some in (turned, odd, wide, few):
        for _ in range(2):
            agrees(attend(*some, observe=ALL), *some)
    for how in ({"score": scores.ScaledDot(0.3)}, {"score": scores.Dot()}, {"mask": masks.Window(100, 50)}):
        for _ in range(2):
            agrees(attend(q * 0.1, k, v, observe=ALL, **how), q * 0.1, k, v, **how)
    past = masks.Past()  # whose first query sees nothing: never planned
    for _ in range(2):
        agrees(attend(q, k, v, mask=past, observe=ALL), q, k, v, mask=past)


def padded(rows: int, length: int) -> Tensor:
    """The table of a causal batch with padding, as transformers writes it: True where a query may look."""
    lengths = torch.linspace(length // 3, length, rows, device="cuda").long()
    here = torch.arange(length, device="cuda")
    return ((here <= here[:, None]) & (here < lengths[:, None, None])).unsqueeze(1)


def seen(x: Tensor, table: Tensor) -> Tensor:
    """Keys or values without those that no query sees."""
    return x.masked_fill(~table.any(-2).unsqueeze(-1), 0.0)


@pytest.mark.parametrize("key_heads", [8, 2])
@pytest.mark.parametrize(("length", "width"), [(300, 64), (1024, 128), (513, 80)])
def test_a_table_is_read_once_and_served_as_runs(length: int, width: int, key_heads: int) -> None:
    forget()
    q, k, v = drawn(3, 8, key_heads, length, length, width)
    table = padded(3, length)
    clean = [seen(x, table) for x in (k, v)]
    hidden = torch.tensor([torch.nan, torch.inf, -torch.inf], device="cuda", dtype=q.dtype)
    hidden = hidden[torch.randint(0, 3, (length, width), device="cuda")]
    k, v = (torch.where(table.any(-2).unsqueeze(-1), x, hidden) for x in (k, v))
    mask = mask_of_table(table, k)
    assert isinstance(mask, masks.Runs) and mask_of_table(table, k) is mask
    for _ in range(2):
        agrees(attend(q, k, v, mask=mask, observe=ALL), q, *clean, mask=masks.Dense(table))
    assert len(planned._kept) == 1
    with torch.inference_mode():
        agrees(attend(q, k, v, mask=mask_of_table(table, k), observe=ALL), q, *clean, mask=masks.Dense(table))
    table[:, :, :, 0] = False  # the first query sees nothing now
    table[:, :, 1:, 1] = True
    mask, blind = mask_of_table(table, k), q.clone()
    blind[:, :, 0] = torch.nan
    for _ in range(2):
        agrees(attend(blind, k, v, mask=mask, observe=ALL), q, *clean, mask=masks.Dense(table))
    table[:, :, -1, 5] = False  # a gap: no run any more
    gaps = mask_of_table(table, k)
    assert isinstance(gaps, masks.Dense)
    agrees(attend(q, k, v, mask=gaps, observe=ALL), q, *clean, mask=gaps)


def test_a_graph_replays_a_table() -> None:
    """What is worked out while a graph is captured lies in its memory, and no other call uses it."""
    forget()
    q, k, v = drawn(2, 4, 4, 640, 640, 64)
    table = padded(2, 640)
    runs = masks.Runs.of(table)
    assert runs is not None
    clean = [seen(x, table) for x in (k, v)]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            attend(q, k, v, mask=runs, observe=ALL)
    torch.cuda.synchronize()
    runs._kept.clear()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        replayed = attend(q, k, v, mask=runs, observe=ALL)
    assert not runs._kept
    graph.replay()
    agrees(replayed, q, *clean, mask=masks.Dense(table))
    agrees(attend(q, k, v, mask=runs, observe=ALL), q, *clean, mask=masks.Dense(table))
    graph.replay()
    agrees(replayed, q, *clean, mask=masks.Dense(table))


def test_a_padded_cache_grows_under_one_plan() -> None:
    forget()
    q, k, v = drawn(3, 8, 2, 1, 700, 64)
    for length in (40, 41, 100, 600, 601, 700):
        keys, values = k[:, :, :length], v[:, :, :length]
        table = torch.arange(length, device="cuda") >= torch.tensor([0, 7, 30], device="cuda")[:, None, None, None]
        mask = mask_of_table(table, keys)
        assert isinstance(mask, masks.Runs)
        clean = keys, seen(values, table)
        values = torch.where(table.any(-2).unsqueeze(-1), values, torch.nan)
        agrees(attend(q, keys, values, mask=mask, observe=ALL), q, *clean, mask=masks.Dense(table))
    assert len(planned._kept) <= 2


@pytest.mark.parametrize("gaps", [False, True])
def test_a_compiled_table(gaps: bool) -> None:
    q, k, v = drawn(2, 8, 4, 384, 384, 64)
    table = padded(2, 384)
    if gaps:
        table[:, :, 200:, 7] = False
    clean = [seen(x, table) for x in (k, v)]
    compiled = torch.compile(lambda q, k, v, m: attend(q, k, v, mask=masks.Dense(m), observe=ALL), fullgraph=True)
    for _ in range(2):
        agrees(compiled(q, k, v, table), q, *clean, mask=masks.Dense(table))
        table[:, :, 20, 20] = False  # another content at the same place


def test_one_query_by_the_vendor() -> None:
    q, k, v = drawn(3, 8, 2, 1, 777, 128)
    want = attend(q.double(), k.double(), v.double(), backend="plain")
    for observe in (ALL, Observe()):
        got = attend(q, k, v, observe=observe)
        assert got.backend == "triton"
        assert float((got.lse.double() - want.lse).abs().max()) < STATISTIC
        torch.testing.assert_close(got.output.double(), want.output, atol=4e-3, rtol=2e-2)


def test_gradients_are_not_planned_away() -> None:
    q, k, v = drawn(1, 2, 2, 256, 256, 64)
    attend(q, k, v)
    with torch.enable_grad():
        learns = [x.clone().requires_grad_() for x in (q, k, v)]
        for _ in range(2):
            attend(*learns).output.float().sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in learns)


def test_a_cache_grows_under_one_plan() -> None:
    forget()
    q, k, v = drawn(2, 8, 2, 1, 700, 64)
    for length in (100, 101, 333, 699, 700):
        some = q, k[:, :, :length], v[:, :, :length]
        agrees(attend(*some, observe=ALL), *some)
        agrees(attend(q, *(x.contiguous() for x in some[1:]), mask=masks.Causal(), observe=ALL), *some)
    assert len(planned._kept) <= 2


def test_a_graph_replays_with_new_numbers() -> None:
    forget()
    q, k, v = drawn(1, 4, 4, 1024, 1024, 64)
    for _ in range(2):
        attend(q, k, v, observe=ALL)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = attend(q, k, v, observe=ALL)
    for seed in (1, 2):
        for x, new in zip((q, k, v), drawn(1, 4, 4, 1024, 1024, 64, seed), strict=True):
            x.copy_(new)
        graph.replay()
        same(held, attend(q, k, v, observe=ALL))
        agrees(held, q, k, v)


def test_threads_and_streams_share_plans() -> None:
    forget()
    inputs = [drawn(1, 4, 4, 512, 512, 64, seed) for seed in range(8)]
    want = [attend(*one, observe=ALL) for one in inputs]

    def work(at: int) -> Attended:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.default_stream())
        with torch.no_grad(), torch.cuda.stream(stream):
            for _ in range(20):
                got = attend(*inputs[at], observe=ALL)
            stream.synchronize()
            return got

    torch.cuda.synchronize()
    with ThreadPoolExecutor(8) as pool:
        for got, expected in zip(pool.map(work, range(8)), want, strict=True):
            same(got, expected)
