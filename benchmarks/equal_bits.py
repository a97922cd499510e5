"""Whether two source trees compute the same, bit for bit: trainings and outputs of every kind, compared by name.

    python benchmarks/equal_bits.py snapshot TREE OUT [--only NAME ...] [--names FILE]
    python benchmarks/equal_bits.py compare OLD NEW [--only NAME ...] [--names FILE] [--out FILE.json]

`snapshot` runs the command line of a checkout (`python -m regard`, one thread, fixed seeds): 20 steps of every shipped
recipe and of the variants in equal_bits.toml, on little data, then look, align, audit, atlas, translate and the others
on those runs. OUT is a folder of runs/ and outputs/. What is there already is not made again. `--only` takes a run's or
command's name (* for any text) and makes what that needs.

`compare` reads the tensors of .safetensors and .npz files and the numbers and texts of JSON, JSON lines, TOML and plain
text, never file bytes, and says for every file of OLD whether NEW has the same: equal, differs (by how much, and at
which names), or missing. Every bit counts; NaN equals NaN. Times, versions and paths do not count. Names that have
changed between the trees are translated by equal_bits_names.toml, which each tree keeps for itself: `snapshot` reads
TREE's own for its commands, `compare` reads NEW's, less what OLD was made with. Exit status 1: something differs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from equal_bits_compare import SNAPSHOT, TABLE, Names, compare, table
from run_record import run_record

NAMES = "benchmarks/equal_bits_names.toml"
RECIPES = "src/regard/recipes"
LONGEST = 1800.0  # seconds of one command

T5 = """
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration
words = ["<pad>", "</s>", "<unk>", *"the old man le vieil homme a black seal dived un phoque noir plongé .".split()]
words = {word: number for number, word in enumerate(dict.fromkeys(words))}
inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
inner.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
outer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
torch.manual_seed(0)
size = dict(vocab_size=len(words), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
model = T5ForConditionalGeneration(T5Config(**size, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1))
model.save_pretrained("inputs/t5")
outer.save_pretrained("inputs/t5")
"""


class Job(NamedTuple):
    """One command: what is kept of it lies at `output`, relative to the snapshot."""

    output: str
    words: list[str]
    needs: list[str]


def trainings(tree: Path, names: Names) -> Iterator[Job]:
    """20 steps of every recipe that the tree ships, and of the table's variants."""
    shipped = sorted(path.stem for path in (tree / RECIPES).glob("*.toml"))
    runs = {names.old("recipes", one): {"recipe": names.old("recipes", one), "set": []} for one in shipped}
    for name, run in (runs | TABLE["runs"]).items():
        recipe = run["recipe"]
        if not recipe.endswith(".toml"):
            recipe = names.new("recipes", recipe)
        path = tree / RECIPES / f"{recipe}.toml"
        written = tomllib.loads(path.read_text()) if path.exists() else {}
        sets = dict(TABLE["set"])
        for setting, value in TABLE["set_where_present"].items():
            section, key = names.new("settings", setting).split(".")
            if key in written.get(section, {}):
                sets[setting] = value
        sets |= dict(one.split("=", 1) for one in run["set"])
        told = [part for key, value in sets.items() for part in ("--set", names.setting(f"{key}={value}"))]
        output = f"runs/{name}"
        needs = [f"runs/{one}" for one in run.get("needs", [])]
        yield Job(output, [*names.command(["train", recipe, "-o", output]), *told], needs)


def commands(names: Names) -> Iterator[Job]:
    """Everything that is asked of the runs."""
    for one in TABLE["commands"]:
        for run in one.get("runs", [""]):
            output = f"outputs/{run}/{one['name']}" if run else f"outputs/{one['name']}"
            filled = [word.format(run=f"runs/{run}", name=run, out=output) for word in one["command"]]
            needs = [f"runs/{run}"] if run else []
            needs += [word for word in filled[1:] if word.startswith("outputs/") and not word.startswith(output)]
            yield Job(output, names.command(filled), needs)


def wanted(jobs: list[Job], only: list[str]) -> list[Job]:
    """The jobs of these names, and what they need."""
    if not only:
        return jobs
    taken: set[str] = set()
    for job in reversed(jobs):  # a job needs none but earlier ones
        if job.output in taken or any(fits(job.output, one) for one in only):
            taken.update([job.output, *job.needs])
    return [job for job in jobs if job.output in taken]


def fits(output: str, name: str) -> bool:
    """Whether a name (of a run, of a command, or RUN/COMMAND) means this output."""
    return any(fnmatchcase(one, name) for one in (*output.split("/")[1:], output.partition("/")[2]))


def snapshot(tree: Path, out: Path, only: list[str], names: Names) -> int:
    """Run the jobs in the folder `out`; 1 if one of them failed."""
    for folder in ("inputs", "runs", "outputs"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for name, lines in TABLE["inputs"].items():
        (out / "inputs" / name).write_text("\n".join(lines) + "\n")
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": ""}
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
    jobs = wanted([*trainings(tree, names), *commands(names)], only)
    if any("inputs/t5" in job.words for job in jobs) and not (out / "inputs/t5").exists():
        subprocess.run([sys.executable, "-c", T5], cwd=out, env=environment, check=True, capture_output=True)
    record = out / SNAPSHOT
    done = json.loads(record.read_text())["jobs"] if record.exists() else {}
    revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tree, capture_output=True, text=True).stdout.strip()
    failed = 0
    for number, job in enumerate(jobs, 1):
        before = done.get(job.output, {})
        if before.get("status") == 0 and before["words"] == job.words:
            continue
        began = time.monotonic()
        status, errors = perform(job, out, environment)
        seconds = round(time.monotonic() - began, 1)
        print(f"{number:3}/{len(jobs)} {seconds:6.1f} s  {job.output}" + (f"  FAILED\n{errors}" if status else ""))
        sys.stdout.flush()
        failed += status != 0
        done[job.output] = {"status": status, "seconds": seconds, "words": job.words}
        record.write_text(json.dumps({"revision": revision, "names": names.tables, "jobs": done}, indent=1))
    print(f"{len(jobs)} jobs, {failed} failed, {sum(done[job.output]['seconds'] for job in jobs):.0f} s in all")
    return int(failed > 0)


def perform(job: Job, out: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Run one command anew; its status, and the end of what it said where it failed."""
    target = out / job.output
    target.parent.mkdir(parents=True, exist_ok=True)
    for old in (target, *target.parent.glob(f"{target.name}.*")):
        if old.is_dir():
            shutil.rmtree(old)
        else:
            old.unlink(missing_ok=True)
    command = [sys.executable, "-m", "regard", *job.words]
    got = subprocess.run(
        command, cwd=out, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONGEST
    )
    if got.returncode == 0 and "--json" in job.words:
        target.with_name(f"{target.name}.printed.jsonl").write_text(got.stdout)
    return got.returncode, "\n".join((got.stdout + got.stderr).strip().splitlines()[-12:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    first = verbs.add_parser("snapshot", help="run everything with one source tree")
    first.add_argument("tree", type=Path, help="a checkout of the repository")
    first.add_argument("out", type=Path, help="the folder to write")
    second = verbs.add_parser("compare", help="compare two snapshots")
    second.add_argument("old", type=Path)
    second.add_argument("new", type=Path)
    second.add_argument("--out", type=Path, help="write every difference as JSON")
    for one in (first, second):
        one.add_argument("--only", action="append", default=[], metavar="NAME", help="a run or command; repeatable")
        one.add_argument("--names", type=Path, help="the renames, instead of the tree's own")
    given = parser.parse_args()
    if given.verb == "snapshot":
        tree = given.tree.resolve()
        return snapshot(tree, given.out.resolve(), given.only, Names.read(given.names or tree / NAMES))
    made = [Names(json.loads((folder / SNAPSHOT).read_text())["names"]) for folder in (given.old, given.new)]
    names = Names.read(given.names) if given.names else made[1]
    results = compare(given.old, given.new, given.only, names - made[0])
    for line in table(results):
        print(line)
    bad = [output for output, found in results.items() if found.verdict not in ("equal", "only in new")]
    values = sum(found.values for found in results.values())
    print(f"{len(results) - len(bad)} of {len(results)} files equal, {values:,} values compared")
    if given.out:
        revisions = [json.loads((folder / SNAPSHOT).read_text())["revision"] for folder in (given.old, given.new)]
        report = {"machine": run_record(seeds=[0]), "revisions": revisions}
        report |= {"files": len(results), "equal": len(results) - len(bad), "values": values}
        report["differs"] = {name: results[name].summary() for name in bad}
        given.out.write_text(json.dumps(report, indent=1) + "\n")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
