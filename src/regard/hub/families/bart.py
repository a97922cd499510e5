"""BART (Lewis et al. 2020) and Marian (Junczys-Dowmunt et al. 2018): the Transformer of 2017, theirs.

They differ in what is below the first layer: BART learns its positions, behind two that stand for padding, and norms
the sum; Marian's positions are sines, then cosines, and are in no checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.layers import FeedForward, Separate
from regard.attention.positions import Learned
from regard.hub.families.family import Family, built
from regard.hub.families.gpt2 import activation
from regard.hub.folder import Config
from regard.hub.weight_map import Row, both, layered, stacked
from regard.models import Embedded, Encoder, Style, Transformer, gelu, readers, writers

SKIPPED = 2
FEEDS: dict[str, Callable[[int, int], nn.Module]] = {
    "gelu": gelu,
    "relu": FeedForward,
    "swish": lambda width, hidden: FeedForward(width, hidden, nn.SiLU()),
    "silu": lambda width, hidden: FeedForward(width, hidden, nn.SiLU()),
}


def make(config: Config, normed: bool) -> nn.Module:
    config.only("activation_function", *FEEDS)
    config.only("tie_word_embeddings", True)
    config.only("share_encoder_decoder_embeddings", True)
    width, vocabulary = config.need("d_model"), config.need("vocab_size")
    config.only("decoder_vocab_size", vocabulary)
    style = Style(feed=FEEDS[config.get("activation_function", "gelu")])
    scale = width**0.5 if config.get("scale_embedding", False) else 1.0

    def embedded() -> Embedded:
        where = Learned(width, config.need("max_position_embeddings"))
        return Embedded(vocabulary, width, where, scale=scale, norm=nn.LayerNorm(width) if normed else None)

    def sizes(half: str) -> tuple[int, int, int, int]:
        layers, heads = config.need(f"{half}_layers"), config.need(f"{half}_attention_heads")
        return layers, width, heads, config.need(f"{half}_ffn_dim")

    reads, writes = embedded(), embedded()
    writes.tokens = reads.tokens
    return Transformer(Encoder(reads, readers(*sizes("encoder"), style)), writes, writers(*sizes("decoder"), style))


def rows(model: nn.Module, normed: bool) -> list[Row]:
    assert isinstance(model, Transformer)
    found = [
        Row("model.shared.weight", "encoder.embedded.tokens.weight"),
        Row("final_logits_bias", "output.bias", optional=True, flat=True),
    ]
    for half, here in (("encoder", "encoder.embedded."), ("decoder", "embedded.")):
        there = f"model.{half}."
        found.append(
            Row(there + "embed_positions.weight", here + "positions.table.weight", skip=SKIPPED)
            if normed
            else Row((), here + "positions.table.weight", default=sines)
        )
        found += both(there + "layernorm_embedding", here + "norm") if normed else []
    for half, ours, stack in (
        ("encoder", "encoder.blocks", model.encoder.blocks),
        ("decoder", "decoder", model.decoder),
    ):
        there, here = f"model.{half}.layers.{{}}.", ours + ".{}."
        names = [f"{there}self_attn.{one}_proj" for one in "qkv"]
        layer = [
            *stacked(names, here + "self.project.joint", built(stack).self.project),
            *both(there + "self_attn.out_proj", here + "self.out"),
            *both(there + "self_attn_layer_norm", here + "after_self.norm"),
            *both(there + "fc1", here + "feed.inner"),
            *both(there + "fc2", here + "feed.outer"),
            *both(there + "final_layer_norm", here + "after_feed.norm"),
        ]
        for letter, name in zip("qkv", ("query", "key", "value"), strict=True) if half == "decoder" else ():
            layer += both(f"{there}encoder_attn.{letter}_proj", f"{here}cross.project.{name}")
        if half == "decoder":
            layer += both(there + "encoder_attn.out_proj", here + "cross.out")
            layer += both(there + "encoder_attn_layer_norm", here + "after_cross.norm")
        found += layered(layer, len(stack))
    return found


def sines(table: Tensor) -> Tensor:
    """Marian's positions (longest, width): sines of all frequencies, then cosines."""
    places = torch.arange(table.size(0), dtype=torch.float64).unsqueeze(1)
    angles = places / 10000 ** (torch.arange(0, table.size(1), 2, dtype=torch.float64) / table.size(1))
    return torch.cat((angles.sin(), angles.cos()), 1).to(table.dtype)


def fits(model: nn.Module, normed: bool) -> bool:
    """Whether its parts are theirs; a Transformer that learned here has other positions, and is not."""
    if not isinstance(model, Transformer) or not isinstance(model.embedded.positions, Learned):
        return False
    first, shared = built(model.decoder), model.encoder.embedded.tokens is model.embedded.tokens
    same = isinstance(model.embedded.norm, nn.LayerNorm) == normed and first.after_self.order == "post"
    plain = isinstance(first.feed, FeedForward) and isinstance(first.cross.project, Separate)
    table = model.embedded.positions.table.weight
    return same and plain and shared and (normed or torch.allclose(table, sines(table)))


def config(model: nn.Module, longest: int, kind: str) -> Mapping[str, Any]:
    assert isinstance(model, Transformer) and isinstance(model.embedded.positions, Learned)
    halves = {"encoder": model.encoder.blocks, "decoder": model.decoder}
    sizes: dict[str, int] = {}
    for half, stack in halves.items():
        sizes[f"{half}_layers"] = len(stack)
        sizes[f"{half}_attention_heads"] = built(stack).self.project.heads
        sizes[f"{half}_ffn_dim"] = built(stack).feed.inner.out_features
    named = activation(built(model.decoder).feed.activation)
    width = model.embedded.tokens.embedding_dim
    return {
        "architectures": ["MarianMTModel" if kind == "marian" else "BartForConditionalGeneration"],
        "model_type": kind,
        "is_encoder_decoder": True,
        "vocab_size": model.embedded.tokens.num_embeddings,
        "d_model": width,
        **sizes,
        "activation_function": "swish" if named == "silu" else named,
        "scale_embedding": model.embedded.scale == width**0.5,
        "max_position_embeddings": model.embedded.positions.table.num_embeddings,
        "tie_word_embeddings": True,
        **({"decoder_vocab_size": model.embedded.tokens.num_embeddings} if kind == "marian" else {}),
    }


TIED = ("embed_tokens.weight", "lm_head.weight")
WORDED = ("shared.weight", "final_logits_bias")


def _family(kind: str, normed: bool, ignored: tuple[str, ...]) -> Family:
    return Family(
        kind,
        partial(make, normed=normed),
        partial(rows, normed=normed),
        partial(fits, normed=normed),
        partial(config, kind=kind),
        None,
        "model.",
        WORDED,
        ignored,
    )


BART = _family("bart", True, TIED)
MARIAN = _family("marian", False, (*TIED, "embed_positions.weight"))
