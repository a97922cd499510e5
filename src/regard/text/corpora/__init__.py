"""Corpora: lazy readers of text files, re-iterable, in constant memory.

    ParallelCorpus("train.en", "train.fr", links="train.align")       -> Translation
    TranslationRows("train.tsv", source="en", target="fr")            -> Translation
    TextDocuments("books.txt.gz")                                     -> Document
    LabelledRows("train.jsonl", text="sentence", label="stars")       -> Labelled
    AnswerRows("squad.jsonl", passage="context", end="answer")        -> Answered
    TagFile("ner.conll")                                              -> Tagged

The readers of rows also take a TableFile, DictRows, or any iterable of dicts (tables.py). `skipped` counts the lines
that a pass left out.
"""
