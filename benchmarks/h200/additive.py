"""What additive attention costs on a GPU: our kernels beside torch.compile, time, memory and error, in one run.

    PYTHONPATH=src python3 benchmarks/h200/additive.py [--tiny] [--seconds 80] [--out FILE]

Times are medians of CUDA events with the cache swept in between and the host ahead; "in a row" is a step's share of
many without a pause, launches included. Memory is the peak over what was there before, as a multiple of the inputs.
`--tiny` runs every path in Triton's interpreter, on any machine, to see it run.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

if "--tiny" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are defined

import torch
from steps import in_a_row, milliseconds, peak, show
from torch import Tensor

from regard.attention.kernels.triton.additive import additive_forward
from regard.attention.kernels.triton.additive_workspace import TILINGS

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


def run(report: Report, *, tiny: bool, seconds: float) -> list[dict[str, Any]]:
    """Everything: errors, then each case against torch.compile, then the tilings, as long as there is time."""
    end = time.perf_counter() + seconds
    rows = []
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
        forward, both = measure(ours(name), case)
        report(f"{name:26}{forward['ms']:12.3f}{rate(case, forward):10.0f}{both['ms']:10.3f}")
        rows.append({"kind": "tiling", "case": str(case), "name": name, "forward": forward, "both": both})
    return rows


def race(case: Case, report: Report, *, tiny: bool) -> list[dict[str, Any]]:
    """torch.compile and ours: forward alone, then forward and backward."""
    torch.compiler.reset()
    compiled = torch.compile(output_only, dynamic=False, backend="eager" if tiny else "inductor")
    found = {name: measure(function, case) for name, function in (("compile", compiled), ("ours", ours("auto")))}
    head = "".join(f"{word:>10}" for word in ("ms", "in a row", "memory", "Gtanh/s"))
    report(f"\n{case}\n{'forward, then both passes':26}{head}{head}")
    for name, both in found.items():
        cells = (
            f"{step['ms']:10.3f}{step['in a row']:10.3f}{step['memory']:10.2f}{rate(case, step):10.0f}" for step in both
        )
        report(f"{name:26}" + "".join(cells))
    times = [theirs["ms"] / own["ms"] for theirs, own in zip(found["compile"], found["ours"], strict=True)]
    share = rate(case, found["ours"][0]) / CEILING
    report(
        f"forward {times[0]:.2f}x compile (goal 3), {share:.0%} of {CEILING} Gtanh/s (goal 60%); "
        f"both {times[1]:.2f}x compile (goal 2)"
    )
    return [
        {"kind": "race", "case": str(case), "name": name, "forward": forward, "both": both}
        for name, (forward, both) in found.items()
    ]


def rate(case: Case, step: dict[str, float]) -> float:
    """Gtanh/s: of one for each pair and unit, however often the step computes it."""
    return case.tanhs / step["ms"] / 1e6


def measure(function: Callable[..., Tensor], case: Case) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds and memory of the forward pass, and of both passes."""
    inputs = case.inputs()
    size = sum(x.numel() * x.element_size() for x in inputs)
    out = torch.randn(case.N, case.T, case.D, device=DEVICE)

    def forward() -> None:
        with torch.no_grad():
            function(*inputs)

    def both() -> None:
        torch.autograd.grad(function(*inputs), inputs, out)

    first, second = (
        {"ms": milliseconds(step), "in a row": in_a_row(step), "memory": peak(step) / size} for step in (forward, both)
    )
    return first, second


def errors(case: Case, report: Report) -> list[dict[str, Any]]:
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
