"""BERT (Devlin et al. 2019): bare, or with its heads for hidden words and next sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from regard.errors import SettingError
from regard.hub.families.family import Family, built, model_section
from regard.hub.families.gpt2 import activation
from regard.hub.folder import Config
from regard.hub.weight_map import Row, both, layered, stacked
from regard.models import FEEDS, Bert, MaskedLM
from regard.models.config import BertConfig


def model_config(config: Config) -> BertConfig:
    config.only("hidden_act", *FEEDS)
    config.only("position_embedding_type", "absolute")
    config.only("is_decoder", False)
    return BertConfig(
        vocabulary=config.need("vocab_size"),
        layers=config.need("num_hidden_layers"),
        width=config.need("hidden_size"),
        heads=config.need("num_attention_heads"),
        hidden=config.need("intermediate_size"),
        positions=config.need("max_position_embeddings"),
        segments=config.get("type_vocab_size", 2),
        eps=config.get("layer_norm_eps", 1e-12),
        activation=config.get("hidden_act", "gelu"),
    )


def make(config: Config) -> nn.Module:
    return with_head(config, model_config(config))


def with_head(config: Config, model: BertConfig) -> nn.Module:
    """A BERT, with a head where the architecture has one."""
    kind = config.architecture
    known = ("Model", "ForMaskedLM", "ForPreTraining", "")
    if not any(kind.endswith(end) for end in known[:-1]) and kind:
        came = f"architecture {kind!r}"
        raise SettingError(came, "one that ends in Model, ForMaskedLM or ForPreTraining", where=config.where)
    bert = replace(model, dropout=0.0).build()
    return MaskedLM(bert) if kind.endswith(("ForMaskedLM", "ForPreTraining")) else bert


def settings(config: Config) -> dict[str, Any]:
    return masked(model_config(config))


def masked(model: BertConfig) -> dict[str, Any]:
    """The recipe of a BERT that is built so."""
    return {"task": "masked", "model": model_section("bert", model, "vocabulary")}


def rows(model: nn.Module) -> list[Row]:
    bert, ours = body_of(model)
    there, here = "bert.encoder.layer.{}.", ours + "encoder.blocks.{}."
    found = [
        *embedded(bert, "bert.embeddings.", ours),
        *layered(layer(bert, there, here), bert.layers),
        *both("bert.pooler.dense", ours + "pooler", optional=True),
    ]
    return (
        found
        if isinstance(model, Bert)
        else [
            *found,
            *head("cls.predictions.", "transform.dense", "transform.LayerNorm"),
            Row("cls.seq_relationship.weight", "next.weight", flipped=True, optional=True),
            Row("cls.seq_relationship.bias", "next.bias", flipped=True, optional=True),
        ]
    )


def embedded(bert: Bert, there: str, ours: str, skip: int = 0) -> list[Row]:
    """The rows of what is below the first layer; `skip`: positions that stand for padding."""
    here = ours + "encoder.embedded."
    segments = [Row(there + "token_type_embeddings.weight", here + "segments.weight")]
    return [
        Row(there + "word_embeddings.weight", here + "tokens.weight"),
        Row(there + "position_embeddings.weight", here + "positions.table.weight", skip=skip),
        *([] if bert.encoder.embedded.segments is None else segments),
        *both(there + "LayerNorm", here + "norm"),
    ]


def layer(bert: Bert, there: str, here: str) -> list[Row]:
    """The rows of one layer."""
    project = built(bert.encoder.blocks).self.project
    return [
        *stacked(
            [f"{there}attention.self.{one}" for one in ("query", "key", "value")], here + "self.project.joint", project
        ),
        *both(there + "attention.output.dense", here + "self.out"),
        *both(there + "attention.output.LayerNorm", here + "after_self.norm"),
        *both(there + "intermediate.dense", here + "feed.inner"),
        *both(there + "output.dense", here + "feed.outer"),
        *both(there + "output.LayerNorm", here + "after_feed.norm"),
    ]


def head(there: str, dense: str, norm: str, bias: str = "bias") -> list[Row]:
    """The rows of the head that guesses hidden words."""
    return [
        *both(there + dense, "guess.dense", optional=True),
        *both(there + norm, "guess.norm", optional=True),
        Row(there + bias, "guess.bias", optional=True),
    ]


def body_of(model: nn.Module) -> tuple[Bert, str]:
    """The BERT in a model, and where."""
    if isinstance(model, MaskedLM):
        return model.bert, "bert."
    assert isinstance(model, Bert)
    return model, ""


def fits(model: nn.Module) -> bool:
    return isinstance(model, Bert | MaskedLM) and body_of(model)[0].encoder.embedded.segments is not None


def config(model: nn.Module, longest: int) -> Mapping[str, Any]:
    bert, _ = body_of(model)
    first, segments = built(bert.encoder.blocks), bert.encoder.embedded.segments
    assert segments is not None
    return {
        "architectures": ["BertModel" if isinstance(model, Bert) else "BertForPreTraining"],
        "model_type": "bert",
        "vocab_size": bert.words.size(0),
        "hidden_size": bert.width,
        "num_hidden_layers": bert.layers,
        "num_attention_heads": first.self.project.heads,
        "intermediate_size": first.feed.inner.out_features,
        "hidden_act": activation(first.feed.activation),
        "max_position_embeddings": bert.longest,
        "type_vocab_size": segments.num_embeddings,
        "layer_norm_eps": first.after_self.norm.eps,
        "hidden_dropout_prob": bert.encoder.embedded.dropout.p,
        "attention_probs_dropout_prob": first.self.dropout,
    }


def promises(config: Config) -> tuple[str, ...]:
    if config.architecture.endswith("ForPreTraining"):
        return ("cls.", "bert.pooler")
    return ("cls.predictions",) if config.architecture.endswith("ForMaskedLM") else ()


TIED = ("predictions.decoder.weight", "predictions.decoder.bias")
WORDED = ("word_embeddings.weight", "predictions.bias")
BERT = Family("bert", make, rows, fits, config, settings, "bert.", WORDED, TIED, promises)
