"""Llama (Touvron et al. 2023) and what is built alike: Mistral without its window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from regard.hub.families.family import Family, built
from regard.hub.families.gpt2 import language
from regard.hub.folder import Config
from regard.hub.weight_map import Row, both, layered, stacked
from regard.models import GPT, Gated
from regard.models.config import GPTConfig

LONGEST = 2048  # what their config says where it says nothing


def model_config(config: Config) -> GPTConfig:
    config.only("hidden_act", "silu")
    config.only("sliding_window", None)
    turned = config.get("rope_parameters") or {**config.get("rope_scaling", {})}
    Config(turned, f"{config.where} rope_parameters").only("rope_type", "default")
    heads = config.need("num_attention_heads")
    width = config.need("hidden_size")
    head = config.get("head_dim", width // heads)
    key_heads = config.get("num_key_value_heads", heads)
    return GPTConfig(
        vocabulary=config.need("vocab_size"),
        longest=config.get("max_position_embeddings", LONGEST),
        layers=config.need("num_hidden_layers"),
        heads=heads,
        width=width,
        positions="rotary",
        base=float(turned.get("rope_theta", config.get("rope_theta", 10000.0))),
        hidden=config.need("intermediate_size"),
        key_heads=None if key_heads == heads else key_heads,
        head=None if head * heads == width else head,
        norm="rms",
        eps=config.get("rms_norm_eps", 1e-6),
        feed="swiglu",
        bias=config.get("attention_bias", False),
        feed_bias=config.get("mlp_bias", False),
        tied=config.get("tie_word_embeddings", False),
    )


def make(config: Config) -> nn.Module:
    return model_config(config).build()


def settings(config: Config) -> dict[str, Any]:
    return language(model_config(config))


def rows(model: nn.Module) -> list[Row]:
    assert isinstance(model, GPT)
    first = built(model.decoder)
    project, there, here = first.self.project, "model.layers.{}.", "decoder.{}."
    bias = first.feed.inner.bias is not None
    layer = [
        *both(there + "input_layernorm", here + "after_self.norm", bias=False),
        *stacked([f"{there}self_attn.{one}_proj" for one in "qkv"], here + "self.project.joint", project),
        *both(there + "self_attn.o_proj", here + "self.out", project.bias),
        *both(there + "post_attention_layernorm", here + "after_feed.norm", bias=False),
        *both(there + "mlp.gate_proj", here + "feed.gate", bias),
        *both(there + "mlp.up_proj", here + "feed.inner", bias),
        *both(there + "mlp.down_proj", here + "feed.outer", bias),
    ]
    return [
        Row("model.embed_tokens.weight", "embedding.weight"),
        *layered(layer, len(model.decoder)),
        *both("model.norm", "norm", bias=False),
        *([] if model.output is None else both("lm_head", "output", bias=False)),
    ]


def fits(model: nn.Module) -> bool:
    if not isinstance(model, GPT) or model.positions is not None or not isinstance(model.norm, nn.RMSNorm):
        return False
    first = built(model.decoder)
    whole = first.self.rotary.pairs == "halves" and first.self.rotary.dim == first.self.project.width
    return whole and isinstance(first.feed, Gated) and isinstance(first.feed.activation, nn.SiLU)


def config(model: nn.Module, longest: int) -> Mapping[str, Any]:
    assert isinstance(model, GPT) and isinstance(model.norm, nn.RMSNorm)
    first = built(model.decoder)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": model.embedding.num_embeddings,
        "max_position_embeddings": longest,
        "hidden_size": model.embedding.embedding_dim,
        "intermediate_size": first.feed.inner.out_features,
        "num_hidden_layers": len(model.decoder),
        "num_attention_heads": first.self.project.heads,
        "num_key_value_heads": first.self.project.key_heads,
        "head_dim": first.self.project.width,
        "hidden_act": "silu",
        "rms_norm_eps": model.norm.eps,
        "attention_bias": first.self.project.bias,
        "mlp_bias": first.feed.inner.bias is not None,
        "rope_theta": first.self.rotary.base,
        "rope_parameters": {"rope_type": "default", "rope_theta": first.self.rotary.base},
        "tie_word_embeddings": model.output is None,
    }


WORDED = ("embed_tokens.weight", "lm_head.weight")
LLAMA = Family("llama", make, rows, fits, config, settings, "model.", WORDED, ("rotary_emb.inv_freq",))
MISTRAL = Family(
    "mistral", make, rows, lambda model: False, config, settings, "model.", WORDED, ("rotary_emb.inv_freq",)
)
