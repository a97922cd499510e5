"""Folders of Hugging Face as a user meets them: brought as runs, carried back, and each fault one clear sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

import regard
from regard import hub
from regard.cli import app
from regard.errors import RegardError
from regard.models.embedding import WordEmbedding
from regard.models.gpt import GPT
from regard.models.window_lm import WindowLM
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.trainers import ByteBPE, WordPiece
from regard.training.config.recipes import read_recipe
from regard.training.tasks import TASKS
from regard.training.train_run import train

TEXTS = ["the cat sat on the mat .", "the dog saw the cat .", "a dog sat ."]


def said(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def printed(*arguments: object) -> str:
    result = said(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A GPT-2 as transformers would have written it."""
    tokenizer = Tokenizer.train(ByteBPE(300), TEXTS)
    torch.manual_seed(0)
    model = GPT(len(tokenizer) + 5, 16, 2, 2, 24)  # an embedding with room to spare, as many have
    hub.save(model, tmp_path / "theirs", more={"eos_token_id": tokenizer.special.end})
    tokenizer.save(tmp_path / "theirs" / "tokenizer.json")
    return tmp_path / "theirs"


def test_a_folder_becomes_a_run_that_generates_and_goes_back(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    told = json.loads(printed("import", folder, run, "--json"))
    ids, ours, same = torch.tensor([[3, 5, 7]]), regard.load(folder), regard.load(run)
    words = len(Tokenizer.load(run / "tokenizer.json"))
    assert ours.embedding.num_embeddings == words + 5 and same.embedding.num_embeddings == words
    torch.testing.assert_close(ours(ids)[..., :words], same(ids))
    assert told["model"] == "GPT" and told["parameters"] == sum(one.numel() for one in same.parameters())
    text = printed("generate", run, "the cat", "--max-length", 5, "--beam", 1)
    assert text.startswith("the cat") and text == printed("generate", run, "the cat", "--max-length", 5, "--beam", 1)
    assert "a prompt of" in str(said("generate", run, "the cat " * 20).exception)  # longer than its positions
    printed("export", run, "--to", "hf", tmp_path / "back")
    before, after = (load_file(one / "model.safetensors") for one in (folder, tmp_path / "back"))
    assert before.keys() == after.keys() and all(
        torch.equal(before[name][: len(after[name])], after[name]) for name in before
    )
    assert json.loads((tmp_path / "back" / "config.json").read_text())["n_positions"] == 24


def test_an_imported_run_can_be_learned_on_with(folder: Path, tmp_path: Path) -> None:
    printed("import", folder, tmp_path / "run")
    small = ["data.examples=20", "data.valid=4", "train.steps=2", "train.threads=1", "batches.rows=2"]
    recipe = read_recipe(tmp_path / "run" / "recipe.toml", [*small, f"start.weights={tmp_path / 'run'}"], tasks=TASKS)
    train(recipe, tmp_path / "tuned", notify=lambda text: None)
    ids = torch.tensor([[3, 5, 7]])
    drift = (regard.load(tmp_path / "tuned")(ids) - regard.load(tmp_path / "run")(ids)).abs().max()
    assert 0 < drift < 1


def test_a_trained_run_is_what_transformers_loads(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    small = ["data.examples=20", "data.valid=4", "train.steps=2", "train.threads=1", "model.width=16", "model.layers=1"]
    llama = [
        "norm=rms",
        "activation=swiglu",
        "bias=false",
        "feedforward_bias=false",
        "key_heads=2",
        "tied=false",
        "feedforward_dim=20",
    ]
    recipe = read_recipe("character-gpt", [*small, *(f"model.{one}" for one in llama)], tasks=TASKS)
    train(recipe, tmp_path / "run", notify=lambda text: None)
    hub.export_checkpoint(tmp_path / "run", tmp_path / "theirs")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "theirs").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    assert type(theirs).__name__ == "LlamaForCausalLM" and theirs.config.max_position_embeddings == 64
    ids = tokenizer("The cat", return_tensors="pt", add_special_tokens=False).input_ids
    assert ids[0].tolist() == Tokenizer.load(tmp_path / "run" / "tokenizer.json").encode("The cat").ids
    assert theirs.config.eos_token_id == tokenizer.eos_token_id is not None
    torch.testing.assert_close(regard.load(tmp_path / "run")(ids), theirs(ids).logits, rtol=0.0, atol=1e-4)


SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
KIN = {
    "Bert": {**SMALL, "intermediate_size": 64},
    "Bert, of another form": {**SMALL, "intermediate_size": 40, "hidden_act": "relu", "layer_norm_eps": 1e-3},
    "Roberta": {**SMALL, "intermediate_size": 48, "type_vocab_size": 1, "pad_token_id": 1},
    "DistilBert": {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 40},
}


@pytest.mark.parametrize("name", KIN)
def test_bert_and_its_kin_become_runs_that_fill(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = Tokenizer.train(WordPiece(60), TEXTS)
    kind = name.partition(",")[0]
    config = getattr(transformers, f"{kind}Config")(vocab_size=len(tokenizer), **KIN[name])
    theirs = getattr(transformers, f"{kind}ForMaskedLM")(config).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    tokenizer.save(tmp_path / "theirs" / "tokenizer.json")
    assert "MaskedLM" in printed("import", tmp_path / "theirs", tmp_path / "run")
    (one,) = [json.loads(line) for line in printed("fill", tmp_path / "run", "the [MASK] sat", "--json").splitlines()]
    assert len(one["masks"]) == 1 and len(one["masks"][0]["words"]) == 5
    ids = torch.tensor([[tokenizer.special.need("cls"), *tokenizer.ids_batch(["the cat sat"])[0]]])
    said = regard.load(tmp_path / "run")(ids, torch.tensor([ids.size(1)]), None, torch.arange(ids.size(1)))
    torch.testing.assert_close(said.logits, theirs(ids).logits[0], rtol=0.0, atol=1e-4)


def changed(folder: Path, **settings: object) -> Path:
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **settings}))
    return folder


