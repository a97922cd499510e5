"""What users get on a GPU at everyday lengths: `attend(...)` with backend "auto", and Hugging Face's Llama of 1.2
billion weights, unheard and heard, beside PyTorch alone.

    PYTHONPATH=src python3 benchmarks/h200/everyday.py [--parts attend host ...] [--compile] [--out FILE]

    attend    multiples of cuDNN's output alone: bare output, row statistics (entropy and largest weight), entropy and
              top 8, received, everything (these and a thumbnail of 256 x 256)
    host      microseconds of the host for one call
    forward   a forward pass of the Llama, multiples of its own sdpa
    padded    the same for a batch whose rows have other lengths
    generate  64 tokens after 1,024, greedy, and 32 after texts of other lengths, padded to 512
    compiled  the forward pass under torch.compile(fullgraph=True), captured
    choice    bare output: each backend that serves it, at every width, length and mask
    decode    one query against a cache, 8 to 64 rows

Wall: calls one after another, then one wait for the device, divided by their number. Device: replays of a CUDA graph.
Ways take turns; medians over rounds, with the lower and upper quartile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from timing import ROUNDS, SEED, Row, Work, against, graph_of, host_us, in_turns, machine, wall_ms
from torch import Tensor

import regard
from regard.attention import Observe, attend, choose, masks

OBSERVED = {
    "output": Observe(),
    "row statistics": Observe(top=1, entropy=True),
    "entropy + top 8": Observe(top=8, entropy=True),
    "received": Observe(received=True),
    "everything": Observe(top=8, entropy=True, received=True, thumbnail=(256, 256)),
}
TOKENS = 32768  # of all rows of `attend` together
HEADS = 16
ASKED = argparse.Namespace(  # what the command line says
    rounds=ROUNDS,
    widths=[64, 128],
    lengths=[512, 1024, 2048, 4096, 32768],  # of `attend`
)


def turns(ways: dict[str, Work], clock: Callable[[Work], float], most: int = 99) -> dict[str, list[float]]:
    """Every way's times, the ways taking turns, as many rounds as are asked for, and at most so many."""
    return in_turns(ways, clock, min(ASKED.rounds, most))


# --- attend


def drawn(rows: int, length: int, width: int, heads: int = HEADS, key_heads: int | None = None) -> list[Tensor]:
    torch.manual_seed(SEED)
    shapes = [(rows, n, length, width) for n in (heads, key_heads or heads, key_heads or heads)]
    return [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]


def cudnn(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Work:
    return lambda: torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, False, 0.0, causal, False)


def mask_of(causal: bool) -> masks.Mask | None:
    return masks.Causal() if causal else None


