"""Llama (Touvron et al. 2023), and Mistral without its sliding window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from regard.hub.families.family import Family, first_block
from regard.hub.families.gpt2 import language_recipe
from regard.hub.folder import HFConfig
from regard.hub.weight_map import TensorMap, for_layers, linear, qkv
from regard.models import GPT, SwiGLU
from regard.models.config import GPTConfig

DEFAULT_POSITIONS = 2048  # of config.json where it does not say


def model_config(config: HFConfig) -> GPTConfig:
    rope = config.get("rope_parameters") or config.get("rope_scaling", {})
    heads = config.need("num_attention_heads")
    width = config.need("hidden_size")
    head_dim = config.get("head_dim", width // heads)
    key_heads = config.get("num_key_value_heads", heads)
    return GPTConfig(
        vocabulary=config.need("vocab_size"),
        max_positions=config.get("max_position_embeddings", DEFAULT_POSITIONS),
        layers=config.need("num_hidden_layers"),
        heads=heads,
        width=width,
        positions="rotary",
        rotary_base=float(rope.get("rope_theta", config.get("rope_theta", 10000.0))),
        feedforward_dim=config.need("intermediate_size"),
        key_heads=None if key_heads == heads else key_heads,
        head_dim=None if head_dim * heads == width else head_dim,
        norm="rms",
        eps=config.get("rms_norm_eps", 1e-6),
        activation="swiglu",
        bias=config.get("attention_bias", False),
        feedforward_bias=config.get("mlp_bias", False),
        tied=config.get("tie_word_embeddings", False),
    )


def build(config: HFConfig) -> nn.Module:
    return model_config(config).build()


def settings(config: HFConfig) -> dict[str, Any]:
    return language_recipe(model_config(config))


def tensor_maps(model: nn.Module) -> list[TensorMap]:
    assert isinstance(model, GPT)
    first = first_block(model.decoder)
    project, there, here = first.self.project, "model.layers.{}.", "decoder.{}."
    bias = first.feed.inner.bias is not None
    layer = [
        *linear(there + "input_layernorm", here + "after_self.norm", bias=False),
        *qkv([f"{there}self_attn.{one}_proj" for one in "qkv"], here + "self.project.joint", project),
        *linear(there + "self_attn.o_proj", here + "self.out", project.bias),
        *linear(there + "post_attention_layernorm", here + "after_feed.norm", bias=False),
        *linear(there + "mlp.gate_proj", here + "feed.gate", bias),
        *linear(there + "mlp.up_proj", here + "feed.inner", bias),
        *linear(there + "mlp.down_proj", here + "feed.outer", bias),
    ]
    return [
        TensorMap("model.embed_tokens.weight", "embedding.weight"),
        *for_layers(layer, len(model.decoder)),
        *linear("model.norm", "final_norm", bias=False),
        *([] if model.output is None else linear("lm_head", "output", bias=False)),
    ]


def matches(model: nn.Module) -> bool:
    if not isinstance(model, GPT) or model.positions is not None or not isinstance(model.final_norm, nn.RMSNorm):
        return False
    first = first_block(model.decoder)
    whole = first.self.rotary.pairs == "halves" and first.self.rotary.dim == first.self.project.width
    plain = whole and first.self.is_plain
    return plain and isinstance(first.feed, SwiGLU) and isinstance(first.feed.activation, nn.SiLU)


def config(model: nn.Module, max_length: int) -> Mapping[str, Any]:
    assert isinstance(model, GPT) and isinstance(model.final_norm, nn.RMSNorm)
    first = first_block(model.decoder)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": model.embedding.num_embeddings,
        "max_position_embeddings": max_length,
        "hidden_size": model.embedding.embedding_dim,
        "intermediate_size": first.feed.inner.out_features,
        "num_hidden_layers": len(model.decoder),
        "num_attention_heads": first.self.project.heads,
        "num_key_value_heads": first.self.project.key_heads,
        "head_dim": first.self.project.width,
        "hidden_act": "silu",
        "rms_norm_eps": model.final_norm.eps,
        "attention_bias": first.self.project.bias,
        "mlp_bias": first.feed.inner.bias is not None,
        "rope_theta": first.self.rotary.base,
        "rope_parameters": {"rope_type": "default", "rope_theta": first.self.rotary.base},
        "tie_word_embeddings": model.output is None,
    }


VOCAB_TENSORS = ("embed_tokens.weight", "lm_head.weight")


def _family(kind: str, matches: Callable[[nn.Module], bool]) -> Family:
    return Family(
        kind,
        build,
        tensor_maps,
        matches,
        config,
        settings,
        "model.",
        VOCAB_TENSORS,
        ("rotary_emb.inv_freq",),
        copies={"lm_head.weight": "model.embed_tokens.weight"},
    )


LLAMA = _family("llama", matches)
MISTRAL = _family("mistral", lambda model: False)  # exported as the Llama that it is without a window
