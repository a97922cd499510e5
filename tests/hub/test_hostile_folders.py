"""Hostile model folders: what config.json says is checked against the weights' header before anything is built."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import regard
from hub.folders import TEXT, WORDS, edit_config, save_folder, save_tokenizer
from regard import look
from regard.errors import CheckpointError, RegardError, SettingError

GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
OWN, THEIRS = ("GPT2LMHeadModel", GPT2), ("T5ForConditionalGeneration", T5)
BOTH = pytest.mark.parametrize(("kind", "sizes"), [OWN, THEIRS], ids=["ours", "transformers"])
SECONDS = 20  # generous: building 100,000 layers takes many minutes


def refused(folder: Path, said: str) -> None:
    began = time.monotonic()
    with pytest.raises(RegardError, match=said):
        regard.load(folder)
    assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "special_tokens_map.json"])
@pytest.mark.parametrize("device", ["fifo", "/dev/zero"])
@BOTH
def test_a_fifo_or_a_device_among_the_files(kind: str, sizes: dict[str, Any], name: str, device: str, tmp_path: Path):
    folder = save_folder(tmp_path / "folder", kind, **sizes)
    (folder / name).unlink(missing_ok=True)
    _ = os.mkfifo(folder / name) if device == "fifo" else (folder / name).symlink_to(device)
    refused(folder, rf"{name}: got a (FIFO|character device), expected a regular file")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_link_to_itself_and_deep_json(name: str, tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "folder", *OWN[:1], **GPT2)
    (folder / name).unlink()
    (folder / name).symlink_to(name)
    refused(folder, "symbolic links")
    (folder / name).unlink()
    (folder / name).write_text("[" * 1_000_000)
    refused(folder, "more than 100 lists and objects inside each other" if name == "config.json" else "weights")


@BOTH
def test_more_layers_than_the_weights_have(kind: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "folder", kind, **sizes)
    name = "n_layer" if kind == OWN[0] else "num_layers"
    refused(edit_config(folder, **{name: 100_000}), f"says {name} = 100000, the weights have [23] layers")


def test_one_tensor_of_a_high_number_is_not_as_many_layers(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "folder", OWN[0], **GPT2)
    (folder / "model.safetensors").unlink()
    save_file({"transformer.h.99999.ln_1.weight": torch.ones(16)}, folder / "model.safetensors")
    refused(edit_config(folder, n_layer=100_000), "the weights have 1 layers")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n_embd": 1 << 50}, "n_embd = 1125899906842624, expected a number of at most"),
        ({"n_embd": 1 << 30}, "n_embd|shape|built|parameters"),
        ({"n_embd": -16}, "built|shape|n_embd"),
        ({"n_head": 0}, "built|n_head|head"),
        ({"n_layer": "2"}, "built|n_layer|layer"),
        ({"vocab_size": 1 << 39}, "shape|built|parameters"),
        ({"n_positions": 1 << 39}, "shape|built|parameters"),
        ({"n_inner": 1 << 39}, "shape|built|parameters"),
        ({"n_embd": None}, "n_embd"),
        ({"n_embd": 1e300}, "n_embd|built"),
    ],
)
def test_sizes_that_no_weights_have(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    refused(edit_config(save_folder(tmp_path / "folder", OWN[0], **GPT2), **changes), said)


@pytest.mark.parametrize("changes", [{"d_model": 1 << 20}, {"d_ff": 1 << 30}, {"vocab_size": 1 << 36}])
def test_sizes_that_no_weights_have_in_a_model_of_transformers(changes: dict[str, Any], tmp_path: Path) -> None:
    refused(
        edit_config(save_folder(tmp_path / "folder", THEIRS[0], **T5), **changes), "describes a model of|built|cannot"
    )


def test_a_shared_layer_may_stand_for_many(tmp_path: Path) -> None:
    """ALBERT has one layer's tensors for all its layers."""
    sizes = {"hidden_size": 16, "embedding_size": 8, "num_attention_heads": 2, "intermediate_size": 32}
    folder = save_folder(tmp_path / "folder", "AlbertModel", **sizes, num_hidden_layers=12)
    assert regard.load(folder).config.num_hidden_layers == 12


@pytest.mark.parametrize(("kind", "sizes"), [OWN, THEIRS, ("Qwen2ForCausalLM", {})], ids=["ours", "T5", "Qwen2"])
def test_a_catastrophic_regex_of_a_tokenizer_is_a_sentence(kind: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    qwen = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    folder = save_folder(tmp_path / "folder", kind, **(sizes or {**qwen, "num_key_value_heads": 2}))
    file = folder / "tokenizer.json"
    pattern = {"type": "Split", "pattern": {"Regex": "(a+)+$b"}, "behavior": "Isolated", "invert": False}
    file.write_text(json.dumps({**json.loads(file.read_text()), "pre_tokenizer": pattern}))
    with pytest.raises(RegardError, match=r"stopped .*retry-limit"):
        look(folder, "a" * 60 + " b!")
    file.write_text(json.dumps({**json.loads(file.read_text()), "normalizer": {"type": "Exec"}}))
    with pytest.raises((CheckpointError, SettingError), match="Unknown normalizer 'Exec'"):
        look(folder, TEXT)


@pytest.mark.parametrize("start", [10**6, -3, [], "7"])
@pytest.mark.parametrize("other", [None, "the cat"])
def test_a_decoder_that_begins_with_an_unknown_token(start: Any, other: str | None, tmp_path: Path) -> None:
    folder = edit_config(save_folder(tmp_path / "folder", THEIRS[0], **T5), decoder_start_token_id=start)
    with pytest.raises(RegardError, match=r"decoder_start_token_id|transformers cannot load"):
        look(folder, TEXT, other)


@pytest.mark.parametrize(("kind", "sizes"), [OWN, THEIRS], ids=["ours", "transformers"])
def test_a_token_beyond_the_embedding(kind: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "folder", kind, **sizes)
    save_tokenizer(folder, [*WORDS, *(f"x{number}" for number in range(50))])
    with pytest.raises(RegardError, match="no embedding of the token 'x49' of this text"):
        look(folder, "the x49")
