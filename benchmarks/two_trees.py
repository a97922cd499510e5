"""Two checkouts of this repository side by side: what a change of structure costs or saves.

    python benchmarks/two_trees.py weight OLD NEW [--run RUN --hf FOLDER] [--out FILE]
    python benchmarks/two_trees.py speed OLD NEW [--rounds 3] [--only attend,text] [--out FILE]

`weight` counts source files and lines, the modules that `regard.load` of a GPT-2 folder and `regard translate` import,
how often a command parses a recipe, and the user time of `regard translate` of one sentence over that of `import torch`
alone. RUN and FOLDER are made where they are not given.

`speed` runs the benchmarks of `make bench` (their quick settings) from both checkouts in turn, round by round, and
prints the ratio new / old of every number they write, beside how far the old one is from itself between rounds. Only
ratios outside that noise are worth a look; the whole table goes to the JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from run_record import run_record

COMMANDS = {  # of each benchmark: what to run, and the file it writes
    "attend": (["benchmarks/attend.py", "--quick"], "attend.json"),
    "text": (["benchmarks/text.py", "--quick"], "text.json"),
    "training": (["benchmarks/training.py", "--quick"], "training-cpu.json"),
    "serve": (["benchmarks/serve.py", "--seconds", "10"], "serve.json"),
}
SENTENCE = "he took a train ."


def environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "", "OMP_NUM_THREADS": "2"}


def run(tree: Path, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *words], env=environment(tree), cwd=tree, text=True, capture_output=True, **more
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed in {tree}:\n{done.stderr[-2000:]}")
    return done


# ---- weight


def size(tree: Path) -> dict[str, int]:
    files = list((tree / "src" / "regard").rglob("*.py"))
    return {"files": len(files), "lines": sum(len(path.read_text().splitlines()) for path in files)}


def modules(tree: Path, code: str, *arguments: str) -> list[str]:
    """The modules that are loaded after some code; it prints whatever it likes on standard output."""
    tail = "\nimport sys, json\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    return list(json.loads(run(tree, "-c", code + tail, *arguments).stderr.splitlines()[-1]))


CLI = """
import sys
from regard.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
COUNT_PARSES = """
import tomllib
real, count = tomllib.loads, []
def loads(text, *more, **named):
    count.append(1)
    return real(text, *more, **named)
tomllib.loads = loads
tomllib.load = lambda file, **named: loads(file.read().decode(), **named)
"""


def parses(tree: Path, *command: str) -> int:
    code = COUNT_PARSES + CLI + "\nprint('parses', len(count), file=sys.stderr)"
    lines = run(tree, "-c", code, *command).stderr.splitlines()
    return int(next(line for line in reversed(lines) if line.startswith("parses ")).split()[1])


