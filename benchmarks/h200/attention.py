"""What it costs on a GPU to look while attending: beside cuDNN's output alone, eager PyTorch and flash-colreduce.

    PYTHONPATH=src python3 benchmarks/h200/attention.py [--out FILE] [--parts fused all received eager long ...]

bfloat16, 16 heads. `auto` is `attend(...)` as a user calls it; other rows name a backend. "x" is a multiple of cuDNN's
time for the output alone. Ways take turns; medians over rounds with quartiles, of the wall clock (calls in a row) and,
in brackets, of the device's time (CUDA events, the cache swept in between, the host ahead). flash-colreduce, a
published package, is compared if it can be imported.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch
from timing import SEED, Row, Work, both_clocks, compile_together, machine, peak, ratios
from torch import Tensor

from regard.attention import Observe, attend, choose, masks
from regard.attention.masks import Mask

SEES = Observe(top=1, entropy=True)
ALL = Observe(top=8, entropy=True, received=True, thumbnail=(256, 256))
SHAPES = [
    (width, rows, length, causal)
    for width in (64, 128)
    for rows, length in ((8, 4096), (1, 32768))
    for causal in (0, 1)
]
BACKENDS = ("auto", "triton-fused", "triton")
PARTS = ("fused", "all", "received", "eager", "long", "decode", "errors")


def inputs(rows: int, heads: int, length: int, width: int) -> list[Tensor]:
    shape = (rows, heads, length, width)
    return [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]


def cudnn(q: Tensor, k: Tensor, v: Tensor, causal: bool, lse: bool = False) -> Work:
    return lambda: torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, lse, 0.0, causal, False)


def mask_of(causal: int) -> Mask | None:
    return masks.Causal() if causal else None


def in_words(clocks: dict[str, Row], names: tuple[str, ...]) -> str:
    """name 1.02x (0.99x): by the wall clock and, in brackets, by the device."""
    cells = (f"{name} {clocks['wall'][name]['ratio']:.2f}x ({clocks['device'][name]['ratio']:.2f}x)" for name in names)
    return ", ".join(cells)


def against_cudnn(name: str, observe: Observe, goals: dict[int, float]) -> list[Row]:
    """Every shape: as `auto` chooses, by our own pass, and by the vendor's with our statistics."""
    rows = []
    for width, count, length, causal in SHAPES:
        q, k, v = inputs(count, 16, length, width)
        mask = mask_of(causal)
        ways: dict[str, Work] = {"cuDNN": cudnn(q, k, v, bool(causal))}
        for backend in BACKENDS:
            ways[backend] = lambda b=backend: attend(q, k, v, mask=mask, observe=observe, backend=b)
        clocks = both_clocks(ways, "cuDNN")
        row: Row = {"what": name, "width": width, "rows": count, "length": length, "causal": bool(causal)}
        rows.append(row | {"auto is": choose(q, k, v, mask=mask).backend, "goal": goals[width]} | clocks)
        print(
            f"{name}, D={width}, {count} x {length} {'causal' if causal else 'full'}: cuDNN "
            f"{clocks['wall']['cuDNN']['ms']:.3f} ms ({clocks['device']['cuDNN']['ms']:.3f}), "
            f"{in_words(clocks, BACKENDS)} (goal {goals[width]}x)",
            flush=True,
        )
    return rows


def plain_output() -> list[Row]:
    return against_cudnn("output + lse", Observe(), {64: 1.25, 128: 1.4})


def fused() -> list[Row]:
    return plain_output() + against_cudnn("output + lse + entropy + argmax", SEES, {64: 1.25, 128: 1.4})


def everything() -> list[Row]:
    return against_cudnn("output + entropy + top 8 + received + thumbnail", ALL, {64: 1.75, 128: 1.75})


