"""Corpora: lazy readers that yield examples from the user's files, as often as they are iterated, in flat memory.

    Parallel("train.en", "train.fr", links="train.align")             -> Translation
    Translations("train.tsv", source="en", target="fr")               -> Translation
    Documents("books.txt.gz")                                         -> Document
    Classified("train.jsonl", text="sentence", label="stars")         -> Labelled
    Answers("squad.jsonl", passage="context", end="answer")           -> Answered
    TagFile("ner.conll")                                              -> Tagged

The readers of rows also take a Table, Rows, or any iterable of dicts (tables.py). What a pass left out is in `skipped`.
"""
