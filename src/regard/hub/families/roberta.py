"""RoBERTa (Liu et al. 2019): BERT without next-sentence prediction, with two rows of positions for padding.

It is exported as a BERT, to which it is equal without those two.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from regard.hub.families import bert
from regard.hub.families.family import Family
from regard.hub.folder import HFConfig
from regard.hub.weight_map import TensorMap, for_layers, linear, missing
from regard.models import Bert
from regard.models.config import BertConfig

PADDING_POSITIONS = 2


def model_config(config: HFConfig) -> BertConfig:
    base = bert.model_config(config)
    return replace(base, max_positions=base.max_positions - PADDING_POSITIONS)


def build(config: HFConfig) -> nn.Module:
    return bert.with_head(config, model_config(config))


def settings(config: HFConfig) -> dict[str, Any]:
    return bert.masked_recipe(model_config(config))


def tensor_maps(model: nn.Module) -> list[TensorMap]:
    body, ours = bert.bert_of(model)
    there = "roberta.encoder.layer.{}."
    found = [
        *bert.embedding_maps(body, "roberta.embeddings.", ours, skip_rows=PADDING_POSITIONS),
        *for_layers(bert.layer_maps(body, there, ours + "encoder.blocks.{}."), body.layers),
        *linear("roberta.pooler.dense", ours + "pooler", optional=True),
    ]
    return (
        found
        if isinstance(model, Bert)
        else [*found, *bert.head_maps("lm_head.", "dense", "layer_norm"), *missing("next_sentence")]
    )


def required_prefixes(config: HFConfig) -> tuple[str, ...]:
    if config.architecture.endswith("ForMaskedLM"):
        return ("lm_head.",)
    return ("roberta.pooler",) if config.architecture.endswith("Model") else ()


TIED = {
    "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
}
VOCAB_TENSORS = ("word_embeddings.weight", "lm_head.bias")
ROBERTA = Family(
    "roberta",
    build,
    tensor_maps,
    lambda model: False,
    bert.config,
    settings,
    "roberta.",
    VOCAB_TENSORS,
    required_prefixes=required_prefixes,
    copies=TIED,
)
