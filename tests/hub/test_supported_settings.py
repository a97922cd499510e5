"""What is converted equals transformers' eager model; what has no counterpart here loads as transformers' own."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from hub.folders import IDS, TEXT, eager_logits, edit_config, edit_tensors, random_model, save_folder, save_tokenizer
from regard import hub
from regard.cli import app
from regard.errors import CheckpointError, CheckpointWarning, RegardError, SettingError
from regard.hub import checkpoint_loader, transformers_version
from regard.hub.supported_settings import HARMLESS, SUPPORTED
from regard.page.view import look

LLAMA = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
BERT = {**LLAMA, "max_position_embeddings": 32}
DISTIL = {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 32}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
BART = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48} | {
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 32,
}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0} | {
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}
CASES: dict[
    str, tuple[str, dict[str, Any], dict[str, Any], str]
] = {  # class, settings, edits of the file, what is said
    "rotary scaling of early configurations": (
        "LlamaForCausalLM",
        LLAMA,
        {"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_theta": 10000.0, "rope_parameters": ...},
        "rope_scaling",
    ),
    "rotary scaling of Llama 3": ("LlamaForCausalLM", {**LLAMA, "rope_parameters": LLAMA3}, {}, "rope_parameters"),
    "rotary embeddings of a part": (
        "LlamaForCausalLM",
        LLAMA,
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        "rope_parameters",
    ),
    "a sliding window": (
        "MistralForCausalLM",
        {**LLAMA, "num_key_value_heads": 2, "sliding_window": 2},
        {},
        "sliding_window = 2",
    ),
    "a window by default": (
        "MistralForCausalLM",
        {**LLAMA, "num_key_value_heads": 4},
        {"sliding_window": ...},
        "does not set sliding_window",
    ),
    "key heads by default": (
        "MistralForCausalLM",
        {**LLAMA, "num_attention_heads": 8, "num_key_value_heads": 8, "sliding_window": None},
        {"num_key_value_heads": ...},
        "does not set num_key_value_heads",
    ),
    "an activation": ("GPT2LMHeadModel", {**GPT2, "activation_function": "quick_gelu"}, {}, "'quick_gelu'"),
    "scores divided by the layer": (
        "GPT2LMHeadModel",
        {**GPT2, "scale_attn_by_inverse_layer_idx": True},
        {},
        "scale_attn_by_inverse_layer_idx",
    ),
    "a setting that nobody knows": ("GPT2LMHeadModel", GPT2, {"residual_scale": 0.5}, "residual_scale = 0.5"),
    "an untied BERT": ("BertForMaskedLM", {**BERT, "tie_word_embeddings": False}, {}, "tie_word_embeddings"),
    "an untied RoBERTa": (
        "RobertaForMaskedLM",
        {**BERT, "pad_token_id": 1, "tie_word_embeddings": False},
        {},
        "tie_word_embeddings",
    ),
    "an untied DistilBERT": (
        "DistilBertForMaskedLM",
        {**DISTIL, "tie_word_embeddings": False},
        {},
        "tie_word_embeddings",
    ),
    "a causal BERT": ("BertLMHeadModel", {**BERT, "is_decoder": True}, {}, "architecture BertLMHeadModel"),
    "a classifier": ("BertForSequenceClassification", {**BERT, "num_labels": 3}, {}, "BertForSequenceClassification"),
    "tagged tokens": ("BertForTokenClassification", {**BERT, "num_labels": 3}, {}, "BertForTokenClassification"),
    "norms by default": (
        "RobertaForMaskedLM",
        {**BERT, "pad_token_id": 1},
        {"layer_norm_eps": ...},
        "does not set layer_norm_eps",
    ),
}


def converted_logits(model: Any) -> torch.Tensor:
    """Of a model of ours, for the ids of the test."""
    with torch.no_grad():
        if not hasattr(model, "bert"):
            found: torch.Tensor = model(IDS)
            return found
        logits = model(IDS, torch.tensor([IDS.size(1)]), None, torch.arange(IDS.size(1))).logits
        return logits.unsqueeze(0)


@pytest.mark.parametrize("case", CASES)
def test_what_has_no_counterpart_loads_as_transformers_own(case: str, tmp_path: Path) -> None:
    kind, settings, edits, words = CASES[case]
    folder = edit_config(save_folder(tmp_path, kind, **settings), **edits)
    with pytest.warns(
        CheckpointWarning, match=rf"loads as transformers' own {kind}, attending through regard; .*{words}"
    ) as said:
        model: Any = hub.load(folder)
    assert len([one for one in said if one.category is CheckpointWarning]) == 1 and type(model).__name__ == kind
    with torch.no_grad():
        torch.testing.assert_close(model(IDS).logits, eager_logits(folder, kind), rtol=0.0, atol=1e-4)
    if not kind.startswith("Bert") or "MaskedLM" in kind:
        with pytest.raises(SettingError, match=words):
            hub.import_checkpoint(folder, tmp_path / "run")


UNCHANGED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "gpt2 of the hub": (
        "GPT2LMHeadModel",
        GPT2,
        {"n_ctx": 32, "task_specific_params": {"text-generation": {"max_length": 50}}, "n_inner": None},
    ),
    "bert of the hub": (
        "BertForMaskedLM",
        BERT,
        {"gradient_checkpointing": False, "position_embedding_type": "absolute", "directionality": "bidi"},
    ),
    "rotary embeddings of early configurations": (
        "LlamaForCausalLM",
        LLAMA,
        {"rope_parameters": ..., "rope_theta": 500.0, "rope_scaling": None, "pretraining_tp": 1},
    ),
    "unscaled rotary embeddings": (
        "LlamaForCausalLM",
        LLAMA,
        {"rope_parameters": ..., "rope_scaling": {"type": "default", "rope_theta": 500.0}},
    ),
    "roberta": ("RobertaForMaskedLM", {**BERT, "pad_token_id": 1, "layer_norm_eps": 1e-3}, {}),
    "distilbert": ("DistilBertForMaskedLM", DISTIL, {"tie_weights_": True}),
    "a default of transformers": ("GPT2LMHeadModel", GPT2, {"output_attentions": False, "problem_type": None}),
}


@pytest.mark.parametrize("case", UNCHANGED)
def test_settings_that_change_nothing_are_converted(case: str, tmp_path: Path) -> None:
    kind, settings, edits = UNCHANGED[case]
    folder = edit_config(save_folder(tmp_path, kind, **settings), **edits)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckpointWarning)
        model = hub.load(folder)
    assert type(model).__module__.startswith("regard.")
    torch.testing.assert_close(converted_logits(model), eager_logits(folder, kind), rtol=0.0, atol=1e-4)


def test_every_setting_of_transformers_is_judged_by_its_value() -> None:
    """No setting stands in two groups of a family, and none that our models read is called harmless."""
    harmless = " ".join(HARMLESS.values()).split()
    assert len(harmless) == len(set(harmless))
    for kind, one in SUPPORTED.items():
        read = [*one.sizes.split(), *one.numbers.split(), *one.flags.split(), *one.values, *one.equal]
        assert len(read) == len(set(read)), kind
        assert set(read) & set(harmless) <= {"pad_token_id"}, kind
        assert set(one.required.split()) <= set(read), kind


def test_tied_matrices_that_differ_are_not_tied(tmp_path: Path) -> None:
    folder = save_folder(tmp_path, "GPT2LMHeadModel", **GPT2)
    edit_tensors(folder, lambda t: t.update({"lm_head.weight": t["transformer.wte.weight"].clone()}))
    assert type(hub.load(folder)).__name__ == "GPT"  # an equal copy
    edit_tensors(folder, lambda t: t["lm_head.weight"].mul_(2))
    with pytest.warns(CheckpointWarning, match=r"lm_head.weight differs from transformer.wte.weight"):
        model: Any = hub.load(folder)
    torch.testing.assert_close(model(IDS).logits, eager_logits(folder, "GPT2LMHeadModel"), rtol=0.0, atol=1e-4)
    edit_tensors(folder, lambda t: t.pop("transformer.wte.weight"))
    with pytest.warns(CheckpointWarning, match=r"missing: transformer.wte.weight"):
        hub.load(folder)  # transformers takes the one that is there for both


def test_positions_of_marian_that_are_not_sines(tmp_path: Path) -> None:
    ends = {"pad_token_id": 79, "decoder_start_token_id": 79, "eos_token_id": 2}
    folder = save_folder(tmp_path, "MarianMTModel", **BART, **ends)
    assert type(hub.load(folder)).__name__ == "Transformer"
    edit_tensors(folder, lambda t: t.update({"model.encoder.embed_positions.weight": torch.randn(32, 32)}))
    with pytest.warns(CheckpointWarning, match="embed_positions.weight differs from the positions of this archi"):
        model: Any = hub.load(folder)
    given = {"input_ids": IDS, "decoder_input_ids": IDS}
    with torch.no_grad():
        torch.testing.assert_close(
            model(**given).logits, eager_logits(folder, "MarianMTModel", **given), rtol=0.0, atol=1e-4
        )


@pytest.mark.parametrize("tensor", ["model.layers.1.self_attn.q_proj.bias", "lm_head.weight", "model.norm.weight"])
def test_a_missing_tensor_of_a_model_of_transformers_is_refused(tensor: str, tmp_path: Path) -> None:
    folder = save_folder(tmp_path, "Qwen2ForCausalLM", **LLAMA, num_key_value_heads=2)
    edit_tensors(folder, lambda t: t.pop(tensor))
    with pytest.raises(CheckpointError, match=rf"Tensors are missing: {tensor}"):
        hub.load(folder)


def test_unknown_and_misshapen_tensors_of_a_model_of_transformers(tmp_path: Path) -> None:
    folder = save_folder(tmp_path, "Qwen2ForCausalLM", **LLAMA, num_key_value_heads=2)
    edit_tensors(folder, lambda t: t.update({"model.layers.0.self_attn.q_norm.weight": torch.ones(8)}))
    with pytest.raises(CheckpointError, match=r"Unknown tensors: model.layers.0.self_attn.q_norm.weight"):
        hub.load(folder)
    edit_tensors(folder, lambda t: t.pop("model.layers.0.self_attn.q_norm.weight"))
    edit_tensors(folder, lambda t: t.update({"model.norm.weight": torch.ones(3)}))
    with pytest.raises(CheckpointError, match=r"model.norm.weight of shape \(3,\), expected \(32,\)"):
        hub.load(folder)


def test_heads_for_other_tasks_may_lie_beside(tmp_path: Path) -> None:
    """As in BERT's own checkpoint, whose config.json names the masked language model."""
    folder = save_folder(tmp_path, "BertForPreTraining", **BERT)
    edit_config(folder, architectures=["BertForMaskedLM"], hidden_act="silu")
    with pytest.warns(CheckpointWarning, match="hidden_act"):
        assert type(hub.load(folder)).__name__ == "BertForMaskedLM"
    edit_config(folder, architectures=["BertModel"], hidden_act="gelu")
    with pytest.warns(CheckpointWarning, match="Unknown tensors: cls"):
        assert type(hub.load(folder)).__name__ == "BertModel"


