"""The models, from the Seq2Seq bottleneck to BERT and GPT: torch modules that attend through `regard.attention`, with a
configuration each (`config`). Nothing here knows recipes. Public names load on first use.
"""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.models.bert import (
        FEEDFORWARDS as FEEDFORWARDS,
        SIZES as SIZES,
        Bert as Bert,
        MaskedLM as MaskedLM,
        MaskedLMOutput as MaskedLMOutput,
    )
    from regard.models.bert_heads import (
        BertFeatures as BertFeatures,
        Pooler as Pooler,
        Pooling as Pooling,
        SequenceClassifier as SequenceClassifier,
        SpanLogits as SpanLogits,
        SpanPredictor as SpanPredictor,
        TokenClassifier as TokenClassifier,
    )
    from regard.models.blocks import (
        LLAMA as LLAMA,
        VIT as VIT,
        BlockConfig as BlockConfig,
        InputEmbedding as InputEmbedding,
        SwiGLU as SwiGLU,
        decoder_blocks as decoder_blocks,
        encoder_blocks as encoder_blocks,
        gelu_feedforward as gelu_feedforward,
    )
    from regard.models.char_cnn import CharCNN as CharCNN
    from regard.models.chunked_cross_entropy import LinearCrossEntropy as LinearCrossEntropy
    from regard.models.cross_entropy import (
        Logits as Logits,
        Mixture as Mixture,
        Prediction as Prediction,
        map_unreachable_to_unk as map_unreachable_to_unk,
    )
    from regard.models.decoders import (
        Bahdanau as Bahdanau,
        Decoder as Decoder,
        DecoderState as DecoderState,
        Luong as Luong,
        LuongInputFeeding as LuongInputFeeding,
    )
    from regard.models.elmo import BiLMLogits as BiLMLogits, ELMo as ELMo, Tagger as Tagger
    from regard.models.embedding import OutputProjection as OutputProjection, WordEmbedding as WordEmbedding
    from regard.models.encoder import Encoder as Encoder
    from regard.models.gpt import GPT as GPT
    from regard.models.image_captioners import (
        RecurrentCaptioner as RecurrentCaptioner,
        TransformerCaptioner as TransformerCaptioner,
        doubly_stochastic as doubly_stochastic,
    )
    from regard.models.image_classifier import ImageClassifier as ImageClassifier, ImagePooling as ImagePooling
    from regard.models.image_encoders import (
        ConvEncoder as ConvEncoder,
        ImageEncoder as ImageEncoder,
        ImageStates as ImageStates,
        PatchEncoder as PatchEncoder,
        sine_positions as sine_positions,
        vit_blocks as vit_blocks,
    )
    from regard.models.image_pointer import PhrasePointer as PhrasePointer
    from regard.models.neural_cache import NeuralCache as NeuralCache
    from regard.models.packed_linear import pack_for_decoding as pack_for_decoding
    from regard.models.pooling import PoolingClassifier as PoolingClassifier
    from regard.models.pruning import (
        find_multi_heads as find_multi_heads,
        prune_heads as prune_heads,
        query_group_size as query_group_size,
    )
    from regard.models.rnn_encoder import BiRNNEncoder as BiRNNEncoder, EncoderOutput as EncoderOutput
    from regard.models.rnn_lm import RecurrentLM as RecurrentLM
    from regard.models.seq2seq import Seq2Seq as Seq2Seq, Seq2SeqState as Seq2SeqState
    from regard.models.transformer import (
        Transformer as Transformer,
        TransformerSize as TransformerSize,
        build_transformer as build_transformer,
    )

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "bert": (
            "Bert",
            "FEEDFORWARDS",
            "MaskedLMOutput",
            "MaskedLM",
            "SIZES",
        ),
        "bert_heads": (
            "SpanPredictor",
            "SequenceClassifier",
            "TokenClassifier",
            "Pooling",
            "BertFeatures",
            "SpanLogits",
            "Pooler",
        ),
        "blocks": (
            "InputEmbedding",
            "SwiGLU",
            "LLAMA",
            "VIT",
            "BlockConfig",
            "gelu_feedforward",
            "encoder_blocks",
            "decoder_blocks",
        ),
        "char_cnn": ("CharCNN",),
        "chunked_cross_entropy": ("LinearCrossEntropy",),
        "decoders": ("Bahdanau", "Decoder", "LuongInputFeeding", "Luong", "DecoderState"),
        "elmo": ("ELMo", "BiLMLogits", "Tagger"),
        "embedding": (
            "OutputProjection",
            "WordEmbedding",
        ),
        "encoder": ("Encoder",),
        "gpt": ("GPT",),
        "image_captioners": ("RecurrentCaptioner", "TransformerCaptioner", "doubly_stochastic"),
        "image_classifier": ("ImageClassifier", "ImagePooling"),
        "image_encoders": (
            "ConvEncoder",
            "ImageEncoder",
            "ImageStates",
            "PatchEncoder",
            "sine_positions",
            "vit_blocks",
        ),
        "image_pointer": ("PhrasePointer",),
        "neural_cache": ("NeuralCache",),
        "packed_linear": ("pack_for_decoding",),
        "pooling": ("PoolingClassifier",),
        "cross_entropy": ("Logits", "Mixture", "Prediction", "map_unreachable_to_unk"),
        "pruning": ("query_group_size", "find_multi_heads", "prune_heads"),
        "rnn_encoder": (
            "BiRNNEncoder",
            "EncoderOutput",
        ),
        "rnn_lm": ("RecurrentLM",),
        "seq2seq": ("Seq2Seq", "Seq2SeqState"),
        "transformer": (
            "TransformerSize",
            "Transformer",
            "build_transformer",
        ),
    },
)
