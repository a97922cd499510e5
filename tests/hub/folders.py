"""Tiny random Hugging Face folders: a model of transformers with lively weights, and a tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor

transformers = pytest.importorskip("transformers")

SPECIAL = ["[PAD]", "[CLS]", "[END]", "[SEP]", "[MASK]", "[UNK]"]
WORDS = [*SPECIAL, "the", "cat", "dog", "sleeps", "a", ".", "sees", *(f"w{number}" for number in range(60))]
VOCABULARY = 80
TEXT = "the cat sleeps ."
IDS = torch.tensor([[6, 7, 9, 11, 2]])  # as the tokenizer writes it, with an end


def save_tokenizer(folder: Path, words: list[str] = WORDS) -> None:
    engine = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.post_processor = processors.TemplateProcessing(
        single="$A [END]", pair="$A [END] $B:1 [END]:1", special_tokens=[("[END]", 2)]
    )
    names = {"pad": "[PAD]", "cls": "[CLS]", "eos": "[END]", "sep": "[SEP]", "mask": "[MASK]", "unk": "[UNK]"}
    named = {f"{role}_token": token for role, token in names.items()}
    transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **named).save_pretrained(folder)


def random_model(kind: str, **settings: object) -> Any:
    """A model of this class, whose weights are all different and not small."""
    made = getattr(transformers, kind)
    torch.manual_seed(0)
    model = made(made.config_class(**{"vocab_size": VOCABULARY, **settings})).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3 if weight.dim() > 1 else 0.1)
    return model


def save_folder(folder: Path, kind: str, **settings: object) -> Path:
    """The folder of such a model with its tokenizer."""
    random_model(kind, **settings).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def edit_config(folder: Path, **settings: object) -> Path:
    """Change settings of config.json; one of `...` is left out."""
    values = json.loads((folder / "config.json").read_text())
    values = {name: value for name, value in {**values, **settings}.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def edit_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> Path:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@torch.no_grad()
def eager_logits(folder: Path, kind: str, **inputs: Tensor) -> Tensor:
    """What transformers' own model of this class says with eager attention."""
    model = getattr(transformers, kind).from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    logits: Tensor = model.eval()(**(inputs or {"input_ids": IDS})).logits
    return logits
