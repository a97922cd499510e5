"""Export of runs to ONNX: graphs for programs without regard or torch, verified before they are placed.

export(Path("runs/bert"), Path("bert-onnx"))      # model.onnx, tokenizer.json, regard.json
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.adapters import ModelAdapter, adapter
from regard.errors import CheckpointError, SettingError
from regard.exports.atomic_export import ExportCheck, atomic_folder
from regard.exports.onnx.encoder_decoder import encoder_decoder_graphs
from regard.exports.onnx.export_graph import KINDS, Graph, single_graph, write_graph
from regard.exports.onnx.onnx_verify import check, verify
from regard.files import write_atomic
from regard.models import Seq2Seq
from regard.runs import TARGET_TOKENIZER, TOKENIZER, Run
from regard.training import Recipe, load_recipe

__all__ = ["check", "export"]

ABOUT = "regard.json"
WHERE = "regard export --to onnx"
PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def export(run: Path, folder: Path) -> ExportCheck:
    """Write a run as ONNX graphs to a new folder; if their outputs differ from the run's, there is no folder."""
    _expect_packages()
    opened = Run.open(run)
    recipe = load_recipe(opened)
    found = adapter(opened, require_attention=False)
    graphs = _graphs(found.model)
    with atomic_folder(folder, WHERE) as draft:
        _write(recipe, found, graphs, draft)
        return verify(recipe, found, draft)


def _write(recipe: Recipe, found: ModelAdapter, graphs: tuple[Graph, ...], folder: Path) -> None:
    for graph in graphs:
        write_graph(graph, folder, found.max_length)
    for tokenizer, name in zip(found.tokenizers, (TOKENIZER, TARGET_TOKENIZER), strict=False):
        tokenizer.save(folder / name)
    about = _about(recipe, found, graphs)
    write_atomic(folder / ABOUT, json.dumps(about, indent=2, ensure_ascii=False).encode())


@torch.no_grad()
def _graphs(model: nn.Module) -> tuple[Graph, ...]:
    if type(model) is Seq2Seq:
        return encoder_decoder_graphs(model)
    if type(model) in KINDS:
        return (single_graph(model),)
    raise CheckpointError(
        f"a model of type {type(model).__name__}",
        "a BERT (masked LM, classifier or tagger), an ELMo, or a recurrent classifier, language model or translator",
        where=WHERE,
        advice="Export GPTs and Transformers with `--to ctranslate2` or `--to hf`.",
    )


def _about(recipe: Any, found: ModelAdapter, graphs: tuple[Graph, ...]) -> dict[str, Any]:
    """What a program needs beside the graphs; `before` and `after`: the special tokens around a text; `labels`: the
    classes in order, or the centre and spread of numbers."""
    (before, after), tokenizers = found.special_tokens, found.tokenizers
    data = recipe.data.model_dump(mode="json")
    about: dict[str, Any] = {
        "kind": recipe.task,
        "model": recipe.model.kind,
        "graphs": {one.file: {"inputs": one.inputs, "outputs": one.outputs} for one in graphs},
        "tokenizer": TOKENIZER,
        "special": tokenizers[0].special.roles,
        "before": before,
        "after": after,
        "longest": found.max_length,
        "labels": data.get("labels") or data.get("tags"),
    }
    if recipe.task == "translation":
        about |= {
            "target_tokenizer": TARGET_TOKENIZER if len(tokenizers) > 1 else TOKENIZER,
            "target_special": tokenizers[-1].special.roles,
        }
    return {name: value for name, value in about.items() if value is not None}


def _expect_packages() -> None:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise SettingError(
            f"Missing packages: {', '.join(missing)}",
            where=WHERE,
            advice="Install them with `pip install 'regard[onnx]'`.",
        )
