"""What the gradients of dot attention and decoding from a long cache cost on a GPU: our kernels beside PyTorch's.

    PYTHONPATH=src python3 benchmarks/h200/backward.py [--sweep] [--tiny] [--out FILE]

First errors: against float64, as multiples of what plain PyTorch makes in bfloat16. Then times: `auto` is what a user
calls (the gradients of `attend`'s output; `attend` with a cache), `kernels` our kernels alone. Ways take turns; medians
over rounds with quartiles, of the wall clock (calls in a row) and of the device's time (CUDA events, the cache swept in
between). cuDNN and flash are named by a context manager, which the wall clock counts in decoding. `--sweep` times other
tilings instead. `--tiny` runs every path of ours in Triton's interpreter, on any machine, to see it run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

if "--tiny" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are defined

import torch
from timing import ROUNDS, Row, Work, both_clocks, machine, milliseconds, with_quartiles
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from regard.attention import attend, masks
from regard.attention.kernels.shapes import Tiling
from regard.attention.kernels.spans import FAR, KeySpans
from regard.attention.kernels.triton.backward import TILINGS, BackwardTilings, gradients
from regard.attention.kernels.triton.decode import DECODE_TILINGS, DecodeTiling, decode

TINY = "--tiny" in sys.argv
DEVICE = "cpu" if TINY else "cuda"
DTYPE = torch.float16 if TINY else torch.bfloat16  # the interpreter multiplies bfloat16 wrongly
RIVALS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def drawn(*shapes: tuple[int, ...]) -> list[Tensor]:
    source = torch.Generator(DEVICE).manual_seed(0)
    return [torch.randn(shape, generator=source, device=DEVICE).to(DTYPE) for shape in shapes]


def plain(q: Tensor, k: Tensor, v: Tensor, reach: KeySpans) -> tuple[Tensor, Tensor, Tensor]:
    """Output, lse and scores by the definition, in the dtype that comes."""
    group = q.size(1) // k.size(1)
    scores = (q * q.size(-1) ** -0.5) @ k.repeat_interleave(group, 1).mT
    scores = scores.masked_fill(~reach.dense(q.size(2), k.size(2), DEVICE), -torch.inf)
    looks = (scores > -torch.inf).any(-1, keepdim=True)
    weights = scores.masked_fill(~looks, 0.0).softmax(-1).masked_fill(~looks, 0.0)
    return weights @ v.repeat_interleave(group, 1), scores.masked_fill(~looks, 0.0).logsumexp(-1), scores


def errors() -> list[Row]:
    """Largest errors of gradients and of decoding, as multiples of plain PyTorch's in the same dtype."""
    print("\nerrors over plain PyTorch's (at most 2 is the bar)")
    names, rows = ("dq", "dk", "dv", "decode"), []
    T, S = (70, 90) if TINY else (500, 700)
    for D in (64,) if TINY else (64, 128, 40, 256):
        hi = torch.full((2, 1, T), S // 2, dtype=torch.int32, device=DEVICE)
        documents = [torch.arange(n, dtype=torch.int32, device=DEVICE)[None] // 60 for n in (T, S)]
        reaches = {
            "full": KeySpans(),
            "causal": KeySpans(shift_hi=S - T + 1),
            "window": KeySpans(shift_lo=-50, shift_hi=60),
        }
        if D in (64, 128):  # each of these is compiled for itself
            reaches["explicit ends"] = KeySpans(shift_hi=S - T + 1, lo=hi * 0 + 5, hi=hi)
            reaches["documents"] = KeySpans(query_docs=documents[0], key_docs=documents[1])
        for name, reach in reaches.items():
            q, k, v, do, dlse = drawn((2, 4, T, D), (2, 2, S, D), (2, 2, S, D), (2, 4, T, D), (2, 4, T))
            found = {}
            for dtype in (torch.float64, DTYPE):
                leaves = [x.to(dtype).requires_grad_() for x in (q, k, v)]
                out, lse, _ = plain(leaves[0], leaves[1], leaves[2], reach)
                looks = reach.dense(T, S, DEVICE).any(-1).expand(lse.shape)
                loss = (out * do).sum() + (lse * dlse.masked_fill(~looks, 0.0)).sum()
                found[dtype] = torch.autograd.grad(loss, leaves)
                if dtype == torch.float64:
                    forward_outputs = (out.detach().to(DTYPE), lse.detach().float().masked_fill(~looks, -torch.inf))
            ours = gradients(do, q, k, v, *forward_outputs, dlse, reach, D**-0.5)[:3]
            ratios = [
                float((mine - exact).abs().max() / (theirs - exact).abs().max())
                for mine, theirs, exact in zip(ours, found[DTYPE], found[torch.float64], strict=True)
            ]
            few = (q[:, :, :3], k, v, reach_of_few(reach))
            got = decode(*few, D**-0.5, True)
            exact, theirs = plain(few[0].double(), k.double(), v.double(), few[3]), plain(*few)
            finite = exact[2].isfinite()
            ratios.append(float((got[0] - exact[0]).abs().max() / (theirs[0] - exact[0]).abs().max()))
            assert got[2] is not None and torch.equal(finite, got[2].isfinite()), "other keys are hidden"
            off = float((got[2] - exact[2])[finite].abs().max())
            shown_ratios = "  ".join(f"{part} {ratio:.2f}" for part, ratio in zip(names, ratios, strict=True))
            print(f"  D {D:3} {name:13}  {shown_ratios}  scores off by {off:.1e}", flush=True)
            row: Row = {"what": "errors", "width": D, "mask": name, "scores": off}
            rows.append(row | {"ratios": dict(zip(names, ratios, strict=True))})
    return rows


def reach_of_few(reach: KeySpans) -> KeySpans:
    """Of the first three queries alone."""
    cut = {name: None if (x := getattr(reach, name)) is None else x[..., :3] for name in ("lo", "hi", "query_docs")}
    return KeySpans(reach.shift_lo, reach.shift_hi, **cut, key_docs=reach.key_docs)


@dataclass(frozen=True)
class Trained:
    """What a backward pass starts from, at one size."""

    q: Tensor
    k: Tensor
    v: Tensor
    do: Tensor
    out: Tensor
    lse: Tensor
    causal: bool

    @classmethod
    def of(cls, B: int, H: int, T: int, D: int, causal: bool) -> Trained:
        q, k, v, do = drawn(*[(B, H, T, D)] * 4)
        if TINY:
            out, lse, _ = plain(q, k, v, KeySpans(shift_hi=1 if causal else FAR))
        else:
            out, lse = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)[:2]
        return cls(q, k, v, do, out, lse.float(), causal)

    def ours(self, **how: Any) -> Work:
        reach, scale = KeySpans(shift_hi=1 if self.causal else FAR), self.q.size(-1) ** -0.5
        return lambda: gradients(self.do, self.q, self.k, self.v, self.out, self.lse, None, reach, scale, **how)

    def of_output(self, forward: Callable[..., Tensor]) -> Work:
        """The gradients of an output that was computed before."""
        leaves = [x.detach().requires_grad_() for x in (self.q, self.k, self.v)]
        out = forward(*leaves)
        return lambda: torch.autograd.grad(out, leaves, self.do, retain_graph=True)

    def auto(self) -> Work:
        mask = masks.Causal() if self.causal else None
        return self.of_output(lambda q, k, v: attend(q, k, v, mask=mask).output)

    def theirs(self, backend: SDPBackend) -> Work:
        with sdpa_kernel(backend):
            return self.of_output(lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=self.causal))

    def rate(self, ms: float) -> float:
        """TFLOP/s, five products being what a backward pass needs."""
        (B, H, T, D) = self.q.shape
        return 5 * 2 * B * H * T * T * D / (2 if self.causal else 1) / ms / 1e9


