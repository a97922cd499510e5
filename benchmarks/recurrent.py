"""Training tokens a second and decoded sentences a second, beside JoeyNMT 2.3: its RNN, the same sizes, the same data.

    python benchmarks/recurrent.py --joeynmt PYTHON       # a Python that has joeynmt==2.3.0 and importlib_metadata

JoeyNMT's recurrent translator is a GRU with input feeding and an additive score, read both ways: here kind "luong" with
score "concat" and feeding. Kind "bahdanau", the same size, is measured beside it. All train on the same sentences, 64 a
batch, Adam, clipped, float32, on as many threads as torch takes; each says itself how many target tokens a second it
made, padding not counted. Decoding: beam 5 over the same sentences, every translation exactly 25 words long, so that
models that have learned little do the same work.

regard puts sentences of similar length into a batch; JoeyNMT has no buckets, so it runs three times: as it comes; on a
file whose every 64 lines are of similar length, not shuffled again (and a test file sorted by length); and with glibc
told to keep freed memory and threads to yield too, as regard tells it. The JSON has the share of padding of each.
Rounds alternate; ratios are medians over rounds, with quartiles.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Any, NamedTuple

from run_record import ratios, run_record, shown

WIDTH, STATES, HIDDEN, ROWS, WORDS, SENTENCES, BEAM = 128, 256, 128, 64, 25, 200, 5
VOCABULARY = 8000
SYSTEMS = {
    "luong": {"kind": "luong", "score": "concat", "input_feeding": "true"},
    "bahdanau": {"kind": "bahdanau", "attention_dim": HIDDEN},
}


class Peer(NamedTuple):
    """One way to run JoeyNMT."""

    train: str  # the name of the training file
    test: str
    shuffle: bool
    environment: dict[str, str]


KEEPS_MEMORY = {  # what regard.cli.process_tuning tells glibc and OpenMP
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
    "MALLOC_TOP_PAD_": str(64 * 2**20),
    "GOMP_SPINCOUNT": "10000",
}
# joeynmt 2.3 does not pass min_output_length on to its search: translations would end where they like
JOEY_MAIN = """
from functools import partial
import joeynmt.prediction as prediction
prediction.search = partial(prediction.search, min_output_length={words})
from joeynmt.__main__ import main
main()
"""
PEERS = {
    "JoeyNMT": Peer("train", "test", True, {}),
    "JoeyNMT, buckets": Peer("bucketed", "sorted", False, {}),
    "JoeyNMT, buckets, allocator": Peer("bucketed", "sorted", False, KEEPS_MEMORY),
}
Sentences = tuple[list[str], list[str]]  # source, target
Rates = dict[str, dict[str, list[float]]]

JOEY = """
name: "peer"
joeynmt_version: "2.3.0"
model_dir: "{folder}/joey"
use_cuda: False
fp16: False
random_seed: 0
data:
  train: "{folder}/{train}"
  dev: "{folder}/valid"
  test: "{folder}/{test}"
  dataset_type: "plain"
  src: {{lang: "en", level: "word", max_length: 256, lowercase: False, voc_limit: {vocabulary}, voc_min_freq: 1}}
  trg: {{lang: "fr", level: "word", max_length: 256, lowercase: False, voc_limit: {vocabulary}, voc_min_freq: 1}}
testing:
  n_best: 1
  beam_size: {beam}
  beam_alpha: 0.6
  batch_size: {rows}
  batch_type: "sentence"
  min_output_length: {words}
  max_output_length: {words}
  eval_metrics: []
training:
  optimizer: "adam"
  learning_rate: 0.001
  scheduling: "noam"
  learning_rate_factor: 1
  learning_rate_warmup: 4000
  learning_rate_min: 0.0
  clip_grad_norm: 1.0
  loss: "crossentropy"
  normalization: "tokens"
  batch_size: {rows}
  batch_type: "sentence"
  epochs: 1000
  updates: {steps}
  validation_freq: {never}
  logging_freq: {every}
  overwrite: True
  shuffle: {shuffle}
  keep_best_ckpts: 1
