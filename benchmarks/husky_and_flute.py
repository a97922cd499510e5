"""The husky and the flute (Rudin 2019) on pictures whose truth is known: does a map show the class that is asked for?

    python benchmarks/husky_and_flute.py --run runs/image-classifier [--transformers STEPS] [--device cuda]
        [--out benchmarks/results/husky-and-flute.json] [--figure docs/figures/husky-and-flute.png]

Each scene of the view `labelled` has one object of a key shape, its class; each of `doubled` has two, both true. For
every method: the pointing game, the share of its mass and of its top patches in the gold region, how far the
probability falls when those patches are blank; and on doubled scenes, asked for either class, how often it points at
the region of that one, and how far its two maps are apart. Beside our vision Transformer stands that of transformers,
with linear patches, trained here on the same scenes (--transformers steps). Intervals: 95%, bootstrap over scenes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from run_record import run_record
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import regard
from regard.faithfulness.picture_maps import PICTURE_METHODS, PatchClassifier, picture_maps
from regard.faithfulness.picture_scores import (
    blanking_drop,
    gold_patches,
    pointing,
    score_maps,
    sensitivity,
    top_patches,
)
from regard.pictures import KEY_SHAPES, LabelledScene, PatchGrid, SceneCorpus, doubled, labelled

MEAN, STD = 110.0, 70.0  # of pixels, roughly
SEEDS = {"scenes": 0, "weights": 0}
Named = tuple[PatchClassifier, tuple[str, ...]]
"""A classifier and the names of its classes."""


def pixels_of(scenes: list[LabelledScene]) -> Tensor:
    """(B, 3, H, W), 0 to 255."""
    return torch.from_numpy(np.stack([one.scene.draw() for one in scenes])).permute(0, 3, 1, 2).float()


def ours(run: Path, device: str) -> tuple[PatchClassifier, tuple[str, ...]]:
    """The classifier of a run, and its classes."""
    model: Any = regard.load(run)
    model = model.to(device).eval()
    encoder = model.encoder
    names = tuple(regard.runs.Run.open(run).labels.names)
    first = len(encoder.prefix_tokens)
    grid = PatchGrid.raster(encoder.rows, encoder.cols, first)
    return PatchClassifier(model, lambda x: model(x.permute(0, 2, 3, 1)), grid), names


def transformers_vit(steps: int, device: str, examples: int) -> tuple[PatchClassifier, float]:
    """transformers' ViT, trained on the same scenes, and the seconds that took."""
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(SEEDS["weights"])
    config = ViTConfig(
        image_size=64, patch_size=8, hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=256, num_labels=len(KEY_SHAPES), attn_implementation="sdpa",
    )  # fmt: skip
    model: nn.Module = ViTForImageClassification(config).to(device).train()
    scenes = list(SceneCorpus(labelled, examples, seed=SEEDS["scenes"]))
    pixels = torch.stack([torch.from_numpy(one.scene.draw()) for one in scenes]).permute(0, 3, 1, 2).to(device)
    labels = torch.tensor([KEY_SHAPES.index(one.label) for one in scenes], device=device)
    started = time.perf_counter()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-3, steps, pct_start=0.1)
    source = torch.Generator().manual_seed(SEEDS["weights"])
    for step in range(steps):
        chosen = torch.randint(0, examples, (128,), generator=source).to(device)
        x = (pixels[chosen].float() - MEAN) / STD
        x = x.flip(-1) if step % 2 else x  # a mirrored shape keeps its name
        loss = cross_entropy(model(x).logits, labels[chosen])
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 500 == 499:
            print(f"transformers' ViT, step {step + 1}: loss {float(loss.detach()):.3f}", flush=True)
    model.eval()
    logits: Callable[[Tensor], Tensor] = lambda x: model((x - MEAN) / STD).logits  # noqa: E731
    return PatchClassifier(model, logits, PatchGrid.raster(8, 8, 1)), time.perf_counter() - started


@torch.no_grad()
def accuracy(classifier: PatchClassifier, names: tuple[str, ...], scenes: list[LabelledScene], device: str) -> float:
    right = 0
    for start in range(0, len(scenes), 100):
        some = scenes[start : start + 100]
        found = classifier.logits(pixels_of(some).to(device)).argmax(-1).tolist()
        right += sum(names[number] == one.label for number, one in zip(found, some, strict=True))
    return right / len(scenes)


