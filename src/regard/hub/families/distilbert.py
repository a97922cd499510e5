"""DistilBERT (Sanh et al. 2019): BERT without segments, next sentences and a vector for the whole text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from regard.hub.families import bert
from regard.hub.families.family import Family, built
from regard.hub.families.gpt2 import activation
from regard.hub.folder import Config
from regard.hub.weight_map import Row, both, layered, stacked, unsaid
from regard.models import FEEDS, Bert, MaskedLM
from regard.models.config import BertConfig

EPS = 1e-12


def model_config(config: Config) -> BertConfig:
    config.only("activation", *FEEDS)
    config.only("sinusoidal_pos_embds", False, True)  # they are tensors of the checkpoint either way
    return BertConfig(
        vocabulary=config.need("vocab_size"),
        layers=config.need("n_layers"),
        width=config.need("dim"),
        heads=config.need("n_heads"),
        hidden=config.need("hidden_dim"),
        positions=config.need("max_position_embeddings"),
        segments=0,
        eps=EPS,
        activation=config.get("activation", "gelu"),
    )


def make(config: Config) -> nn.Module:
    return bert.with_head(config, model_config(config))


def settings(config: Config) -> dict[str, Any]:
    return bert.masked(model_config(config))


def rows(model: nn.Module) -> list[Row]:
    body, ours = bert.body_of(model)
    there, here = "distilbert.transformer.layer.{}.", ours + "encoder.blocks.{}."
    project = built(body.encoder.blocks).self.project
    layer = [
        *stacked([f"{there}attention.{one}_lin" for one in "qkv"], here + "self.project.joint", project),
        *both(there + "attention.out_lin", here + "self.out"),
        *both(there + "sa_layer_norm", here + "after_self.norm"),
        *both(there + "ffn.lin1", here + "feed.inner"),
        *both(there + "ffn.lin2", here + "feed.outer"),
        *both(there + "output_layer_norm", here + "after_feed.norm"),
    ]
    found = [
        *bert.embedded(body, "distilbert.embeddings.", ours),
        *layered(layer, body.layers),
        *unsaid(ours + "pooler"),
    ]
    if isinstance(model, Bert):
        return found
    return [*found, *bert.head("", "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"), *unsaid("next")]


def fits(model: nn.Module) -> bool:
    return isinstance(model, Bert | MaskedLM) and bert.body_of(model)[0].encoder.embedded.segments is None


def config(model: nn.Module, longest: int) -> Mapping[str, Any]:
    body, _ = bert.body_of(model)
    first = built(body.encoder.blocks)
    return {
        "architectures": ["DistilBertModel" if isinstance(model, Bert) else "DistilBertForMaskedLM"],
        "model_type": "distilbert",
        "vocab_size": body.words.size(0),
        "dim": body.width,
        "n_layers": body.layers,
        "n_heads": first.self.project.heads,
        "hidden_dim": first.feed.inner.out_features,
        "activation": activation(first.feed.activation),
        "max_position_embeddings": body.longest,
        "dropout": body.encoder.embedded.dropout.p,
        "attention_dropout": first.self.dropout,
    }


def promises(config: Config) -> tuple[str, ...]:
    return ("vocab_",) if config.architecture.endswith("ForMaskedLM") else ()


TIED = ("vocab_projector.weight",)
WORDED = ("word_embeddings.weight", "vocab_projector.bias")
DISTILBERT = Family("distilbert", make, rows, fits, config, settings, "distilbert.", WORDED, TIED, promises)
