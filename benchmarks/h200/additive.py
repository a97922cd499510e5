"""What additive attention costs on a GPU: our kernels beside torch.compile, time, memory and error, in one run.

    PYTHONPATH=src python3 benchmarks/h200/additive.py [--tiny] [--seconds 80] [--out FILE]

`auto` is what a user calls: `attend(q, k, v, score=Additive(...))`, which projects queries and keys, beside the same
formula under torch.compile. `kernels` and `compile, projected` begin with projected queries and keys.
Ways take turns; medians over rounds with quartiles, of the wall clock (calls in a row) and of the device's time (CUDA
events, the cache swept in between, the host ahead). Memory is the peak over what was there before, as a multiple of the
inputs. `--tiny` runs every path in Triton's interpreter, on any machine, to see it run.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

if "--tiny" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are defined

import torch
from timing import ROUNDS, Row, both_clocks, milliseconds, peak, ratios, show
from torch import Tensor

from regard.attention import attend
from regard.attention.kernels.triton.additive import additive_forward
from regard.attention.kernels.triton.additive_workspace import TILINGS
from regard.attention.scores import Additive

CEILING = 4180  # Gtanh/s: 16 special functions a cycle, 132 multiprocessors, 1.98 GHz
DEVICE = "cpu" if "--tiny" in sys.argv else "cuda"
Report = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """N leading indices, T queries, S keys, U units, D the width of the values."""

    N: int
    T: int
    S: int
    U: int
    D: int

    @property
    def tanhs(self) -> int:
        return self.N * self.T * self.S * self.U

    def inputs(self, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        source = torch.Generator(DEVICE).manual_seed(0)
        sizes = [(self.N, self.T, self.U), (self.N, self.S, self.U), (self.N, self.S, self.D), (self.U,)]
        drawn = [torch.randn(size, generator=source, device=DEVICE) for size in sizes]
        drawn[3] *= 4 * self.U**-0.5  # scores of size 2 or so, as in a model that has learned to look somewhere
        return [x.to(dtype).requires_grad_() for x in drawn]

    def __str__(self) -> str:
        return f"{self.N} x {self.T} x {self.S} x {self.U}, values {self.D}"


CASES = [Case(8, 1024, 1024, 256, 256), Case(16, 512, 512, 512, 512)]
EXACT = [Case(1, 512, 512, 256, 256), Case(2, 333, 401, 100, 64)]
TINY_CASES = [Case(2, 5, 70, 20, 3), Case(1, 3, 4, 5, 6)]
TINY_EXACT = [Case(1, 5, 7, 5, 6)]


def reference(a: Tensor, b: Tensor, v: Tensor, vector: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The definition, as one writes it: output, log-sum-exp, entropy."""
    scores = (torch.tanh(a.unsqueeze(2) + b.unsqueeze(1)) * vector).sum(-1)
    weights = scores.softmax(-1)
    return weights @ v, scores.logsumexp(-1), torch.special.entr(weights).sum(-1)


def output_only(a: Tensor, b: Tensor, v: Tensor, vector: Tensor) -> Tensor:
    return (torch.tanh(a.unsqueeze(2) + b.unsqueeze(1)) * vector).sum(-1).softmax(-1) @ v


def ours(tiling: str) -> Callable[..., Tensor]:
    def run(a: Tensor, b: Tensor, v: Tensor, vector: Tensor) -> Tensor:
        return additive_forward(a, b, v, vector, None, None, tiling)[0]

    return run


def run(report: Report, *, tiny: bool, seconds: float) -> list[Row]:
    """Everything: errors, then each case against torch.compile, then the tilings, as long as there is time."""
    end = time.perf_counter() + seconds
    rows: list[Row] = []
    for case in TINY_EXACT if tiny else EXACT:
        rows += errors(case, report)
    for case in TINY_CASES if tiny else CASES:
        rows += race(case, report, tiny=tiny)
    report(f"\n{'tiling':26}{'forward ms':>12}{'Gtanh/s':>10}{'both ms':>10}")
    case = TINY_CASES[1] if tiny else CASES[0]
    for name in TILINGS:
        if time.perf_counter() > end:
            report(f"{name:26} not reached within {seconds:.0f} s")
            continue
        forward, both = (milliseconds(step) for step in steps_of(kernels(case, ours(name))))
        report(f"{name:26}{forward:12.3f}{rate(case, forward):10.0f}{both:10.3f}")
        rows.append({"kind": "tiling", "case": str(case), "name": name, "forward": forward, "both": both})
    return rows