def examine(
    classifier: PatchClassifier, names: tuple[str, ...], single: list[LabelledScene], double: list[LabelledScene],
    device: str,
) -> dict[str, dict[str, list[float]]]:  # fmt: skip
    """For every method, its scores scene by scene."""
    found: dict[str, dict[str, list[float]]] = {method: {} for method in PICTURE_METHODS}

    def add(method: str, name: str, value: float) -> None:
        found[method].setdefault(name, []).append(value)

    for number, one in enumerate(single):
        pixels, label = pixels_of([one]).to(device), names.index(one.label)
        gold = gold_patches(classifier.grid, one.scene.region(one.objects))
        maps = picture_maps(classifier, pixels, label, seed=number)
        for method, scores in score_maps(maps, gold).items():
            for name, value in scores.items():
                add(method, name, value)
            chosen = top_patches(maps[method], int(gold.sum())) > 0.5
            add(method, "drop", blanking_drop(classifier, pixels, label, chosen))
    for number, one in enumerate(double):
        pixels = pixels_of([one]).to(device)
        gold_of = [gold_patches(classifier.grid, one.scene.region([at])) for at in one.objects]
        both = [picture_maps(classifier, pixels, names.index(name), seed=number) for name in one.labels]
        for method in PICTURE_METHODS:
            first, second = (maps[method] for maps in both)
            add(method, "class pointing", (pointing(first, gold_of[0]) + pointing(second, gold_of[1])) / 2)
            add(method, "class sensitivity", sensitivity(first, second))
    return found


def interval(values: list[float], seed: int = 0) -> tuple[float, float, float]:
    """The mean with its 95% bootstrap interval."""
    numbers = np.asarray(values)
    draws = np.random.default_rng(seed).choice(numbers, (2000, len(numbers))).mean(1)
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(numbers.mean()), float(low), float(high)


def show(name: str, found: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """Print a table; the same as numbers."""
    columns = list(next(iter(found.values())))
    print(f"\n{name}\n{'':22}" + "".join(f"{column:>24}" for column in columns))
    table: dict[str, Any] = {}
    for method, scores in found.items():
        table[method] = {column: interval(scores[column]) for column in columns}
        cells = "".join(f"{mean:11.2f} [{low:5.2f}, {high:5.2f}]" for mean, low, high in table[method].values())
        print(f"{method:22}{cells}")
    return table


def draw(path: Path, models: dict[str, Named], scene: LabelledScene, device: str) -> None:
    """One picture with two classes, and the maps of every method for either."""
    from matplotlib.figure import Figure

    methods = [method for method in PICTURE_METHODS if method != "random"]
    rows = [(name, which) for name in models for which in (0, 1)]
    figure = Figure(figsize=(1.75 * (1 + len(methods)), 1.9 * len(rows) + 0.3), layout="constrained")
    axes = figure.subplots(len(rows), 1 + len(methods), squeeze=False)
    pixels, image = pixels_of([scene]).to(device), scene.scene.draw()
    size = image.shape[0]
    for row, (name, which) in enumerate(rows):
        classifier, names = models[name]
        maps = picture_maps(classifier, pixels, names.index(scene.labels[which]))
        region = scene.scene.region([scene.objects[which]])
        for col, method in enumerate(["", *methods]):
            ax = axes[row][col]
            ax.imshow(image, interpolation="nearest")
            ax.set_xticks([])
            ax.set_yticks([])
            if col:
                values = np.clip(maps[method], 0, None)
                ax.imshow(values / max(values.max(), 1e-12), cmap="magma", alpha=0.72, vmin=0, vmax=1,
                          extent=(-0.5, size - 0.5, size - 0.5, -0.5), interpolation="nearest")  # fmt: skip
            ax.contour(region, levels=[0.5], colors=["#00e5ff"], linewidths=1.2)
            if row == 0:
                ax.set_title(method or "the picture", fontsize=9)
            if not col:
                ax.set_ylabel(f"{name}\nwhy {scene.labels[which]}?", fontsize=9)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="a run of the recipe image-classifier")
    parser.add_argument("--transformers", type=int, default=0, metavar="STEPS", help="also train transformers' ViT")
    parser.add_argument("--examples", type=int, default=60_000, help="scenes that it is trained on")
    parser.add_argument("--scenes", type=int, default=200, help="test scenes of each view")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("out/husky-and-flute.json"))
    parser.add_argument("--figure", type=Path)
    chosen = parser.parse_args()
    single = list(SceneCorpus(labelled, chosen.scenes, split="test", seed=1))
    double = list(SceneCorpus(doubled, chosen.scenes, split="test", seed=1))
    models: dict[str, Named] = {"regard": ours(chosen.run, chosen.device)}
    record: dict[str, Any] = {
        "machine": run_record("transformers", seeds=list(SEEDS.values())),
        "scenes": chosen.scenes,
    }
    if chosen.transformers:
        classifier, seconds = transformers_vit(chosen.transformers, chosen.device, chosen.examples)
        models["transformers"] = classifier, KEY_SHAPES
        record["transformers"] = {"steps": chosen.transformers, "examples": chosen.examples, "seconds": seconds}
    for name, (classifier, names) in models.items():
        share = accuracy(classifier, names, list(SceneCorpus(labelled, 1000, split="test", seed=2)), chosen.device)
        print(f"{name}: {100 * share:.1f}% of 1,000 test scenes")
        table = show(name, examine(classifier, names, single, double, chosen.device))
        record.setdefault("models", {})[name] = {"accuracy": share, "table": table}
    if chosen.figure:
        draw(chosen.figure, models, double[0], chosen.device)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"written to {chosen.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
