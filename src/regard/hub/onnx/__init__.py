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

from regard.errors import CheckpointError, SettingError
from regard.files import write_whole
from regard.hub.atomic_export import Checked, giving
from regard.hub.onnx.drawing import draw
from regard.hub.onnx.graphs import KINDS, Graph, whole
from regard.hub.onnx.halves import halves
from regard.hub.onnx.texts import frame
from regard.hub.onnx.trial import check, longest
from regard.models.seq2seq import Seq2Seq
from regard.runs.build import TARGET_TOKENIZER, TOKENIZER
from regard.runs.run import Run
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.run import recorded

__all__ = ["check", "export"]

ABOUT = "regard.json"
WHERE = "regard export --to onnx"
PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def export(run: Path, folder: Path) -> Checked:
    """Write a run as graphs into a new folder, and try them; if they say something else, there is no folder."""
    _expect_packages()
    opened = Run.open(run)
    model = opened.model()
    graphs = _graphs(model)
    with giving(folder, WHERE) as rough:
        _write(opened, graphs, rough)
        return check(opened, rough)


def _write(run: Run, graphs: tuple[Graph, ...], folder: Path) -> None:
    limit = longest(run.model())
    for graph in graphs:
        draw(graph, folder, limit)
    kept = list(run.tokenizers)
    for tokenizer, name in zip(kept, (TOKENIZER, TARGET_TOKENIZER), strict=False):
        tokenizer.save(folder / name)
    about = _about(recorded(run), kept, graphs, limit)
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


def _about(recipe: Any, kept: list[Tokenizer], graphs: tuple[Graph, ...], limit: int | None) -> dict[str, Any]:
    """What a program has to know beside the graphs; `before` and `after`: the tokens around a text's own;
    `labels`: the classes in order, or the centre and spread of numbers."""
    before, after = frame(recipe.task, kept[0].special)
    said = recipe.data.model_dump(mode="json")
    about: dict[str, Any] = {
        "kind": recipe.task,
        "model": recipe.model.kind,
        "graphs": {one.file: {"inputs": one.inputs, "outputs": one.outputs} for one in graphs},
        "tokenizer": TOKENIZER,
        "special": kept[0].special.roles,
        "before": before,
        "after": after,
        "longest": limit,
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
