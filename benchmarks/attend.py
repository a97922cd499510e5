"""What observing attention costs: time and memory of output plus statistics, beside PyTorch's output alone.

    python benchmarks/attend.py [--quick] [--out out/bench]

"auto" is what a user gets, `attend(...)` without a backend; the rows below it name one. Every contender runs once a
round, side by side in one process. Other work on the machine only ever adds time, so the table shows best time over
best time; the median over rounds of the ratio within a round stands beside it, with its quartiles in the JSON. Memory
and the sweep over lengths run in a process of their own each, so that nobody inherits another's peak. Writes
attend.json and attend.png.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from run_record import ratios as over_rounds, run_record
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard import Observe, attend, masks
from regard.attention import choose

WIDTH = 64
SUMS = Observe(entropy=True, received=True, thumbnail=(256, 256))
SUMS_AND_TOP = Observe(entropy=True, received=True, thumbnail=(256, 256), top=8)
Run = Callable[[Tensor, Tensor, Tensor, bool], object]


def eager(q: Tensor, k: Tensor, v: Tensor, causal: bool, top: bool) -> tuple[Tensor, ...]:
    """What one writes today: the whole map, then its statistics."""
    scores = q @ k.mT / WIDTH**0.5
    if causal:
        scores.masked_fill_(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    weights = scores.softmax(-1)
    del scores
    cells = weights.unflatten(-1, (256, -1)).sum(-1).unflatten(-2, (256, -1)).mean(-2)
    result = (weights @ v, torch.special.entr(weights).sum(-1), weights.sum(-2), cells)
    return (*result, *weights.topk(8)) if top else result


def ours(backend: str, observe: Observe | None) -> Run:
    def run(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> object:
        mask = masks.Causal() if causal else None
        return attend(q, k, v, mask=mask, observe=observe, backend=backend)

    return run


CONTENDERS: dict[str, Run] = {
    "PyTorch sdpa, output only": lambda q, k, v, causal: scaled_dot_product_attention(q, k, v, is_causal=causal),
    "auto, output only": ours("auto", None),
    "auto + entropy, received, thumbnail": ours("auto", SUMS),
    "auto + the same and top 8": ours("auto", SUMS_AND_TOP),
    "stream, output only": ours("stream", None),
    "stream + entropy, received, thumbnail": ours("stream", SUMS),
    "stream + the same and top 8": ours("stream", SUMS_AND_TOP),
    "sdpa, output only": ours("sdpa", None),
    "sdpa + entropy, received, thumbnail": ours("sdpa", SUMS),
    "sdpa + the same and top 8": ours("sdpa", SUMS_AND_TOP),
    "eager + entropy, received, thumbnail": lambda q, k, v, causal: eager(q, k, v, causal, top=False),
    "eager + the same and top 8": lambda q, k, v, causal: eager(q, k, v, causal, top=True),
}
BASE = next(iter(CONTENDERS))
SWEPT = [BASE, "auto + the same and top 8", "stream + the same and top 8", "eager + the same and top 8"]
LENGTHS = [1024, 2048, 4096, 8192, 16384, 32768]


def inputs(length: int, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, heads, length, WIDTH) for _ in range(3))
    return q, k, v


def seconds(run: Run, tensors: tuple[Tensor, Tensor, Tensor], causal: bool) -> float:
    start = time.perf_counter()
    run(*tensors, causal)
    return time.perf_counter() - start


def chosen(length: int, heads: int, causal: bool) -> str:
    """What "auto" stands for here."""
    q, k, v = inputs(length, heads)
    return choose(q, k, v, mask=masks.Causal() if causal else None).backend


Ratios = dict[str, dict[str, Any]]


@torch.no_grad()
def costs(length: int, heads: int, causal: bool, rounds: int) -> Ratios:
    """Each contender's time as a multiple of PyTorch's: best over best, and the median over rounds."""
    tensors = inputs(length, heads)
    times: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for number in range(rounds + 1):  # the first round warms up and is not counted
        for name, run in CONTENDERS.items():
            taken = seconds(run, tensors, causal)
            if number:
                times[name].append(taken)
    base = times[BASE]
    return {
        name: {
            "best": min(taken) / min(base),
            "seconds": min(taken),
            "times": taken,
            **over_rounds(taken, base),
        }
        for name, taken in times.items()
    }


def alone(name: str, length: int) -> dict[str, float]:
    """Time and peak extra memory of one contender, one head, in a process of its own."""
    command = [sys.executable, __file__, "--alone", name, "--length", str(length)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} at {length} tokens failed with {done.returncode}:\n{done.stderr[-2000:]}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


@torch.no_grad()
def measure_alone(name: str, length: int) -> dict[str, float]:
    run = CONTENDERS[name]
    run(*inputs(512, 1), False)  # libraries load and threads start here
    tensors = inputs(length, 1)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _status("VmRSS")
    taken = seconds(run, tensors, False)
    peak = _status("VmHWM") - before
    if length <= 8192:
        taken = min([taken, *(seconds(run, tensors, False) for _ in range(4))])
    return {"seconds": taken, "megabytes": peak / 1024}


def _status(field: str) -> int:
    """A line of this process's status, in kilobytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def table(full: Ratios, causal: Ratios) -> str:
    width = max(map(len, full))
    rows = [f"{'times PyTorch, output only: best (median)':{width}}  {'full':>14}  {'causal':>14}"]
    for name in full:
        cells = (f"{r[name]['best']:6.2f} ({r[name]['median']:5.2f})" for r in (full, causal))
        rows.append(f"{name:{width}}  " + "  ".join(cells))
    return "\n".join(rows)


