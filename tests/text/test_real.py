"""Real corpora, where REGARD_DATA names a folder with them: read whole, and batched within the promised padding."""

import os
from pathlib import Path

import pytest

from regard.text import (
    BPE,
    Buckets,
    Epoch,
    ParallelCorpus,
    TableFile,
    Tokenizer,
    TranslationCollator,
    TranslationFields,
    TranslationRows,
    encode_columns,
)

pytestmark = pytest.mark.data


def folder() -> Path:
    return Path(os.environ["REGARD_DATA"])


def test_multi30k_is_read_and_batched_with_little_padding() -> None:
    pairs = ParallelCorpus(folder() / "multi30k" / "train.en.gz", folder() / "multi30k" / "train.de.gz")
    tokenizer = Tokenizer.train(BPE(10_000), (text for pair in pairs for text in (pair.source, pair.target)))
    collate = TranslationCollator(encode_columns(pairs, TranslationFields(tokenizer)), tokenizer.special)
    plan = Buckets(collate.lengths, budget=4096)
    assert len(collate.lengths) == 29_000
    assert all(plan.padding_share(Epoch(0, number)) <= 0.05 for number in range(3))


def test_tatoeba_is_read_by_columns() -> None:
    table = TableFile(folder() / "tatoeba" / "eng-fra.tsv.gz", header=None)
    assert sum(1 for _ in TranslationRows(table, source=0, target=1)) == 167_130