@pytest.mark.parametrize(
    ("architecture", "words"),
    [
        ("BertForSequenceClassification", r"missing: bert.pooler.dense.bias, .*, classifier.bias"),
        ("BertForNobody", "has no model class 'BertForNobody'"),
        ("pipeline", "has no model class 'pipeline'"),
        ("GPT2LMHeadModel", "the architecture GPT2LMHeadModel, expected a gpt2 model"),
    ],
)
def test_the_architecture_that_is_named_must_be_whole(architecture: str, words: str, tmp_path: Path) -> None:
    folder = edit_config(save_folder(tmp_path, "BertForMaskedLM", **BERT), architectures=[architecture])
    with pytest.raises(CheckpointError, match=words):
        hub.load(folder)


def test_a_bare_model_without_its_pooler_is_refused(tmp_path: Path) -> None:
    folder = save_folder(tmp_path, "BertModel", **BERT)
    edit_tensors(folder, lambda t: [t.pop(f"pooler.dense.{kind}") for kind in ("weight", "bias")])
    with pytest.raises(CheckpointError, match=r"missing: pooler.dense"):
        hub.load(folder)


def test_no_code_of_a_folder_is_run(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "folder", "Qwen2ForCausalLM", **LLAMA, num_key_value_heads=2)
    code = f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Own: pass\ndef generate(model, **more): pass\n"
    (folder / "custom_generate").mkdir()
    for name in ("custom_generate/generate.py", "modeling_own.py", "tokenization_own.py"):
        (folder / name).write_text(code)
    edit_config(folder, auto_map={"AutoModelForCausalLM": "modeling_own.Own", "AutoConfig": "modeling_own.Own"})
    about = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["tokenization_own.Own", None]}}
    look(folder, TEXT, max_new_tokens=2)
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    with pytest.raises(RegardError):
        look(edit_config(folder, model_type="own"), TEXT, max_new_tokens=2)
    assert not (tmp_path / "ran").exists()


