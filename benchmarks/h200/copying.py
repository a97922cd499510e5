"""What the share of one token in the attention costs on a GPU: our kernels beside composition, in one run.

    PYTHONPATH=src python3 benchmarks/h200/copying.py [--tiny] [--seconds 120] [--out FILE]

Every query looks strictly back and names a token; asked is ln of the weight of all keys that stand for it, with the
gradients of queries and keys. `auto` is `copy_log_prob(...)` as a user calls it; `stream` and `triton` name a backend.
Composition holds all weights and adds them up by token (`scatter`) or where they match (`matched`, what the models do
with short texts), as it is written and by torch.compile. `two attends` is the difference of two log-sum-exps of
`attend`. Then the training step of a language model that copies, as it is, weights held, and not held; and other
tilings.

Ways take turns; medians over rounds with quartiles, of the wall clock (calls in a row) and of the device's time (CUDA
events, the cache swept in between, the host ahead), for the forward pass and for both. Memory is the peak over what was
there before. `--tiny` runs every path in Triton's interpreter.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from typing import Any
from unittest.mock import patch

if "--tiny" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are defined

import torch
from timing import ROUNDS, Row, both_clocks, milliseconds, peak, ratios, show, with_quartiles
from torch import Tensor

from regard.attention import attend
from regard.attention.copy_attention import copy_log_prob
from regard.attention.kernels.shapes import Tiling
from regard.attention.kernels.spans import KeySpans
from regard.attention.kernels.triton import copy_kernels as launch
from regard.attention.kernels.triton.copy_kernels import CopyTilings
from regard.attention.masks import Documents, Past
from regard.attention.scores import Bilinear
from regard.models import attentive_rnn_lm
from regard.models.copy_gates import Gate
from regard.models.embedding import WordEmbedding
from regard.models.rnn import RecurrentLayers

DEVICE = "cpu" if "--tiny" in sys.argv else "cuda"
VOCABULARY = 1500
Report = Callable[[str], None]
Way = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """B rows of T tokens, vectors of D numbers."""

    B: int
    T: int
    D: int
    dtype: torch.dtype

    def inputs(self, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries and keys, the token of each key, and the one that comes after."""
        source = torch.Generator(DEVICE).manual_seed(0)
        q, k = (torch.randn(self.B, self.T, self.D, generator=source, device=DEVICE).to(self.dtype) for _ in range(2))
        drawn = torch.rand(self.B, self.T + 1, generator=source, device=DEVICE)
        ids = (VOCABULARY**drawn).long() - 1  # the n-th word comes about 1 / n times as often as the first
        return *(x.to(dtype or self.dtype).requires_grad_() for x in (q, k)), ids[:, :-1], ids[:, 1:]  # type: ignore[return-value]

    def __str__(self) -> str:
        return f"{self.B} x {self.T} x {self.T}, width {self.D}, {str(self.dtype).removeprefix('torch.')}"


BF16, F32 = torch.bfloat16, torch.float32
CASES = [Case(B, T, 128, dtype) for dtype in (BF16, F32) for B, T in ((16, 512), (8, 2048), (2, 8192))]
TUNED = [Case(8, 2048, 128, BF16), Case(8, 2048, 64, BF16), Case(8, 2048, 128, F32)]
EXACT = [Case(2, 700, 128, BF16), Case(2, 700, 128, F32), Case(2, 333, 64, torch.float16)]
TINY_CASES, TINY_EXACT = [Case(2, 40, 16, F32)], [Case(1, 33, 16, F32), Case(1, 33, 16, torch.float16)]


def weights(q: Tensor, k: Tensor) -> Tensor:
    """All of them, (B, T, S), in float32; the first query sees nothing."""
    scores = (
        (q.float() * q.size(-1) ** -0.5 @ k.float().mT) if q.dtype == F32 else (q @ k.mT).float() * q.size(-1) ** -0.5
    )
    hidden = torch.ones(q.size(1), k.size(1), dtype=torch.bool, device=q.device).triu()
    return scores.masked_fill(hidden, -1e30).softmax(-1).masked_fill(hidden, 0.0)


