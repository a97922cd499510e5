"""Holdout: the training and the validation set, from separate files or as the last share of one file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import CorpusError
from regard.text import Columns, Corpus, Fields, RaggedArray, SkippedLines, Store


@dataclass(frozen=True, eq=False)
class Split:
    """The columns of the training and the validation set, and notes on skipped examples."""

    train: Columns
    valid: Columns | None
    notes: tuple[str, ...] = ()


def store_split(folder: Path, train: Corpus[Any], valid: Corpus[Any] | float, fields: Fields[Any]) -> Split:
    """The tokenized files under folder/data; `valid`: a corpus of its own, or the last share of `train`.

    A share is a slice of the tokenized file, so that another share needs no new tokenization.
    """
    full = Store.build(folder / "data" / "train.store", train, fields)
    notes = _skipped_note(full.manifest.skipped)
    if isinstance(valid, float):
        first = first_held_out(len(full), valid, train.sources)
        return Split(
            slice_rows(full, 0, first), slice_rows(full, first, len(full)) if first < len(full) else None, notes
        )
    other = Store.build(folder / "data" / "valid.store", valid, fields)
    return Split(full, other, (*notes, *_skipped_note(other.manifest.skipped)))


def first_held_out(count: int, share: float, sources: Iterable[Path] = ()) -> int:
    """The index of the first of `count` examples that is held out: the last share of them, at least one."""
    first = count - max(1, round(count * share)) if share else count
    if first < 1:
        raise CorpusError(
            f"Of {count} examples a share of {share} is held out, which leaves none to train on",
            where=", ".join(map(str, sources)),
            advice="Add examples, or lower data.valid.",
        )
    return first


def slice_rows(columns: Columns, start: int, stop: int) -> Columns:
    """The examples from start to stop, without their documents; memory-mapped ids stay mapped."""
    return Columns({name: _slice_field(flat, start, stop) for name, flat in columns.fields.items()})


def _slice_field(flat: RaggedArray, start: int, stop: int) -> RaggedArray:
    begin = int(flat.ends[start - 1]) if start else 0
    ends = flat.ends[start:stop]
    return RaggedArray(flat.ids[begin : int(ends[-1]) if len(ends) else begin], ends - begin if begin else ends)


def _skipped_note(skipped: SkippedLines) -> tuple[str, ...]:
    return (f"{skipped.count:,} skipped, such as {skipped.places[0]}",) if skipped.count else ()
