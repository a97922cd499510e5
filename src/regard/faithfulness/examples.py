"""Examples for an audit: from a file, or of the built-in corpus, which knows what decides."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from pathlib import Path

from regard.adapters import Example, ModelAdapter
from regard.inspection.atlas import Passage, read_passages
from regard.runs import Run
from regard.text import Classified, Table, Translation

TABLES = (".tsv", ".csv", ".jsonl")


def read_examples(path: Path, asker: ModelAdapter, most: int | None) -> Sequence[Example]:
    """The first examples of a file: for classes a table (.tsv, .csv, .jsonl) with columns text and label, and perhaps
    other and evidence, or a text a line; for anything else a text a line, a tab before its translation, another before
    links."""
    if asker.decides == "class" and path.suffix in TABLES:
        there = _columns(path)
        other, evidence = (name if name in there else None for name in ("other", "evidence"))
        return list(islice(Classified(path, "text", "label", other, evidence=evidence), most))
    return [_example(one) for one in read_passages(path, most)]


def built_in_examples(run: Run | None, asker: ModelAdapter, most: int) -> Sequence[Example]:
    """Of the kind that this run was trained on, none of which it has seen."""
    from regard.inspection.atlas import SPLIT, built_in  # here, because they bring the grammar and the training room
    from regard.text import grammar
    from regard.training import recorded
    from regard.training.tasks import BuiltInLabelled, Classification

    recipe = None if run is None else recorded(run)
    if isinstance(recipe, Classification):
        data = recipe.data
        view = data.view if isinstance(data, BuiltInLabelled) else "opinion"
        return list(grammar.Drawn(getattr(grammar, view), most, SPLIT))
    kind = "translates" if asker.decides.endswith("translation") else "reads"
    return [_example(one, asker.decides) for one in built_in(run, kind, most)]


def _example(one: Passage, kind: str = "") -> Example:
    if one.other is None or kind == "next word":
        return one.text
    return Translation(one.text, one.other, one.links) if one.links is not None else (one.text, one.other)


def _columns(path: Path) -> Collection[str]:
    """The names of the columns of a table, by its first row."""
    return next((row.values.keys() for row in Table(path)), ())
