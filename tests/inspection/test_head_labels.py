"""Notes about heads are found beside a model, and lie where the page looks for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from page import sample
from regard.errors import RecordError
from regard.inspection.head_labels import noted, notes_in, read_notes


def test_a_folder_tells_patterns_and_badges(tmp_path: Path) -> None:
    assert notes_in(None) == notes_in(tmp_path) == {}
    (tmp_path / "atlas.json").write_text(json.dumps({"patterns": {"encoder.0.self": {"1": "previous"}}, "more": 1}))
    assert notes_in(tmp_path) == {"patterns": {"encoder.0.self": {"1": "previous"}}}
    (tmp_path / "audit.json").write_text(json.dumps({"badges": {"encoder.0.self": {"0": "faithful"}}}))
    record = noted(sample.translator(), notes_in(tmp_path))
    assert record.facts["patterns"]["encoder.0.self"]["1"] == "previous"
    assert record.facts["badges"]["encoder.0.self"]["0"] == "faithful"
    assert record.facts["model"] == "tiny translator"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"patterns": []}', '{"patterns": {"a": ["b"]}}'])
def test_what_is_no_atlas_is_refused_in_words(tmp_path: Path, content: str) -> None:
    path = tmp_path / "atlas.json"
    path.write_text(content)
    with pytest.raises(RecordError, match=r"atlas\.json.*patterns"):
        read_notes(path, "patterns")
    with pytest.raises(RecordError):
        notes_in(tmp_path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be read"):
        read_notes(tmp_path / "none.json", "patterns")
