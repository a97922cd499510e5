"""What was found out about the heads of a model, for whoever shows them: their patterns and their badges.

An atlas says {"patterns": {place: {head: text}}}, an audit {"badges": {place: {head: text}}}. A file of either, if it
lies in the folder of a run as atlas.json or audit.json, belongs to whatever is seen of that run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.adapters import ModelAdapter
from regard.errors import RecordError
from regard.hub import origin
from regard.inspection.record.record import Record

if TYPE_CHECKING:
    from regard.inspection.atlas import Atlas

FILES = {"patterns": "atlas.json", "badges": "audit.json"}

Notes = Mapping[str, Mapping[str, Mapping[str, str]]]
"""By kind, place and head."""


def notes_of(subject: ModelAdapter, atlas: Atlas | str | os.PathLike[str] | None = None) -> Notes:
    """The notes of a subject, from the folder that its model was loaded from; an atlas that is given comes first."""
    notes = notes_in(origin(subject.model))
    if atlas is None:
        return notes
    patterns = read_notes(atlas, "patterns") if isinstance(atlas, str | os.PathLike) else atlas.patterns
    return {**notes, "patterns": patterns}


def notes_in(folder: Path | None) -> Notes:
    """The notes that lie in the folder of a model."""
    there = {} if folder is None else {kind: folder / name for kind, name in FILES.items()}
    return {kind: read_notes(path, kind) for kind, path in there.items() if path.is_file()}


def read_notes(path: str | os.PathLike[str], kind: str) -> dict[str, dict[str, str]]:
    """The patterns, or the badges, of a file that an atlas or an audit has written."""
    where, expected = str(path), f"a JSON object with {kind!r}: {{place: {{head: text}}}}"
    try:
        told: Any = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(f"a file that cannot be read ({error})", expected, where=where) from None
    found = told.get(kind) if isinstance(told, dict) else None
    if not isinstance(found, dict) or not all(isinstance(heads, dict) for heads in found.values()):
        raise RecordError(f"a file without {kind}", expected, where=where)
    return {str(place): {str(head): str(text) for head, text in heads.items()} for place, heads in found.items()}


def noted(record: Record, notes: Notes) -> Record:
    """The same record with notes beside its heads; of its own ones, those of the same kind are replaced."""
    return replace(record, facts={**record.facts, **notes}) if notes else record
