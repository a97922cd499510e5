"""What it costs on a GPU to look while attending: our kernels beside cuDNN's output alone, eager PyTorch and
flash-colreduce, in one run.

    PYTHONPATH=src python3 benchmarks/h200/attention.py [--out FILE] [--parts fused all received eager long ...]

Medians of CUDA events, bfloat16, 16 heads; "x" is a multiple of cuDNN's time for the output alone, measured before and
after each group. flash-colreduce, a published package, is compared if it can be imported.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from steps import compile_together
from torch import Tensor
from triton.testing import do_bench  # type: ignore[import-untyped]

from regard.attention import Attended, Observe, attend, masks
from regard.attention.masks import Mask

SEES = Observe(top=1, entropy=True)
ALL = Observe(top=8, entropy=True, received=True, thumbnail=(256, 256))
SHAPES = [
    (width, rows, length, causal)
    for width in (64, 128)
    for rows, length in ((8, 4096), (1, 32768))
    for causal in (0, 1)
]
PARTS = ("fused", "all", "received", "eager", "long", "decode", "errors")
Row = dict[str, Any]


def median(work: Callable[[], object], rep: int = 60) -> float:
    """Milliseconds."""
    with torch.no_grad():
        return float(do_bench(work, warmup=15, rep=rep, return_mode="median"))


def inputs(rows: int, heads: int, length: int, width: int) -> list[Tensor]:
    shape = (rows, heads, length, width)
    return [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]


def cudnn(q: Tensor, k: Tensor, v: Tensor, causal: bool, lse: bool = False) -> Callable[[], object]:
    return lambda: torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, lse, 0.0, causal, False)


def mask_of(causal: int) -> Mask | None:
    return masks.Causal() if causal else None


def against_cudnn(name: str, observe: Observe, goals: dict[int, float]) -> list[Row]:
    """Every shape, by the backend of our own pass and by the vendor's with our statistics."""
    rows = []
    for width, count, length, causal in SHAPES:
        q, k, v = inputs(count, 16, length, width)
        output = cudnn(q, k, v, bool(causal))
        before = median(output)
        ours = {
            backend: median(lambda b=backend: attend(q, k, v, mask=mask_of(causal), observe=observe, backend=b))
            for backend in ("triton-fused", "triton")
        }
        base = (before + median(output)) / 2
        rows.append(
            {"what": name, "width": width, "rows": count, "length": length, "causal": bool(causal), "cudnn_ms": base}
            | {backend: ms / base for backend, ms in ours.items()}
            | {"goal": goals[width]}
        )
        row = rows[-1]
        kind = "causal" if causal else "full"
        print(
            f"{name}, D={width}, {count} x {length} {kind}: cuDNN {base:.3f} ms, "
            f"triton-fused {row['triton-fused']:.2f}x,",
            end="",
        )
        print(f" triton {row['triton']:.2f}x (goal {goals[width]}x)", flush=True)
    return rows


def plain_output() -> list[Row]:
    return against_cudnn("output + lse", Observe(), {64: 1.25, 128: 1.4})


def fused() -> list[Row]:
    return plain_output() + against_cudnn("output + lse + entropy + argmax", SEES, {64: 1.25, 128: 1.4})


def everything() -> list[Row]:
    return against_cudnn("output + entropy + top 8 + received + thumbnail", ALL, {64: 1.75, 128: 1.75})


