"""DistilBERT (Sanh et al. 2019): BERT without segments, pooler and next-sentence prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from regard.hub.families import bert
from regard.hub.families.family import Family, first_block
from regard.hub.families.gpt2 import activation_name
from regard.hub.folder import HFConfig
from regard.hub.weight_map import TensorMap, for_layers, linear, missing, qkv
from regard.models import Bert, MaskedLM
from regard.models.config import BertConfig

EPS = 1e-12


def model_config(config: HFConfig) -> BertConfig:
    return BertConfig(
        vocabulary=config.need("vocab_size"),
        layers=config.need("n_layers"),
        width=config.need("dim"),
        heads=config.need("n_heads"),
        feedforward_dim=config.need("hidden_dim"),
        max_positions=config.need("max_position_embeddings"),
        segments=0,
        eps=EPS,
        activation=config.get("activation", "gelu"),
    )


def build(config: HFConfig) -> nn.Module:
    return bert.with_head(config, model_config(config))


def settings(config: HFConfig) -> dict[str, Any]:
    return bert.masked_recipe(model_config(config))


def tensor_maps(model: nn.Module) -> list[TensorMap]:
    body, ours = bert.bert_of(model)
    there, here = "distilbert.transformer.layer.{}.", ours + "encoder.blocks.{}."
    project = first_block(body.encoder.blocks).self.project
    layer = [
        *qkv([f"{there}attention.{one}_lin" for one in "qkv"], here + "self.project.joint", project),
        *linear(there + "attention.out_lin", here + "self.out"),
        *linear(there + "sa_layer_norm", here + "after_self.norm"),
        *linear(there + "ffn.lin1", here + "feed.inner"),
        *linear(there + "ffn.lin2", here + "feed.outer"),
        *linear(there + "output_layer_norm", here + "after_feed.norm"),
    ]
    found = [
        *bert.embedding_maps(body, "distilbert.embeddings.", ours),
        *for_layers(layer, body.layers),
        *missing(ours + "pooler"),
    ]
    if isinstance(model, Bert):
        return found
    return [
        *found,
        *bert.head_maps("", "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
        *missing("next_sentence"),
    ]


def matches(model: nn.Module) -> bool:
    return isinstance(model, Bert | MaskedLM) and bert.bert_of(model)[0].encoder.embedding.segments is None


def config(model: nn.Module, max_length: int) -> Mapping[str, Any]:
    body, _ = bert.bert_of(model)
    first = first_block(body.encoder.blocks)
    return {
        "architectures": ["DistilBertModel" if isinstance(model, Bert) else "DistilBertForMaskedLM"],
        "model_type": "distilbert",
        "vocab_size": body.words.size(0),
        "dim": body.width,
        "n_layers": body.layers,
        "n_heads": first.self.project.heads,
        "hidden_dim": first.feed.inner.out_features,
        "activation": activation_name(first.feed.activation),
        "max_position_embeddings": body.max_positions,
        "dropout": body.encoder.embedding.dropout.p,
        "attention_dropout": first.self.dropout,
    }


def required_prefixes(config: HFConfig) -> tuple[str, ...]:
    return ("vocab_",) if config.architecture.endswith("ForMaskedLM") else ()


TIED = {"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"}
VOCAB_TENSORS = ("word_embeddings.weight", "vocab_projector.bias")
DISTILBERT = Family(
    "distilbert",
    build,
    tensor_maps,
    matches,
    config,
    settings,
    "distilbert.",
    VOCAB_TENSORS,
    required_prefixes=required_prefixes,
    copies=TIED,
)