def backward() -> list[Row]:
    B, H, T = (1, 1, 64) if TINY else (8, 16, 4096)
    print(f"\nbackward, {B} x {H} x {T}; wall clock, in brackets the device's")
    rows = []
    for D in (64, 128):
        for causal in (False, True):
            case = Trained.of(B, H, T, D, causal)
            ways = {"auto": case.auto(), "kernels": case.ours()}
            if not TINY:
                ways |= {name: case.theirs(backend) for name, backend in RIVALS.items()}
            base = next(iter(ways)) if TINY else "cuDNN"
            clocks = both_clocks(ways, base, 2 if TINY else ROUNDS)
            rows.append({"what": "backward", "width": D, "causal": causal, "shape": [B, H, T]} | clocks)
            line = f"  D {D:3} {'causal' if causal else 'full':6}"
            for name, one in clocks["wall"].items():
                device = clocks["device"][name]["ms"]
                line += f"   {name} {one['ms']:7.3f} ms ({device:7.3f}, {case.rate(device):4.0f} TFLOP/s)"
                line += f" {with_quartiles(one)}x"
            print(line, flush=True)
    return rows


def sweep() -> None:
    """One tiling at a time in place of what ships."""
    compute_dkdv = {
        64: [Tiling(64, 64, 4, 2), Tiling(64, 64, 4, 3), Tiling(64, 128, 8, 3), Tiling(128, 128, 8, 2)],
        128: [Tiling(64, 128, 8, 2), Tiling(32, 64, 4, 3), Tiling(32, 128, 8, 3), Tiling(64, 64, 4, 3)],
    }
    compute_dq = {
        64: [Tiling(64, 64, 4, 3), Tiling(64, 128, 4, 2), Tiling(128, 128, 8, 2), Tiling(128, 64, 8, 2)],
        128: [Tiling(128, 64, 8, 2), Tiling(128, 128, 8, 2), Tiling(64, 128, 4, 2), Tiling(128, 64, 8, 3)],
    }
    B, H, T = (1, 1, 64) if TINY else (8, 16, 4096)
    for D in (64, 128):
        shipped = TILINGS[D]
        choices = {"as it ships": shipped, "as it ships, by pointers": shipped}
        choices |= {
            f"compute_dkdv {tuple(tiling)}": BackwardTilings(tiling, shipped.compute_dq) for tiling in compute_dkdv[D]
        }
        choices |= {
            f"compute_dq {tuple(tiling)}": BackwardTilings(shipped.compute_dkdv, tiling) for tiling in compute_dq[D]
        }
        cases = [Trained.of(B, H, T, D, causal) for causal in (False, True)]
        for name, tilings in choices.items():
            how: dict[str, Any] = {"tilings": tilings} | ({"descriptors": False} if "pointers" in name else {})
            times = [milliseconds(case.ours(**how)) for case in cases]
            rates = " / ".join(f"{case.rate(ms):4.0f}" for case, ms in zip(cases, times, strict=True))
            print(f"  D {D:3}  {name:30} full / causal {rates} TFLOP/s", flush=True)
    q, k, v = cached()
    for tiling in (
        DecodeTiling(32, 4, 4),
        DecodeTiling(64, 4, 2),
        DecodeTiling(64, 4, 4),
        DecodeTiling(64, 8, 3),
        DecodeTiling(128, 4, 2),
        DecodeTiling(128, 8, 2),
    ):
        for splits in (None, 8, 16):
            work = partial(decode, q, k, v, KeySpans(), q.size(-1) ** -0.5, False, tiling, splits)
            rate = bandwidth(k, v, milliseconds(work))
            print(f"  decode {tuple(tiling)} in {splits or 'the usual'} parts: {rate:.2f} TB/s", flush=True)


