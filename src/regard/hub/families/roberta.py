"""RoBERTa (Liu et al. 2019): BERT without next sentences, whose positions begin behind two that stand for padding.

It goes out as a BERT, which it is equal to once those two are gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from regard.hub.families import bert
from regard.hub.families.family import Family
from regard.hub.folder import Config
from regard.hub.weight_map import Row, both, layered, unsaid
from regard.models import Bert
from regard.models.config import BertConfig

SKIPPED = 2


def model_config(config: Config) -> BertConfig:
    config.only("hidden_act", "gelu")
    config.only("pad_token_id", SKIPPED - 1)
    said = bert.model_config(config)
    segments, eps = config.get("type_vocab_size", 1), config.get("layer_norm_eps", 1e-5)
    return replace(said, positions=said.positions - SKIPPED, segments=segments, eps=eps)


def make(config: Config) -> nn.Module:
    return bert.with_head(config, model_config(config))


def settings(config: Config) -> dict[str, Any]:
    return bert.masked(model_config(config))


def rows(model: nn.Module) -> list[Row]:
    body, ours = bert.body_of(model)
    there = "roberta.encoder.layer.{}."
    found = [
        *bert.embedded(body, "roberta.embeddings.", ours, skip=SKIPPED),
        *layered(bert.layer(body, there, ours + "encoder.blocks.{}."), body.layers),
        *both("roberta.pooler.dense", ours + "pooler", optional=True),
    ]
    return (
        found if isinstance(model, Bert) else [*found, *bert.head("lm_head.", "dense", "layer_norm"), *unsaid("next")]
    )


def promises(config: Config) -> tuple[str, ...]:
    return ("lm_head.",) if config.architecture.endswith("ForMaskedLM") else ()


TIED = ("lm_head.decoder.weight", "lm_head.decoder.bias")
WORDED = ("word_embeddings.weight", "lm_head.bias")
ROBERTA = Family("roberta", make, rows, lambda model: False, bert.config, settings, "roberta.", WORDED, TIED, promises)
