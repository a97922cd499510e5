"""Pre-training on one GPU, side by side in one run: GPT-124M with nanoGPT's, BERT-base with Hugging Face's.

    python benchmarks/h200/training.py [--tiny] [--only gpt] [--nanogpt model.py] [--out out/h200/training.json]

Every side does whole steps in bf16: a batch to the device, forward, backward, clipping, fused AdamW. Ours goes through
regard's training loop with `train.compile`, once true and once "graphs", theirs through the lines that train.py of
nanoGPT has, with torch.compile, without graphs and with them too. All have the same weights, batches, dropout,
allocator and warm-up; that their losses agree is checked first. Sides take turns, a stretch of steps each; the table
shows the median over rounds of a step by the wall clock with its quartiles, and from a profile in the middle of a
stretch: how long kernels run in a step, and which share of the time the device is busy. nanoGPT is read from a file,
its model.py, also named by NANOGPT, and left out if there is none. The goal is for our best row over their best: the
median of the ratio within a round, with quartiles. After the table: the kernels of each side.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import torch
from timing import SEED, Row, machine, ratios, spread
from torch import Tensor, nn

from regard.models.bert import SIZES, Bert, BertSize, MaskedLM
from regard.models.blocks import BERT, GPT2, gelu_feedforward
from regard.models.gpt import GPT
from regard.text.batches.batch import Batch, BlockBatch, MaskedBatch
from regard.training.distributed import World
from regard.training.loop import Loop, cycle
from regard.training.objectives.base import Objective
from regard.training.objectives.lm import CausalLMObjective
from regard.training.objectives.mlm import MaskedLMObjective
from regard.training.optimisers import AdamW
from regard.training.recipe import PreparedTask, Recipe, TrainSettings

PEAK = 989.5e12  # bf16 operations a second of an H100 or H200
GOALS = {"gpt": 1.1, "bert": 1.5}
WARM, STRETCH = 5, 6  # steps
PRINTED, KEPT = 8, 40  # kernels of a side
HIDDEN, DROPOUT = 0.15, 0.1
RATE, BETAS, DECAY, CLIP = 1e-4, (0.9, 0.95), 0.1, 1.0
ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda", 0) if ON_GPU else torch.device("cpu")
VARIANTS = (False, True) if ON_GPU else (False,)  # with graphs or without


class Scale(NamedTuple):
    """How large everything is."""

    rounds: int
    gpt_rows: int
    gpt_length: int
    gpt: BertSize
    bert_rows: int
    bert_length: int
    bert: BertSize
    words: tuple[int, int]  # of GPT, of BERT


FULL = Scale(6, 32, 1024, BertSize(12, 768, 12), 256, 128, SIZES["base"], (50304, 30522))
TINY = Scale(2, 2, 32, BertSize(2, 64, 2), 4, 32, BertSize(2, 64, 2), (503, 305))


@dataclass(frozen=True)
class Side:
    """One way to train: a step, told by nothing and waiting for nothing."""

    name: str
    how: str
    step: Callable[[], object]
    loss: Callable[[], Tensor]  # in float32, without dropout, of the first rows
    tokens: int
    work: float  # operations that a step needs, whoever does it


class Endless:
    """The same few batches again and again, as a loop takes them."""

    epoch = 0

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)

    def state_dict(self) -> dict[str, int | str]:
        return {}


def ours(model: nn.Module, objective: Objective[Any], batches: list[Batch], work: float, graphs: bool) -> Side:
    """regard's own loop, step by step."""
    recipe = Recipe(
        task="bench",
        name="bench",
        train=TrainSettings(precision="bf16", compile="graphs" if graphs else True, clip=CLIP),
        optimiser=AdamW(learning_rate=RATE, betas=BETAS, weight_decay=DECAY),
    )
    few = _first_rows(batches[0])

    def loss() -> Tensor:
        model.eval()
        with torch.no_grad():
            found = objective.loss(partial(type(model).forward, model), few.to(DEVICE), None)  # type: ignore[arg-type]
        model.train()
        return found.total / few.all_tokens

    endless = Endless(batches)
    loop = Loop(PreparedTask(recipe, model, objective, cast(Any, endless), None), 10**9, World(device=DEVICE))
    if not graphs:
        model.compile()
    model.train()
    step = partial(loop.advance, cycle(endless))
    return Side("ours", "graphs" if graphs else "compiled", step, loss, _tokens(batches[0]), work)