model:
  initializer: "xavier_uniform"
  bias_initializer: "zeros"
  embed_initializer: "normal"
  encoder:
    type: "recurrent"
    rnn_type: "gru"
    embeddings: {{embedding_dim: {width}, scale: False}}
    hidden_size: {half}
    bidirectional: True
    num_layers: 1
    dropout: 0.0
  decoder:
    type: "recurrent"
    rnn_type: "gru"
    embeddings: {{embedding_dim: {width}, scale: False}}
    hidden_size: {hidden}
    num_layers: 1
    dropout: 0.0
    hidden_dropout: 0.0
    attention: "bahdanau"
    input_feeding: True
    init_hidden: "bridge"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--joeynmt", help="a Python that has joeynmt 2.3; without it, ours alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, help="of every process; as many as torch takes unless given")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/recurrent.json"))
    told = parser.parse_args()
    if told.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(told.threads)
    found: Rates = {}
    padding: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        padding |= _write_corpus(folder, told.steps)
        for number in range(told.rounds):
            for name in SYSTEMS:
                tokens, sentences, padding[f"regard {name}"] = _ours(folder, name, told.steps, number)
                _add(found, f"regard {name}", tokens, sentences)
            for name, peer in PEERS.items() if told.joeynmt else ():
                _add(found, name, *_joey(folder, told.joeynmt, peer, told.steps))
            _report(found, padding, told)  # after every round, so that a run that is stopped keeps the others


def _write_corpus(folder: Path, steps: int) -> dict[str, dict[str, float]]:
    """The files of both sides; the padding of JoeyNMT's batches."""
    from regard.text import grammar

    for split, count in (("train", 10_000), ("valid", 10), ("test", SENTENCES)):
        pairs = [(pair.source, pair.target) for pair in grammar.GeneratedCorpus(grammar.translation, count, split)]
        _write(folder / split, pairs)
        if split == "train":
            grouped = buckets(pairs, ROWS)
            _write(folder / "bucketed", [pair for group in grouped for pair in group])
            mixed = Random(0).sample(pairs, len(pairs))
            plain = [mixed[start : start + ROWS] for start in range(0, len(mixed), ROWS)]
        elif split == "test":
            _write(folder / "sorted", sorted(pairs, key=lambda pair: len(pair[0].split())))
    found = {"JoeyNMT": padding_of(plain)}  # of a random order, for its own is not told
    return found | {name: padding_of(grouped[:steps]) for name in PEERS if name != "JoeyNMT"}