def received() -> list[Row]:
    """What each key received: given the log-sum-exp, and with the pass that finds it."""
    from regard.attention.kernels.spans import FAR, Spans
    from regard.attention.kernels.triton import statistics_pass as launch

    rival = None
    if find_spec("flash_colreduce") is not None:
        from flash_colreduce import flash_colreduce as rival  # type: ignore[import-not-found, no-redef]
    rows = []
    for width, count, length, causal in SHAPES:
        q, k, v = inputs(count, 16, length, width)
        spans = Spans(-FAR, 1 if causal else FAR)
        lse = attend(q, k, v, mask=mask_of(causal), backend="triton-fused").lse
        none, wanted = lse.new_empty(0), launch.RequestedStatistics(True, 0, 0, 0)
        given = median(lambda: launch.statistics(q, k, lse, none, spans, width**-0.5, wanted))
        work = partial(attend, q, k, v, mask=mask_of(causal), observe=Observe(received=True))
        both, chosen = median(work), work().backend
        theirs = None
        if rival is not None:
            theirs = median(lambda: rival(q, k, reduction="sum", is_causal=bool(causal)), rep=30)
            ours = launch.statistics(q, k, lse, none, spans, width**-0.5, wanted)[0]
            apart = float(
                (ours - rival(q, k, reduction="sum", is_causal=bool(causal)).float()).abs().max() / ours.max()
            )
            assert apart < 0.02, f"received mass differs from flash-colreduce's by {apart}"
        rows.append(
            {
                "what": "received",
                "width": width,
                "rows": count,
                "length": length,
                "causal": bool(causal),
                "given_lse_ms": given,
            }
            | {"with_lse_ms": both, "with_lse_by": chosen, "rival_ms": theirs}
        )
        said = (
            "not installed"
            if theirs is None
            else f"{theirs / given:.2f}x slower than given lse (goal 3), {theirs / both:.2f}x than with it (goal 1.3)"
        )
        print(
            f"received, D={width}, {count} x {length} {'causal' if causal else 'full'}: given lse {given:.3f} ms, "
            f"with the forward pass of {chosen} {both:.3f} ms; flash-colreduce {said}",
            flush=True,
        )
    return rows


def eager(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, ...]:
    """All statistics the usual way: the whole map in memory."""
    scores = q @ k.mT * q.size(-1) ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool, device="cuda").triu(1), -torch.inf)
    weights = scores.float().softmax(-1)
    top = weights.topk(8)
    side = weights.size(-1) // 256
    cells = weights.unflatten(-1, (256, side)).mean(-1).unflatten(-2, (256, side)).mean(-2)
    return weights.to(v.dtype) @ v, torch.special.entr(weights).sum(-1), top.values, top.indices, weights.sum(-2), cells


def beside_eager() -> list[Row]:
    rows = []
    for causal in (False, True):
        q, k, v = inputs(8, 16, 4096, 64)
        size = sum(x.numel() * x.element_size() for x in (q, k, v))

        def ours() -> Attended:
            return attend(q, k, v, mask=mask_of(causal), observe=ALL, backend="triton-fused")

        times, memory = [], []
        for work in (ours, lambda: eager(q, k, v, causal)):
            work()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            work()
            torch.cuda.synchronize()
            memory.append((torch.cuda.max_memory_allocated() - before) / size)
            times.append(median(work, rep=40))
        rows.append(
            {
                "what": "eager",
                "causal": causal,
                "ours_ms": times[0],
                "eager_ms": times[1],
                "ours_memory": memory[0],
                "eager_memory": memory[1],
            }
        )
        print(
            f"all statistics, 8 x 16 x 4096, D=64, {'causal' if causal else 'full'}: {times[0]:.2f} ms, eager "
            f"{times[1]:.1f} ms: {times[1] / times[0]:.1f}x faster (goal 30); memory {memory[0]:.2f}x the inputs "
            f"(goal 2), eager {memory[1]:.0f}x",
            flush=True,
        )
    return rows


def long() -> list[Row]:
    """128k tokens, 8 heads of 128."""
    rows = []
    for length in (32768, 131072):
        q, k, v = inputs(1, 8, length, 128)
        size = sum(x.numel() * x.element_size() for x in (q, k, v))
        work = lambda: attend(q, k, v, mask=masks.Causal(), observe=ALL, backend="auto")  # noqa: E731
        backend = work().backend
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        torch.cuda.synchronize()
        memory = (torch.cuda.max_memory_allocated() - before) / size
        ms, base = median(work, rep=300), median(cudnn(q, k, v, True), rep=300)
        rows.append(
            {"what": "long", "length": length, "ms": ms, "cudnn_ms": base, "memory": memory, "backend": backend}
        )
        print(
            f"{length} tokens, 8 heads of 128, causal, all statistics ({backend}): {ms:.1f} ms, {ms / base:.2f}x "
            f"cuDNN's output; memory {memory:.2f}x the inputs",
            flush=True,
        )
    return rows