def theirs(
    name: str,
    model: nn.Module,
    loss_of: Callable[[Any, Batch], Tensor],
    batches: list[Batch],
    work: float,
    graphs: bool,
) -> Side:
    """The lines that anyone would write."""
    model.to(DEVICE).train()
    matrices = [one for one in model.parameters() if one.dim() > 1]
    vectors = [one for one in model.parameters() if one.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, RATE, BETAS, fused=ON_GPU)
    quick = torch.compile(model, mode="reduce-overhead" if graphs else None)
    feed, few = cycle(Endless(batches)), _first_rows(batches[0])

    def loss() -> Tensor:
        model.eval()
        with torch.no_grad():
            found = loss_of(model, few.to(DEVICE))
        model.train()
        return found

    def step() -> None:
        batch = next(feed)
        here = batch.pin_memory().to(DEVICE, non_blocking=True) if ON_GPU else batch
        if graphs:
            torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
            found = loss_of(quick, here)
        found.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return Side(name, "graphs" if graphs else "compiled", step, loss, _tokens(batches[0]), work)


def gpt(scale: Scale, file: Path) -> list[Side]:
    """GPT-124M with nanoGPT's GELU; dropout 0."""
    layers, width, heads, _ = asdict(scale.gpt).values()
    rows, length, words = scale.gpt_rows, scale.gpt_length, scale.words[0]
    torch.manual_seed(SEED)
    model = GPT(words, width, layers, heads, length, block=replace(GPT2, feedforward=gelu_feedforward)).to(DEVICE)
    batches: list[Batch] = []
    for _ in range(4):
        ids = torch.randint(0, words, (rows, length + 1))
        batches.append(BlockBatch(torch.arange(rows), ids[:, :-1].contiguous(), ids[:, 1:].contiguous()))
    parameters = sum(one.numel() for one in model.parameters()) - length * width
    work = (6 * parameters + 12 * layers * width * length) * rows * length  # as nanoGPT counts
    objective = CausalLMObjective(cast(Any, None), 1.0, length)
    if not file.exists():
        print(f"nanoGPT is left out: there is no {file}")
        return [ours(deepcopy(model), objective, batches, work, graphs) for graphs in VARIANTS]
    spec = importlib.util.spec_from_file_location("nanogpt", file)
    assert spec is not None and spec.loader is not None
    nanogpt = sys.modules["nanogpt"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nanogpt)
    config = nanogpt.GPTConfig(length, words, layers, heads, width, 0.0, True)
    other = nanogpt.GPT(config).to(DEVICE)
    _take_nanogpts(model, other)

    def loss_of(model: Any, batch: Batch) -> Tensor:
        assert isinstance(batch, BlockBatch)
        found: Tensor = model(batch.inputs, batch.targets)[1]
        return found

    return [
        *(ours(deepcopy(model), objective, batches, work, graphs) for graphs in VARIANTS),
        *(theirs("nanoGPT", deepcopy(other), loss_of, batches, work, graphs) for graphs in VARIANTS),
    ]