def logarithm(share: Tensor) -> Tensor:
    """Of a share, with a gradient of zero where there is none; finite, as the models have it."""
    return share.clamp(min=torch.finfo(F32).tiny).log()


def scatter(q: Tensor, k: Tensor, ids: Tensor, targets: Tensor) -> Tensor:
    found = weights(q, k)
    shares = found.new_zeros(*found.shape[:2], VOCABULARY)
    shares = shares.scatter_add(-1, ids.unsqueeze(1).expand_as(found), found)
    return logarithm(shares.gather(-1, targets.unsqueeze(-1)).squeeze(-1))


def matched(q: Tensor, k: Tensor, ids: Tensor, targets: Tensor) -> Tensor:
    return logarithm((weights(q, k) * (ids.unsqueeze(1) == targets.unsqueeze(-1))).sum(-1))


def two_attends(q: Tensor, k: Tensor, ids: Tensor, targets: Tensor) -> Tensor:
    own, whole = (attend(q, k, mask=mask).lse for mask in (Past() & Documents(ids, targets), Past()))
    return (own - whole.masked_fill(whole == -torch.inf, 0.0)).clamp(min=-87.0)


def ours(backend: str) -> Way:
    return lambda q, k, ids, targets: copy_log_prob(q, k, ids, targets, mask=Past(), backend=backend).clamp(min=-87.0)


COMPILED = {"scatter, compile": scatter, "matched, compile": matched}
WAYS = {
    "scatter": scatter,
    "matched": matched,
    **COMPILED,
    "two attends": two_attends,
    "stream": ours("stream"),
    "triton": ours("triton"),
    "auto": ours("auto"),
}
OURS = ("auto", "triton", "stream")
BASE = "matched, compile"


def way_of(name: str, *, tiny: bool) -> Way:
    """What a name stands for."""
    if name not in COMPILED:
        return WAYS[name]
    return torch.compile(COMPILED[name], dynamic=False, backend="eager" if tiny else "inductor")


def warm(me: int, of: int) -> None:
    """Compile one part in so many of all there is, so that several processes share the work."""
    jobs: list[Callable[[], object]] = []
    for case in CASES:
        for name in WAYS:
            jobs += [lambda case=case, name=name: once(name, case)]
    for case in TUNED:
        given = Tuning.of(case)
        jobs += [
            lambda given=given, part=part, one=one: given.milliseconds(part, one)
            for part, one in product(CopyTilings._fields, _others(case.dtype))
        ]
    for job in jobs[me::of]:
        job()
    torch.cuda.synchronize()


def run(report: Report, *, tiny: bool, seconds: float) -> list[Row]:
    """Errors, then each case by all ways, then the model, then tilings as long as there is time."""
    end = time.perf_counter() + seconds
    rows = [row for case in (TINY_EXACT if tiny else EXACT) for row in errors(case, report)]
    for case in TINY_CASES if tiny else CASES:
        rows += race(case, report, tiny=tiny)
    rows += training(report, tiny=tiny)
    for case in TINY_CASES if tiny else TUNED:
        rows += tilings(case, report, end)
    return rows


def errors(case: Case, report: Report) -> list[Row]:
    """The largest error against float64 of shares and gradients, by composition and by ours."""
    exact = told(ours("plain"), case, torch.float64)
    report(
        f"\n{case}: largest error against float64\n{'':26}" + "".join(f"{name:>10}" for name in ("ln p", "dq", "dk"))
    )
    rows = []
    for name, way in (("matched", matched), ("triton", ours("triton"))):
        off = [float((x.double() - y).abs().max()) for x, y in zip(told(way, case, case.dtype), exact, strict=True)]
        report(f"{name:26}" + "".join(f"{value:10.1e}" for value in off))
        rows.append({"kind": "error", "case": str(case), "name": name, "off": off})
    return rows


