"""Runs as CTranslate2 loads them: every form says what it said here, a wrong tensor is found, refusals are words."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from regard.cli import app
from regard.decoding.beam import Beam
from regard.errors import CheckpointError, RegardError
from regard.exports.ctranslate2 import QUANTIZATIONS, export
from regard.runs import Run
from regard.runs.weights import save_weights, weights_of
from regard.text.grammar import generated_corpus
from regard.training.config.recipes import read_recipe, write_recipe
from regard.training.recipe import Recipe
from regard.training.tasks import TASKS
from regard.training.tasks.language import RawTextFile
from regard.training.tasks.translation.data import ParallelFiles

theirs = pytest.importorskip("ctranslate2")
layers = pytest.importorskip("regard.exports.ctranslate2.layers")

SIZES = ["data.valid=8", "model.layers=2", "model.width=32", "model.heads=4"]
SMALL = {
    "gpt": [*SIZES, "data.examples=20", "tokenizer.size=120", "batches.sequence_length=24"],
    "character-gpt": [*SIZES, "data.examples=20", "batches.sequence_length=24"],
    "transformer": [
        *SIZES,
        "data.examples=50",
        "model.feedforward_dim=48",
        "tokenizer.size=200",
        "target_tokenizer.size=190",
    ],
    "window-lm": ["data.examples=20", "data.valid=8", "tokenizer.size=120"],
}
LLAMA = [
    "norm=rms",
    "activation=swiglu",
    "bias=false",
    "feedforward_bias=false",
    "tied=false",
    "eps=1e-3",
    "rotary_base=500",
]
PAPER = ["order=post", "norm=layer", "activation=relu", "positions=sinusoidal", "embedding_lr_scale=1", "project=false"]
FORMS = {
    "GPT-2": ("character-gpt", "positions=learned"),
    "GPT-2, its own softmax, exact GELU": ("gpt", "positions=learned", "activation=gelu", "tied=false", "eps=1e-3"),
    "GPT with sinusoids": ("gpt", "positions=sinusoidal", "activation=relu"),
    "Llama": ("gpt", *LLAMA),
    "Llama, grouped heads": ("gpt", *LLAMA, "key_heads=2", "head_dim=6"),
    "Llama, one key head, biases": ("gpt", "norm=rms", "activation=swiglu", "key_heads=1"),
    "the recipe's Transformer": ("transformer",),
    "the same, norms after the sum": ("transformer", "order=post"),
    "Vaswani's": ("transformer", *PAPER),
    "rotary, GELU, grouped heads": ("transformer", "positions=rotary", "activation=gelu", "key_heads=2", "norm=layer"),
    "one key head, no biases": ("transformer", "positions=rotary", "key_heads=1", "bias=false"),
}

CHUNK = cache(generated_corpus.chunk)


@pytest.fixture(autouse=True)
def _drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sentences for all tests: drawing them takes longer than all the rest."""
    monkeypatch.setattr(generated_corpus, "chunk", CHUNK)


def small(name: str, *model: str) -> Recipe:
    return read_recipe(name, [*SMALL[name], *(f"model.{one}" for one in model)], tasks=TASKS)


def made(folder: Path, recipe: Recipe) -> Path:
    """A run whose weights, all of them, are drawn by chance: no two tensors could change places unnoticed."""
    torch.set_num_threads(1)
    folder.mkdir()
    model = recipe.prepare(folder).model
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.3)
    save_weights(weights_of(model), folder / "model.safetensors")
    write_recipe(recipe, folder / "recipe.toml")
    return folder


