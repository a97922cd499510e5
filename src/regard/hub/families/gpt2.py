"""GPT-2 (Radford et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from regard.attention.layers import FeedForward
from regard.attention.positions import Learned
from regard.hub.families.family import Family, built, model_section
from regard.hub.folder import Config
from regard.hub.weight_map import Row, both, layered
from regard.models import GPT
from regard.models.config import GPTConfig

FEEDS = {"gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu": "gelu", "relu": "relu"}

LAYER = [
    *both("transformer.h.{}.ln_1", "decoder.{}.after_self.norm"),
    *both("transformer.h.{}.attn.c_attn", "decoder.{}.self.project.joint", turned=True),
    *both("transformer.h.{}.attn.c_proj", "decoder.{}.self.out", turned=True),
    *both("transformer.h.{}.ln_2", "decoder.{}.after_feed.norm"),
    *both("transformer.h.{}.mlp.c_fc", "decoder.{}.feed.inner", turned=True),
    *both("transformer.h.{}.mlp.c_proj", "decoder.{}.feed.outer", turned=True),
]


def model_config(config: Config) -> GPTConfig:
    config.only("scale_attn_weights", True)
    config.only("scale_attn_by_inverse_layer_idx", False)
    config.only("activation_function", *FEEDS)
    return GPTConfig(
        vocabulary=config.need("vocab_size"),
        longest=config.need("n_positions"),
        layers=config.need("n_layer"),
        heads=config.need("n_head"),
        width=config.need("n_embd"),
        hidden=config.get("n_inner"),
        eps=config.get("layer_norm_epsilon", 1e-5),
        feed=FEEDS[config.get("activation_function", "gelu_new")],  # type: ignore[arg-type]
        tied=config.get("tie_word_embeddings", True),
    )


def make(config: Config) -> nn.Module:
    return model_config(config).build()


def settings(config: Config) -> dict[str, Any]:
    return language(model_config(config))


def language(model: GPTConfig) -> dict[str, Any]:
    """The recipe of a language model that is built so."""
    section = model_section("gpt", model, "vocabulary", "longest")
    return {"task": "language", "model": section, "batches": {"kind": "blocks", "size": model.longest}}


def rows(model: nn.Module) -> list[Row]:
    assert isinstance(model, GPT)
    return [
        Row("transformer.wte.weight", "embedding.weight"),
        Row("transformer.wpe.weight", "positions.table.weight"),
        *layered(LAYER, len(model.decoder)),
        *both("transformer.ln_f", "norm"),
        *([] if model.output is None else both("lm_head", "output", bias=False)),
    ]


def fits(model: nn.Module) -> bool:
    if (
        not isinstance(model, GPT)
        or not isinstance(model.positions, Learned)
        or not isinstance(model.norm, nn.LayerNorm)
    ):
        return False
    attention, feed = built(model.decoder).self, built(model.decoder).feed
    same = attention.project.key_heads == attention.project.heads
    square = attention.project.heads * attention.project.width == attention.dim
    return same and square and attention.project.bias and isinstance(feed, FeedForward) and feed.inner.bias is not None


def config(model: nn.Module, longest: int) -> Mapping[str, Any]:
    assert isinstance(model, GPT) and isinstance(model.norm, nn.LayerNorm)
    first = built(model.decoder)
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": model.embedding.num_embeddings,
        "n_positions": model.longest,
        "n_embd": model.embedding.embedding_dim,
        "n_layer": len(model.decoder),
        "n_head": first.self.project.heads,
        "n_inner": first.feed.inner.out_features,
        "activation_function": activation(first.feed.activation),
        "layer_norm_epsilon": model.norm.eps,
        "tie_word_embeddings": model.output is None,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop"), model.dropout.p),
        "attn_pdrop": first.self.dropout,
    }


def activation(module: nn.Module) -> str:
    """What they call it."""
    if isinstance(module, nn.GELU):
        return "gelu_new" if module.approximate == "tanh" else "gelu"
    return "silu" if isinstance(module, nn.SiLU) else "relu"


WORDED = ("wte.weight", "lm_head.weight")
GPT2 = Family("gpt2", make, rows, fits, config, settings, "transformer.", WORDED, (".attn.bias", ".attn.masked_bias"))
