"""What the loop costs over a loop written by hand, and how long a training stands still for a checkpoint.

    python benchmarks/training.py [--quick] [--device cuda] [--out out/bench]

Two models of one initialisation get the same batches: one through regard's Loop with its log, guards and random states
kept before every step, the other through the few lines that anyone would write (forward, backward, clip, AdamW,
schedule). They take turns, a stretch of steps each, in one process; the table shows the median over rounds of the ratio
within a round, and best over best. Then the same loop saves checkpoints: the stall is given in steps, and as the share
of the training's time at the recipe's own interval. Writes training-cpu.json.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from run_record import ratios, run_record, shown
from torch import nn

from regard.training.config.recipes import read_recipe
from regard.training.distributed import World
from regard.training.events.event import Event, Saved
from regard.training.events.log import LogFile
from regard.training.loop import Loop
from regard.training.recipe import PreparedTask
from regard.training.run_writer import RunWriter
from regard.training.schedules import make_schedule
from regard.training.tasks import TASKS

GOAL = 1.03  # the loop's time over the bare loop's
CASES = {
    "classifier": ["data.examples=2000"],
    "character-gpt": ["data.examples=1000"],
}
LARGE = {  # what a GPU is for
    "character-gpt": ["data.examples=1000"],
    "character-gpt, 85M": [
        *("data.kind=text", "data.train=text.txt", "model.width=768", "model.heads=12", "model.layers=12"),
        *("batches.rows=32", "batches.sequence_length=1024", "train.precision=bf16", "optimiser.learning_rate=1e-4"),
    ],
}


def write_text(path: Path) -> None:
    """Two million characters of made-up words, a text that is read on and on."""
    draw = random.Random(0)
    words = ["".join(draw.choices("aeioubdfklmnprst", k=draw.randint(2, 8))) for _ in range(5000)]
    path.write_text("".join(" ".join(draw.choices(words, k=10)) + "\n" for _ in range(33_000)))


class Scale(NamedTuple):
    """How much is measured: rounds of so many seconds, and saves."""

    rounds: int
    seconds: float
    saves: int


def prepared(name: str, sets: list[str], folder: Path) -> PreparedTask:
    """A recipe without evaluation, so that only training is measured."""
    folder.mkdir()
    if "data.train=text.txt" in sets:
        write_text(folder / "text.txt")
        sets = [one.replace("text.txt", str(folder / "text.txt")) for one in sets]
    recipe = read_recipe(
        name.partition(",")[0], [*sets, "train.steps=1000000", "checkpoint.every=1000000"], tasks=TASKS
    )
    whole = recipe.prepare(folder)
    return PreparedTask(whole.recipe, whole.model, whole.objective, whole.train, None)


class Bare:
    """The loop that anyone would write."""

    def __init__(self, made: PreparedTask, device: torch.device) -> None:
        recipe = made.recipe
        self.made, self.step, self.device = made, 0, device
        made.model.to(device)
        matrices = [one for one in made.model.parameters() if one.dim() > 1]
        vectors = [one for one in made.model.parameters() if one.dim() <= 1]
        groups = [
            {"params": matrices, "weight_decay": recipe.optimiser.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        self.optimiser = torch.optim.AdamW(groups, recipe.optimiser.learning_rate, fused=True)
        self.rate = make_schedule(recipe.schedule, 1_000_000)
        self.batches = self._forever()

    def _forever(self) -> Any:
        while True:
            yield from self.made.train

    def run(self, steps: int) -> float:
        model, objective, recipe = self.made.model, self.made.objective, self.made.recipe
        total = 0.0
        for _ in range(steps):
            self.step += 1
            batch = next(self.batches).to(self.device)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=recipe.train.precision == "bf16"):
                loss = objective.loss(model, batch, None).total / batch.all_tokens
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), recipe.train.clip or float("inf"))
            for group in self.optimiser.param_groups:
                group["lr"] = recipe.optimiser.learning_rate * self.rate(self.step, [])
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
            total += loss.item()
        return total


class Ours:
    """regard's loop, asked for a stretch of steps at a time, logging to a file."""

    def __init__(self, made: PreparedTask, device: torch.device, folder: Path) -> None:
        self.log = LogFile(folder / "log.jsonl")
        self.loop = Loop(made, 0, World(device=device), None, [self.log])
        self.loop.start()

    def run(self, steps: int) -> None:
        self.loop.steps += steps
        self.loop.run()


