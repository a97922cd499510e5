"""Attention of 2026 in transformers: under "regard", sinks, caps and sparse keys are those of eager; classes that
compute their own attention are heard there; a keyword that nobody knows is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import Observe, capture, hub
from regard.attention import Captured
from regard.errors import BackendError, CaptureWarning
from regard.hub import attention_interface

transformers = pytest.importorskip("transformers")

SIZE = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDE = SIZE | {"intermediate_size": 48, "max_position_embeddings": 64}
EXPERTS = {"moe_intermediate_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8}
INDEXER = {"index_topk": 3, "index_n_heads": 2, "index_head_dim": 8, "first_k_dense_replace": 1}
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
GQA = {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4}

INTERFACE: dict[str, tuple[str, dict[str, Any]]] = {  # through the attention interface
    "sink": ("GptOss", WIDE | GQA | {"num_local_experts": 4, "num_experts_per_tok": 2, "rope_parameters": ROPE}),
    "cap": ("Gemma2", WIDE | GQA | {"attn_logit_softcapping": 5.0}),
    "sparse": ("DeepseekV32", WIDE | EXPERTS | LATENT | INDEXER | {"num_key_value_heads": 4}),
}
OWN: dict[str, tuple[str, dict[str, Any]]] = {  # by code of their own, which adds the mask to the scores
    "bloom": ("Bloom", {"vocab_size": 50, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "mpt": ("Mpt", {"vocab_size": 50, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64}),
    "falcon": ("Falcon", SIZE),
    "gptj": ("GPTJ", {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 64}),
    "codegen": ("CodeGen", {"vocab_size": 50, "n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 4}),
    "xglm": ("XGLM", {"vocab_size": 50, "d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 48}),
}


def made(kind: str, given: dict[str, Any], how: str) -> Any:
    """The same random causal language model each time, with scores far from uniform."""
    hub.enable()
    config = getattr(transformers, f"{kind}Config")(**given)
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForCausalLM")._from_config(config, attn_implementation=how).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 1.5 / weight.size(-1) ** 0.5)
            elif "sinks" in {name for name, one in model.named_parameters() if one is weight}:
                weight.normal_(generator=generator)
    return model


def tokens(seed: int = 1) -> Tensor:
    return torch.randint(3, 50, (2, 9), generator=torch.Generator().manual_seed(seed))


def padded(side: str) -> dict[str, Tensor]:
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, slice(0, 3) if side == "left" else slice(6, 9)] = 0
    return {"input_ids": tokens(), "attention_mask": mask}


CASES = INTERFACE | OWN
MODELS = pytest.mark.parametrize("name", CASES)


@MODELS
@torch.no_grad()
def test_outputs_and_weights_are_those_of_eager(name: str) -> None:
    kind, given = CASES[name]
    eager, ours = made(kind, given, "eager"), made(kind, given, "regard")
    for inputs in ({"input_ids": tokens()}, padded("left"), padded("right")):
        real = inputs.get("attention_mask", torch.ones(2, 9)).bool()
        expected, alone = eager(**inputs, output_attentions=True), ours(**inputs).logits
        with capture(ours, observe=Observe(weights=True, top=2, entropy=True)) as heard:
            logits = ours(**inputs).logits
        assert torch.equal(logits, alone) and not heard.unheard and len(heard) == 2
        torch.testing.assert_close(logits[real], expected.logits[real], atol=2e-4, rtol=1e-4)
        for place, weights in zip(heard, expected.attentions, strict=True):
            seen, own = heard[place].weights.transpose(1, 2)[real], weights[..., :9].transpose(1, 2)[real]
            torch.testing.assert_close(seen, own, atol=2e-5, rtol=1e-4)


@MODELS
@torch.no_grad()
def test_no_token_sees_a_later_one(name: str) -> None:
    model, ids = made(*CASES[name], "regard"), tokens()
    changed = ids.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 47 + 3
    torch.testing.assert_close(model(changed).logits[:, :-1], model(ids).logits[:, :-1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", INTERFACE)
def test_gradients_are_those_of_eager(name: str) -> None:
    kind, given = CASES[name]
    found = []
    for how in ("eager", "regard"):
        model = made(kind, given, how)
        model(**padded("left")).logits[:, -1].square().mean().backward()
        found.append({place: one.grad for place, one in model.named_parameters() if one.grad is not None})
    assert found[0].keys() == found[1].keys()
    for place, grad in found[0].items():
        torch.testing.assert_close(found[1][place], grad, atol=1e-4 * float(grad.abs().max()) + 1e-7, rtol=1e-3)
    assert name != "sink" or any("sinks" in place for place in found[1])


@MODELS
@torch.no_grad()
def test_generation_is_that_of_eager(name: str) -> None:
    kind, given = CASES[name]
    how = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    eager, ours = (made(kind, given, which).generate(**padded("left"), **how) for which in ("eager", "regard"))
    assert torch.equal(eager, ours)


def test_a_keyword_that_nobody_knows_is_refused() -> None:
    hub.enable()
    module = nn.Module()
    module.layer_idx, module.config = 3, type("Config", (), {"model_type": "future"})()
    x = torch.randn(1, 2, 4, 8)
    with pytest.raises(BackendError, match=r"future Module 3.*'tomorrow'.*\"eager\""):
        attention_interface.attention(module, x, x, x, None, tomorrow=torch.ones(1))
    said, _ = attention_interface.attention(module, x, x, x, None, tomorrow=None, sliding_window=2)
    assert said.shape == (1, 4, 2, 8)


def test_the_implementation_of_a_class_follows_from_its_source() -> None:
    hub.enable()
    found = {name: made(*CASES[name], "regard").config._attn_implementation for name in CASES}
    assert {name for name, how in found.items() if how == "regard"} == {"sink", "cap", "sparse"}
    assert found["falcon"] == "eager" and found["bloom"] == "eager"


def test_a_part_that_denies_the_interface_computes_its_own_attention() -> None:
    """PP-DocLayoutV2 has the interface in its detector and attention of its own, which adds its mask, in the model that
    orders what was found: a mask of booleans would hide nothing there."""
    from transformers.models.pp_doclayout_v2 import modeling_pp_doclayout_v2 as modeling

    assert attention_interface.uses_interface(modeling.PPDocLayoutV2Model)
    assert not attention_interface.uses_interface(modeling.PPDocLayoutV2ReadingOrder)


@torch.no_grad()
def test_float_masks_hide_what_they_hide_for_eager() -> None:
    """A decoder whose class has no sdpa is given the additive mask of eager attention, whatever it does with it."""
    size = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "vocab_size": 50, "num_experts": 4}
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    found = []
    for how in ("eager", "regard"):
        hub.enable()
        torch.manual_seed(0)
        config = transformers.NllbMoeConfig(**size, **heads, **ends, encoder_sparse_step=0, decoder_sparse_step=0)
        model: Any = transformers.NllbMoeModel._from_config(config, attn_implementation=how).eval()
        found.append(model(input_ids=tokens(), decoder_input_ids=tokens(2)).last_hidden_state)
    torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_cross_attention_without_a_mask_sees_every_key() -> None:
    """A module that says is_causal and is given no mask is causal where queries are keys; one whose queries come from
    elsewhere is not, as in eager attention (Kosmos-2's latent queries over a picture)."""
    module = nn.Module()
    module.is_causal = True
    drawn = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, length, 8, generator=drawn) for length in (3, 5, 5))
    crossed, _ = attention_interface.attention(module, query, key, value, None)
    everything = (query @ key.mT / 8**0.5).softmax(-1) @ value
    torch.testing.assert_close(crossed, everything.transpose(1, 2))
    itself, _ = attention_interface.attention(module, key, key, value, None)
    torch.testing.assert_close(itself[:, 0], value[:, :, 0])