def told(way: Way, case: Case, dtype: torch.dtype) -> list[Tensor]:
    """Shares and gradients, of queries whose token was seen."""
    q, k, ids, targets = case.inputs(dtype)
    found = way(q, k, ids, targets)
    there = found > -80
    come = torch.randn(found.shape, generator=torch.Generator(DEVICE).manual_seed(1), device=DEVICE)
    slopes = torch.autograd.grad(found, (q, k), (come * there).to(found.dtype))
    return [found.detach() * there, *slopes]


def race(case: Case, report: Report, *, tiny: bool) -> list[Row]:
    """Every way, forward alone, then forward and backward."""
    torch.compiler.reset()
    steps = {name: steps_of(way_of(name, tiny=tiny), case) for name in WAYS}
    clocks = {
        part: both_clocks({name: pair[number] for name, pair in steps.items()}, BASE, 2 if tiny else ROUNDS)
        for number, part in enumerate(("forward", "both"))
    }
    heads = ("forward, wall", "device", "both, wall", "device", "peak MB")
    report(f"\n{case}; ms\n{'':26}" + "".join(f"{word:>14}" for word in heads) + f"   both, wall, over {BASE}")
    rows = []
    for name, (_, both) in steps.items():
        found = {part: {clock: ways[name] for clock, ways in one.items()} for part, one in clocks.items()}
        row = {"kind": "race", "case": str(case), "name": name, **found, "peak MB": peak(both) / 1e6}
        cells = [one["ms"] for part in found.values() for one in part.values()] + [row["peak MB"]]
        report(
            f"{name:26}" + "".join(f"{cell:14.3f}" for cell in cells) + f"   {with_quartiles(found['both']['wall'])}"
        )
        rows.append(row)
    for clock, ways in clocks["both"].items():
        best = min((name for name in ways if name not in OURS), key=lambda name: ways[name]["ms"])
        over = ratios(ways[best]["rounds"], ways["auto"]["rounds"])
        rows.append({"kind": "speed", "case": str(case), "clock": clock, "best other": best, "speed of auto": over})
        low, high = over["quartiles"]
        report(f"auto, {clock}: {over['median']:.2f}x as fast ({low:.2f} to {high:.2f}) as the best other, {best}")
    return rows


def steps_of(way: Way, case: Case) -> tuple[Callable[[], None], Callable[[], None]]:
    """The forward pass alone, and both."""
    q, k, ids, targets = case.inputs()
    come = torch.randn(case.B, case.T, device=DEVICE)

    def forward() -> None:
        with torch.no_grad():
            way(q, k, ids, targets)

    def both() -> None:
        torch.autograd.grad(way(q, k, ids, targets), (q, k), come)

    return forward, both


def once(name: str, case: Case) -> None:
    torch.compiler.reset()
    for step in steps_of(way_of(name, tiny=False), case):
        step()


def training(report: Report, *, tiny: bool) -> list[Row]:
    """Loss and gradients of a model that copies: as it is, with all weights held, and with none."""
    heads = [f"{what}, {clock}" for clock in ("wall", "device") for what in HELD]
    report(f"\n{'a step of AttentiveLM, ms':26}" + "".join(f"{word:>18}" for word in heads) + "   peak MB")
    rows = []
    sizes = ((2, 12),) if tiny else ((32, 32), (16, 128), (16, 256), (16, 512), (8, 2048), (2, 8192))
    for (B, T), half in product(sizes, (False,) if tiny else (False, True)):
        steps = {name: _step(B, T, half, most) for name, most in HELD.items()}
        clocks = both_clocks(steps, "held", 2 if tiny else ROUNDS)
        memory = {name: peak(step) / 1e6 for name, step in steps.items()}
        title = f"{B} x {T}{', bf16' if half else ''}"
        cells = "".join(f"{one['ms']:18.3f}" for ways in clocks.values() for one in ways.values())
        report(f"{title:26}{cells}   " + " / ".join(f"{one:.0f}" for one in memory.values()))
        rows.append({"kind": "training", "case": title, **clocks, "peak MB": memory})
    return rows


HELD: dict[str, int | None] = {"auto": None, "held": 2**62, "not held": -1}  # how many weights are materialised at most


