"""Model configurations: plain dataclasses, one for each model, that hold all its hyperparameters; `build()` makes it.

GPTConfig(vocabulary=50257, max_positions=1024, layers=12, heads=12, width=768).build()

Recipes, runs and Hugging Face checkpoints all become one of these. The fields have the names and defaults of the
settings in [model] of a recipe.
"""

from typing import TYPE_CHECKING, Any, Protocol

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from torch import nn

    from regard.models.config.bert import (
        BertActivation as BertActivation,
        BertConfig as BertConfig,
        MaskedLMConfig as MaskedLMConfig,
        SequenceClassifierConfig as SequenceClassifierConfig,
        SizeName as SizeName,
        SpanPredictorConfig as SpanPredictorConfig,
        TokenClassifierConfig as TokenClassifierConfig,
    )
    from regard.models.config.elmo import (
        ELMoConfig as ELMoConfig,
        ELMoTaggerConfig as ELMoTaggerConfig,
        InputName as InputName,
        WordTaggerConfig as WordTaggerConfig,
        WordVocabulary as WordVocabulary,
    )
    from regard.models.config.image import (
        ImageClassifierConfig as ImageClassifierConfig,
        ImageEncoderName as ImageEncoderName,
        PatchPositions as PatchPositions,
        PhrasePointerConfig as PhrasePointerConfig,
        RecurrentCaptionerConfig as RecurrentCaptionerConfig,
        StemName as StemName,
        TransformerCaptionerConfig as TransformerCaptionerConfig,
    )
    from regard.models.config.language_model import (
        AttentiveLMConfig as AttentiveLMConfig,
        CopyName as CopyName,
        GPTActivation as GPTActivation,
        GPTConfig as GPTConfig,
        GPTPositions as GPTPositions,
        RecurrentLMConfig as RecurrentLMConfig,
        WindowLMConfig as WindowLMConfig,
    )
    from regard.models.config.names import (
        CellName as CellName,
        NormaliserName as NormaliserName,
        NormName as NormName,
        ScoreName as ScoreName,
    )
    from regard.models.config.pooling import (
        PoolingClassifierConfig as PoolingClassifierConfig,
        PoolingEncoderName as PoolingEncoderName,
    )
    from regard.models.config.translation import (
        ActivationName as ActivationName,
        BahdanauConfig as BahdanauConfig,
        BottleneckConfig as BottleneckConfig,
        LuongConfig as LuongConfig,
        LuongScore as LuongScore,
        OrderName as OrderName,
        PointerConfig as PointerConfig,
        QueryName as QueryName,
        TransformerConfig as TransformerConfig,
        TransformerPositions as TransformerPositions,
        VocabularySizes as VocabularySizes,
        WindowName as WindowName,
    )


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
    "captioning": {"recurrent": "RecurrentCaptionerConfig", "transformer": "TransformerCaptionerConfig"},
    "image-classification": {"encoder": "ImageClassifierConfig"},
    "pointing": {"pointer": "PhrasePointerConfig"},
}
"""The kinds of models that each task of a recipe offers, and their configurations; the first kind is the default."""

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "bert": (
            "BertActivation",
            "BertConfig",
            "MaskedLMConfig",
            "SequenceClassifierConfig",
            "SizeName",
            "SpanPredictorConfig",
            "TokenClassifierConfig",
        ),
        "elmo": ("ELMoConfig", "ELMoTaggerConfig", "InputName", "WordTaggerConfig", "WordVocabulary"),
        "image": (
            "ImageClassifierConfig",
            "ImageEncoderName",
            "PatchPositions",
            "PhrasePointerConfig",
            "RecurrentCaptionerConfig",
            "StemName",
            "TransformerCaptionerConfig",
        ),
        "language_model": (
            "AttentiveLMConfig",
            "CopyName",
            "GPTActivation",
            "GPTConfig",
            "GPTPositions",
            "RecurrentLMConfig",
            "WindowLMConfig",
        ),
        "names": ("CellName", "NormName", "NormaliserName", "ScoreName"),
        "pooling": ("PoolingClassifierConfig", "PoolingEncoderName"),
        "translation": (
            "ActivationName",
            "BahdanauConfig",
            "BottleneckConfig",
            "LuongConfig",
            "LuongScore",
            "OrderName",
            "PointerConfig",
            "TransformerPositions",
            "QueryName",
            "TransformerConfig",
            "VocabularySizes",
            "WindowName",
        ),
    },
)
__all__ += ["KINDS", "ModelConfig", "config_class"]


def config_class(task: str, kind: str) -> Any:
    """The configuration of a kind of model; both names are known."""
    name = KINDS[task][kind]
    return __getattr__(name)