def tensors(folder: Path, change) -> Path:
    found = load_file(folder / "model.safetensors")
    change(found)
    save_file(found, folder / "model.safetensors")
    return folder


FAULTS = {
    "an unknown architecture": (
        lambda f: changed(f, model_type="gossip"),
        r"Unknown model_type 'gossip'. Known: bart, bert, .*gpt2, llama",
    ),
    "no architecture": (lambda f: changed(f, model_type=None), "Unknown model_type None"),
    "another activation": (
        lambda f: changed(f, activation_function="gossip"),
        r"transformers cannot load this gpt2 model .*gossip",
    ),
    "a value that is missing": (
        lambda f: changed(f, n_layer=None),
        r"transformers cannot load this gpt2 model .*n_layer",
    ),
    "no JSON": (lambda f: (f / "config.json").write_text("{"), "The file is not valid JSON"),
    "no config": (
        lambda f: (f / "config.json").unlink(),
        r"File not found: .*config.json. A checkpoint folder",
    ),
    "a missing tensor": (
        lambda f: tensors(f, lambda t: t.pop("transformer.h.1.ln_2.bias")),
        r"Tensors are missing: transformer.h.1.ln_2.bias",
    ),
    "an extra tensor": (
        lambda f: tensors(f, lambda t: t.update({"transformer.h.0.adapter": torch.zeros(2)})),
        "Unknown tensors: transformer.h.0.adapter",
    ),
    "a wrong shape": (
        lambda f: tensors(f, lambda t: t.update({"transformer.ln_f.bias": torch.zeros(3)})),
        r"transformer.ln_f.bias of shape \(3,\), expected \(16,\)",
    ),
    "other layers than it says": (
        lambda f: changed(f, n_layer=3),
        r"config.json says n_layer = 3, the weights have 2 layers",
    ),
    "weights cut short": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-9]),
        "Could not read the weights",
    ),
    "pickled weights": (
        lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
        r"Pickled weights \(pytorch_model.bin\).*save_pretrained\(OTHER, safe_serialization=True\)",
    ),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "There are no weights: neither model.safetensors nor"),
    "a part that is missing": (
        lambda f: (
            (f / "model.safetensors").rename(f / "elsewhere")
            and (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": "part-1.safetensors"}}')
        ),
        "part-1.safetensors: Could not read the weights",
    ),
    "a part outside of the folder": (
        lambda f: (
            (f / "model.safetensors").rename(f / "elsewhere")
            and (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../secret.safetensors"}}')
        ),
        "The index has no weight_map of file names",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_told_in_words(fault: str, folder: Path) -> None:
    spoil, words = FAULTS[fault]
    spoil(folder)
    with pytest.raises(RegardError, match=words):
        hub.load(folder)


def test_other_faults_are_told_in_words(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"Folder not found: nobody/nothing.*nothing is downloaded"):
        hub.load("nobody/nothing")
    (folder / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    missing = said("import", folder, tmp_path / "run").exception
    assert isinstance(missing, RegardError) and "There is no tokenizer.json" in str(missing)
    assert not (tmp_path / "run").exists()
    printed("import", folder, tmp_path / "run", "--tokenizer", tmp_path / "tokenizer.json")
    assert "exists already. Name a new folder" in str(
        said("import", folder, tmp_path / "run", "--tokenizer", tmp_path / "tokenizer.json").exception
    )
    changed(tensors(folder, lambda t: t.update({"transformer.wte.weight": torch.zeros(9, 16)})), vocab_size=9)
    small = said("import", folder, tmp_path / "small", "--tokenizer", tmp_path / "tokenizer.json").exception
    assert "expected at most vocab_size = 9" in str(small)
    assert "Unknown format 'onx'. Did you mean 'onnx'? Known: ctranslate2, hf, onnx" in str(
        said("export", tmp_path / "run", "--to", "onx", tmp_path / "x").exception
    )
    assert "is not a run" in str(said("export", tmp_path / "no", tmp_path / "x").exception)
    with pytest.raises(RegardError, match="a WindowLM that no architecture of Hugging Face matches"):
        hub.save(WindowLM(WordEmbedding(9, 4), 2, 4, True, 0.0), tmp_path / "x")
    with pytest.raises(RegardError, match=r"theirs exists already\. Name a new folder"):
        hub.save(GPT(9, 4, 1, 1, 3), folder)
