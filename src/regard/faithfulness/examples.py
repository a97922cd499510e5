"""Examples for an audit: from a file, or from the built-in corpus, which knows the deciding words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from pathlib import Path

from regard.adapters import Example, ModelAdapter
from regard.inspection.atlas import Passage, read_passages
from regard.runs import Run
from regard.text import LabelledRows, TableFile, Translation

TABLE_SUFFIXES = (".tsv", ".csv", ".jsonl")


def read_examples(path: Path, adapter: ModelAdapter, max_examples: int | None) -> Sequence[Example]:
    """The first examples of a file: for a classifier a table (.tsv, .csv, .jsonl) with the columns text and label, and
    optionally other and evidence, or one text a line; for other models one text a line, optionally with a tab and its
    translation, and another tab and links."""
    if adapter.decision == "class" and path.suffix in TABLE_SUFFIXES:
        columns = _column_names(path)
        other, evidence = (name if name in columns else None for name in ("other", "evidence"))
        return list(islice(LabelledRows(path, "text", "label", other, evidence=evidence), max_examples))
    return [_to_example(one) for one in read_passages(path, max_examples)]


def built_in_examples(run: Run | None, adapter: ModelAdapter, max_examples: int) -> Sequence[Example]:
    """Unseen examples of the task that this run was trained on."""
    # imported here, because they load the grammar and the training room
    from regard.inspection.atlas import SPLIT, built_in_passages
    from regard.text import grammar
    from regard.training import load_recipe
    from regard.training.tasks import BuiltInLabelled, ClassificationRecipe

    recipe = None if run is None else load_recipe(run)
    if isinstance(recipe, ClassificationRecipe):
        data = recipe.data
        view = data.view if isinstance(data, BuiltInLabelled) else "opinion"
        return list(grammar.GeneratedCorpus(getattr(grammar, view), max_examples, SPLIT))
    kind = "translates" if adapter.decision.endswith("translation") else "reads"
    return [_to_example(one, adapter.decision) for one in built_in_passages(run, kind, max_examples)]


def _to_example(one: Passage, decision: str = "") -> Example:
    if one.other is None or decision == "next word":
        return one.text
    return Translation(one.text, one.other, one.links) if one.links is not None else (one.text, one.other)


def _column_names(path: Path) -> Collection[str]:
    """The names of the columns of a table, from its first row."""
    return next((row.values.keys() for row in TableFile(path)), ())
