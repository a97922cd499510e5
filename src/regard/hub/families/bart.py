"""BART (Lewis et al. 2020) and Marian (Junczys-Dowmunt et al. 2018), encoder-decoder Transformers.

They differ in the input embedding: BART has learned positions, after two rows for padding, and a norm; Marian's
positions are sines, then cosines, and are in no checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.layers import FeedForward, SeparateQKV
from regard.attention.positions import Learned
from regard.hub.families.family import Family, first_block
from regard.hub.families.gpt2 import activation_name
from regard.hub.folder import HFConfig
from regard.hub.weight_map import TensorMap, for_layers, linear, qkv
from regard.models import (
    BlockConfig,
    Encoder,
    InputEmbedding,
    Transformer,
    decoder_blocks,
    encoder_blocks,
    gelu_feedforward,
)

PADDING_POSITIONS = 2
FEEDFORWARDS: dict[str, Callable[[int, int], nn.Module]] = {
    "gelu": gelu_feedforward,
    "relu": FeedForward,
    "swish": lambda width, hidden: FeedForward(width, hidden, nn.SiLU()),
    "silu": lambda width, hidden: FeedForward(width, hidden, nn.SiLU()),
}


def build(config: HFConfig, normed: bool) -> nn.Module:
    width, vocabulary = config.need("d_model"), config.need("vocab_size")
    block = BlockConfig(feedforward=FEEDFORWARDS[config.get("activation_function", "gelu")])
    scale = width**0.5 if config.get("scale_embedding", False) else 1.0

    def embedding() -> InputEmbedding:
        positions = Learned(width, config.need("max_position_embeddings"))
        return InputEmbedding(vocabulary, width, positions, scale=scale, norm=nn.LayerNorm(width) if normed else None)

    def sizes(half: str) -> tuple[int, int, int, int]:
        layers, heads = config.need(f"{half}_layers"), config.need(f"{half}_attention_heads")
        return layers, width, heads, config.need(f"{half}_ffn_dim")

    source, target = embedding(), embedding()
    target.tokens = source.tokens
    encoder = Encoder(source, encoder_blocks(*sizes("encoder"), block))
    return Transformer(encoder, target, decoder_blocks(*sizes("decoder"), block))


def tensor_maps(model: nn.Module, normed: bool) -> list[TensorMap]:
    assert isinstance(model, Transformer)
    found = [
        TensorMap("model.shared.weight", "encoder.embedding.tokens.weight"),
        TensorMap("final_logits_bias", "output.bias", optional=True, squeeze=True),
    ]
    for half, here in (("encoder", "encoder.embedding."), ("decoder", "embedding.")):
        there = f"model.{half}."
        found.append(
            TensorMap(there + "embed_positions.weight", here + "positions.table.weight", skip_rows=PADDING_POSITIONS)
            if normed
            else TensorMap((), here + "positions.table.weight", default=marian_positions)
        )
        found += linear(there + "layernorm_embedding", here + "norm") if normed else []
    for half, ours, stack in (
        ("encoder", "encoder.blocks", model.encoder.blocks),
        ("decoder", "decoder", model.decoder),
    ):
        there, here = f"model.{half}.layers.{{}}.", ours + ".{}."
        names = [f"{there}self_attn.{one}_proj" for one in "qkv"]
        layer = [
            *qkv(names, here + "self.project.joint", first_block(stack).self.project),
            *linear(there + "self_attn.out_proj", here + "self.out"),
            *linear(there + "self_attn_layer_norm", here + "after_self.norm"),
            *linear(there + "fc1", here + "feed.inner"),
            *linear(there + "fc2", here + "feed.outer"),
            *linear(there + "final_layer_norm", here + "after_feed.norm"),
        ]
        for letter, name in zip("qkv", ("query", "key", "value"), strict=True) if half == "decoder" else ():
            layer += linear(f"{there}encoder_attn.{letter}_proj", f"{here}cross.project.{name}")
        if half == "decoder":
            layer += linear(there + "encoder_attn.out_proj", here + "cross.out")
            layer += linear(there + "encoder_attn_layer_norm", here + "after_cross.norm")
        found += for_layers(layer, len(stack))
    return found


def marian_positions(table: Tensor) -> Tensor:
    """Marian's positions (length, width): sines of all frequencies, then cosines."""
    positions = torch.arange(table.size(0), dtype=torch.float64).unsqueeze(1)
    angles = positions / 10000 ** (torch.arange(0, table.size(1), 2, dtype=torch.float64) / table.size(1))
    return torch.cat((angles.sin(), angles.cos()), 1).to(table.dtype)


def matches(model: nn.Module, normed: bool) -> bool:
    """Whether the model has the layers of this family; a Transformer trained here has other positions, and does not."""
    if not isinstance(model, Transformer) or not isinstance(model.embedding.positions, Learned):
        return False
    first, shared = first_block(model.decoder), model.encoder.embedding.tokens is model.embedding.tokens
    same = isinstance(model.embedding.norm, nn.LayerNorm) == normed and first.after_self.order == "post"
    plain = isinstance(first.feed, FeedForward) and isinstance(first.cross.project, SeparateQKV)
    table = model.embedding.positions.table.weight
    return same and plain and shared and (normed or torch.allclose(table, marian_positions(table)))


def config(model: nn.Module, max_length: int, kind: str) -> Mapping[str, Any]:
    assert isinstance(model, Transformer) and isinstance(model.embedding.positions, Learned)
    halves = {"encoder": model.encoder.blocks, "decoder": model.decoder}
    sizes: dict[str, int] = {}
    for half, stack in halves.items():
        sizes[f"{half}_layers"] = len(stack)
        sizes[f"{half}_attention_heads"] = first_block(stack).self.project.heads
        sizes[f"{half}_ffn_dim"] = first_block(stack).feed.inner.out_features
    named = activation_name(first_block(model.decoder).feed.activation)
    width = model.embedding.tokens.embedding_dim
    return {
        "architectures": ["MarianMTModel" if kind == "marian" else "BartForConditionalGeneration"],
        "model_type": kind,
        "is_encoder_decoder": True,
        "vocab_size": model.embedding.tokens.num_embeddings,
        "d_model": width,
        **sizes,
        "activation_function": "swish" if named == "silu" else named,
        "scale_embedding": model.embedding.scale == width**0.5,
        "max_position_embeddings": model.embedding.positions.table.num_embeddings,
        "tie_word_embeddings": True,
        **({"decoder_vocab_size": model.embedding.tokens.num_embeddings} if kind == "marian" else {}),
    }


TIED = {"embed_tokens.weight": "model.shared.weight", "lm_head.weight": "model.shared.weight"}
VOCAB_TENSORS = ("shared.weight", "final_logits_bias")


def _family(kind: str, normed: bool, copies: Mapping[str, str | Callable[[Tensor], Tensor]]) -> Family:
    return Family(
        kind,
        partial(build, normed=normed),
        partial(tensor_maps, normed=normed),
        partial(matches, normed=normed),
        partial(config, kind=kind),
        None,
        "model.",
        VOCAB_TENSORS,
        copies=copies,
    )


BART = _family("bart", True, TIED)
MARIAN = _family("marian", False, {**TIED, "embed_positions.weight": marian_positions})