def test_an_adapter_beside_the_weights_is_refused(tmp_path: Path) -> None:
    folder = save_folder(tmp_path, "GPT2LMHeadModel", **GPT2)
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"has an adapter .*Merge it"):
        hub.load(folder)


def test_without_transformers_the_setting_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_folder(tmp_path, "GPT2LMHeadModel", **GPT2)
    for module in (transformers_version, checkpoint_loader):
        monkeypatch.setattr(module, "installed_version", lambda: None)
    assert type(hub.load(folder)).__name__ == "GPT"
    edit_config(folder, activation_function="quick_gelu")
    with pytest.raises(SettingError, match=r"sets activation_function = 'quick_gelu'.*pip install 'regard\[hub\]'"):
        hub.load(folder)


def test_a_type_that_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = edit_config(save_folder(tmp_path, "GPT2LMHeadModel", **GPT2), model_type="gossip")
    for call in (hub.load, lambda folder: look(folder, TEXT)):
        with pytest.raises(SettingError, match=r"Unknown model_type 'gossip'. Known.*transformers 5.* has no such"):
            call(folder)
    for module in (transformers_version, checkpoint_loader):
        monkeypatch.setattr(module, "installed_version", lambda: None)
    with pytest.raises(SettingError, match=r"Unknown model_type 'gossip'.*transformers knows others: pip install"):
        hub.load(folder)