def race(case: Case, report: Report, *, tiny: bool) -> list[Row]:
    """torch.compile and ours, as a user calls them and from projected queries and keys on: forward, and both passes."""
    torch.compiler.reset()
    compiled = torch.compile(output_only, dynamic=False, backend="eager" if tiny else "inductor")
    ways = public(case, tiny=tiny)
    ways |= {"compile, projected": kernels(case, compiled), "kernels": kernels(case, ours("auto"))}
    steps = {name: steps_of(way) for name, way in ways.items()}
    clocks = {
        part: both_clocks({name: pair[number] for name, pair in steps.items()}, "compile", 2 if tiny else ROUNDS)
        for number, part in enumerate(("forward", "both"))
    }
    head = "".join(f"{word:>16}" for word in ("forward, wall", "device", "both, wall", "device", "memory", "of both"))
    report(f"\n{case}; ms\n{'':26}{head}")
    rows: list[Row] = []
    for name, way in ways.items():
        found: Row = {part: {clock: each[name] for clock, each in one.items()} for part, one in clocks.items()}
        memory = [peak(step) / sum(x.nbytes for x in way.leaves) for step in steps[name]]
        rows.append({"kind": "race", "case": str(case), "name": name, **found, "memory": memory})
        cells = [one["ms"] for part in found.values() for one in part.values()] + memory
        report(f"{name:26}" + "".join(f"{cell:16.3f}" for cell in cells))
    for own, other in (("auto", "compile"), ("kernels", "compile, projected")):
        for part, goal in (("forward", 3), ("both", 2)):
            for clock, each in clocks[part].items():
                over = ratios(each[other]["rounds"], each[own]["rounds"])
                rows.append({"kind": "speed", "case": str(case), "name": own, "part": part, "clock": clock} | over)
                low, high = over["quartiles"]
                report(
                    f"{own}, {part}, {clock}: {over['median']:.2f}x as fast as {other} ({low:.2f} to {high:.2f}; "
                    f"goal {goal})"
                )
    speed = rate(case, clocks["forward"]["device"]["kernels"]["ms"])
    report(f"kernels: {speed:.0f} Gtanh/s, {speed / CEILING:.0%} of {CEILING} (goal 60%)")
    return rows


def rate(case: Case, ms: float) -> float:
    """Gtanh/s: of one for each pair and unit, however often the step computes it."""
    return case.tanhs / ms / 1e6


class Way(NamedTuple):
    """How to get the output, and what has a gradient."""

    call: Callable[[], Tensor]
    leaves: list[Tensor]


def public(case: Case, *, tiny: bool) -> dict[str, Way]:
    """The formula with its projections under torch.compile, and `attend`."""
    q, k, v, _ = case.inputs()
    torch.manual_seed(0)
    score = Additive(case.U, case.U).to(DEVICE)
    with torch.no_grad():
        score.vector.mul_(4)
    weights = [score.query.weight, score.key.weight, score.vector]

    def formula(q: Tensor, k: Tensor, v: Tensor, query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
        return output_only(q @ query.mT, k @ key.mT, v, vector)

    compiled = torch.compile(formula, dynamic=False, backend="eager" if tiny else "inductor")
    leaves = [q, k, v, *weights]
    return {
        "compile": Way(lambda: compiled(*leaves), leaves),
        "auto": Way(lambda: attend(q, k, v, score=score).output, leaves),
    }


def kernels(case: Case, function: Callable[..., Tensor]) -> Way:
    """A function of projected queries and keys, values and the vector."""
    inputs = case.inputs()
    return Way(lambda: function(*inputs), inputs)


def steps_of(way: Way) -> tuple[Callable[[], None], Callable[[], None]]:
    """The forward pass, and both passes."""
    with torch.no_grad():
        come = torch.randn_like(way.call())

    def forward() -> None:
        with torch.no_grad():
            way.call()

    def both() -> None:
        torch.autograd.grad(way.call(), way.leaves, come)

    return forward, both


def errors(case: Case, report: Report) -> list[Row]:
    """The largest error against float64 of ours and of eager float32: results, then gradients."""
    names = ["output", "lse", "entropy", "da", "db", "dv", "dvector"]
    wanted = told(reference, case, torch.float64)
    found = {
        "eager": told(reference, case, torch.float32),
        **{f"ours, {name}": told(_whole(name), case, torch.float32) for name in ("auto", *TILINGS)},
    }
    report(f"\n{case}: largest error against float64\n{'':26}" + "".join(f"{name:>10}" for name in names))
    rows = []
    for who, got in found.items():
        off = [float((x.double() - y).abs().max()) for x, y in zip(got, wanted, strict=True)]
        report(f"{who:26}" + "".join(f"{value:10.1e}" for value in off))
        rows.append({"kind": "error", "case": str(case), "name": who, **dict(zip(names, off, strict=True))})
    return rows


def _whole(tiling: str) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    return lambda a, b, v, vector: additive_forward(a, b, v, vector, None, None, tiling)


def told(function: Callable[..., tuple[Tensor, Tensor, Tensor]], case: Case, dtype: torch.dtype) -> list[Tensor]:
    """Results, and the gradients of a sum that weighs every output and log-sum-exp differently."""
    inputs = case.inputs(dtype)
    output, lse, entropy = function(*inputs)
    source = torch.Generator(DEVICE).manual_seed(1)
    factors = [torch.randn(x.shape, generator=source, device=DEVICE).to(dtype) for x in (output, lse)]
    grads = torch.autograd.grad((output * factors[0]).sum() + (lse * factors[1]).sum(), inputs)
    return [x.detach() for x in (output, lse, entropy, *grads)]


if __name__ == "__main__":
    show(run, __doc__, seconds=80)