def said(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_tokens(form: str, tmp_path: Path) -> None:
    run = made(tmp_path / "run", small(*FORMS[form]))
    assert export(run, tmp_path / "out") == (8, 8, 1.0)
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (run / "tokenizer.json").read_bytes()
    assert not list(tmp_path.glob(".export*"))


def test_a_translator_is_the_same_by_beam_and_attention(tmp_path: Path) -> None:
    run = made(tmp_path / "run", small("transformer", "alignment_layer=0"))
    export(run, tmp_path / "out")
    ours, text = Run.open(run).translator(), "The cat saw the dog ."
    [best] = ours([text], Beam(1), ours.rules(max_length=12), attention=True)
    pieces = [ours.source.token(one) for one in ours.source.encode(text).ids]
    there = theirs.Translator(str(tmp_path / "out"))
    [found] = there.translate_batch([pieces], beam_size=1, max_decoding_length=12, return_attention=True)
    assert found.hypotheses[0] == [ours.target.token(one) for one in best[0].tokens]
    looked = torch.tensor(found.attention[0])
    told = best[0].weights[: len(looked), : len(pieces)]  # CTranslate2 leaves out what the end of the source gets
    torch.testing.assert_close(looked, told, atol=1e-4, rtol=0.0)
    assert looked.std() > 0.01  # somewhere in particular


def test_one_vocabulary_for_both_sides(tmp_path: Path) -> None:
    recipe = small("transformer", *PAPER).model_copy(update={"target_tokenizer": None})
    assert export(made(tmp_path / "run", recipe), tmp_path / "out").equal == 8
    assert (tmp_path / "out" / "shared_vocabulary.json").exists()
    assert not (tmp_path / "out" / "target-tokenizer.json").exists()


def test_text_of_ones_own_is_tried_with_any_tokens(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("the black cat sat on the mat .\nthe old dog saw it .\n" * 20, encoding="utf-8")
    gpt = small("character-gpt").model_copy(update={"data": RawTextFile(train=text)})
    assert export(made(tmp_path / "gpt", gpt), tmp_path / "gpt-out").equal == 8
    translator = small("transformer").model_copy(update={"data": ParallelFiles(source=text, target=text)})
    run = made(tmp_path / "transformer", translator)
    text.unlink()  # what a run was trained on need not be there any more
    assert export(run, tmp_path / "transformer-out").equal == 8


def test_quantised_models_are_compared_and_not_refused(tmp_path: Path) -> None:
    run = made(tmp_path / "run", small("transformer"))
    sizes = {}
    for quantization in QUANTIZATIONS:
        tried = export(run, tmp_path / quantization, quantization)
        assert tried.checked == 8 and (0.2 < tried.tokens < 1.0 or tried == (8, 8, 1.0)), quantization
        sizes[quantization] = (tmp_path / quantization / "model.bin").stat().st_size
    assert tried == (8, 8, 1.0) and sizes["float16"] < 0.6 * sizes["float32"]
    assert sizes["int8"] == sizes["int8_float32"] < sizes["float32"]


def test_the_command_says_what_was_tried(tmp_path: Path) -> None:
    run = made(tmp_path / "run", small("gpt", *LLAMA))
    told = said("export", run, tmp_path / "out", "--to", "ctranslate2")
    assert told.stdout.strip() == f"{tmp_path / 'out'}: {run} for ctranslate2; 8 texts have equal outputs"
    told = said("export", run, tmp_path / "int8", "--to", "ctranslate2", "--quantization", "int8", "--json")
    found = json.loads(told.stdout)
    assert found["checked"] == 8 and 0 <= found["equal"] <= 8 and found["folder"] == str(tmp_path / "int8")


def test_a_wrong_tensor_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, right = made(tmp_path / "run", small("gpt", *LLAMA)), layers.set_feedforward

    def wrong(spec: object, work: object, before: object) -> None:
        right(spec, work, before)
        spec.linear_0.weight, spec.linear_0_noact.weight = spec.linear_0_noact.weight, spec.linear_0.weight

    monkeypatch.setattr(layers, "set_feedforward", wrong)
    with pytest.raises(CheckpointError, match=r"CTranslate2: got ln p = -\d+\.\d+ of '.+' after '.+', expected -\d+"):
        export(run, tmp_path / "out")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".export*"))
    assert export(run, tmp_path / "out", "int8").equal < 8  # told, not refused


def test_another_token_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.exports.ctranslate2 import ctranslate2_verify

    run, right = made(tmp_path / "run", small("gpt", *LLAMA)), ctranslate2_verify.VerifyLanguageModel.run_ctranslate2

    def wrong(self: object, folder: Path, compute: str) -> object:
        texts, likely = right(self, folder, compute)
        return [["<pad>", *text[1:]] for text in texts], likely

    monkeypatch.setattr(ctranslate2_verify.VerifyLanguageModel, "run_ctranslate2", wrong)
    with pytest.raises(CheckpointError, match=r"got '<pad>' after '.+', expected '.+', as from the run"):
        export(run, tmp_path / "out")


def test_refusals_are_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made(tmp_path / "run", small("window-lm"))
    with pytest.raises(RegardError, match=r"whose model is of type WindowLM, expected a run of a GPT"):
        export(run, tmp_path / "out")
    with pytest.raises(RegardError, match=r"Unknown quantization 'int9'. Did you mean 'int8'"):
        export(run, tmp_path / "out", "int9")
    with pytest.raises(RegardError, match=r"run exists already\. Name a new folder"):
        export(run, run)
    assert "--quantization needs --to ctranslate2" in str(
        said("export", run, tmp_path / "x", "--quantization", "int8").exception
    )
    monkeypatch.setattr("regard.exports.ctranslate2.find_spec", lambda name: None)
    with pytest.raises(RegardError, match=r"pip install 'regard\[ctranslate2\]'"):
        export(run, tmp_path / "out")


def test_the_book_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    book = (Path(__file__).parents[2] / "docs" / "hub.md").read_text("utf-8")
    [_, section] = book.split("## For CTranslate2\n")
    run = made(tmp_path / "run", small("transformer"))
    export(run, tmp_path / "theirs")
    monkeypatch.chdir(tmp_path)
    exec(section.split("```python\n")[1].split("```")[0], {})
    ours = Run.open(run).translator()
    pieces = [ours.source.token(one) for one in ours.source.encode("The cat saw him .").ids]
    [best] = theirs.Translator("theirs").translate_batch([pieces])
    text = ours.target.decode([ours.target.id(token) for token in best.hypotheses[0]])
    assert text and capsys.readouterr().out.strip() == text.strip()
