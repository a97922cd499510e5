"""Fuzzing: mutated configurations, tokenizers, recipes, manifests and indexes give a result or a RegardError, in
bounded time and memory; nothing else ever comes out."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import tomllib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import regard
from faults.mutations import as_json, mutated, mutated_bytes
from hub.folders import save_folder
from regard.adapters.hub_tokenizer import load_hub_tokenizer
from regard.errors import CheckpointError, RegardError
from regard.hub.folder import special_tokens
from regard.runs import Run, toml
from regard.runs.checkpoint_reader import Checkpoint, checkpoint_at
from regard.text import BPE, DocumentFields, Store, TextDocuments, Tokenizer
from regard.training import TASKS, read_recipe, train

SECONDS, BYTES = 20, 1 << 30  # that one input may take, and that all of them may add to the process
TEXT = "the cat sleeps . the dog sees a cat ."
Write = Callable[[bytes], None]
Target = tuple[Path, Callable[[], object]]  # the file that is mutated, and what reads it

GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    """Every file that is fuzzed."""
    root = tmp_path_factory.mktemp("fuzz")
    gpt2, t5 = (
        save_folder(root / "gpt2", "GPT2LMHeadModel", **GPT2),
        save_folder(root / "t5", "T5ForConditionalGeneration", **T5),
    )
    shards = shutil.copytree(gpt2, root / "shards")
    tensors = load_file(shards / "model.safetensors")
    (shards / "model.safetensors").unlink()
    names = sorted(tensors)
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in part}, shards / f"model-{number}.safetensors", {"format": "pt"})
    places = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(names)}
    index = shards / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    small = ["data.examples=100", "data.valid=8", "train.steps=2", "train.threads=1", "checkpoint.every=1"]
    sizes = ["model.width=16", "model.heads=2", "model.feedforward_dim=16", "evaluate.every=2"]
    run = root / "run"
    train(read_recipe("transformer", [*small, *sizes], tasks=TASKS), run, notify=lambda text: None)
    manifest = sorted(run.glob("state/step-*/manifest.json"))[-1]
    (root / "corpus").write_text(f"{TEXT}\n" * 20)
    known = Tokenizer.train(BPE(60), [TEXT] * 9)
    known.save(root / "tokenizer.json")
    store = root / "corpus.store"
    fields = DocumentFields(known)
    Store.build(store, TextDocuments(root / "corpus"), fields)
    return {
        "config.json": (gpt2 / "config.json", lambda: regard.load(gpt2)),
        "config.json of T5": (t5 / "config.json", lambda: regard.load(t5)),
        "index.json": (index, lambda: regard.load(shards)),
        "tokenizer.json": (root / "tokenizer.json", lambda: _use(Tokenizer.load(root / "tokenizer.json"))),
        "tokenizer.json of a folder": (gpt2 / "tokenizer.json", lambda: _call(load_hub_tokenizer(gpt2))),
        "tokenizer_config.json": (gpt2 / "tokenizer_config.json", lambda: special_tokens(gpt2)),
        "recipe.toml": (run / "recipe.toml", lambda: Run.open(run).translator()),
        "manifest.json of a checkpoint": (manifest, lambda: _expect_intact(checkpoint_at(run / "state", 2))),
        "manifest.json of a store": (store / "manifest.json", lambda: len(Store.open(store, fields))),
    }


def _expect_intact(checkpoint: Checkpoint) -> None:
    if (damage := checkpoint.find_damage()) is not None:
        raise CheckpointError(damage)


def _use(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TEXT).ids
    tokenizer.decode(ids)
    tokenizer.ids_batch([TEXT, "a" * 60])
    tokenizer.normalize(TEXT)


def _call(tokenizer: Any) -> None:
    if tokenizer is not None:
        from regard.adapters.hub_tokenizer import tokenize

        tokenize(tokenizer, TEXT)


def _inputs(name: str, content: bytes, count: int) -> Iterator[bytes]:
    """Mutations of a file: half of them of its data, half of its bytes. The same ones every time."""
    random = Random(f"{name} {count}")
    data = tomllib.loads(content.decode()) if name.endswith("toml") else json.loads(content)
    for _ in range(count):
        if random.random() < 0.5:
            yield mutated_bytes(content, random)
        elif name.endswith("toml"):
            yield _as_toml(mutated(data, random))
        else:
            yield as_json(mutated(data, random))


def _as_toml(data: Any) -> bytes:
    return toml.dump(data if isinstance(data, dict) else {"a": data}).encode("utf-8", "surrogatepass")


@contextmanager
def _limited(name: str, number: int, content: bytes) -> Iterator[None]:
    """Fails on anything but a RegardError, and where it takes too long."""

    def late(signal: int, frame: object) -> None:
        raise TimeoutError(f"more than {SECONDS} seconds")

    previous = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    except (RegardError, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt):
            raise
    except BaseException as error:
        shown = content if len(content) < 6000 else content[:6000] + b" ..."
        raise AssertionError(f"{name}, input {number}: {type(error).__name__}: {error}\n{shown!r}") from error
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def fuzz(name: str, target: Target, count: int) -> int:
    """Try so many mutations of a file; how many of them were refused."""
    path, read = target
    whole, refused = path.read_bytes(), 0
    read()  # unharmed, it can be read
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    try:
        for number, content in enumerate(_inputs(name, whole, count)):
            path.write_bytes(content)
            with _limited(name, number, content), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                refused += 1
                read()
                refused -= 1
    finally:
        path.write_bytes(whole)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before < BYTES
    return refused


NAMES = {  # how many of the quick test, and of the long one
    "config.json": (150, 8000),
    "config.json of T5": (60, 4000),
    "index.json": (50, 5000),
    "tokenizer.json": (400, 12000),
    "tokenizer.json of a folder": (60, 2000),
    "tokenizer_config.json": (40, 3000),
    "recipe.toml": (150, 8000),
    "manifest.json of a checkpoint": (100, 4000),
    "manifest.json of a store": (100, 4000),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_mutated_file_gives_a_result_or_a_sentence(name: str, targets: dict[str, Target]) -> None:
    count = NAMES[name][0]
    assert fuzz(name, targets[name], count) > count // 10  # the mutations are not harmless


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_fifty_thousand_mutated_files_give_a_result_or_a_sentence(name: str, targets: dict[str, Target]) -> None:
    assert fuzz(name, targets[name], NAMES[name][1]) > 0