def attend_rows() -> list[Row]:
    rows = []
    for width in ASKED.widths:
        for length in ASKED.lengths:
            for causal in (False, True):
                q, k, v = drawn(TOKENS // length, length, width)
                mask = mask_of(causal)
                ways: dict[str, Work] = {"cuDNN": cudnn(q, k, v, causal)}
                for name, observe in OBSERVED.items():
                    ways[name] = lambda o=observe: attend(q, k, v, mask=mask, observe=o)
                wall = against(turns(ways, wall_ms), "cuDNN")
                graphs = {name: graph_of(work).replay for name, work in ways.items()}
                device = against(turns(graphs, wall_ms), "cuDNN")
                row = {"what": "attend", "width": width, "length": length, "rows": TOKENS // length, "causal": causal}
                row["backend"] = choose(q, k, v, mask=mask_of(causal)).backend
                rows.append(row | {"wall": wall, "device": device})
                told = "  ".join(f"{name} {wall[name]['ratio']:.2f} ({device[name]['ratio']:.2f})" for name in OBSERVED)
                kind = "causal" if causal else "full"
                print(
                    f"D={width} {length} x {TOKENS // length} {kind} [{row['backend']}], cuDNN "
                    f"{wall['cuDNN']['ms']:.3f} ms ({device['cuDNN']['ms']:.3f}): {told}",
                    flush=True,
                )
                del graphs
    return rows


def host_rows() -> list[Row]:
    rows = []
    for width in ASKED.widths:
        q, k, v = drawn(1, 1024, width)
        mask = masks.Causal()
        ways: dict[str, Work] = {
            "sdpa": lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
            "cuDNN": cudnn(q, k, v, True),
        }
        for name, observe in OBSERVED.items():
            ways[name] = lambda o=observe: attend(q, k, v, mask=mask, observe=o)
        times = turns(ways, host_us)
        found = {name: {"us": median(mine), "quartiles": quantiles(mine, n=4)[::2]} for name, mine in times.items()}
        rows.append({"what": "host", "width": width, "length": 1024, "us": found})
        told = "  ".join(f"{name} {one['us']:.0f}" for name, one in found.items())
        print(f"host microseconds, 1 x {HEADS} x 1024 x {width}, causal: {told}", flush=True)
    return rows


def choice_rows() -> list[Row]:
    rows = []
    for width in (64, 80, 96, 128, 256):
        for length in (128, 256, 512, 1024, 2048, 4096, 8192):
            for causal in (False, True):
                for key_heads in (16, 4):
                    q, k, v = drawn(TOKENS // length, length, width, HEADS, key_heads)
                    ways: dict[str, Work] = {}
                    backends = choose(q, k, v, mask=mask_of(causal))
                    for name in ("sdpa", "triton-fused"):
                        if name not in backends.unsupported:
                            ways[name] = lambda b=name: attend(q, k, v, mask=mask_of(causal), backend=b)
                    if len(ways) < 2:
                        continue
                    for work in ways.values():
                        work()
                    graphs = {name: graph_of(work).replay for name, work in ways.items()}
                    found = against(turns(graphs, lambda w: wall_ms(w, 6.0), 3), "sdpa")
                    row = {"what": "choice", "width": width, "length": length, "causal": causal, "heads": HEADS}
                    rows.append(row | {"key_heads": key_heads, "auto": backends.backend, "device": found})
                    print(
                        f"D={width} {length} {'causal' if causal else 'full'} {HEADS} on {key_heads}: sdpa "
                        f"{found['sdpa']['ms']:.3f} ms, triton-fused {found['triton-fused']['ratio']:.2f}x; auto "
                        f"{backends.backend}",
                        flush=True,
                    )
    return rows


def decode_rows() -> list[Row]:
    rows = []
    for width in ASKED.widths:
        for count, length in ((8, 128), (8, 1024), (64, 1024), (8, 8192), (64, 8192), (8, 32768), (8, 131072)):
            q = torch.randn(count, 32, 1, width, device="cuda", dtype=torch.bfloat16)
            k, v = (torch.randn(count, 8, length, width, device="cuda", dtype=torch.bfloat16) for _ in range(2))
            sdpa = torch.nn.functional.scaled_dot_product_attention
            ways: dict[str, Work] = {"sdpa": lambda: sdpa(q, k, v, enable_gqa=True)}
            for name, observe in OBSERVED.items():
                ways[name] = lambda o=observe: attend(q, k, v, observe=o)
            wall = against(turns(ways, wall_ms, 5), "sdpa")
            graphs = {name: graph_of(work).replay for name, work in ways.items()}
            device = against(turns(graphs, wall_ms, 5), "sdpa")
            row = {"what": "decode", "width": width, "rows": count, "length": length}
            row["backend"] = choose(q, k, v).backend
            rows.append(row | {"wall": wall, "device": device})
            told = "  ".join(f"{name} {wall[name]['ratio']:.2f} ({device[name]['ratio']:.2f})" for name in OBSERVED)
            print(
                f"decode D={width}, {count} rows, cache {length} [{row['backend']}], sdpa {wall['sdpa']['ms']:.3f} ms "
                f"({device['sdpa']['ms']:.3f}): {told}",
                flush=True,
            )
    return rows


# --- Llama


def llama(width: int, tokens: int = 9000) -> Any:
    """16 layers, 2048 wide, heads of `width`, a quarter as many key heads; fresh weights: speed does not ask what they
    are."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=2048 // width,
        num_key_value_heads=2048 // width // 4,
        max_position_embeddings=tokens,
        attn_implementation="sdpa",
    )
    torch.manual_seed(SEED)
    with torch.device("cuda"):
        return LlamaForCausalLM(config).to(torch.bfloat16).eval()


def forward_rows() -> list[Row]:
    rows = []
    for width in ASKED.widths:
        model = llama(width)
        for count, length in ((4, 512), (1, 2048), (1, 4096), (1, 8192)):
            ids = torch.randint(0, 32000, (count, length), device="cuda")
            row = {"what": "forward", "width": width, "rows": count, "length": length}
            rows.append(row | passes(model, f"Llama D={width}, {count} x {length}", {"input_ids": ids}))
    return rows


def padded_rows() -> list[Row]:
    rows = []
    for width in ASKED.widths:
        model = llama(width)
        for count, length in ((4, 512), (1, 2048), (4, 2048)):
            ids, mask = padded_batch(count, length)
            row = {"what": "padded", "width": width, "rows": count, "length": length}
            given = {"input_ids": ids, "attention_mask": mask}
            rows.append(row | passes(model, f"Llama D={width}, {count} x {length} padded", given))
    return rows


def padded_batch(count: int, length: int) -> tuple[Tensor, Tensor]:
    """Random tokens, and the padding mask of rows that are a tenth, two tenths, ... shorter."""
    mask = torch.ones(count, length, dtype=torch.long, device="cuda")
    for number, row in enumerate(mask, 1):
        row[length - number * length // 10 :] = 0
    return torch.randint(0, 32000, (count, length), device="cuda"), mask


def passes(model: Any, name: str, given: dict[str, Tensor]) -> Row:
    """Forward passes of a model: with sdpa, with "regard", and captured."""

    def alone(how: str) -> Tensor:
        model.set_attn_implementation(how)
        return model.model(**given, use_cache=False).last_hidden_state

    def seen(observe: Observe) -> Tensor:
        model.set_attn_implementation("regard")
        with regard.capture(model, observe=observe) as heard:
            found = model.model(**given, use_cache=False).last_hidden_state
        assert len(heard) == 16, f"{len(heard)} places were heard"
        return found

    ways: dict[str, Work] = {"sdpa": lambda: alone("sdpa"), "unheard": lambda: alone("regard")}
    for observed, observe in OBSERVED.items():
        if observed != "output":
            ways[observed] = lambda o=observe: seen(o)
    same = all(torch.equal(alone("regard"), seen(observe)) for observe in OBSERVED.values())
    found = against(turns(ways, lambda w: wall_ms(w, 60.0)), "sdpa")
    told = "  ".join(f"{name} {one['ratio']:.2f}" for name, one in found.items())
    print(
        f"{name}: sdpa {found['sdpa']['ms']:.1f} ms; {told}; {'no bit changed' if same else 'BITS CHANGED'}", flush=True
    )
    return {"same bits": same, "wall": found}


def generate_rows() -> list[Row]:
    rows = []
    for width in ASKED.widths:
        model = llama(width)
        ids, mask = padded_batch(8, 512)
        one = {"input_ids": torch.randint(0, 32000, (1, 1024), device="cuda")}
        several = {"input_ids": ids, "attention_mask": mask.flip(1)}  # padded at the left
        for name, given, tokens in (("64 tokens after 1024", one, 64), ("32 after 8 x 512 padded", several, 32)):
            found = generation(model, given, tokens)
            rows.append({"what": "generate", "width": width, "name": name, "wall": found})
            told = "  ".join(f"{way} {one['ratio']:.2f}" for way, one in found.items())
            print(f"Llama D={width}, {name}: sdpa {found['sdpa']['ms']:.0f} ms; {told}", flush=True)
    return rows


def generation(model: Any, given: dict[str, Tensor], tokens: int) -> Row:
    """Greedy generation: with sdpa, with "regard", and captured."""
    how: Any = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "pad_token_id": 0}

    def alone(name: str) -> None:
        model.set_attn_implementation(name)
        model.generate(**given, **how)

    def seen(observe: Observe) -> None:
        model.set_attn_implementation("regard")
        with regard.capture(model, observe=observe):
            model.generate(**given, **how)

    ways: dict[str, Work] = {
        "sdpa": lambda: alone("sdpa"),
        "unheard": lambda: alone("regard"),
        "entropy + top 8": lambda: seen(OBSERVED["entropy + top 8"]),
        "everything": lambda: seen(OBSERVED["everything"]),
    }
    return against(turns(ways, lambda w: wall_ms(w, 1.0), 3), "sdpa")


def compiled_rows() -> list[Row]:
    rows = []
    observe = OBSERVED["entropy + top 8"]
    for width in ASKED.widths:
        model = llama(width)
        ids = torch.randint(0, 32000, (1, 2048), device="cuda")

        def compiled(how: str) -> Any:
            torch._dynamo.reset()
            model.set_attn_implementation(how)
            return torch.compile(lambda x: model.model(x, use_cache=False).last_hidden_state, fullgraph=True)

        def seen(run: Any) -> tuple[Tensor, Any]:
            with regard.capture(model, observe=observe) as heard:
                return run(ids), heard

        def one(how: str, work: Callable[[Any], object]) -> tuple[list[float], Any]:
            run = compiled(how)
            work(run)
            kept = work(run)
            return [wall_ms(lambda: work(run), 60.0) for _ in range(ASKED.rounds)], kept

        base, _ = one("sdpa", lambda run: run(ids))
        unheard, _ = one("regard", lambda run: run(ids))
        heard, (output, record) = one("regard", seen)
        model.set_attn_implementation("regard")
        plain, plain_record = seen(lambda x: model.model(x, use_cache=False).last_hidden_state)
        apart = max(float((record[place].entropy - plain_record[place].entropy).abs().max()) for place in plain_record)
        found = {"sdpa": median(base), "unheard": median(unheard), "entropy + top 8": median(heard)}
        row = {"what": "compiled", "width": width, "ms": found, "entropies apart": apart}
        rows.append(row | {"outputs apart": float((output.float() - plain.float()).abs().max())})
        told = "  ".join(f"{name} {ms / found['sdpa']:.2f}" for name, ms in found.items())
        print(f"compiled Llama D={width}, 2048: sdpa {found['sdpa']:.1f} ms; {told}; entropies {apart:.2g} apart")
    return rows


# --- compiling


def compile_kernels(width: int, length: int, which: int) -> None:
    """Those of one width, length and request."""
    observe = list(OBSERVED.values())[which]
    for key_heads in (4, 1):
        q, k, v = drawn(1, length, width, 4, key_heads)
        for mask in (None, masks.Causal()):
            attend(q, k, v, mask=mask, observe=observe)
    torch.cuda.synchronize()


def compile_at_once(processes: int = 14) -> None:
    """Fill Triton's cache."""
    asked = [[str(n) for n in one] for one in product(ASKED.widths, (512, 1024, 4096, 32768), range(len(OBSERVED)))]
    with ThreadPoolExecutor(processes) as pool:
        command = [sys.executable, __file__, "--kernels"]
        list(pool.map(lambda one: subprocess.run([*command, *one], check=True), asked))


RUNS: dict[str, Callable[[], list[Row]]] = {
    "attend": attend_rows,
    "host": host_rows,
    "forward": forward_rows,
    "padded": padded_rows,
    "generate": generate_rows,
    "compiled": compiled_rows,
    "choice": choice_rows,
    "decode": decode_rows,
}


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/h200/everyday.json"))
    parser.add_argument("--parts", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument(
        "--compile", action="store_true", help="first compile the kernels, in several processes at once"
    )
    parser.add_argument("--kernels", nargs=3, help=argparse.SUPPRESS)  # one of these processes
    parser.add_argument("--widths", type=int, nargs="+", default=ASKED.widths)
    parser.add_argument("--lengths", type=int, nargs="+", default=ASKED.lengths, help="of `attend`")
    parser.add_argument("--rounds", type=int, default=ASKED.rounds)
    chosen = parser.parse_args()
    if chosen.kernels:
        compile_kernels(*map(int, chosen.kernels))
        return
    if chosen.compile:
        compile_at_once()
    vars(ASKED).update(rounds=chosen.rounds, widths=chosen.widths, lengths=chosen.lengths)
    regard.hub.enable()
    rows = [machine("transformers", rounds=ASKED.rounds)]
    print(rows[0], flush=True)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    for part in chosen.parts:
        rows += RUNS[part]()
        chosen.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(f"written to {chosen.out}")


if __name__ == "__main__":
    main()
