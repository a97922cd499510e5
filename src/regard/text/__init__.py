"""Text processing: corpora, tokenizers, token stores, batches and the built-in corpus. Public names load on first use.

`examples` and `words` define the values; `corpora` reads them from files; `tokenizers` and `store` turn them into ids;
`batches` makes padded tensors. Each imports only from those before it in this sentence; `grammar`, the built-in corpus,
imports `examples` alone.
"""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.text import grammar as grammar
    from regard.text.batches.batch import (
        AnswerBatch as AnswerBatch,
        Batch as Batch,
        BlockBatch as BlockBatch,
        LabelledBatch as LabelledBatch,
        MaskedBatch as MaskedBatch,
        PackedBatch as PackedBatch,
        PlainBatch as PlainBatch,
        SpelledTaggedBatch as SpelledTaggedBatch,
        TaggedBatch as TaggedBatch,
        TranslationBatch as TranslationBatch,
    )
    from regard.text.batches.buckets import Buckets as Buckets
    from regard.text.batches.collate import (
        AnswerCollator as AnswerCollator,
        LabelCollator as LabelCollator,
        TagCollator as TagCollator,
        TranslationCollator as TranslationCollator,
    )
    from regard.text.batches.layout import pad_rows as pad_rows
    from regard.text.batches.lm_batches import (
        BlockCollator as BlockCollator,
        Lanes as Lanes,
        TokenBlocks as TokenBlocks,
        TokenStream as TokenStream,
    )
    from regard.text.batches.masking import (
        Masking as Masking,
        MaskingCollator as MaskingCollator,
        Pieces as Pieces,
        WholeWords as WholeWords,
    )
    from regard.text.batches.next_sentence import (
        FIRST as FIRST,
        FIRST_STOP as FIRST_STOP,
        SECOND as SECOND,
        SECOND_STOP as SECOND_STOP,
        NextSentenceCollator as NextSentenceCollator,
        NextSentencePairs as NextSentencePairs,
    )
    from regard.text.batches.packing import Packing as Packing, PackingCollator as PackingCollator
    from regard.text.batches.plain import PlainCollator as PlainCollator, SpelledTagCollator as SpelledTagCollator
    from regard.text.batches.plan import Batches as Batches, BatchPlan as BatchPlan
    from regard.text.batches.seeded_rng import Epoch as Epoch
    from regard.text.corpora.answers import AnswerRows as AnswerRows
    from regard.text.corpora.corpus import Chain as Chain, Corpus as Corpus
    from regard.text.corpora.labels import (
        LabelledRows as LabelledRows,
        Labels as Labels,
        Scale as Scale,
        TagFile as TagFile,
    )
    from regard.text.corpora.lines import Lines as Lines, SkippedLines as SkippedLines
    from regard.text.corpora.raw_text import RawText as RawText, TextDocuments as TextDocuments
    from regard.text.corpora.tables import DictRows as DictRows, TableFile as TableFile
    from regard.text.corpora.translations import (
        ParallelCorpus as ParallelCorpus,
        TranslationRows as TranslationRows,
        parse_links as parse_links,
    )
    from regard.text.examples import (
        IGNORED as IGNORED,
        Answered as Answered,
        Document as Document,
        Labelled as Labelled,
        Links as Links,
        Sense as Sense,
        Tagged as Tagged,
        Translation as Translation,
    )
    from regard.text.store.columns import Columns as Columns, RaggedArray as RaggedArray
    from regard.text.store.fields import (
        AnsweredFields as AnsweredFields,
        DocumentFields as DocumentFields,
        Fields as Fields,
        LabelledFields as LabelledFields,
        TaggedFields as TaggedFields,
        TranslationFields as TranslationFields,
        encode_columns as encode_columns,
    )
    from regard.text.store.oov_fields import OovDocumentFields as OovDocumentFields, OovTaggedFields as OovTaggedFields
    from regard.text.store.store import Store as Store
    from regard.text.tokenizers.char_ids import (
        CHAR_PAD as CHAR_PAD,
        CHAR_SPECIAL as CHAR_SPECIAL,
        spell_vocabulary as spell_vocabulary,
        spell_words as spell_words,
    )
    from regard.text.tokenizers.oov import (
        OovEncoding as OovEncoding,
        compact_oov as compact_oov,
        decode_with_oov as decode_with_oov,
        encode_with_oov as encode_with_oov,
    )
    from regard.text.tokenizers.specials import SpecialIds as SpecialIds
    from regard.text.tokenizers.tokenizer import Encoding as Encoding, Tokenizer as Tokenizer
    from regard.text.tokenizers.tokenizer_json import (
        expect_valid as expect_valid,
        load_engine as load_engine,
        rust_errors as rust_errors,
    )
    from regard.text.tokenizers.trainers import (
        BPE as BPE,
        ByteBPE as ByteBPE,
        CharacterLevel as CharacterLevel,
        TokenizerKind as TokenizerKind,
        Unigram as Unigram,
        WordLevel as WordLevel,
        WordPiece as WordPiece,
    )
    from regard.text.words import (
        Span as Span,
        tokenize_words as tokenize_words,
        whitespace_words as whitespace_words,
        word_indices as word_indices,
    )

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "": ("grammar",),
        "batches.batch": (
            "AnswerBatch",
            "Batch",
            "BlockBatch",
            "LabelledBatch",
            "MaskedBatch",
            "PackedBatch",
            "PlainBatch",
            "SpelledTaggedBatch",
            "TaggedBatch",
            "TranslationBatch",
        ),
        "batches.buckets": ("Buckets",),
        "batches.collate": ("AnswerCollator", "LabelCollator", "TagCollator", "TranslationCollator"),
        "batches.layout": ("pad_rows",),
        "batches.lm_batches": ("TokenBlocks", "Lanes", "BlockCollator", "TokenStream"),
        "batches.masking": ("MaskingCollator", "Masking", "Pieces", "WholeWords"),
        "batches.packing": ("PackingCollator", "Packing"),
        "batches.next_sentence": (
            "FIRST",
            "FIRST_STOP",
            "SECOND",
            "SECOND_STOP",
            "NextSentenceCollator",
            "NextSentencePairs",
        ),
        "batches.plain": ("PlainCollator", "SpelledTagCollator"),
        "batches.plan": ("Batches", "BatchPlan"),
        "batches.seeded_rng": ("Epoch",),
        "corpora.answers": ("AnswerRows",),
        "corpora.corpus": ("Chain", "Corpus"),
        "corpora.labels": ("LabelledRows", "Labels", "Scale", "TagFile"),
        "corpora.lines": ("Lines", "SkippedLines"),
        "corpora.raw_text": ("TextDocuments", "RawText"),
        "corpora.tables": ("DictRows", "TableFile"),
        "corpora.translations": ("ParallelCorpus", "TranslationRows", "parse_links"),
        "examples": ("Answered", "Document", "IGNORED", "Labelled", "Links", "Sense", "Tagged", "Translation"),
        "store.columns": ("Columns", "RaggedArray"),
        "store.fields": (
            "AnsweredFields",
            "DocumentFields",
            "Fields",
            "LabelledFields",
            "TaggedFields",
            "TranslationFields",
            "encode_columns",
        ),
        "store.oov_fields": ("OovDocumentFields", "OovTaggedFields"),
        "store.store": ("Store",),
        "tokenizers.trainers": (
            "BPE",
            "ByteBPE",
            "CharacterLevel",
            "TokenizerKind",
            "Unigram",
            "WordPiece",
            "WordLevel",
        ),
        "tokenizers.oov": ("OovEncoding", "compact_oov", "encode_with_oov", "decode_with_oov"),
        "tokenizers.specials": ("SpecialIds",),
        "tokenizers.char_ids": ("CHAR_PAD", "CHAR_SPECIAL", "spell_vocabulary", "spell_words"),
        "tokenizers.tokenizer": ("Encoding", "Tokenizer"),
        "tokenizers.tokenizer_json": ("expect_valid", "load_engine", "rust_errors"),
        "words": ("Span", "word_indices", "tokenize_words", "whitespace_words"),
    },
)
