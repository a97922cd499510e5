"""GPT-2 (Radford et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from regard.attention.layers import FeedForward
from regard.attention.positions import Learned
from regard.hub.families.family import Family, first_block, model_section
from regard.hub.folder import HFConfig
from regard.hub.weight_map import TensorMap, for_layers, linear
from regard.models import GPT
from regard.models.config import GPTConfig

ACTIVATIONS = {"gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu": "gelu", "relu": "relu"}

LAYER = [
    *linear("transformer.h.{}.ln_1", "decoder.{}.after_self.norm"),
    *linear("transformer.h.{}.attn.c_attn", "decoder.{}.self.project.joint", transpose=True),
    *linear("transformer.h.{}.attn.c_proj", "decoder.{}.self.out", transpose=True),
    *linear("transformer.h.{}.ln_2", "decoder.{}.after_feed.norm"),
    *linear("transformer.h.{}.mlp.c_fc", "decoder.{}.feed.inner", transpose=True),
    *linear("transformer.h.{}.mlp.c_proj", "decoder.{}.feed.outer", transpose=True),
]


def model_config(config: HFConfig) -> GPTConfig:
    return GPTConfig(
        vocabulary=config.need("vocab_size"),
        max_positions=config.need("n_positions"),
        layers=config.need("n_layer"),
        heads=config.need("n_head"),
        width=config.need("n_embd"),
        feedforward_dim=config.get("n_inner"),
        eps=config.get("layer_norm_epsilon", 1e-5),
        activation=ACTIVATIONS[config.get("activation_function", "gelu_new")],  # type: ignore[arg-type]
        tied=config.get("tie_word_embeddings", True),
    )


def build(config: HFConfig) -> nn.Module:
    return model_config(config).build()


def settings(config: HFConfig) -> dict[str, Any]:
    return language_recipe(model_config(config))


def language_recipe(model: GPTConfig) -> dict[str, Any]:
    """The recipe of a language model with this configuration."""
    section = model_section("gpt", model, "vocabulary", "max_positions")
    return {"task": "language", "model": section, "batches": {"kind": "blocks", "sequence_length": model.max_positions}}


def tensor_maps(model: nn.Module) -> list[TensorMap]:
    assert isinstance(model, GPT)
    return [
        TensorMap("transformer.wte.weight", "embedding.weight"),
        TensorMap("transformer.wpe.weight", "positions.table.weight"),
        *for_layers(LAYER, len(model.decoder)),
        *linear("transformer.ln_f", "final_norm"),
        *([] if model.output is None else linear("lm_head", "output", bias=False)),
    ]


def matches(model: nn.Module) -> bool:
    if (
        not isinstance(model, GPT)
        or not isinstance(model.positions, Learned)
        or not isinstance(model.final_norm, nn.LayerNorm)
    ):
        return False
    attention, feed = first_block(model.decoder).self, first_block(model.decoder).feed
    same = attention.project.key_heads == attention.project.heads
    square = attention.project.heads * attention.project.width == attention.dim
    plain = same and square and attention.is_plain and attention.project.bias
    return plain and isinstance(feed, FeedForward) and feed.inner.bias is not None


def config(model: nn.Module, max_length: int) -> Mapping[str, Any]:
    assert isinstance(model, GPT) and isinstance(model.final_norm, nn.LayerNorm)
    first = first_block(model.decoder)
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": model.embedding.num_embeddings,
        "n_positions": model.max_positions,
        "n_embd": model.embedding.embedding_dim,
        "n_layer": len(model.decoder),
        "n_head": first.self.project.heads,
        "n_inner": first.feed.inner.out_features,
        "activation_function": activation_name(first.feed.activation),
        "layer_norm_epsilon": model.final_norm.eps,
        "tie_word_embeddings": model.output is None,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop"), model.dropout.p),
        "attn_pdrop": first.self.dropout,
    }


def activation_name(module: nn.Module) -> str:
    """The name of an activation in Hugging Face's configurations."""
    if isinstance(module, nn.GELU):
        return "gelu_new" if module.approximate == "tanh" else "gelu"
    return "silu" if isinstance(module, nn.SiLU) else "relu"


VOCAB_TENSORS = ("wte.weight", "lm_head.weight")
GPT2 = Family(
    "gpt2",
    build,
    tensor_maps,
    matches,
    config,
    settings,
    "transformer.",
    VOCAB_TENSORS,
    (".attn.bias", ".attn.masked_bias"),
    copies={"lm_head.weight": "transformer.wte.weight"},
)