def _step(B: int, T: int, half: bool, most: int | None) -> Callable[[], None]:
    torch.manual_seed(0)
    look = attentive_rnn_lm.PastAttention(Bilinear(128), copy=Gate(128))
    model = attentive_rnn_lm.AttentiveLM(WordEmbedding(VOCABULARY, 128), RecurrentLayers("lstm", 128, 128), look).to(
        DEVICE
    )
    text = torch.randint(VOCABULARY, (B, T + 1), device=DEVICE)
    texts = torch.arange(T, device=DEVICE).expand(B, T) * 4 // T
    rooms = () if most is None else ("models.attentive_rnn_lm", "attention.copy_attention")

    def step() -> None:
        with ExitStack() as rules, torch.autocast(DEVICE, BF16, enabled=half):
            for room in rooms:
                rules.enter_context(patch(f"regard.{room}.max_materialized", lambda device: most))
            total = model(text[:, :-1], texts)[0].nll(text[:, 1:]).sum()
        total.backward()

    return step


def tilings(case: Case, report: Report, end: float) -> list[Row]:
    """Our kernels one by one, by other tilings, the one that ships first."""
    given = Tuning.of(case)
    others = [given.ship.forward] if DEVICE == "cpu" else list(_others(case.dtype))
    report(f"\n{case}: {'tiling':32}" + "".join(f"{word:>14}" for word in ("forward ms", "back ms, dq", "back ms, dk")))
    rows = []
    for one in (None, *others):
        name = "as it ships" if one is None else str(tuple(one))
        if time.perf_counter() > end:
            report(f"{name:48} not reached")
            continue
        found = [given.milliseconds(part, one) for part in CopyTilings._fields]
        report(f"{name:48}" + "".join(f"{value:14.3f}" for value in found))
        rows.append({"kind": "tiling", "case": str(case), "name": name, "ms": found})
    return rows


def _others(dtype: torch.dtype) -> Iterator[Tiling]:
    if dtype == F32:
        yield from (Tiling(*one) for one in ((64, 32, 4, 1), (32, 32, 4, 1), (64, 64, 8, 1), (32, 64, 8, 1)))
        return
    for queries, keys, warps in ((128, 64, 4), (128, 64, 8), (64, 64, 4), (128, 128, 8), (64, 128, 8), (32, 128, 8)):
        yield from (Tiling(queries, keys, warps, stages) for stages in (2, 3))


@dataclass(frozen=True)
class Tuning:
    """A case, as its kernels take it."""

    given: tuple[Any, ...]  # q, k, ids, targets, reach, scale
    come: Tensor
    left: Tensor
    ship: CopyTilings

    @classmethod
    def of(cls, case: Case) -> Tuning:
        q, k, ids, targets = case.inputs()
        q, k = (x.detach().unsqueeze(1) for x in (q, k))
        given, ship = (q, k, ids, targets, KeySpans(shift_hi=0), case.D**-0.5), launch.copy_tilings(q)
        left = launch.forward(*given, ship)[1]
        return cls(given, torch.randn(case.B, 1, case.T, device=DEVICE), left, ship)

    def milliseconds(self, part: str, one: Tiling | None) -> float:
        """Of one kernel; NaN where a tiling does not fit the device. The way back is timed without the other of its two
        kernels."""
        chosen = self.ship if one is None else self.ship._replace(**{part: one})
        q, k, ids, targets, reach, scale = self.given
        name = "compute_dk" if part == "compute_dq" else "compute_dq"
        try:
            if part == "forward":
                return milliseconds(lambda: launch.forward(q, k, ids, targets, reach, scale, chosen))
            with patch.object(launch, name, _Silent()):
                step = lambda: launch.gradients(self.come, q, k, ids, targets, self.left, reach, scale, chosen)  # noqa: E731
                return milliseconds(step)
        except Exception as error:  # noqa: BLE001 (shared memory or registers that a device has not; told in the table)
            print(f"  {part} {chosen}: {type(error).__name__}", flush=True)
            return float("nan")


class _Silent:
    """A kernel that does nothing."""

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return lambda *args, **options: None


if __name__ == "__main__":
    show(run, __doc__, seconds=120, warm=warm)
