"""Examples to train on and examples held out: other ones by nature, or the last share of the same file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import CorpusError
from regard.text import Columns, Corpus, Fields, Flat, Skipped, Store


@dataclass(frozen=True, eq=False)
class Split:
    """The columns to train on, those held out, and what was left out of either."""

    train: Columns
    valid: Columns | None
    notes: tuple[str, ...] = ()


def stored(folder: Path, train: Corpus[Any], valid: Corpus[Any] | float, fields: Fields[Any]) -> Split:
    """Files as they lie tokenised under folder/data; `valid`: a corpus of its own, or the last share of `train`.

    A share is cut from the tokenised whole, so that another share needs no other store.
    """
    whole = Store.build(folder / "data" / "train.store", train, fields)
    notes = _told(whole.manifest.skipped)
    if isinstance(valid, float):
        first = kept_back(len(whole), valid, train.sources)
        return Split(rows(whole, 0, first), rows(whole, first, len(whole)) if first < len(whole) else None, notes)
    other = Store.build(folder / "data" / "valid.store", valid, fields)
    return Split(whole, other, (*notes, *_told(other.manifest.skipped)))


def kept_back(count: int, share: float, sources: Iterable[Path] = ()) -> int:
    """The number of the first of `count` examples that is held out: the last share of them, one at least."""
    first = count - max(1, round(count * share)) if share else count
    if first < 1:
        raise CorpusError(
            f"{count} examples, a share of {share} of them held out",
            "some to train on",
            where=", ".join(map(str, sources)),
        )
    return first


def rows(columns: Columns, start: int, stop: int) -> Columns:
    """The examples from start to stop, without their documents; ids that are mapped stay mapped."""
    return Columns({name: _part(flat, start, stop) for name, flat in columns.fields.items()})


def _part(flat: Flat, start: int, stop: int) -> Flat:
    begin = int(flat.ends[start - 1]) if start else 0
    ends = flat.ends[start:stop]
    return Flat(flat.ids[begin : int(ends[-1]) if len(ends) else begin], ends - begin if begin else ends)


def _told(skipped: Skipped) -> tuple[str, ...]:
    return (f"{skipped.count:,} left out, such as {skipped.places[0]}",) if skipped.count else ()
