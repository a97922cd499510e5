"""Sinks, soft caps and sparse keys on a GPU: how exact beside eager PyTorch and its fused attention in bfloat16, what
they cost over the same kernel without, and whole small models of transformers that need them.

    PYTHONPATH=src python3 benchmarks/h200/variants.py [--out FILE] [--parts errors cost models] [--dry]

Errors are largest distances from float64; "ratio" is ours over eager's. Costs are ratios to the call without, which
take turns; medians over rounds with quartiles, of the wall clock (calls in a row) and of the device's time (CUDA
events, the host ahead). "auto" takes what is chosen with and without, as a user calls it; "same" names one backend.
--dry: small, on the CPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from timing import ROUNDS, SEED, Row, both_clocks, compile_together, machine, with_quartiles
from torch import Tensor

from regard.attention import Observe, Sink, attend, masks, scores
from regard.attention.masks import Mask

DRY = "--dry" in sys.argv
DEVICE = "cpu" if DRY else "cuda"
OURS = "stream" if DRY else "triton-fused"
LENGTHS = (32, 64) if DRY else (1024, 4096, 16384)
TOKENS = 64 if DRY else 32768  # of all rows together, so that short texts keep a GPU as busy as long ones
HEADS = 4 if DRY else 16
OBSERVED = {"none": Observe(), "top 8, entropy": Observe(top=8, entropy=True)}
GOALS = {"sink": 1.05, "cap": 1.30}
PARTS = ("errors", "cost", "models")


def drawn(rows: int, heads: int, key_heads: int, length: int, width: int) -> list[Tensor]:
    shapes = [(rows, n, length, width) for n in (heads, key_heads, key_heads)]
    return [torch.randn(shape, device=DEVICE, dtype=torch.bfloat16) for shape in shapes]


def some(*shape: int, below: int) -> Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)


# --- errors


def eager(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, cap: float | None, logits: Tensor | None) -> Tensor:
    """As the models' own code: products in the dtype of the inputs, a softmax in float32 or above."""
    wide = torch.promote_types(q.dtype, torch.float32)
    found = q @ k.mT * q.size(-1) ** -0.5
    if cap is not None:
        found = torch.tanh(found / cap) * cap
    found = found.masked_fill(~seen, torch.finfo(found.dtype).min)
    if logits is not None:
        column = logits.to(found.dtype).reshape(1, -1, 1, 1).expand(*found.shape[:3], 1)
        weights = torch.cat((found, column), -1).softmax(-1, dtype=wide)[..., :-1]
    else:
        weights = found.softmax(-1, dtype=wide)
    return weights.to(v.dtype) @ v


