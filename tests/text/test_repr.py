"""What people print is short: a line, whatever the size of the data."""

from __future__ import annotations

import numpy as np

from regard.text import (
    BPE,
    Columns,
    DocumentFields,
    Epoch,
    LabelledRows,
    PlainCollator,
    RaggedArray,
    TextDocuments,
    Tokenizer,
    encode_columns,
)
from regard.text.examples import Document

SENTENCES = ("the cat sat on the mat . " * 200,) * 20
TOKENIZER = Tokenizer.train(BPE(60), SENTENCES)


def test_what_is_printed_is_short() -> None:
    columns = encode_columns([Document(SENTENCES)], DocumentFields(TOKENIZER))
    batch = PlainCollator(columns, TOKENIZER.special, len(TOKENIZER))(np.arange(20), Epoch(0))
    encoding = TOKENIZER.encode(SENTENCES[0])
    rows = LabelledRows([{"text": SENTENCES[0], "label": "a"}] * 1000)
    for value in (
        TOKENIZER,
        encoding,
        columns,
        columns["text"],
        batch,
        rows,
        TextDocuments("a.txt"),
        DocumentFields(TOKENIZER),
    ):
        assert len(repr(value)) < 300 and "\n" not in repr(value), repr(value)[:400]
    assert repr(encoding).startswith(f"<Encoding of {len(encoding)} pieces: ▁the") and repr(encoding).endswith(" ...>")
    assert repr(TOKENIZER.encode("the cat")).startswith("<Encoding of") and "..." not in repr(TOKENIZER.encode("the"))
    assert "inputs=int64[20, " in repr(batch) and repr(batch).startswith("PlainBatch(indices=int64[20], ")
    assert repr(RaggedArray.of([[1, 2], []])) == "<RaggedArray of 2 sequences, 2 int64>"
    assert repr(Columns({"text": RaggedArray.of([[1, 2]])})) == "<Columns of 1 examples; text: 2 ids>"