def cached() -> tuple[Tensor, Tensor, Tensor]:
    """One query of 32 heads, and a cache of 8."""
    B, H, HK, S, D = (1, 4, 1, 100, 128) if TINY else (8, 32, 8, 32768, 128)
    q, k, v = drawn((B, H, 1, D), (B, HK, S, D), (B, HK, S, D))
    return q, k, v


def bandwidth(k: Tensor, v: Tensor, ms: float) -> float:
    """TB/s at which keys and values were read."""
    return (k.nbytes + v.nbytes) / ms / 1e9


def decoding() -> list[Row]:
    q, k, v = cached()
    print(
        f"\ndecoding, one query, {tuple(q.shape[:2])} heads, cache {tuple(k.shape)}; tiles {tuple(DECODE_TILINGS[256])}"
    )
    ways: dict[str, Work] = {
        "SDPA": lambda: scaled_dot_product_attention(q, k, v, enable_gqa=True),
        "auto": lambda: attend(q, k, v),
        "kernels": lambda: decode(q, k, v, KeySpans(), 128**-0.5, False),
        "kernels, scores too": lambda: decode(q, k, v, KeySpans(), 128**-0.5, True),
    }
    if not TINY:
        ways |= {name: partial(named_sdpa, backend, q, k, v) for name, backend in RIVALS.items()}
    clocks = both_clocks(ways, "SDPA", 2 if TINY else ROUNDS)
    for name, one in clocks["wall"].items():
        device = clocks["device"][name]["ms"]
        rate = bandwidth(k, v, device)
        print(f"  {name:20} {one['ms']:7.3f} ms ({device:7.3f}, {rate:.2f} TB/s) {with_quartiles(one)}x")
    return [{"what": "decode", "cache": list(k.shape)} | clocks]


def named_sdpa(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(q, k, v, enable_gqa=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", action="store_true", help="time other tilings instead")
    parser.add_argument("--tiny", action="store_true", help="small sizes, in Triton's interpreter")
    parser.add_argument("--out", type=Path, default=Path("out/h200/backward.json"))
    asked = parser.parse_args()
    if asked.sweep:
        sweep()
        return
    rows = [machine()]
    print(rows[0], flush=True)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    for part in (errors, backward, decoding):
        begun = time.perf_counter()
        rows += part()
        asked.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        print(f"  ({time.perf_counter() - begun:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
