"""The models, from the Seq2Seq bottleneck to BERT and GPT: torch modules that attend through `regard.attention`, with a
configuration each (`config`). Nothing here knows recipes. Public names load on first use.
"""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.models.bert import (
        FEEDS as FEEDS,
        SIZES as SIZES,
        Bert as Bert,
        Guesses as Guesses,
        MaskedLM as MaskedLM,
    )
    from regard.models.bert_heads import (
        OnSpans as OnSpans,
        OnText as OnText,
        OnTokens as OnTokens,
        Pooling as Pooling,
        Reading as Reading,
        Span as Span,
        Summary as Summary,
    )
    from regard.models.blocks import (
        MODERN as MODERN,
        Embedded as Embedded,
        Gated as Gated,
        Style as Style,
        gelu as gelu,
        readers as readers,
        writers as writers,
    )
    from regard.models.char_cnn import Spelled as Spelled
    from regard.models.chunked_cross_entropy import Surprise as Surprise
    from regard.models.decoders import (
        Bahdanau as Bahdanau,
        Decoder as Decoder,
        FedLuong as FedLuong,
        Luong as Luong,
        Writing as Writing,
    )
    from regard.models.elmo import ELMo as ELMo, Neighbours as Neighbours, Tagger as Tagger
    from regard.models.embedding import Softmax as Softmax, Words as Words
    from regard.models.encoder import Encoder as Encoder
    from regard.models.gpt import GPT as GPT
    from regard.models.neural_cache import NeuralCache as NeuralCache
    from regard.models.packed_linear import packed as packed
    from regard.models.pooling import PoolingClassifier as PoolingClassifier
    from regard.models.predictions import (
        Logits as Logits,
        Mixture as Mixture,
        Prediction as Prediction,
        sayable as sayable,
    )
    from regard.models.pruning import group_of as group_of, multi_heads as multi_heads, without as without
    from regard.models.rnn_encoder import Reader as Reader, Source as Source
    from regard.models.rnn_lm import RecurrentLM as RecurrentLM
    from regard.models.seq2seq import Seq2Seq as Seq2Seq, Standing as Standing
    from regard.models.transformer import (
        Size as Size,
        Transformer as Transformer,
        build_transformer as build_transformer,
    )

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "bert": (
            "Bert",
            "FEEDS",
            "Guesses",
            "MaskedLM",
            "SIZES",
        ),
        "bert_heads": ("OnSpans", "OnText", "OnTokens", "Pooling", "Reading", "Span", "Summary"),
        "blocks": (
            "Embedded",
            "Gated",
            "MODERN",
            "Style",
            "gelu",
            "readers",
            "writers",
        ),
        "char_cnn": ("Spelled",),
        "chunked_cross_entropy": ("Surprise",),
        "decoders": ("Bahdanau", "Decoder", "FedLuong", "Luong", "Writing"),
        "elmo": ("ELMo", "Neighbours", "Tagger"),
        "embedding": (
            "Softmax",
            "Words",
        ),
        "encoder": ("Encoder",),
        "gpt": ("GPT",),
        "neural_cache": ("NeuralCache",),
        "packed_linear": ("packed",),
        "pooling": ("PoolingClassifier",),
        "predictions": ("Logits", "Mixture", "Prediction", "sayable"),
        "pruning": ("group_of", "multi_heads", "without"),
        "rnn_encoder": (
            "Reader",
            "Source",
        ),
        "rnn_lm": ("RecurrentLM",),
        "seq2seq": ("Seq2Seq", "Standing"),
        "transformer": (
            "Size",
            "Transformer",
            "build_transformer",
        ),
    },
)
