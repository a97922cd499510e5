"""Text on its way to the models: files -> examples -> ids -> batches. Public names load on first use.

`examples` and `words` say what there is; `corpora` read it from files; `tokenizers` and `store` turn it into ids;
`batches` feeds it to models. Each imports only what stands before it in this sentence; `grammar`, the built-in corpus,
needs `examples` alone.
"""

from typing import TYPE_CHECKING

from regard.lazy import Home, door

if TYPE_CHECKING:
    from regard.text import grammar
    from regard.text.batches.batch import (
        AnswerBatch,
        Batch,
        BlockBatch,
        LabelledBatch,
        MaskedBatch,
        PackedBatch,
        TaggedBatch,
        TranslationBatch,
    )
    from regard.text.batches.buckets import Buckets
    from regard.text.batches.collate import Answer, Label, Tag, Translate
    from regard.text.batches.lm_batches import Blocks, Lanes, Read, Stream
    from regard.text.batches.masking import Fill, Masking, Pieces, WholeWords
    from regard.text.batches.packing import Pack, Packing
    from regard.text.batches.pairs import FillPairs, Pairs
    from regard.text.batches.plan import Batches
    from regard.text.batches.seeded_rng import Epoch
    from regard.text.corpora.answers import Answers
    from regard.text.corpora.corpus import Chain, Corpus
    from regard.text.corpora.labels import Classified, Labels, TagFile
    from regard.text.corpora.raw_text import Documents
    from regard.text.corpora.tables import Rows, Table
    from regard.text.corpora.translations import Parallel, Translations
    from regard.text.examples import Answered, Document, Labelled, Sense, Tagged, Translation
    from regard.text.store.columns import Columns, Flat
    from regard.text.store.fields import (
        AnsweredFields,
        DocumentFields,
        LabelledFields,
        TaggedFields,
        TranslationFields,
        columns_of,
    )
    from regard.text.store.store import Store
    from regard.text.tokenizers.kinds import BPE, ByteBPE, Characters, Unigram, WordPiece, Words
    from regard.text.tokenizers.specials import SpecialIds
    from regard.text.tokenizers.tokenizer import Encoding, Tokenizer
    from regard.text.words import separated, spaced

__all__ = [
    "Translation",
    "Document",
    "Labelled",
    "Tagged",
    "Answered",
    "Sense",
    "spaced",
    "separated",
    "Parallel",
    "Translations",
    "Documents",
    "Classified",
    "TagFile",
    "Labels",
    "Answers",
    "Table",
    "Rows",
    "Corpus",
    "Chain",
    "BPE",
    "ByteBPE",
    "WordPiece",
    "Unigram",
    "Words",
    "Characters",
    "Tokenizer",
    "Encoding",
    "SpecialIds",
    "Columns",
    "Flat",
    "TranslationFields",
    "DocumentFields",
    "LabelledFields",
    "TaggedFields",
    "AnsweredFields",
    "columns_of",
    "Store",
    "TranslationBatch",
    "BlockBatch",
    "MaskedBatch",
    "LabelledBatch",
    "TaggedBatch",
    "AnswerBatch",
    "PackedBatch",
    "Batch",
    "Epoch",
    "Batches",
    "Buckets",
    "Translate",
    "Label",
    "Tag",
    "Answer",
    "Stream",
    "Lanes",
    "Blocks",
    "Read",
    "Masking",
    "Pieces",
    "WholeWords",
    "Fill",
    "Pairs",
    "FillPairs",
    "Packing",
    "Pack",
    "grammar",
]

_HOMES: dict[str, Home] = {
    name: (f"regard.text.{module}", name)
    for module, names in {
        "examples": "Translation Document Labelled Tagged Answered Sense",
        "words": "spaced separated",
        "corpora.translations": "Parallel Translations",
        "corpora.raw_text": "Documents",
        "corpora.labels": "Classified TagFile Labels",
        "corpora.answers": "Answers",
        "corpora.tables": "Table Rows",
        "corpora.corpus": "Corpus Chain",
        "tokenizers.kinds": "BPE ByteBPE WordPiece Unigram Words Characters",
        "tokenizers.tokenizer": "Tokenizer Encoding",
        "tokenizers.specials": "SpecialIds",
        "store.columns": "Columns Flat",
        "store.fields": "TranslationFields DocumentFields LabelledFields TaggedFields AnsweredFields columns_of",
        "store.store": "Store",
        "batches.batch": "Batch TranslationBatch BlockBatch MaskedBatch LabelledBatch TaggedBatch AnswerBatch "
        "PackedBatch",
        "batches.seeded_rng": "Epoch",
        "batches.plan": "Batches",
        "batches.buckets": "Buckets",
        "batches.collate": "Translate Label Tag Answer",
        "batches.lm_batches": "Stream Lanes Blocks Read",
        "batches.masking": "Masking Pieces WholeWords Fill",
        "batches.pairs": "Pairs FillPairs",
        "batches.packing": "Packing Pack",
    }.items()
    for name in names.split()
}
_HOMES["grammar"] = ("regard.text.grammar", None)

__getattr__ = door(__name__, _HOMES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