def bert(scale: Scale) -> list[Side]:
    """BERT-base, hidden words and next sentences, rows without padding."""
    from transformers import BertConfig, BertForPreTraining

    from regard.hub import load

    layers, width, heads, _ = asdict(scale.bert).values()
    rows, length, words = scale.bert_rows, scale.bert_length, scale.words[1]
    torch.manual_seed(SEED)
    config = BertConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads or width // 64,
        intermediate_size=4 * width,
        hidden_dropout_prob=DROPOUT,
        attention_probs_dropout_prob=DROPOUT,
    )
    other = BertForPreTraining(config)
    block = replace(BERT, attention_dropout=DROPOUT)
    model = MaskedLM(Bert.of(words, scale.bert, dropout=DROPOUT, block=block))
    with TemporaryDirectory() as folder:
        other.save_pretrained(folder)
        model.load_state_dict(load(folder).state_dict())
    batches = [_masked(rows, length, words) for _ in range(4)]
    hidden = int(HIDDEN * length)
    body = sum(one.numel() for one in model.bert.encoder.blocks.parameters())
    work = (6 * body + 12 * layers * width * length) * rows * length + 6 * words * width * hidden * rows

    def loss_of(model: Any, batch: Batch) -> Tensor:
        assert isinstance(batch, MaskedBatch) and batch.next is not None
        labels = torch.full_like(batch.inputs, -100).view(-1).index_copy(0, batch.positions, batch.targets)
        found: Tensor = model(
            batch.inputs,
            token_type_ids=batch.segments,
            labels=labels.view_as(batch.inputs),
            next_sentence_label=1 - batch.next,  # theirs is 0 where the second text follows
        ).loss
        return found

    objective = MaskedLMObjective(cast(Any, None), torch.zeros(words), float(hidden))
    return [
        *(ours(deepcopy(model), objective, batches, work, graphs) for graphs in VARIANTS),
        *(theirs("Hugging Face", deepcopy(other), loss_of, batches, work, graphs) for graphs in VARIANTS),
    ]