def decode() -> list[Row]:
    """One query against a cache, 8 rows, 32 heads on 8 key heads."""
    rows = []
    for length in (4096, 32768):
        q = torch.randn(8, 32, 1, 128, device="cuda", dtype=torch.bfloat16)
        k, v = (torch.randn(8, 8, length, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        usual = median(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True))
        alone, seen = (median(lambda o=o: attend(q, k, v, observe=o, backend="triton-fused")) for o in (Observe(), ALL))
        rows.append({"what": "decode", "length": length, "sdpa_ms": usual, "ours_ms": alone, "seen_ms": seen})
        speed = 2 * k.numel() * 2 / alone / 1e9
        print(
            f"decode, 8 rows, 32 heads on 8, cache of {length}: {alone:.3f} ms ({speed:.2f} TB/s), with all statistics "
            f"{seen:.3f}, sdpa {usual:.3f}",
            flush=True,
        )
    return rows


def errors() -> list[Row]:
    """Largest error against float64: ours beside PyTorch's operations in the same dtype."""
    rows = []
    for width in (64, 128):
        for T, S, causal in ((1024, 1024, 1), (777, 1333, 0)):
            q, k, v = (torch.randn(2, 4, n, width, device="cuda", dtype=torch.bfloat16) for n in (T, S, S))
            truth = attend(*(x.double() for x in (q, k, v)), mask=mask_of(causal), observe=ALL, backend="plain")
            got = attend(q, k, v, mask=mask_of(causal), observe=ALL, backend="triton-fused")
            usual = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))
            row: Row = {"what": "errors", "width": width, "T": T, "S": S, "causal": bool(causal)}
            row["sdpa output"] = float((usual.double() - truth.output).abs().max())
            for field in ("output", "lse", "entropy", "received", "thumbnail"):
                row[field] = float((getattr(got, field).double() - getattr(truth, field)).abs().max())
            row["top"] = float((got.top.values.double() - truth.top.values).abs().max())
            row["same keys"] = float((got.top.indices == truth.top.indices).float().mean())
            rows.append(row)
            print(
                "  ".join(
                    f"{name} {value:.2g}" if isinstance(value, float) else f"{name} {value}"
                    for name, value in row.items()
                ),
                flush=True,
            )
    return rows


RUNS: dict[str, Callable[[], list[Row]]] = dict(
    zip(PARTS, (fused, everything, received, beside_eager, long, decode, errors), strict=True)
)


def warm(me: int, of: int) -> None:
    """Compile one part in so many of all kernels, so that several processes share the work."""
    jobs = []
    for width in (64, 128):
        q, k, v = inputs(1, 16, 4096, width)
        wide = inputs(1, 1, 8192, width)
        for observe in (Observe(), SEES, ALL, Observe(received=True), Observe(entropy=True, top=8)):
            for some in ((q, k, v), wide):
                jobs.append(lambda x=some, o=observe: attend(*x, observe=o, backend="triton-fused"))
        few = torch.randn(8, 32, 1, width, device="cuda", dtype=torch.bfloat16)
        cache = torch.randn(8, 8, 4096, width, device="cuda", dtype=torch.bfloat16)
        jobs.append(lambda x=few, y=cache: attend(x, y, observe=ALL, backend="triton-fused"))
    for job in jobs[me::of]:
        job()
    torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/h200/attention.json"))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--warm", nargs=2, type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    if chosen.warm:
        warm(*chosen.warm)
        return
    compile_together(__file__)
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name()}", flush=True)
    rows: list[Row] = []
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    for part in chosen.parts:
        rows += RUNS[part]()
        chosen.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(f"written to {chosen.out}")


if __name__ == "__main__":
    main()
