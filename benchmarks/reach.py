"""How far back does a gradient reach? Of a recurrent language model, and of one that looks back at its own past.

    python benchmarks/reach.py [--steps 100] [--threads 2] [--out benchmarks/results] [--figure docs/figures/reach.png]

For held-out stories that are read on and on, |d loss_t / d x_{t-n}|: how much the surprise at one place would change
with the vector that was read n places before; the mean over places, for models as they are made and after `--steps`
steps of their recipe. Without attention the gradient takes n steps of the recurrent layer, each of which loses some;
with attention it takes one. Prints a table, draws a figure, writes reach.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from run_record import run_record
from torch import Tensor, nn

from regard.text.batches.batch import BlockBatch
from regard.text.batches.lm_batches import BlockCollator, TokenBlocks
from regard.text.batches.plan import Batches
from regard.training.config.recipes import read_recipe
from regard.training.distributed import World
from regard.training.loop import Loop
from regard.training.tasks import TASKS

MODELS = {
    "tanh": ("recurrent-lm", ["model.cell=rnn"]),
    "tanh, attentive": ("attentive-lm", ["model.cell=rnn"]),
    "lstm": ("recurrent-lm", []),
    "lstm, attentive": ("attentive-lm", []),
}
FURTHEST, LENGTH, ROWS = 60, 80, 16
SHOWN = (1, 2, 5, 10, 20, 40, 60)


def reach(model: nn.Module, batch: BlockBatch) -> list[float]:
    """The mean of |d loss_t / d x_{t-n}| for n = 1 .. FURTHEST, over rows and the places t >= FURTHEST."""
    model.eval()
    heard: list[Tensor] = []

    def hear(module: nn.Module, inputs: Any, vectors: Tensor) -> Tensor:
        heard.append(vectors.detach().requires_grad_())
        return heard[-1]

    hook = model.words.register_forward_hook(hear)
    prediction, _ = model(batch.inputs)  # one text without end: how far it reaches is to be seen, not where it may
    hook.remove()
    surprise = prediction.nll(batch.targets)  # (B, T)
    total = torch.zeros(FURTHEST)
    places = range(FURTHEST, batch.inputs.size(1))
    for place in places:  # rows are independent of each other, so their losses can be summed
        (slopes,) = torch.autograd.grad(surprise[:, place].sum(), heard[0], retain_graph=True)
        total += slopes.norm(dim=-1).mean(0)[place - FURTHEST : place].flip(0)
    return [float(one) for one in total / len(places)]


def measured(name: str, sets: list[str], steps: int, folder: Path) -> dict[str, list[float]]:
    """The reach of a recipe's model, fresh and trained."""
    recipe = read_recipe(name, [*sets, f"train.steps={max(1, steps)}"], tasks=TASKS)
    made = recipe.prepare(folder)
    assert made.valid is not None
    stream = made.valid(0, 1).plan.stream  # type: ignore[attr-defined]
    batches = Batches(TokenBlocks(stream, LENGTH, ROWS), BlockCollator(stream), seed=0)
    batch = next(one for one in batches if one.inputs.shape == (ROWS, LENGTH) and one.tokens == ROWS * LENGTH)
    found = {"fresh": reach(made.model, batch)}
    if steps:
        loop = Loop(made, steps, World())
        loop.start()
        loop.run()
        found["trained"] = reach(made.model, batch)
    return found


def draw(results: dict[str, dict[str, list[float]]], path: Path) -> None:
    import matplotlib.pyplot as plt

    times = list(next(iter(results.values())))
    figure, axes = plt.subplots(1, len(times), figsize=(4.5 * len(times), 3.2), sharey=True, squeeze=False)
    for panel, when in zip(axes[0], times, strict=True):
        for title, found in results.items():
            looks = title.endswith("attentive")
            colour = "tab:orange" if title.startswith("tanh") else "tab:blue"
            panel.semilogy(range(1, FURTHEST + 1), found[when], "-" if looks else "--", color=colour, label=title)
        panel.set(title=when, xlabel="places back")
    axes[0][0].set_ylabel("gradient (norm)")
    axes[0][0].legend(fontsize="small")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--figure", type=Path, default=Path("docs/figures/reach.png"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    results: dict[str, dict[str, list[float]]] = {}
    print(f"{'places back':28}" + "".join(f"{n:>10}" for n in SHOWN))
    with tempfile.TemporaryDirectory() as folder:
        for number, (title, (name, sets)) in enumerate(MODELS.items()):
            results[title] = measured(name, sets, arguments.steps, Path(folder) / str(number))
            for when, found in results[title].items():
                print(f"{f'{title}, {when}':28}" + "".join(f"{found[n - 1]:10.1e}" for n in SHOWN), flush=True)
    draw(results, arguments.figure)
    about = {"machine": run_record(seeds=[0])}
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "reach.json").write_text(json.dumps({**about, **results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