def user_time(tree: Path, *words: str, rounds: int = 5) -> list[float]:
    """Seconds of user time of a process, several times, after one that fills the caches."""
    found = []
    for number in range(rounds + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        run(tree, *words)
        if number:
            found.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
    return found


def make_run(tree: Path, folder: Path) -> Path:
    out = folder / "run"
    command = ["-m", "regard", "train", "bahdanau", "--out", str(out), "--set", "train.steps=20"]
    run(tree, *command, "--set", "data.examples=500")
    return out


GPT2 = """
import sys
from transformers import GPT2Config, GPT2LMHeadModel
GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=32, n_layer=2, n_head=2)).save_pretrained(sys.argv[1])
"""


def make_gpt2(tree: Path, folder: Path) -> Path:
    out = folder / "gpt2"
    run(tree, "-c", GPT2, str(out))  # not here: a file beside this one is called transformers too
    return out


def weigh(old: Path, new: Path, trained: Path | None, hf: Path | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        trained = trained or make_run(old, Path(folder))
        hf = hf or make_gpt2(old, Path(folder))
        for name, tree in (("old", old), ("new", new)):
            load = modules(tree, "import sys, regard\nregard.load(sys.argv[1])", str(hf))
            translate = modules(tree, CLI, "translate", str(trained), SENTENCE)
            torch_alone = user_time(tree, "-c", "import torch")
            sentence = user_time(tree, "-m", "regard", "translate", str(trained), SENTENCE)
            page = str(Path(folder) / "look.json")
            found[name] = {
                **size(tree),
                "load gpt2: modules of regard": sum(one.startswith("regard") for one in load),
                "load gpt2: modules of training or grammar": sum(_is_training(one) for one in load),
                "translate: modules of regard": sum(one.startswith("regard") for one in translate),
                "translate: modules of training or grammar": sum(_is_training(one) for one in translate),
                "translate: torch.distributed.checkpoint": "torch.distributed.checkpoint" in translate,
                "translate: all modules": len(translate),
                "user seconds: import torch": statistics.median(torch_alone),
                "user seconds: translate": statistics.median(sentence),
                "translate / import torch": statistics.median(sentence) / statistics.median(torch_alone),
                "recipe parses: translate": parses(tree, "translate", str(trained), SENTENCE),
                "recipe parses: look": parses(tree, "look", str(trained), SENTENCE, "-o", page),
            }
    return found


def _is_training(module: str) -> bool:
    return module.startswith(("regard.training", "regard.text.grammar"))


# ---- speed


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a JSON value by its path."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from leaves(one, f"{name}.{key}")
    elif isinstance(value, list):
        for key, one in enumerate(value):
            yield from leaves(one, f"{name}[{key}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name.removeprefix("."), float(value)


def measure(tree: Path, benchmark: str) -> dict[str, float]:
    words, file = COMMANDS[benchmark]
    with tempfile.TemporaryDirectory() as folder:
        run(tree, *words, "--out", folder)
        return dict(leaves(json.loads((Path(folder) / file).read_text())))


def compare_speed(old: Path, new: Path, rounds: int, only: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for benchmark in only:
        taken: dict[str, list[dict[str, float]]] = {"old": [], "new": []}
        for number in range(rounds):
            turns = [("old", old), ("new", new)]
            for name, tree in turns if number % 2 == 0 else reversed(turns):
                taken[name].append(measure(tree, benchmark))
        rows = {}
        for key in taken["old"][0]:
            before, after = ([one[key] for one in taken[name] if key in one] for name in ("old", "new"))
            if not after or not min(before) > 0:
                continue
            middle = statistics.median(before)
            rows[key] = {
                "ratio": statistics.median(after) / middle,
                "noise": (max(before) - min(before)) / middle,
                "old": before,
                "new": after,
            }
        found[benchmark] = rows
        outside = {key: row for key, row in rows.items() if abs(row["ratio"] - 1) > max(row["noise"], 0.05)}
        print(f"{benchmark}: {len(rows)} numbers, {len(outside)} outside the noise", flush=True)
        for key, row in sorted(outside.items(), key=lambda item: item[1]["ratio"]):
            print(f"  {row['ratio']:6.2f}x  (old against itself: {row['noise']:.0%})  {key}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["weight", "speed"])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(COMMANDS), help="benchmarks, comma-separated")
    parser.add_argument("--run", type=Path, help="a trained translator")
    parser.add_argument("--hf", type=Path, help="a GPT-2 folder")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    old, new = given.old.resolve(), given.new.resolve()
    if given.what == "weight":
        found = weigh(old, new, given.run, given.hf)
        for key, value in found["old"].items():
            after = found["new"][key]
            print(
                f"{key:45} {value if isinstance(value, int) else round(value, 2)!s:>10} -> "
                f"{after if isinstance(after, int) else round(after, 2)}"
            )
    else:
        found = compare_speed(old, new, given.rounds, given.only.split(","))
    if given.out:
        given.out.write_text(json.dumps({"machine": run_record(rounds=given.rounds), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