def goals(full: Ratios, causal: Ratios, sweep: dict[str, dict[int, dict[str, float]]]) -> list[str]:
    """Each goal with the figure beside it, as users get it and by the backend that takes one pass."""
    lines = []
    for backend in ("auto", "stream"):
        sums, top = f"{backend} + entropy, received, thumbnail", f"{backend} + the same and top 8"
        eager_sums, eager_top = (name.replace(backend, "eager") for name in (sums, top))
        of_sums, of_all = (causal[a]["best"] / causal[b]["best"] for a, b in ((eager_sums, sums), (eager_top, top)))
        lines += [
            f"{sums}: {full[sums]['best']:.2f}x  (goal <= 2.5x)",
            f"{top}: {full[top]['best']:.2f}x  (goal <= 4x)",
            f"causal, eager / {backend}, the sums: {of_sums:.1f}x  (goal >= 5x)",
            f"causal, eager / {backend}, with top 8: {of_all:.1f}x  (goal >= 5x)",
        ]
    if sweep:
        ours_mb, _, held_mb = (sweep[name][LENGTHS[-1]]["megabytes"] for name in SWEPT[1:])
        lines.append(
            f"auto, peak extra memory at 32,768 tokens:    {ours_mb:.0f} MB  (goal <= 300; eager {held_mb:.0f} MB)"
        )
    return lines


def plot(sweep: dict[str, dict[int, dict[str, float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    styles = zip(SWEPT, ("#555555", "#0072b2", "#009e73", "#d55e00"), ("o", "s", "D", "^"), strict=True)
    for name, colour, marker in styles:
        points = sweep[name]
        for axis, field in zip(axes, ("seconds", "megabytes"), strict=True):
            values = [max(point[field], 0.1 if field == "megabytes" else 0) for point in points.values()]
            label = name.replace(" + the same and top 8", " with all statistics")
            axis.plot([int(n) for n in points], values, color=colour, marker=marker, label=label)
    for axis, title in zip(axes, ("seconds", "peak extra memory, MB"), strict=True):
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(LENGTHS, [f"{n // 1024}k" for n in LENGTHS])
        axis.set_xlabel("tokens (one head of 64, float32, full attention)")
        axis.set_title(title)
        axis.grid(alpha=0.3)
    axes[1].axhline(300, color="#0072b2", linewidth=0.8, linestyle=":")
    axes[1].annotate("300 MB", (LENGTHS[0], 330), color="#0072b2", fontsize=8)
    axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2,048 tokens, three rounds, no sweep: to see it run")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--length", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.alone:
        print(json.dumps(measure_alone(asked.alone, asked.length)))
        return
    length, heads, rounds = (2048, 2, 3) if asked.quick else (8192, 2, asked.rounds)
    print(f"{length} tokens, {heads} heads of {WIDTH}, float32, {torch.get_num_threads()} threads, {rounds} rounds")
    full, causal = (costs(length, heads, causal, rounds) for causal in (False, True))
    print(table(full, causal), flush=True)
    sweep: dict[str, dict[int, dict[str, float]]] = {}
    for name in [] if asked.quick else SWEPT:
        sweep[name] = {n: alone(name, n) for n in LENGTHS}
        print(name, {n: f"{p['seconds']:.3f} s, {p['megabytes']:.0f} MB" for n, p in sweep[name].items()}, flush=True)
    print(*goals(full, causal, sweep), sep="\n")
    asked.out.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"machine": run_record(seeds=[0], rounds=rounds)}
    result |= {"tokens": length, "heads": heads, "width": WIDTH}
    result |= {"auto is": {kind: chosen(length, heads, kind == "causal") for kind in ("full", "causal")}}
    result |= {"full": full, "causal": causal, "sweep": sweep}
    (asked.out / "attend.json").write_text(json.dumps(result, indent=1) + "\n")
    if sweep:
        plot(sweep, asked.out / "attend.png")
    print(f"written: {asked.out / 'attend.json'}" + (f", {asked.out / 'attend.png'}" if sweep else ""))


if __name__ == "__main__":
    main()
