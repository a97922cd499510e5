"""What it costs to look into a Hugging Face model of a billion weights at 32,768 tokens: every layer's entropy and its
eight largest weights, beside the same model attending through PyTorch's sdpa.

    PYTHONPATH=src python3 benchmarks/h200/capture.py [--tokens 32768] [--layers 16] [--out FILE]

A Llama of 16 layers, 2048 wide, 32 heads on 8 key heads of 64, bfloat16, fresh weights: speed does not ask what they
are. Ways take turns; medians over rounds with quartiles, of the wall clock (passes in a row) and of the device's time
(CUDA events around one pass, the host ahead).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from timing import ROUNDS, SEED, Work, both_clocks, machine, with_quartiles
from transformers import LlamaConfig, LlamaForCausalLM

import regard
from regard.attention import Observe

OBSERVED = Observe(top=8, entropy=True)


def llama(layers: int, tokens: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=tokens,
        attn_implementation="sdpa",
    )
    torch.manual_seed(SEED)
    with torch.device("cuda"):
        return LlamaForCausalLM(config).to(torch.bfloat16).eval()


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, default=Path("out/h200/capture.json"))
    chosen = parser.parse_args()
    regard.hub.enable()
    model = llama(chosen.layers, chosen.tokens)
    ids = torch.randint(0, 32000, (1, chosen.tokens), device="cuda")
    kept: dict[str, torch.Tensor] = {}

    def alone(how: str) -> None:
        model.set_attn_implementation(how)
        kept[how] = model.model(ids, use_cache=False).last_hidden_state

    def seen() -> None:
        model.set_attn_implementation("regard")
        with regard.capture(model, observe=OBSERVED) as heard:
            kept["captured"] = model.model(ids, use_cache=False).last_hidden_state
        assert len(heard) == chosen.layers, f"{len(heard)} places were heard"

    ways: dict[str, Work] = {"sdpa": lambda: alone("sdpa"), "regard": lambda: alone("regard"), "captured": seen}
    clocks = both_clocks(ways, "sdpa", chosen.rounds)
    apart = float((kept["sdpa"].float() - kept["captured"].float()).abs().max())
    same = torch.equal(kept["regard"], kept["captured"])
    wall, device = clocks["wall"], clocks["device"]
    print(
        f"Llama, {chosen.layers} layers, {chosen.tokens} tokens: sdpa {wall['sdpa']['ms']:.1f} ms (device "
        f"{device['sdpa']['ms']:.1f}), through regard {with_quartiles(wall['regard'])}x, with top 8 and entropy of "
        f"every layer {with_quartiles(wall['captured'])}x, device {with_quartiles(device['captured'])}x (goal 1.5); "
        f"listening changed {'no bit' if same else 'THE OUTPUT'}; last states {apart:.2g} from sdpa's"
    )
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    found = {"machine": machine("transformers", rounds=chosen.rounds), "tokens": chosen.tokens, "layers": chosen.layers}
    found |= clocks | {"apart": apart, "same": same}
    chosen.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