def errors() -> list[Row]:
    rows: list[Row] = []
    T = 96 if DRY else 1024
    logits = torch.linspace(-2.0, 4.0, HEADS, device=DEVICE)
    diagonal = torch.arange(T, device=DEVICE).unsqueeze(-1)
    chosen = torch.cat((some(1, 1, T, T // 8, below=T), diagonal.expand(1, 1, T, 1)), -1)
    blocks = torch.cat((some(1, HEADS, T, 2, below=T // 16), (diagonal // 16).expand(1, HEADS, T, 1)), -1)
    cases: dict[str, tuple[Mask, float | None, Tensor | None]] = {
        "sink": (masks.Causal(), None, logits),
        "cap 30": (masks.Causal(), 30.0, None),
        "cap 2": (masks.Causal(), 2.0, None),
        "sink and cap": (masks.Causal(), 5.0, logits),
        "keys": (masks.Keys(chosen) & masks.Causal(), None, None),
        "blocks": (masks.Blocks(blocks, 16) & masks.Causal(), None, None),
    }
    for width in (64, 128):
        tensors = [x.requires_grad_() for x in drawn(1, HEADS, HEADS, T, width)]
        told = torch.randn(1, HEADS, T, width, device=DEVICE).bfloat16()
        for name, (mask, cap, sink) in cases.items():
            seen = mask.allowed(torch.arange(T, device=DEVICE), torch.arange(T, device=DEVICE), _grid(T))
            leaves = [*tensors, *([] if sink is None else [sink.clone().requires_grad_()])]

            def results(how: str, leaves: list[Tensor] = leaves, mask: Mask = mask, seen: Tensor = seen,
                        cap: float | None = cap, told: Tensor = told) -> list[Tensor]:  # fmt: skip
                exact = how == "exact"
                q, k, v, *more = (x.double() for x in leaves) if exact else leaves
                sink = more[0] if more else None
                if how == "ours":
                    normalise = None if sink is None else Sink(sink)
                    output = attend(q, k, v, score=scores.ScaledDot(cap=cap), mask=mask, normalise=normalise).output
                elif how == "sdpa":
                    output = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
                else:
                    output = eager(q, k, v, seen, cap, sink)
                return [output.detach(), *torch.autograd.grad((output * told.to(output.dtype)).sum(), leaves)]

            exact = results("exact")
            kinds = ["ours", "eager", *(["sdpa"] if cap is None and sink is None else [])]
            off = {how: [_apart(x, y) for x, y in zip(results(how), exact, strict=True)] for how in kinds}
            ratios = [ours / max(theirs, 1e-30) for ours, theirs in zip(off["ours"], off["eager"], strict=True)]
            named = dict(zip(("output", "dq", "dk", "dv", "dsink"), ratios, strict=False))
            rows.append({"what": "errors", "case": name, "width": width, "ratio": named, **off})
            print(f"errors, {name}, D={width}: " + ", ".join(f"{x} {y:.2f}" for x, y in named.items())
                  + f" of eager's (goal 2); output off by {off['ours'][0]:.1e}"
                  + (f", sdpa's by {off['sdpa'][0]:.1e}" if "sdpa" in off else ""), flush=True)  # fmt: skip
    return rows


def _grid(T: int) -> Any:
    from regard.attention.grid import Grid

    return Grid((1, HEADS), T, T, torch.device(DEVICE))


def _apart(x: Tensor, exact: Tensor) -> float:
    return float((x.double() - exact.double()).abs().max())


# --- cost


def work(length: int, width: int, key_heads: int, variant: str, observe: Observe, backend: str,
         learning: bool) -> Callable[[], object]:  # fmt: skip
    q, k, v = drawn(max(TOKENS // length, 1), HEADS, key_heads, length, width)
    given: Row = {"mask": masks.Causal(), "observe": observe, "backend": backend}
    logits = torch.randn(HEADS, device=DEVICE).requires_grad_(learning)
    if variant == "sink":
        given["normalise"] = Sink(logits)
    elif variant == "cap":
        given["score"] = scores.ScaledDot(cap=50.0)
    elif variant == "keys":
        given["mask"] = masks.Causal() & masks.Keys(some(length, min(256, length // 2), below=length))
    elif variant == "blocks":
        given["mask"] = masks.Causal() & masks.Blocks(some(length // 16, 4, below=length // 16).repeat(16, 1), 16)
    leaves = [x.requires_grad_(learning) for x in (q, k, v)] + [logits] * (learning and variant == "sink")
    told = torch.randn_like(q)

    def step() -> object:
        if not learning:
            with torch.no_grad():
                return attend(q, k, v, **given)
        return torch.autograd.grad((attend(q, k, v, **given).output,), leaves, (told,))

    return step


def cost() -> list[Row]:
    rows: list[Row] = []
    plans = [(length, width, observed, learning, kind) for length in LENGTHS for width in (64, 128)
             for observed in OBSERVED for learning in (False, True) for kind in ("same", "auto")
             if not (learning and observed != "none")]  # fmt: skip
    for length, width, observed, learning, kind in plans:
        # with fewer key heads the backward pass is the same kernel with and without, not the vendor's
        key_heads, backend = (HEADS // 4, OURS) if kind == "same" else (HEADS, "auto")
        variants = ["none", "sink", "cap"]
        variants += ["keys", "blocks"] if length == LENGTHS[1] and width == 64 and kind == "same" else []
        steps = {name: work(length, width, key_heads, name, OBSERVED[observed], backend, learning) for name in variants}
        clocks = both_clocks(steps, "none", 2 if DRY else ROUNDS)
        what = "forward and backward" if learning else "forward"
        rows.append({"what": "cost", "length": length, "width": width, "observe": observed, "pass": what, "kind": kind}
                    | clocks)  # fmt: skip
        wall, device = clocks["wall"], clocks["device"]
        said = ", ".join(f"{name} {with_quartiles(wall[name])}x, device {device[name]['ratio']:.2f}x"
                         + (f" (goal {GOALS[name]})" if name in GOALS and kind == "same" else "")
                         for name in variants[1:])  # fmt: skip
        print(f"cost, {kind}, {length}, D={width}, {what}, observe {observed}: {wall['none']['ms']:.3f} ms "
              f"({device['none']['ms']:.3f}); {said}", flush=True)  # fmt: skip
    return rows


# --- models


SMALL = {"vocab_size": 256, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "max_position_embeddings": 512, "initializer_range": 0.2, "pad_token_id": 0, "bos_token_id": 1,
         "eos_token_id": None, "attention_dropout": 0.0, "tie_word_embeddings": False}  # fmt: skip
MODELS: dict[str, Row] = {  # all experts are used, so that no rounding decides which
    "gpt_oss": {"num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 64, "num_local_experts": 2,
                "num_experts_per_tok": 2, "sliding_window": 32},
    "gemma2": {"num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 128, "sliding_window": 32,
               "query_pre_attn_scalar": 64, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 30.0},
    "deepseek_v32": {"num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 48,
                     "qk_rope_head_dim": 16, "v_head_dim": 64, "index_topk": 24, "index_n_heads": 2,
                     "index_head_dim": 32, "intermediate_size": 64, "moe_intermediate_size": 32, "n_routed_experts": 2,
                     "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
                     "first_k_dense_replace": 1},
}  # fmt: skip


def model_of(kind: str, implementation: str, state: dict[str, Tensor] | None, dtype: torch.dtype, device: str) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(kind, **SMALL, **MODELS[kind])
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
    if state is not None:
        model.load_state_dict(state)
    else:
        for name, parameter in model.named_parameters():
            if name.endswith("sinks"):
                torch.nn.init.normal_(parameter)
        model.to(torch.bfloat16)  # all of them have the same rounded weights
    return model.to(device=device, dtype=dtype).eval()


def told_by(model: Any, ids: Tensor) -> dict[str, Tensor]:
    """Logits, weights and gradients of a model, on the CPU in float64."""
    got = model(ids.to(model.device), output_attentions=True)
    got.logits.float().log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None].to(model.device)).mean().backward()
    grads = [x.grad.flatten() for x in model.parameters() if x.grad is not None]
    found = {
        "logits": got.logits,
        "weights": torch.cat([x.flatten() for x in got.attentions]),
        "gradients": torch.cat(grads),
    }
    return {name: x.detach().double().cpu() for name, x in found.items()}


def models() -> list[Row]:
    try:
        import transformers
        from transformers import CONFIG_MAPPING
    except ImportError:
        print("models: transformers is not installed")
        return [{"what": "models", "missing": "transformers"}]
    from regard import hub

    hub.enable()
    rows: list[Row] = []
    for kind in MODELS:
        if kind not in CONFIG_MAPPING:
            print(f"models: transformers {transformers.__version__} has no {kind}", flush=True)
            rows.append({"what": "models", "model": kind, "missing": f"in transformers {transformers.__version__}"})
            continue
        try:
            rows.append(one_model(kind))
        except Exception as error:  # noqa: BLE001 (kept among the figures; the others are still worth having)
            print(f"models: {kind} failed: {type(error).__name__}: {error}", flush=True)
            rows.append({"what": "models", "model": kind, "failed": f"{type(error).__name__}: {error}"})
    return rows


def one_model(kind: str) -> Row:
    ids = torch.randint(2, 256, (2, 48 if DRY else 128), generator=torch.Generator().manual_seed(1))
    start = model_of(kind, "eager", None, torch.bfloat16, "cpu")
    state = start.state_dict()
    reference = model_of(kind, "eager", state, torch.float32, "cpu")
    exact = told_by(reference, ids)
    row: Row = {"what": "models", "model": kind}
    off: dict[str, dict[str, float]] = {}
    tokens: dict[str, Tensor] = {}
    for implementation in ("eager", "regard"):
        model = model_of(kind, implementation, state, torch.bfloat16, DEVICE)
        found = told_by(model, ids)
        off[implementation] = {name: float((found[name] - x).norm() / x.norm()) for name, x in exact.items()}
        row[f"{implementation} largest"] = {name: float((found[name] - x).abs().max()) for name, x in exact.items()}
        with torch.no_grad():
            prompt = ids[:, :40].to(model.device)
            tokens[implementation] = model.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=16, do_sample=False
            ).cpu()
    # every chosen token is the reference's best, but for what bfloat16 makes of the logits
    with torch.no_grad():
        logits = reference(tokens["regard"]).logits[:, 39:-1]
    chosen = logits.gather(-1, tokens["regard"][:, 40:, None]).squeeze(-1)
    behind = float((logits.amax(-1) - chosen).max())
    row |= {"error": off, "ratio": {name: off["regard"][name] / max(off["eager"][name], 1e-30) for name in exact}}
    row |= {"tokens as eager": float((tokens["regard"] == tokens["eager"])[:, 40:].float().mean()), "behind": behind}
    said = ", ".join(f"{name} {x:.2f}" for name, x in row["ratio"].items())
    print(
        f"models, {kind}: errors over eager's: {said} (goal 2); logits off by {off['regard']['logits']:.1e}"
        f" of their norm; greedy tokens as eager {row['tokens as eager']:.2f}, behind float32's best by {behind:.2e}"
        f" (eager's largest logit error {row['eager largest']['logits']:.2e})",
        flush=True,
    )
    return row


RUNS: dict[str, Callable[[], list[Row]]] = dict(zip(PARTS, (errors, cost, models), strict=True))


def warm(me: int, of: int) -> None:
    """Compile one part in so many of all kernels, so that several processes share the work."""
    jobs = []
    for width in (64, 128):
        for variant in ("none", "sink", "cap", "keys", "blocks"):
            for key_heads, backend in ((HEADS // 4, OURS), (HEADS, "auto")):
                if variant in ("keys", "blocks") and (width == 128 or backend == "auto"):
                    continue
                for observed, learning in (("none", False), ("top 8, entropy", False), ("none", True)):
                    jobs.append((width, key_heads, variant, OBSERVED[observed], backend, learning))
    for width, key_heads, variant, observe, backend, learning in jobs[me::of]:
        work(4096, width, key_heads, variant, observe, backend, learning)()
    torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/h200/variants.json"))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--dry", action="store_true", help="small sizes on the CPU, to see it run")
    parser.add_argument("--warm", nargs=2, type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    torch.manual_seed(SEED)
    if chosen.warm:
        warm(*chosen.warm)
        return
    began = time.perf_counter()
    if not chosen.dry:
        compile_together(__file__)
        print(f"compiled in {time.perf_counter() - began:.0f} s", flush=True)
    rows: list[Row] = [machine("transformers")]
    print(rows[0], flush=True)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    for part in chosen.parts:
        rows += RUNS[part]()
        chosen.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(f"{time.perf_counter() - began:.0f} s; written to {chosen.out}")


if __name__ == "__main__":
    main()
