"""BERT (Devlin et al. 2019): bare, or with the heads of masked language modelling and next-sentence prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from regard.hub.families.family import Family, first_block, model_section
from regard.hub.families.gpt2 import activation_name
from regard.hub.folder import HFConfig
from regard.hub.weight_map import TensorMap, for_layers, linear, qkv
from regard.models import Bert, MaskedLM
from regard.models.config import BertConfig


def model_config(config: HFConfig) -> BertConfig:
    return BertConfig(
        vocabulary=config.need("vocab_size"),
        layers=config.need("num_hidden_layers"),
        width=config.need("hidden_size"),
        heads=config.need("num_attention_heads"),
        feedforward_dim=config.need("intermediate_size"),
        max_positions=config.need("max_position_embeddings"),
        segments=config.get("type_vocab_size", 2),
        eps=config.get("layer_norm_eps", 1e-12),
        activation=config.get("hidden_act", "gelu"),
    )


def build(config: HFConfig) -> nn.Module:
    return with_head(config, model_config(config))


def with_head(config: HFConfig, model: BertConfig) -> nn.Module:
    """A BERT, with the pre-training heads where the architecture has them."""
    bert = replace(model, dropout=0.0).build()
    return MaskedLM(bert) if config.architecture.endswith(("ForMaskedLM", "ForPreTraining")) else bert


def settings(config: HFConfig) -> dict[str, Any]:
    return masked_recipe(model_config(config))


def masked_recipe(model: BertConfig) -> dict[str, Any]:
    """The recipe of a BERT with this configuration."""
    return {"task": "masked", "model": model_section("bert", model, "vocabulary")}


def tensor_maps(model: nn.Module) -> list[TensorMap]:
    bert, ours = bert_of(model)
    there, here = "bert.encoder.layer.{}.", ours + "encoder.blocks.{}."
    found = [
        *embedding_maps(bert, "bert.embeddings.", ours),
        *for_layers(layer_maps(bert, there, here), bert.layers),
        *linear("bert.pooler.dense", ours + "pooler", optional=True),
    ]
    return (
        found
        if isinstance(model, Bert)
        else [
            *found,
            *head_maps("cls.predictions.", "transform.dense", "transform.LayerNorm"),
            TensorMap("cls.seq_relationship.weight", "next_sentence.weight", reverse_rows=True, optional=True),
            TensorMap("cls.seq_relationship.bias", "next_sentence.bias", reverse_rows=True, optional=True),
        ]
    )


def embedding_maps(bert: Bert, there: str, ours: str, skip_rows: int = 0) -> list[TensorMap]:
    """The maps of the input embedding; `skip_rows`: positions for padding."""
    here = ours + "encoder.embedding."
    segments = [TensorMap(there + "token_type_embeddings.weight", here + "segments.weight")]
    return [
        TensorMap(there + "word_embeddings.weight", here + "tokens.weight"),
        TensorMap(there + "position_embeddings.weight", here + "positions.table.weight", skip_rows=skip_rows),
        *([] if bert.encoder.embedding.segments is None else segments),
        *linear(there + "LayerNorm", here + "norm"),
    ]


def layer_maps(bert: Bert, there: str, here: str) -> list[TensorMap]:
    """The maps of one layer."""
    project = first_block(bert.encoder.blocks).self.project
    return [
        *qkv(
            [f"{there}attention.self.{one}" for one in ("query", "key", "value")], here + "self.project.joint", project
        ),
        *linear(there + "attention.output.dense", here + "self.out"),
        *linear(there + "attention.output.LayerNorm", here + "after_self.norm"),
        *linear(there + "intermediate.dense", here + "feed.inner"),
        *linear(there + "output.dense", here + "feed.outer"),
        *linear(there + "output.LayerNorm", here + "after_feed.norm"),
    ]


def head_maps(there: str, dense: str, norm: str, bias: str = "bias") -> list[TensorMap]:
    """The maps of the masked-LM head."""
    return [
        *linear(there + dense, "lm_head.dense", optional=True),
        *linear(there + norm, "lm_head.norm", optional=True),
        TensorMap(there + bias, "lm_head.bias", optional=True),
    ]


def bert_of(model: nn.Module) -> tuple[Bert, str]:
    """The BERT in a model, and the prefix of its parameters."""
    if isinstance(model, MaskedLM):
        return model.bert, "bert."
    assert isinstance(model, Bert)
    return model, ""


def matches(model: nn.Module) -> bool:
    return isinstance(model, Bert | MaskedLM) and bert_of(model)[0].encoder.embedding.segments is not None


def config(model: nn.Module, max_length: int) -> Mapping[str, Any]:
    bert, _ = bert_of(model)
    first, segments = first_block(bert.encoder.blocks), bert.encoder.embedding.segments
    assert segments is not None
    return {
        "architectures": ["BertModel" if isinstance(model, Bert) else "BertForPreTraining"],
        "model_type": "bert",
        "vocab_size": bert.words.size(0),
        "hidden_size": bert.width,
        "num_hidden_layers": bert.layers,
        "num_attention_heads": first.self.project.heads,
        "intermediate_size": first.feed.inner.out_features,
        "hidden_act": activation_name(first.feed.activation),
        "max_position_embeddings": bert.max_positions,
        "type_vocab_size": segments.num_embeddings,
        "layer_norm_eps": first.after_self.norm.eps,
        "hidden_dropout_prob": bert.encoder.embedding.dropout.p,
        "attention_probs_dropout_prob": first.self.dropout,
    }


def required_prefixes(config: HFConfig) -> tuple[str, ...]:
    if config.architecture.endswith("ForPreTraining"):
        return ("cls.", "bert.pooler")
    if config.architecture.endswith("ForMaskedLM"):
        return ("cls.predictions",)
    return ("bert.pooler",) if config.architecture.endswith("Model") else ()


TIED = {
    "predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "cls.predictions.bias",
}
VOCAB_TENSORS = ("word_embeddings.weight", "predictions.bias")
BERT = Family(
    "bert",
    build,
    tensor_maps,
    matches,
    config,
    settings,
    "bert.",
    VOCAB_TENSORS,
    required_prefixes=required_prefixes,
    copies=TIED,
)
