"""Text on its way to the models: files -> examples -> ids -> batches. Public names load on first use.

`examples` and `words` say what there is; `corpora` read it from files; `tokenizers` and `store` turn it into ids;
`batches` feeds it to models. Each imports only what stands before it in this sentence; `grammar`, the built-in corpus,
needs `examples` alone.
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
    from regard.text.batches.collate import Answer as Answer, Label as Label, Tag as Tag, Translate as Translate
    from regard.text.batches.layout import pad_rows as pad_rows
    from regard.text.batches.lm_batches import Blocks as Blocks, Lanes as Lanes, Read as Read, Stream as Stream
    from regard.text.batches.masking import Fill as Fill, Masking as Masking, Pieces as Pieces, WholeWords as WholeWords
    from regard.text.batches.packing import Pack as Pack, Packing as Packing
    from regard.text.batches.pairs import (
        A_STOP as A_STOP,
        B_STOP as B_STOP,
        A as A,
        B as B,
        FillPairs as FillPairs,
        Pairs as Pairs,
    )
    from regard.text.batches.plain import Plain as Plain, TagSpelled as TagSpelled
    from regard.text.batches.plan import Batches as Batches, Plan as Plan
    from regard.text.batches.seeded_rng import Epoch as Epoch
    from regard.text.corpora.answers import Answers as Answers
    from regard.text.corpora.corpus import Chain as Chain, Corpus as Corpus
    from regard.text.corpora.labels import (
        Classified as Classified,
        Labels as Labels,
        Scale as Scale,
        TagFile as TagFile,
    )
    from regard.text.corpora.lines import Lines as Lines, Skipped as Skipped
    from regard.text.corpora.raw_text import Documents as Documents, Running as Running
    from regard.text.corpora.tables import Rows as Rows, Table as Table
    from regard.text.corpora.translations import (
        Parallel as Parallel,
        Translations as Translations,
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
    from regard.text.store.columns import Columns as Columns, Flat as Flat
    from regard.text.store.fields import (
        AnsweredFields as AnsweredFields,
        DocumentFields as DocumentFields,
        Fields as Fields,
        LabelledFields as LabelledFields,
        TaggedFields as TaggedFields,
        TranslationFields as TranslationFields,
        columns_of as columns_of,
    )
    from regard.text.store.oov_fields import SpelledDocuments as SpelledDocuments, SpelledTags as SpelledTags
    from regard.text.store.store import Store as Store
    from regard.text.tokenizers.kinds import (
        BPE as BPE,
        ByteBPE as ByteBPE,
        Characters as Characters,
        Kind as Kind,
        Unigram as Unigram,
        WordPiece as WordPiece,
        Words as Words,
    )
    from regard.text.tokenizers.oov import (
        Opened as Opened,
        compacted as compacted,
        opened as opened,
        spelled as spelled,
    )
    from regard.text.tokenizers.specials import SpecialIds as SpecialIds
    from regard.text.tokenizers.spelling import (
        PAD as PAD,
        SPECIAL as SPECIAL,
        spelled_vocabulary as spelled_vocabulary,
        spelled_words as spelled_words,
    )
    from regard.text.tokenizers.tokenizer import Encoding as Encoding, Tokenizer as Tokenizer
    from regard.text.words import Span as Span, numbers as numbers, separated as separated, spaced as spaced

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
        "batches.collate": ("Answer", "Label", "Tag", "Translate"),
        "batches.layout": ("pad_rows",),
        "batches.lm_batches": ("Blocks", "Lanes", "Read", "Stream"),
        "batches.masking": ("Fill", "Masking", "Pieces", "WholeWords"),
        "batches.packing": ("Pack", "Packing"),
        "batches.pairs": ("A", "A_STOP", "B", "B_STOP", "FillPairs", "Pairs"),
        "batches.plain": ("Plain", "TagSpelled"),
        "batches.plan": ("Batches", "Plan"),
        "batches.seeded_rng": ("Epoch",),
        "corpora.answers": ("Answers",),
        "corpora.corpus": ("Chain", "Corpus"),
        "corpora.labels": ("Classified", "Labels", "Scale", "TagFile"),
        "corpora.lines": ("Lines", "Skipped"),
        "corpora.raw_text": ("Documents", "Running"),
        "corpora.tables": ("Rows", "Table"),
        "corpora.translations": ("Parallel", "Translations", "parse_links"),
        "examples": ("Answered", "Document", "IGNORED", "Labelled", "Links", "Sense", "Tagged", "Translation"),
        "store.columns": ("Columns", "Flat"),
        "store.fields": (
            "AnsweredFields",
            "DocumentFields",
            "Fields",
            "LabelledFields",
            "TaggedFields",
            "TranslationFields",
            "columns_of",
        ),
        "store.oov_fields": ("SpelledDocuments", "SpelledTags"),
        "store.store": ("Store",),
        "tokenizers.kinds": ("BPE", "ByteBPE", "Characters", "Kind", "Unigram", "WordPiece", "Words"),
        "tokenizers.oov": ("Opened", "compacted", "opened", "spelled"),
        "tokenizers.specials": ("SpecialIds",),
        "tokenizers.spelling": ("PAD", "SPECIAL", "spelled_vocabulary", "spelled_words"),
        "tokenizers.tokenizer": ("Encoding", "Tokenizer"),
        "words": ("Span", "numbers", "separated", "spaced"),
    },
)
