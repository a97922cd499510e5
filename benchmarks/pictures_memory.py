"""Memory of looking at a video: what a record of a vision-language model takes, beside eager attention's maps.

    python benchmarks/pictures_memory.py [--frames 2 4 8 16] [--side 200]

A Qwen2-VL of random weights and tiny width (a layer of 2 heads in each half; patches of 4 pixels, each a token of the
text, so that a processor of two cores gets through) reads 16 frames of 200 x 200: 20,000 tokens of pictures. Each
figure is the peak of the process's memory over what it had before the forward pass, in a process of its own:

run       the model alone, with PyTorch's fused attention
record    `regard.look`: every statistic, and the stored queries and keys of all heads
eager     the model alone, with transformers' eager attention and output_attentions, at the lengths of --eager
computed  the maps that eager returns: layers x heads x tokens x tokens x 4 bytes of the text alone; not measured

Writes benchmarks/results/pictures-memory.json.
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
from run_record import run_record

RESULTS = Path(__file__).parent / "results" / "pictures-memory.json"
LAYERS, HEADS, WIDTH, PATCH, PAIR = 1, 2, 32, 4, 2  # PAIR: the frames that one patch covers
CONTENDERS = ("run", "record", "eager")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--eager", type=int, nargs="+", default=[2, 4], help="frames at which eager is measured")
    parser.add_argument("--side", type=int, default=200, help="pixels of a frame")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.one:
        print(json.dumps(measured(told.one[0], int(told.one[1]), told.side)))
        return
    rows = []
    for frames in told.frames:
        row: dict[str, Any] = {"frames": frames}
        for contender in CONTENDERS:
            if contender != "eager" or frames in told.eager:
                row |= in_own_process(contender, frames, told.side)
        row["computed_mb"] = LAYERS * HEADS * row["tokens"] ** 2 * 4 / 2**20
        rows.append(row)
        eager = f"{row['eager_mb']:,.0f} MB" if "eager_mb" in row else "not measured"
        print(
            f"{frames:3} frames, {row['image_tokens']:,} tokens of pictures: run {row['run_mb']:,.0f} MB in "
            f"{row['run_seconds']:.1f} s, record {row['record_mb']:,.0f} MB in {row['record_seconds']:.1f} s; eager "
            f"{eager}, its maps of the text {row['computed_mb']:,.0f} MB (computed)",
            flush=True,
        )
    about = {"layers": LAYERS, "heads": HEADS, "width": WIDTH, "patch": PATCH, "side": told.side}
    found = {"machine": run_record("transformers", seeds=[0], rounds=1), "model": about, "rows": rows}
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")


def in_own_process(contender: str, frames: int, side: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--side", str(side), "--one", contender, str(frames)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{contender} at {frames} frames failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(contender: str, frames: int, side: int) -> dict[str, Any]:
    """Peak extra memory and seconds of one contender."""
    model, inputs = build(contender, frames, side)
    run = runner(contender, model, inputs)
    runner(contender, *build(contender, 2, 40))()  # allocators, lazy imports
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before, began = status("VmRSS"), time.perf_counter()
    run()
    seconds, peak = time.perf_counter() - began, status("VmHWM") - before
    count = int((inputs["input_ids"] == model.config.video_token_id).sum())
    sizes = {
        "image_tokens": count,
        "tokens": inputs["input_ids"].size(1),
        "patches": len(inputs["pixel_values_videos"]),
    }
    return {**sizes, f"{contender}_mb": peak / 1024, f"{contender}_seconds": seconds}


def runner(contender: str, model: Any, inputs: dict[str, torch.Tensor]) -> Callable[[], Any]:
    if contender == "record":
        from regard import look

        return lambda: look(model, inputs)

    def forward() -> Any:
        with torch.no_grad():
            return model(**inputs, use_cache=False, output_attentions=contender == "eager")

    return forward


def build(contender: str, frames: int, side: int) -> tuple[Any, dict[str, torch.Tensor]]:
    """The model, and a video of noise with a text of four words."""
    import transformers

    ids = {"image_token_id": 50, "video_token_id": 51, "vision_start_token_id": 52, "vision_end_token_id": 53}
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
    text = {"hidden_size": WIDTH, "intermediate_size": WIDTH, "num_hidden_layers": LAYERS, "vocab_size": 60}
    text |= {"num_attention_heads": HEADS, "num_key_value_heads": HEADS, "rope_parameters": rope}
    vision = {"depth": LAYERS, "embed_dim": WIDTH, "hidden_size": WIDTH, "num_heads": HEADS, "patch_size": PATCH}
    vision |= {"spatial_merge_size": 1}
    config = transformers.Qwen2VLConfig(text_config=text, vision_config=vision, **ids)
    torch.manual_seed(0)
    how = {"attn_implementation": "eager" if contender == "eager" else "sdpa"}
    model = transformers.Qwen2VLForConditionalGeneration._from_config(config, **how).eval()
    across, pairs = side // PATCH, frames // PAIR
    pixels = torch.randn(pairs * across**2, 3 * PAIR * PATCH**2)
    count = pairs * across**2
    words = torch.tensor([[1, 52, *[51] * count, 53, 5, 6, 7, 8]])
    inputs = {"input_ids": words, "mm_token_type_ids": (words == 51).long() * 2, "pixel_values_videos": pixels}
    inputs |= {"attention_mask": torch.ones_like(words), "video_grid_thw": torch.tensor([[pairs, across, across]])}
    return model, inputs


def status(name: str) -> int:
    """A line of /proc/self/status, in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