def timed(work: Any, steps: int) -> float:
    begun = time.perf_counter()
    work(steps)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def overhead(name: str, sets: list[str], device: torch.device, scale: Scale, folder: Path) -> dict[str, Any]:
    """Both loops in turn, in rounds of so many seconds each."""
    bare = Bare(prepared(name, sets, folder / "bare"), device)
    ours = Ours(prepared(name, sets, folder / "ours"), device, folder)
    for one in (bare, ours):
        one.run(10)
    steps = max(5, round(scale.seconds / (timed(bare.run, 10) / 10)))
    ours.run(10)
    times: list[tuple[float, float]] = []
    for number in range(scale.rounds):
        first, second = (bare, ours) if number % 2 else (ours, bare)
        one, two = timed(first.run, steps), timed(second.run, steps)
        times.append((one, two) if number % 2 else (two, one))
    return {
        "steps": steps,
        "bare_ms": 1e3 * min(one for one, _ in times) / steps,
        "ours_ms": 1e3 * min(two for _, two in times) / steps,
        "ratio": ratios([two for _, two in times], [one for one, _ in times]),
        "ratio_best": min(two for _, two in times) / min(one for one, _ in times),
    }


class Stalls:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_event(self, event: Event) -> None:
        if isinstance(event, Saved):
            self.seconds.append(event.seconds)


def stall(name: str, sets: list[str], device: torch.device, scale: Scale, folder: Path) -> dict[str, float]:
    """How long training stands still for a save, beside a step."""
    made = prepared(name, sets, folder / "stall")
    every = read_recipe(name.partition(",")[0], tasks=TASKS).checkpoint.every
    recipe = made.recipe.model_copy(update={"checkpoint": made.recipe.checkpoint.model_copy(update={"every": every})})
    made = PreparedTask(recipe, made.model, made.objective, made.train, None)
    stalls, world = Stalls(), World(device=device)
    loop = Loop(made, every * scale.saves, world, RunWriter(folder / "stall", world, recipe), [stalls])
    loop.start()
    loop.run()
    step = loop.progress.seconds / loop.progress.step
    state = folder / "stall" / "state"
    size = sum(path.stat().st_size for path in sorted(state.iterdir())[-1].rglob("*") if path.is_file())
    median = statistics.median(stalls.seconds)
    return {
        "megabytes": size / 1e6,
        "stall_ms": 1e3 * median,
        "stall_in_steps": median / step,
        "every": every,
        "share": median / (median + every * step),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    arguments = parser.parse_args()
    scale = Scale(6, 1.0, 4) if arguments.quick else Scale(12, 2.0, 5)
    device = torch.device(arguments.device)
    results: dict[str, Any] = {"machine": run_record(seeds=[0], rounds=scale.rounds)}
    print(f"torch {torch.__version__} on {device}, {torch.get_num_threads()} threads")
    print(f"goal: at most {GOAL} of the bare loop's time\n")
    heads = f"{'bare ms':>8} {'ours ms':>8} {'median (quartiles)':>22} {'best':>7}"
    heads += f"   {'stall':>7} {'steps':>6} {'MB':>6} {'share':>7}"
    print(f"{'':22} {heads}")
    for name, sets in (LARGE if device.type == "cuda" else CASES).items():
        with tempfile.TemporaryDirectory() as temporary:
            cost = overhead(name, sets, device, scale, Path(temporary))
            wait = stall(name, sets, device, scale, Path(temporary))
        results[name] = {**cost, **wait}
        over = f"{shown(cost['ratio'], '.3f'):>22} {cost['ratio_best']:7.3f}"
        saving = (
            f"{wait['stall_ms']:4.0f} ms {wait['stall_in_steps']:6.2f} {wait['megabytes']:6.1f} {wait['share']:7.2%}"
        )
        print(
            f"{name:22} {cost['bare_ms']:8.2f} {cost['ours_ms']:8.2f} {over}   {saving} at every {wait['every']}",
            flush=True,
        )
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"training-{device.type}.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
