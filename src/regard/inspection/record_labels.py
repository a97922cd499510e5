"""Labels of heads beside a record: the patterns that an atlas found, and the badges that an audit gave.

An atlas has {"patterns": {place: {head: text}}}, an audit {"badges": {place: {head: text}}}. A file of either in the
folder of a run, as atlas.json or audit.json, is used for every record of that run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.adapters import ModelAdapter
from regard.bounded_files import DATA_LIMIT, read_json
from regard.errors import RecordError
from regard.hub import origin
from regard.inspection.record.record import Record

if TYPE_CHECKING:
    from regard.inspection.atlas import Atlas

FILES = {"patterns": "atlas.json", "badges": "audit.json"}

HeadLabels = Mapping[str, Mapping[str, Mapping[str, str]]]
"""By kind, place and head."""


def find_head_labels(adapter: ModelAdapter, atlas: Atlas | str | os.PathLike[str] | None = None) -> HeadLabels:
    """The labels in the folder that a model was loaded from; those of a given atlas take precedence."""
    labels = labels_in_folder(origin(adapter.model))
    if atlas is None:
        return labels
    patterns = read_head_labels(atlas, "patterns") if isinstance(atlas, str | os.PathLike) else atlas.patterns
    return {**labels, "patterns": patterns}


def labels_in_folder(folder: Path | None) -> HeadLabels:
    """The labels in the folder of a model."""
    paths = {} if folder is None else {kind: folder / name for kind, name in FILES.items()}
    return {kind: read_head_labels(path, kind) for kind, path in paths.items() if path.is_file()}


def read_head_labels(path: str | os.PathLike[str], kind: str) -> dict[str, dict[str, str]]:
    """The patterns, or the badges, of a file that an atlas or an audit has written."""
    where, verb = str(path), {"patterns": "atlas", "badges": "audit"}[kind]
    advice = f"`regard {verb}` writes a JSON object with {kind!r}: {{place: {{head: text}}}}."
    try:
        data: Any = read_json(path, RecordError, DATA_LIMIT)
    except (OSError, ValueError) as error:
        raise RecordError(f"The file cannot be read ({error})", where=where, advice=advice) from None
    found = data.get(kind) if isinstance(data, dict) else None
    if not isinstance(found, dict) or not all(isinstance(heads, dict) for heads in found.values()):
        raise RecordError(f"The file has no {kind}", where=where, advice=advice)
    labels = {str(place): {str(head): str(text) for head, text in heads.items()} for place, heads in found.items()}
    try:
        json.dumps(labels, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise RecordError(f"The {kind} are not valid Unicode text", where=where, advice=advice) from None
    return labels


def with_head_labels(record: Record, labels: HeadLabels) -> Record:
    """The same record with labels of its heads; its own ones of the same kind are replaced."""
    return replace(record, facts={**record.facts, **labels}) if labels else record
