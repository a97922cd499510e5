"""Configurations: plain dataclasses, one a model. Each holds all that its module is built from; `build()` builds it.

GPTConfig(vocabulary=50257, longest=1024, layers=12, heads=12, width=768).build()

Recipes, runs and Hugging Face checkpoints all become one of these. The fields bear the names of the settings in [model]
of a recipe, and their defaults are the defaults of those settings.
"""

from typing import TYPE_CHECKING, Any, Protocol

from regard.lazy import Home, door

if TYPE_CHECKING:
    from torch import nn

    from regard.models.config.bert import (
        BertConfig,
        MaskedLMConfig,
        SequenceClassifierConfig,
        SpanPredictorConfig,
        TokenClassifierConfig,
    )
    from regard.models.config.elmo import ELMoConfig, ELMoTaggerConfig, WordTaggerConfig, WordVocabulary
    from regard.models.config.language_model import AttentiveLMConfig, GPTConfig, RecurrentLMConfig, WindowLMConfig
    from regard.models.config.pooling import PoolingClassifierConfig
    from regard.models.config.translation import (
        BahdanauConfig,
        BottleneckConfig,
        LuongConfig,
        PointerConfig,
        TransformerConfig,
        Vocabularies,
    )

__all__ = [
    "ModelConfig",
    "KINDS",
    "config_class",
    "GPTConfig",
    "WindowLMConfig",
    "RecurrentLMConfig",
    "AttentiveLMConfig",
    "BottleneckConfig",
    "BahdanauConfig",
    "LuongConfig",
    "PointerConfig",
    "TransformerConfig",
    "Vocabularies",
    "BertConfig",
    "MaskedLMConfig",
    "SequenceClassifierConfig",
    "TokenClassifierConfig",
    "SpanPredictorConfig",
    "ELMoConfig",
    "ELMoTaggerConfig",
    "WordTaggerConfig",
    "PoolingClassifierConfig",
    "WordVocabulary",
]


class ModelConfig(Protocol):
    """What every configuration can do."""

    def build(self) -> "nn.Module":
        """The module, with fresh weights."""


KINDS: dict[str, dict[str, str]] = {
    "language": {
        "gpt": "GPTConfig",
        "window": "WindowLMConfig",
        "recurrent": "RecurrentLMConfig",
        "attentive": "AttentiveLMConfig",
    },
    "translation": {
        "bahdanau": "BahdanauConfig",
        "bottleneck": "BottleneckConfig",
        "luong": "LuongConfig",
        "pointer": "PointerConfig",
        "transformer": "TransformerConfig",
    },
    "classification": {"pooling": "PoolingClassifierConfig", "bert": "SequenceClassifierConfig"},
    "tagging": {"elmo": "ELMoTaggerConfig", "words": "WordTaggerConfig", "bert": "TokenClassifierConfig"},
    "contextual": {"elmo": "ELMoConfig"},
    "masked": {"bert": "MaskedLMConfig"},
    "answering": {"bert": "SpanPredictorConfig"},
}
"""The kinds of models that each task of a recipe offers, and their configurations; the first kind is the default."""

_HOMES: dict[str, Home] = {
    name: (f"regard.models.config.{module}", name)
    for module, names in {
        "language": "GPTConfig WindowLMConfig RecurrentLMConfig AttentiveLMConfig",
        "translation": "BottleneckConfig BahdanauConfig LuongConfig PointerConfig TransformerConfig Vocabularies",
        "bert": "BertConfig MaskedLMConfig SequenceClassifierConfig TokenClassifierConfig SpanPredictorConfig",
        "elmo": "ELMoConfig ELMoTaggerConfig WordTaggerConfig WordVocabulary",
        "pooling": "PoolingClassifierConfig",
    }.items()
    for name in names.split()
}

__getattr__ = door(__name__, _HOMES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def config_class(task: str, kind: str) -> Any:
    """The configuration of a kind of model; both names are known."""
    name = KINDS[task][kind]
    return globals().get(name) or __getattr__(name)
