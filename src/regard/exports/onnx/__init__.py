"""Runs as ONNX: graphs for programs that know nothing of regard or torch, tried before anybody is given them.

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
from regard.exports.atomic_export import Checked, giving
from regard.exports.onnx.encoder_decoder import halves
from regard.exports.onnx.export_graph import KINDS, Graph, draw, whole
from regard.exports.onnx.onnx_verify import check, verify
from regard.files import write_whole
from regard.models import Seq2Seq
from regard.runs import TARGET_TOKENIZER, TOKENIZER, Run
from regard.training import Recipe, recorded

__all__ = ["check", "export"]

ABOUT = "regard.json"
WHERE = "regard export --to onnx"
PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def export(run: Path, folder: Path) -> Checked:
    """Write a run as graphs into a new folder, and try them; if they say something else, there is no folder."""
    _expect_packages()
    opened = Run.open(run)
    recipe = recorded(opened)
    found = adapter(opened, attends=False)
    graphs = _graphs(found.model)
    with giving(folder, WHERE) as rough:
        _write(recipe, found, graphs, rough)
        return verify(recipe, found, rough)


def _write(recipe: Recipe, found: ModelAdapter, graphs: tuple[Graph, ...], folder: Path) -> None:
    for graph in graphs:
        draw(graph, folder, found.longest)
    for tokenizer, name in zip(found.tokenizers, (TOKENIZER, TARGET_TOKENIZER), strict=False):
        tokenizer.save(folder / name)
    about = _about(recipe, found, graphs)
    write_whole(folder / ABOUT, json.dumps(about, indent=2, ensure_ascii=False).encode())


@torch.no_grad()
def _graphs(model: nn.Module) -> tuple[Graph, ...]:
    if type(model) is Seq2Seq:
        return halves(model)
    if type(model) in KINDS:
        return (whole(model),)
    raise CheckpointError(
        f"a {type(model).__name__}",
        "a BERT for hidden words, classes or tags, an ELMo, or a recurrent classifier, language model or translator",
        where=WHERE,
        advice="GPTs and Transformers go out with `--to ctranslate2` or `--to hf`.",
    )


def _about(recipe: Any, found: ModelAdapter, graphs: tuple[Graph, ...]) -> dict[str, Any]:
    """What a program has to know beside the graphs; `before` and `after`: the tokens around a text's own;
    `labels`: the classes in order, or the centre and spread of numbers."""
    (before, after), kept = found.frame, found.tokenizers
    said = recipe.data.model_dump(mode="json")
    about: dict[str, Any] = {
        "kind": recipe.task,
        "model": recipe.model.kind,
        "graphs": {one.file: {"inputs": one.inputs, "outputs": one.outputs} for one in graphs},
        "tokenizer": TOKENIZER,
        "special": kept[0].special.roles,
        "before": before,
        "after": after,
        "longest": found.longest,
        "labels": said.get("labels") or said.get("tags"),
    }
    if recipe.task == "translation":
        about |= {
            "target_tokenizer": TARGET_TOKENIZER if len(kept) > 1 else TOKENIZER,
            "target_special": kept[-1].special.roles,
        }
    return {name: value for name, value in about.items() if value is not None}


def _expect_packages() -> None:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise SettingError(
            f"no {' and no '.join(missing)}",
            "the packages that draw and try a graph",
            where=WHERE,
            advice="Install them with `pip install 'regard[onnx]'`.",
        )