def received() -> list[Row]:
    """What each key received: given the log-sum-exp, and with the pass that finds it."""
    from regard.attention.kernels.spans import FAR, KeySpans
    from regard.attention.kernels.triton import statistics_pass as launch

    rival = None
    if find_spec("flash_colreduce") is not None:
        from flash_colreduce import flash_colreduce as rival  # type: ignore[import-not-found, no-redef]
    rows = []
    for width, count, length, causal in SHAPES:
        q, k, v = inputs(count, 16, length, width)
        spans = KeySpans(-FAR, 1 if causal else FAR)
        lse = attend(q, k, v, mask=mask_of(causal), backend="triton-fused").lse
        none, wanted = lse.new_empty(0), launch.RequestedStatistics(True, 0, 0, 0)
        ways: dict[str, Work] = {
            "given lse": lambda: launch.statistics(q, k, lse, none, spans, width**-0.5, wanted),
            "auto": lambda: attend(q, k, v, mask=mask_of(causal), observe=Observe(received=True)),
        }
        if rival is not None:
            ways["flash-colreduce"] = lambda: rival(q, k, reduction="sum", is_causal=bool(causal))
            ours, theirs = (ways[name]() for name in ("given lse", "flash-colreduce"))
            apart = float((ours[0] - theirs.float()).abs().max() / ours[0].max())  # type: ignore[index, attr-defined]
            assert apart < 0.02, f"received mass differs from flash-colreduce's by {apart}"
        clocks = both_clocks(ways, "given lse")
        row: Row = {"what": "received", "width": width, "rows": count, "length": length, "causal": bool(causal)}
        row |= {"auto is": choose(q, k, v, mask=mask_of(causal)).backend} | clocks
        said = "flash-colreduce is not installed"
        if rival is not None:
            row["speed"] = {
                clock: {
                    own: ratios(each["flash-colreduce"]["rounds"], each[own]["rounds"]) for own in ("given lse", "auto")
                }
                for clock, each in clocks.items()
            }
            given, both = (row["speed"]["wall"][own]["median"] for own in ("given lse", "auto"))
            said = (
                f"flash-colreduce {given:.2f}x slower than given lse (goal 3), {both:.2f}x than auto (goal 1.3), wall"
            )
        rows.append(row)
        print(
            f"received, D={width}, {count} x {length} {'causal' if causal else 'full'}: given lse "
            f"{clocks['wall']['given lse']['ms']:.3f} ms ({clocks['device']['given lse']['ms']:.3f}), "
            f"{in_words(clocks, ('auto',))}; {said}",
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
        size = sum(x.nbytes for x in (q, k, v))
        ways: dict[str, Work] = {
            "auto": lambda: attend(q, k, v, mask=mask_of(causal), observe=ALL),
            "triton-fused": lambda: attend(q, k, v, mask=mask_of(causal), observe=ALL, backend="triton-fused"),
            "eager": lambda: eager(q, k, v, causal),
        }
        clocks = both_clocks(ways, "eager")
        memory = {name: peak(work) / size for name, work in ways.items()}
        speed = {clock: ratios(each["eager"]["rounds"], each["auto"]["rounds"]) for clock, each in clocks.items()}
        rows.append({"what": "eager", "causal": causal, "memory": memory, "speed of auto": speed} | clocks)
        print(
            f"all statistics, 8 x 16 x 4096, D=64, {'causal' if causal else 'full'}: auto "
            f"{clocks['wall']['auto']['ms']:.2f} ms ({clocks['device']['auto']['ms']:.2f}), eager "
            f"{clocks['wall']['eager']['ms']:.1f} ms: {speed['wall']['median']:.1f}x faster (goal 30); memory "
            f"{memory['auto']:.2f}x the inputs (goal 2), eager {memory['eager']:.0f}x",
            flush=True,
        )
    return rows


def long() -> list[Row]:
    """32k and 128k tokens, 8 heads of 128."""
    rows = []
    for length in (32768, 131072):
        q, k, v = inputs(1, 8, length, 128)
        size = sum(x.nbytes for x in (q, k, v))
        ways: dict[str, Work] = {
            "cuDNN": cudnn(q, k, v, True),
            "auto": lambda: attend(q, k, v, mask=masks.Causal(), observe=ALL),
        }
        clocks, memory = both_clocks(ways, "cuDNN"), peak(ways["auto"]) / size
        chosen = choose(q, k, v, mask=masks.Causal()).backend
        rows.append({"what": "long", "length": length, "memory": memory, "auto is": chosen} | clocks)
        print(
            f"{length} tokens, 8 heads of 128, causal, all statistics [{chosen}]: "
            f"{clocks['wall']['auto']['ms']:.1f} ms, {in_words(clocks, ('auto',))} cuDNN's output; "
            f"memory {memory:.2f}x the inputs",
            flush=True,
        )
    return rows


def decode() -> list[Row]:
    """One query against a cache, 8 rows, 32 heads on 8 key heads."""
    rows = []
    for length in (4096, 32768):
        q = torch.randn(8, 32, 1, 128, device="cuda", dtype=torch.bfloat16)
        k, v = (torch.randn(8, 8, length, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        usual = torch.nn.functional.scaled_dot_product_attention
        ways: dict[str, Work] = {"sdpa": lambda: usual(q, k, v, enable_gqa=True)}
        for backend in ("auto", "triton-fused"):
            ways[backend] = lambda b=backend: attend(q, k, v, backend=b)
            ways[f"{backend}, everything"] = lambda b=backend: attend(q, k, v, observe=ALL, backend=b)
        clocks = both_clocks(ways, "sdpa")
        rows.append({"what": "decode", "length": length, "auto is": choose(q, k, v).backend} | clocks)
        speed = 2 * k.nbytes / clocks["device"]["triton-fused"]["ms"] / 1e9
        print(
            f"decode, 8 rows, 32 heads on 8, cache of {length}: sdpa {clocks['wall']['sdpa']['ms']:.3f} ms "
            f"({clocks['device']['sdpa']['ms']:.3f}), {in_words(clocks, tuple(ways)[1:])}; triton-fused reads "
            f"{speed:.2f} TB/s",
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


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/h200/attention.json"))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--warm", nargs=2, type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    torch.manual_seed(SEED)
    if chosen.warm:
        warm(*chosen.warm)
        return
    compile_together(__file__)
    rows: list[Row] = [machine("flash-colreduce")]
    print(rows[0], flush=True)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    for part in chosen.parts:
        rows += RUNS[part]()
        chosen.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(f"written to {chosen.out}")


if __name__ == "__main__":
    main()
