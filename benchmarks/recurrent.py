"""Training tokens a second and decoded sentences a second, beside JoeyNMT 2.3: its RNN, the same sizes, the same data.

    python benchmarks/recurrent.py --joeynmt PYTHON       # a Python that has joeynmt==2.3.0 and importlib_metadata

JoeyNMT's recurrent translator is a GRU with input feeding and an additive score, read both ways: here kind "luong" with
score "concat" and feeding. Kind "bahdanau", the same size, is measured beside it. All train on the same sentences, 64 a
batch, Adam, clipped, float32, on as many threads as torch takes; each says itself how many target tokens a second it
made. Decoding: beam 5 over the same sentences, every translation exactly 25 words long, so that models that have
learned little do the same work. Rounds alternate, ratios are medians.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

WIDTH, STATES, HIDDEN, ROWS, WORDS, SENTENCES, BEAM = 128, 256, 128, 64, 25, 200, 5
VOCABULARY = 8000
SYSTEMS = {
    "luong": {"kind": "luong", "score": "concat", "input_feeding": "true"},
    "bahdanau": {"kind": "bahdanau", "attention_dim": HIDDEN},
}

JOEY = """
name: "peer"
joeynmt_version: "2.3.0"
model_dir: "{folder}/joey"
use_cuda: False
fp16: False
random_seed: 0
data:
  train: "{folder}/train"
  dev: "{folder}/valid"
  test: "{folder}/test"
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
  shuffle: True
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
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/recurrent.json"))
    told = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _write_corpus(folder)
        for number in range(told.rounds):
            for name in SYSTEMS:
                _add(found, f"regard {name}", *_ours(folder, name, told.steps, number))
            if told.joeynmt:
                _add(found, "JoeyNMT", *_joey(folder, told.joeynmt, told.steps))
    _report(found, told)


def _write_corpus(folder: Path) -> None:
    from regard.text import grammar

    for split, count in (("train", 10_000), ("valid", 10), ("test", SENTENCES)):
        pairs = list(grammar.GeneratedCorpus(grammar.translation, count, split))
        (folder / f"{split}.en").write_text("".join(f"{pair.source}\n" for pair in pairs), encoding="utf-8")
        (folder / f"{split}.fr").write_text("".join(f"{pair.target}\n" for pair in pairs), encoding="utf-8")


def _ours(folder: Path, name: str, steps: int, number: int) -> tuple[float, float]:
    """Training rate and decoding rate, in a process of its own."""
    run = folder / f"{name}-{number}"
    command = [sys.executable, __file__, "ours", str(folder), name, str(steps), str(run)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    shutil.rmtree(run)
    return told["tokens"], told["sentences"]


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
    print(json.dumps({"tokens": median(rates[1:]), "sentences": len(texts) / (time.perf_counter() - begun)}))


def _joey(folder: Path, python: str, steps: int) -> tuple[float, float]:
    sizes = {"width": WIDTH, "half": STATES // 2, "hidden": HIDDEN, "rows": ROWS, "words": WORDS, "beam": BEAM}
    text = JOEY.format(
        folder=folder, vocabulary=VOCABULARY, steps=steps, every=steps // 3, never=1000 * (steps // 3), **sizes
    )
    (folder / "joey.yaml").write_text(text, encoding="utf-8")
    done = _run_joey(python, "train", folder, "--skip-test")
    rates = [float(rate) for rate in re.findall(r"Tokens per Sec:\s*(\d+)", done)]
    done = _run_joey(python, "test", folder)
    [*_, seconds] = re.findall(r"Generation took ([\d.]+)\[sec\]", done)
    return median(rates[1:]), SENTENCES / float(seconds)


def _run_joey(python: str, verb: str, folder: Path, *more: str) -> str:
    command = [python, "-m", "joeynmt", verb, str(folder / "joey.yaml"), *more]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"joeynmt {verb} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout + done.stderr


def _add(found: dict[str, dict[str, list[float]]], name: str, tokens: float, sentences: float) -> None:
    rates = found.setdefault(name, {"training tokens/s": [], "decoded sentences/s": []})
    rates["training tokens/s"].append(tokens)
    rates["decoded sentences/s"].append(sentences)
    print(f"{name:<16} {tokens:>9,.0f} training tokens/s {sentences:>8.1f} sentences/s", flush=True)


def _report(found: dict[str, dict[str, list[float]]], told: argparse.Namespace) -> None:
    print("\nmedians, and ratios to JoeyNMT" if told.joeynmt else "\nmedians")
    for name, rates in found.items():
        peer = found.get("JoeyNMT", rates)
        parts = [
            f"{what} {median(each):,.1f} ({median(each) / median(peer[what]):.2f}x)" for what, each in rates.items()
        ]
        print(f"{name:<16} " + "   ".join(parts))
    told.out.parent.mkdir(parents=True, exist_ok=True)
    told.out.write_text(json.dumps({"rounds": told.rounds, "steps": told.steps, "found": found}, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["ours"]:
        ours(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))
    else:
        main()