def _masked(rows: int, length: int, words: int) -> Batch:
    ids = torch.randint(100, words, (rows, length))
    columns = torch.rand(rows, length).argsort(-1)[:, : int(HIDDEN * length)].sort(-1).values
    places = (torch.arange(rows).unsqueeze(-1) * length + columns).flatten()
    targets = ids.flatten()[places]
    ids.view(-1)[places] = 99
    segments = (torch.arange(length) >= length // 2).long().repeat(rows, 1)
    lengths, follows = torch.full((rows,), length), torch.randint(0, 2, (rows,))
    return MaskedBatch(torch.arange(rows), ids, lengths, segments, places, targets, follows)


def _take_nanogpts(model: GPT, other: nn.Module) -> None:
    """Give ours the weights of theirs."""
    names = {
        "embedding": "transformer.wte",
        "positions.table": "transformer.wpe",
        "norm": "transformer.ln_f",
        "after_self.norm": "ln_1",
        "self.project.joint": "attn.c_attn",
        "self.out": "attn.c_proj",
        "after_feed.norm": "ln_2",
        "feed.inner": "mlp.c_fc",
        "feed.outer": "mlp.c_proj",
    }
    from_them = dict(other.named_parameters())
    for name, weight in model.named_parameters():
        module, _, kind = name.rpartition(".")
        before = ""
        if module.startswith("decoder."):
            _, layer, module = module.split(".", 2)
            before = f"transformer.h.{layer}."
        weight.data.copy_(from_them[f"{before}{names[module]}.{kind}"])


def _first_rows(batch: Batch, rows: int = 4) -> Batch:
    if isinstance(batch, MaskedBatch):
        assert batch.next is not None
        few = batch.positions < rows * batch.inputs.size(1)
        return MaskedBatch(
            batch.indices[:rows],
            batch.inputs[:rows],
            batch.lengths[:rows],
            batch.segments[:rows],
            batch.positions[few],
            batch.targets[few],
            batch.next[:rows],
        )
    assert isinstance(batch, BlockBatch)
    return BlockBatch(batch.indices[:rows], batch.inputs[:rows], batch.targets[:rows])


def _tokens(batch: Batch) -> int:
    return int(cast(Any, batch).inputs.numel())


class Timed(NamedTuple):
    """What was measured of a side."""

    name: str
    how: str
    tokens_per_second: float
    step_ms: float  # the median over rounds, by the wall clock
    step_quartiles: list[float]
    rounds: list[float]
    kernels_ms: float  # all kernels of a step, one after the other
    busy: float  # the share of the time in which any kernel runs
    mfu: float
    working_gb: float  # memory above weights, gradients and what the optimiser remembers
    loss: float
    compile_s: float
    clock: str  # MHz, W
    kernels: list[dict[str, Any]]


def compare(sides: list[Side], rounds: int) -> list[Timed]:
    asked, sides, losses, compiling = sides, [], [], []
    for side in asked:
        begun, loss = time.perf_counter(), float(side.loss())
        try:
            _steps(side, WARM)
        except (RuntimeError, TypeError, AssertionError) as error:  # that it cannot be compiled so is a result
            print(f"{side.name}, {side.how} is left out: {type(error).__name__}: {str(error)[:1500]}")
            continue
        sides.append(side)
        losses.append(loss)
        compiling.append(time.perf_counter() - begun)
    seconds: list[list[float]] = [[] for _ in sides]
    memory = [0.0] * len(sides)
    for _ in range(rounds):
        for number, side in enumerate(sides):
            if ON_GPU:
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            begun = time.perf_counter()
            _steps(side, STRETCH)
            seconds[number].append((time.perf_counter() - begun) / STRETCH)
            if ON_GPU:
                memory[number] = (torch.cuda.max_memory_allocated() - before) / 2**30
    found = []
    for side, each, held, loss, spent in zip(sides, seconds, memory, losses, compiling, strict=True):
        steps, (total, busy, clock, kernels) = spread([1e3 * one for one in each]), profiled(side)
        step = steps["median"] / 1e3
        speed, mfu = side.tokens / step, side.work / step / PEAK
        wall = (speed, steps["median"], steps["quartiles"], steps["rounds"])
        found.append(Timed(side.name, side.how, *wall, total, busy, mfu, held, loss, spent, clock, kernels))
    return found


def _steps(side: Side, count: int) -> None:
    for _ in range(count):
        side.step()
    if ON_GPU:
        torch.cuda.synchronize()


def profiled(side: Side, steps: int = 3) -> tuple[float, float, str, list[dict[str, Any]]]:
    """Of steps in the middle of others: milliseconds of kernels in a step, the share of time in which one runs, the
    device's clock and power, and the kernels, longest first."""
    if not ON_GPU:
        return 0.0, 0.0, "", []
    smi = shutil.which("nvidia-smi")
    ask = [smi or "true", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader"]
    with subprocess.Popen(ask, stdout=subprocess.PIPE, text=True) as asked:
        _steps(side, 2 * STRETCH)
        clock = asked.communicate()[0].strip().splitlines()
    for _ in range(2):
        side.step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        _steps(side, steps)
    events = [
        one
        for one in profile.events()
        if one.device_type == torch.autograd.DeviceType.CUDA and not getattr(one, "is_user_annotation", False)
    ]
    spans = sorted((one.time_range.start, one.time_range.end) for one in events)
    busy, reached = 0.0, spans[0][0]
    for start, end in spans:
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    spent, calls = Counter[str](), Counter[str]()
    for one in events:
        spent[one.name] += one.time_range.end - one.time_range.start
        calls[one.name] += 1
    rows = [
        {"kernel": name[:100], "calls": calls[name] / steps, "ms": us / steps / 1e3}
        for name, us in spent.most_common(KEPT)
    ]
    return sum(spent.values()) / steps / 1e3, busy / (reached - spans[0][0]), clock[0] if clock else "", rows


FAMILIES = {
    "products": ("nvjet", "gemm", "cutlass", "splitK", "cublas"),
    "attention": ("sdpa", "flash", "fmha"),
    "cross-entropy": ("_nll_kernel", "softmax", "nll_loss"),
    "norms": ("layer_norm", "_add_norm"),
    "activations": ("gelu", "exp2", "erf", "_gelu_kernel", "_gelu_backward_kernel"),
    "chance": ("_draw", "random", "seed", "dropout", "bernoulli"),
    "optimiser, clip": ("multi_tensor", "adam", "lpnorm"),
    "copies": ("Memcpy", "Memset", "memcpy", "memset", "copy", "cat"),
}


def show(one: Timed) -> None:
    families = Counter[str]()
    for row in one.kernels:
        name = next((name for name, signs in FAMILIES.items() if any(sign in row["kernel"] for sign in signs)), "else")
        families[name] += row["ms"]
    parts = ", ".join(f"{name} {ms:.2f}" for name, ms in families.most_common())
    print(f"\n{one.name}, {one.how}: {one.kernels_ms:.2f} ms of kernels; {parts}")
    for row in one.kernels[:PRINTED]:
        print(f"  {row['ms']:7.2f} ms {row['calls']:6.0f} x  {row['kernel']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="small sizes, to see that it runs; on a CPU too")
    parser.add_argument("--only", choices=["gpt", "bert"])
    parser.add_argument("--nanogpt", type=Path, default=Path(os.environ.get("NANOGPT", "nanogpt/model.py")))
    parser.add_argument("--rounds", type=int, help="timed rounds of each side")
    parser.add_argument("--out", type=Path, default=Path("out/h200/training.json"))
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    scale = TINY if args.tiny else FULL
    rounds = args.rounds or scale.rounds
    report: Row = {"machine": machine("transformers", rounds=rounds), "tiny": args.tiny}
    print(report["machine"], flush=True)
    for name, make in {"gpt": partial(gpt, scale, args.nanogpt), "bert": partial(bert, scale)}.items():
        if args.only not in (None, name):
            continue
        begun = time.perf_counter()
        sides = make()
        found = compare(sides, rounds)
        report[name] = judged(name, found)
        for one in found:
            show(one)
        print(f"\n{name}: {time.perf_counter() - begun:.0f} s in all")
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(report, indent=1) + "\n")
        del sides
        torch.compiler.reset()
        if ON_GPU:
            torch.cuda.empty_cache()
    print(f"\nwritten to {args.out}")


def judged(name: str, found: list[Timed]) -> Row:
    """The table, and our best row over theirs, compiled."""
    heads = (
        f"{'tokens/s':>10}{'step':>10}{'quartiles':>16}{'kernels':>11}{'busy':>7}{'MFU':>7}{'working':>10}{'loss':>10}"
    )
    print(f"\n{name:24}{heads}{'compiling':>11}  clock")
    for one in found:
        print(
            f"{one.name + ', ' + one.how:24}{one.tokens_per_second:10,.0f}{one.step_ms:7.2f} ms"
            f"{one.step_quartiles[0]:8.2f}{one.step_quartiles[1]:8.2f}{one.kernels_ms:8.2f} ms"
            f"{one.busy:7.1%}{one.mfu:7.1%}{one.working_gb:7.2f} GB{one.loss:10.4f}{one.compile_s:9.0f} s  {one.clock}"
        )
    report: Row = {"sides": [one._asdict() for one in found], "goal": GOALS[name]}
    mine = [one for one in found if one.name == "ours"]
    others = [one for one in found if one.name != "ours"]
    if mine and others:
        best, rival = (max(some, key=lambda one: one.tokens_per_second) for some in (mine, others))
        report["over"] = ratio = {"ours": best.how, "theirs": rival.how, **ratios(rival.rounds, best.rounds)}
        low, high = ratio["quartiles"]
        print(f"ours, {best.how}, over theirs, {rival.how}: {ratio['median']:.3f} ({low:.3f} to {high:.3f}; ", end="")
        print(f"goal {GOALS[name]})")
        apart = max(abs(one.loss - other.loss) for one in mine for other in others)
        report["losses_apart"] = apart
        print(f"losses {apart:.1e} apart")
        assert apart < 2e-3, "the sides do not compute the same loss"
    return report


if __name__ == "__main__":
    main()
