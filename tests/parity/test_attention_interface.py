"""transformers' own models under attn_implementation="regard": the same output, the weights of eager, and heard."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from regard import Observe, capture, hub

transformers = pytest.importorskip("transformers")

WIDE = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
BOTH = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
BOTH |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": 50}
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def made(family: str, how: str) -> nn.Module:
    """The same random model of a family each time."""
    t = transformers
    configs: dict[str, Any] = {
        "bert": lambda: (t.BertForMaskedLM, t.BertConfig(**WIDE)),
        "gpt2": lambda: (
            t.GPT2LMHeadModel,
            t.GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4, n_positions=64),
        ),
        "bart": lambda: (t.BartForConditionalGeneration, t.BartConfig(**BOTH, **ENDS)),
        "marian": lambda: (t.MarianMTModel, t.MarianConfig(**BOTH, **ENDS)),
        "t5": lambda: (
            t.T5ForConditionalGeneration,
            t.T5Config(vocab_size=50, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, **ENDS),
        ),
        "llama": lambda: (t.LlamaForCausalLM, t.LlamaConfig(**WIDE, num_key_value_heads=2)),
        "vit": lambda: (
            t.ViTModel,
            t.ViTConfig(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=48,
                image_size=16,
                patch_size=4,
            ),
        ),
    }
    kind, config = configs[family]()
    torch.manual_seed(0)
    config._attn_implementation = how
    return kind._from_config(config, attn_implementation=how).eval()


def inputs(family: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    if family == "vit":
        return {"pixel_values": torch.randn(2, 3, 16, 16)}
    ids, seen = torch.randint(3, 50, (2, 9)), torch.ones(2, 9, dtype=torch.long)
    seen[1, 6:] = 0
    given = {"input_ids": ids, "attention_mask": seen}
    if family in ("bart", "marian", "t5"):
        given["decoder_input_ids"] = torch.randint(3, 50, (2, 5))
    return given


FAMILIES = ["bert", "gpt2", "bart", "marian", "t5", "llama", "vit"]
EVERYTHING = Observe(top=3, entropy=True, received=True, thumbnail=(4, 4), weights=True, prepared=True, values=True)


@pytest.fixture(autouse=True)
def _enabled() -> None:
    hub.enable()


def first(said: Any) -> torch.Tensor:
    return said.logits if hasattr(said, "logits") else said.last_hidden_state


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_the_output_is_that_of_sdpa_and_listening_changes_no_bit(family: str) -> None:
    given = inputs(family)
    ours, theirs = made(family, "regard"), made(family, "sdpa")
    alone = first(ours(**given))
    with capture(ours, observe=EVERYTHING) as heard:
        told = first(ours(**given))
    assert torch.equal(alone, told)
    torch.testing.assert_close(alone, first(theirs(**given)), atol=1e-5, rtol=1e-4)
    assert len(heard) == (6 if "decoder_input_ids" in given else 2)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_the_weights_are_those_of_eager(family: str) -> None:
    given = inputs(family)
    ours, eager = made(family, "regard"), made(family, "eager")
    with capture(ours, observe=Observe(weights=True)) as heard:
        said = ours(**given, output_attentions=True)
    expected = eager(**given, output_attentions=True)
    names = (
        ["attentions"]
        if "decoder_input_ids" not in given
        else ["encoder_attentions", "decoder_attentions", "cross_attentions"]
    )
    maps = [one for name in names for one in expected[name]]
    got = [one for name in names for one in said[name]]
    assert len(maps) == len(got) == len(heard)
    for one, other in zip(got, maps, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    everywhere = [heard[place].weights for place in heard]
    assert all(
        any(torch.allclose(one, other, atol=1e-5) for one in everywhere if one.shape == other.shape) for other in maps
    )


@pytest.mark.parametrize("family", ["gpt2", "llama", "bart", "t5"])
@torch.no_grad()
def test_generation_is_heard_token_by_token(family: str) -> None:
    given = {name: one[:1] for name, one in inputs(family).items() if name != "decoder_input_ids"}
    ours, theirs = made(family, "regard"), made(family, "sdpa")
    how = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    with capture(ours, observe=Observe(entropy=True)) as heard:
        written = ours.generate(**given, **how)
    assert torch.equal(written, theirs.generate(**given, **how))
    later = [place for place in heard if "decoder" in place or family in ("gpt2", "llama")]
    assert later and all(len(heard.calls(place)) == 4 for place in later)


@torch.no_grad()
def test_a_model_on_sdpa_is_heard_without_being_enabled() -> None:
    model, given = made("bert", "sdpa"), inputs("bert")
    alone = first(model(**given))
    with capture(model, observe=Observe(weights=True)) as heard:
        assert torch.equal(first(model(**given)), alone)
    expected = made("bert", "eager")(**given, output_attentions=True).attentions
    for place, other in zip(heard, expected, strict=True):
        torch.testing.assert_close(heard[place].weights[0], other[0], atol=1e-5, rtol=1e-4)


def test_training_goes_through_it() -> None:
    model, other, given = made("gpt2", "regard").train(), made("gpt2", "sdpa").train(), inputs("gpt2")
    for one in (model, other):
        for module in one.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        for module in one.modules():
            if hasattr(module, "attn_dropout"):
                module.attn_dropout.p = 0.0
    for one in (model, other):
        first(one(**given)).square().mean().backward()
    for one, same in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, same.grad, atol=1e-6, rtol=1e-3)
