"""RoBERTa (Liu et al. 2019): BERT without next sentences, whose positions begin behind two that stand for padding.

It goes out as a BERT, which it is equal to once those two are gone.
"""

from __future__ import annotations

from torch import nn

from regard.hub.families import bert
from regard.hub.families.family import Family
from regard.hub.folder import Config
from regard.hub.table import Row, both, layered, unsaid
from regard.models.bert import Bert, Size

SKIPPED = 2


def make(config: Config) -> nn.Module:
    config.only("hidden_act", "gelu")
    config.only("position_embedding_type", "absolute")
    config.only("is_decoder", False)
    config.only("pad_token_id", SKIPPED - 1)
    size = Size(
        config.need("num_hidden_layers"),
        config.need("hidden_size"),
        config.need("num_attention_heads"),
        config.need("intermediate_size"),
    )
    told = (config.get("type_vocab_size", 1), config.get("layer_norm_eps", 1e-5), config.get("hidden_act", "gelu"))
    return bert.headed(config, size, config.need("max_position_embeddings") - SKIPPED, *told)


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
ROBERTA = Family("roberta", make, rows, lambda model: False, bert.config, None, "roberta.", WORDED, TIED, promises)