def test_the_causal_mask_of_fewer_queries_than_keys_is_explicit() -> None:
    """transformers leaves out the mask of a first text in a static cache that is longer; here None means that a query
    of cross-attention sees everything, so that mask is given."""
    from transformers.masking_utils import sdpa_mask

    hub.enable()
    config = transformers.LlamaConfig(**WIDE)
    seen = torch.tensor([[True, True, True, False, False]])
    how = {"batch_size": 1, "q_length": 3, "kv_length": 5, "attention_mask": seen}
    assert sdpa_mask(**how) is None
    mask = attention_interface.attention_mask_of(**how, config=config)
    assert mask is not None and torch.equal(mask[0, 0], torch.ones(3, 5, dtype=torch.bool).tril())
    assert attention_interface.attention_mask_of(**how | {"kv_length": 3}, config=config) is None


@torch.no_grad()
def test_a_model_that_switches_its_attention_inside_the_block_is_named() -> None:
    """Whisper's generation does so for word timestamps; heard is what came before, and what comes in the next block."""
    model = made("Gemma2", CASES["cap"][1], "regard")

    def switching() -> Captured:
        with capture(model) as heard:
            model(input_ids=tokens())
            model.set_attn_implementation("eager")
            model(input_ids=tokens())
        return heard

    with pytest.warns(CaptureWarning, match="switched to attn_implementation='eager'"):
        heard = switching()
    places = [f"model.layers.{layer}.self_attn" for layer in range(2)]
    assert list(heard.unheard) == places and [len(heard.calls(place)) for place in places] == [1, 1]
    with capture(model) as heard:
        model(input_ids=tokens())
    assert not heard.unheard and [len(heard.calls(place)) for place in places] == [1, 1]