def _write(path: Path, pairs: Iterable[tuple[str, str]]) -> None:
    sources, targets = zip(*pairs, strict=True)
    for language, texts in (("en", sources), ("fr", targets)):
        path.with_suffix(f".{language}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def buckets(pairs: Sequence[tuple[str, str]], rows: int) -> list[list[tuple[str, str]]]:
    """Batches of similar length, in random order; the one that is not full comes last."""
    sizes = {pair: [len(text.split()) for text in pair] for pair in pairs}
    ordered = sorted(pairs, key=lambda pair: (max(sizes[pair]), sizes[pair][0] - sizes[pair][1]))
    full = len(ordered) // rows * rows
    batches = [ordered[start : start + rows] for start in range(0, full, rows)]
    Random(0).shuffle(batches)
    return batches + ([ordered[full:]] if full < len(ordered) else [])


def padding_of(batches: Sequence[Sequence[tuple[str, str]]]) -> dict[str, float]:
    """The share of source and target places that hold no token; every sentence has an end token."""
    found = {}
    for number, side in enumerate(("source", "target")):
        sizes = [[len(pair[number].split()) + 1 for pair in batch] for batch in batches]
        found[side] = 1 - sum(map(sum, sizes)) / sum(len(one) * max(one) for one in sizes)
    return found


def _ours(folder: Path, name: str, steps: int, number: int) -> tuple[float, float, dict[str, float]]:
    """Training rate, decoding rate and padding, in a process of its own."""
    run = folder / f"{name}-{number}"
    command = [sys.executable, __file__, "ours", str(folder), name, str(steps), str(run)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    shutil.rmtree(run)
    return told["tokens"], told["sentences"], told["padding"]


def ours(folder: Path, name: str, steps: int, run: Path) -> None:
    """What the process does: train by a recipe as `regard train` does, then decode as `regard translate` does."""
    from regard.cli.process_tuning import prepare_machine

    prepare_machine()
    from regard.decoding.beam import Beam, LengthPenalty
    from regard.runs import Run
    from regard.training import read_log, read_recipe, train
    from regard.training.tasks import TASKS

    settings = {
        "data.kind": "parallel",
        "data.source": folder / "train.en",
        "data.target": folder / "train.fr",
        "data.valid": 0.01,
        "tokenizer.kind": "words",
        "tokenizer.size": VOCABULARY,
        "target_tokenizer.kind": "words",
        "target_tokenizer.size": VOCABULARY,
        **{f"model.{key}": value for key, value in SYSTEMS[name].items()},
        "model.cell": "gru",
        "model.width": WIDTH,
        "model.encoder_dim": STATES,
        "model.hidden": HIDDEN,
        "model.num_sampled": 0,  # the whole softmax, as the peer takes it
        "batches.rows": ROWS,
        "batches.tokens": 100_000,
        "optimiser.learning_rate": 0.001,
        "train.steps": steps,
        "evaluate.every": 100_000,
        "evaluate.generations": 0,
        "evaluate.samples": 0,
        "evaluate.monitor": "loss",
        "checkpoint.every": 100_000,
        "log.every": steps // 3,
    }
    recipe = read_recipe("bahdanau", [f"{key}={value}" for key, value in settings.items()], tasks=TASKS)
    train(recipe, run, notify=lambda text: None)
    rates = [line["tokens_per_second"] for line in read_log(run / "log.jsonl") if line["event"] == "trained"]
    use = Run.open(run).translator()
    texts = (folder / "test.en").read_text(encoding="utf-8").splitlines()
    search, rules = Beam(BEAM, LengthPenalty(0.6)), use.rules(WORDS, WORDS)
    use(texts[:ROWS], search, rules)
    begun = time.perf_counter()
    use(texts, search, rules)
    sentences = len(texts) / (time.perf_counter() - begun)
    with tempfile.TemporaryDirectory() as again:
        batches = list(islice(recipe.prepare(Path(again)).train, steps))
    padding = {}
    for side, ids in (("source", "source"), ("target", "target_out")):
        tokens = sum(int(getattr(batch, f"{side}_lengths").sum()) for batch in batches)
        padding[side] = 1 - tokens / sum(getattr(batch, ids).numel() for batch in batches)
    print(json.dumps({"tokens": median(rates[1:]), "sentences": sentences, "padding": padding}))


def _joey(folder: Path, python: str, peer: Peer, steps: int) -> tuple[float, float]:
    sizes = {"width": WIDTH, "half": STATES // 2, "hidden": HIDDEN, "rows": ROWS, "words": WORDS, "beam": BEAM}
    files = {"train": peer.train, "test": peer.test, "shuffle": peer.shuffle}
    text = JOEY.format(
        folder=folder, vocabulary=VOCABULARY, steps=steps, every=steps // 3, never=1000 * (steps // 3), **sizes, **files
    )
    (folder / "joey.yaml").write_text(text, encoding="utf-8")
    done = _run_joey(python, "train", folder, peer.environment, "--skip-test")
    rates = [float(rate) for rate in re.findall(r"Tokens per Sec:\s*(\d+)", done)]
    done = _run_joey(python, "test", folder, peer.environment)
    [*_, seconds] = re.findall(r"Generation took ([\d.]+)\[sec\]", done)
    return median(rates[1:]), SENTENCES / float(seconds)


def _run_joey(python: str, verb: str, folder: Path, environment: dict[str, str], *more: str) -> str:
    command = [python, "-c", JOEY_MAIN.format(words=WORDS), verb, str(folder / "joey.yaml"), *more]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    if done.returncode:
        sys.exit(f"joeynmt {verb} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout + done.stderr


def _add(found: Rates, name: str, tokens: float, sentences: float) -> None:
    rates = found.setdefault(name, {"training tokens/s": [], "decoded sentences/s": []})
    rates["training tokens/s"].append(tokens)
    rates["decoded sentences/s"].append(sentences)
    print(f"{name:<28} {tokens:>9,.0f} training tokens/s {sentences:>8.1f} sentences/s", flush=True)


def _report(found: Rates, padding: dict[str, dict[str, float]], told: argparse.Namespace) -> None:
    over: dict[str, Any] = {}
    for name, rates in found.items():
        waste = mean(padding[name].values())
        print(
            f"\n{name}: padding {waste:.1%}; " + ", ".join(f"{median(one):,.1f} {what}" for what, one in rates.items())
        )
        for peer in (one for one in PEERS if one in found and name not in PEERS):
            over.setdefault(name, {})[peer] = {what: ratios(one, found[peer][what]) for what, one in rates.items()}
            words = ", ".join(f"{what} {shown(one)}x" for what, one in over[name][peer].items())
            print(f"  over {peer}: {words}")
    rounds = min(len(one["training tokens/s"]) for one in found.values())
    record = run_record(seeds=[0], rounds=rounds) | {
        "threads": told.threads,
        "steps": told.steps,
        "peer": _peer(told.joeynmt),
    }
    told.out.parent.mkdir(parents=True, exist_ok=True)
    report = {"machine": record, "padding": padding, "found": found, "ratios": over}
    told.out.write_text(json.dumps(report, indent=2) + "\n")


def _peer(python: str | None) -> dict[str, str] | None:
    """The versions of the other side."""
    if python is None:
        return None
    code = "import json, importlib.metadata as m; print(json.dumps({n: m.version(n) for n in ('joeynmt', 'torch')}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    versions: dict[str, str] = json.loads(done.stdout)
    return versions


if __name__ == "__main__":
    if sys.argv[1:2] == ["ours"]:
        ours(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))
    else:
        main()