def test_an_older_transformers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_folder(tmp_path, "Qwen2ForCausalLM", **LLAMA, num_key_value_heads=2)
    monkeypatch.setattr(transformers_version, "installed_version", lambda: "4.57.1")
    with pytest.raises(SettingError, match=r"got transformers 4.57.1, expected version 5.2 or later"):
        hub.load(folder)
    with pytest.raises(SettingError, match=r"expected version 5.2 or later"):
        hub.enable()


def test_on_the_command_line_it_is_one_line(tmp_path: Path) -> None:
    folder = save_folder(tmp_path, "MistralForCausalLM", **LLAMA, num_key_value_heads=2, sliding_window=2)
    command = [sys.executable, "-m", "regard"]
    found = subprocess.run(
        [*command, "look", str(folder), TEXT, "-o", str(tmp_path / "page.html")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    [line] = found.stderr.splitlines()
    assert line == (
        f"regard: {folder} loads as transformers' own MistralForCausalLM, attending through regard; regard's own "
        "mistral does not fit it: config.json sets sliding_window = 2"
    )
    assert found.returncode == 0 and "8 heads at 2 places" in found.stdout
    found = CliRunner().invoke(app, ["import", str(folder), str(tmp_path / "run")])
    assert "sliding_window = 2" in str(found.exception) and not (tmp_path / "run").exists()


QUANTISED = {"quant_method": "bitsandbytes", "load_in_4bit": True}
DAMAGES: dict[str, Callable[[Path], object]] = {
    "weights cut short": lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-9]),
    "weights that are none": lambda f: (f / "model.safetensors").write_bytes(b"PK" * 40),
    "no weights": lambda f: (f / "model.safetensors").write_bytes(b""),
    "an index of numbers": lambda f: (
        (f / "model.safetensors").unlink(),
        (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": 3}}'),
    ),
    "an index that is a list": lambda f: (
        (f / "model.safetensors").unlink(),
        (f / "model.safetensors.index.json").write_text("[]"),
    ),
    "a config that is a list": lambda f: (f / "config.json").write_text("[]"),
    "a config that is nested": lambda f: (f / "config.json").write_text('{"a":' * 100000),
    "a config of other letters": lambda f: (f / "config.json").write_bytes(b'{"model_type": "\xff"}'),
    "a type that is a list": lambda f: edit_config(f, model_type=["bert"]),
    "architectures that are a name": lambda f: edit_config(f, architectures="GPT2Model"),
    "architectures that are numbers": lambda f: edit_config(f, architectures=[3]),
    "words for a number": lambda f: edit_config(f, hidden_size="many", n_embd="many"),
    "no heads": lambda f: edit_config(f, num_attention_heads=0, n_head=0),
    "heads that do not divide": lambda f: edit_config(f, num_attention_heads=5, n_head=5),
    "too wide for any machine": lambda f: edit_config(f, hidden_size=10**18, n_embd=10**18),
    "a quantisation": lambda f: edit_config(
        f, quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}
    ),
}


@pytest.mark.parametrize("kind", ["GPT2LMHeadModel", "Qwen2ForCausalLM"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_one_sentence(damage: str, kind: str, tmp_path: Path) -> None:
    """Of a family of ours and of one of transformers alone."""
    settings = GPT2 if kind.startswith("GPT2") else {**LLAMA, "num_key_value_heads": 2}
    folder = save_folder(tmp_path, kind, **settings)
    DAMAGES[damage](folder)
    with pytest.raises(RegardError) as refused:
        hub.load(folder)
    assert str(tmp_path) in str(refused.value) and "\n" not in str(refused.value)
    with pytest.raises(RegardError):
        look(folder, TEXT)


def test_a_damaged_generation_config_changes_no_logits(tmp_path: Path) -> None:
    folder = save_folder(tmp_path, "Qwen2ForCausalLM", **LLAMA, num_key_value_heads=2)
    expected = eager_logits(folder, "Qwen2ForCausalLM")
    (folder / "generation_config.json").write_text("{")
    model: Any = hub.load(folder)
    torch.testing.assert_close(model(IDS).logits, expected, rtol=0.0, atol=1e-4)


def test_a_tokenizer_alone_is_no_model(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    with pytest.raises(CheckpointError, match=r"File not found: .*config.json"):
        hub.load(tmp_path)
    random_model("GPT2LMHeadModel", **GPT2).save_pretrained(tmp_path)
    hub.load(tmp_path)
