"""GPT-2 and Llama of transformers, brought here and carried back: logits, states and attention are equal both ways."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from parity.transformers_parity import opened, same_decoder, saved, tiny, tokens
from regard import hub
from regard.decoding import Greedy, Rules

GPT2 = {"n_positions": 20, "n_embd": 24, "n_layer": 3, "n_head": 4}
LLAMA = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": None,
}
CASES = {
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "gpt2-untied": ("GPT2LMHeadModel", {**GPT2, "tie_word_embeddings": False, "n_inner": 30, "n_head": 2}),
    "gpt2-relu": ("GPT2LMHeadModel", {**GPT2, "activation_function": "relu", "layer_norm_epsilon": 1e-3}),
    "llama": ("LlamaForCausalLM", LLAMA),
    "llama-grouped": ("LlamaForCausalLM", {**LLAMA, "num_key_value_heads": 2, "rms_norm_eps": 1e-3}),
    "llama-wide": ("LlamaForCausalLM", {**LLAMA, "head_dim": 10, "num_key_value_heads": 1}),
    "llama-tied": (
        "LlamaForCausalLM",
        {**LLAMA, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    ),
    "llama-far": (
        "LlamaForCausalLM",
        {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    ),
    "mistral": ("MistralForCausalLM", {**LLAMA, "num_key_value_heads": 2, "sliding_window": None}),
}


@pytest.mark.parametrize("case", CASES)
def test_both_ways(case: str, tmp_path: Path) -> None:
    kind, settings = CASES[case]
    theirs = tiny(kind, **settings)
    ours = hub.load(saved(theirs, tmp_path / "theirs"))
    assert not ours.training
    same_decoder(theirs, ours, tokens(2, 17))
    hub.save(ours, tmp_path / "back")
    kind = "LlamaForCausalLM" if case == "mistral" else kind  # without its window it is one
    same_decoder(opened(kind, tmp_path / "back"), ours, tokens(2, 17))


@pytest.mark.parametrize("case", ["gpt2", "llama-grouped"])
def test_it_writes_the_same(case: str, tmp_path: Path) -> None:
    kind, settings = CASES[case]
    theirs = tiny(kind, **settings)
    ours, ids = hub.load(saved(theirs, tmp_path)), tokens(3, 5)
    expected = theirs.generate(ids, max_new_tokens=8, do_sample=False, eos_token_id=None, pad_token_id=0)
    written = Greedy()(ours, ours.start(ids[:, :-1], torch.full((3,), 4)), ids[:, -1], Rules(None, 8))
    assert [text.tokens for (text,) in written] == expected[:, 5:].tolist()


@pytest.mark.parametrize(("bare", "case"), [("GPT2Model", "gpt2"), ("LlamaModel", "llama-tied")])
def test_a_model_without_a_head_says_by_its_embedding(bare: str, case: str, tmp_path: Path) -> None:
    _, settings = CASES[case]
    theirs = tiny(bare, **settings)
    ours, ids = hub.load(saved(theirs, tmp_path)), tokens(2, 9)
    with torch.no_grad():
        torch.testing.assert_close(ours.layers(ids)[-1], theirs(ids).last_hidden_state, rtol=0.0, atol=1e-4)


def test_parts_are_put_together_and_half_precision_is_widened(tmp_path: Path) -> None:
    tiny("LlamaForCausalLM", **LLAMA).to(torch.bfloat16).save_pretrained(tmp_path, max_shard_size="6KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    ours = hub.load(tmp_path)
    assert {one.dtype for one in ours.parameters()} == {torch.float32}
    same_decoder(opened("LlamaForCausalLM", tmp_path), ours, tokens(2, 9))
