"""Labels of heads are found in the folder of a model, and put where the page reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from page import sample
from regard.errors import RecordError
from regard.inspection.record_labels import labels_in_folder, read_head_labels, with_head_labels


def test_labels_from_the_files_of_a_folder(tmp_path: Path) -> None:
    assert labels_in_folder(None) == labels_in_folder(tmp_path) == {}
    (tmp_path / "atlas.json").write_text(json.dumps({"patterns": {"encoder.0.self": {"1": "previous"}}, "more": 1}))
    assert labels_in_folder(tmp_path) == {"patterns": {"encoder.0.self": {"1": "previous"}}}
    (tmp_path / "audit.json").write_text(json.dumps({"badges": {"encoder.0.self": {"0": "faithful"}}}))
    record = with_head_labels(sample.translator(), labels_in_folder(tmp_path))
    assert record.facts["patterns"]["encoder.0.self"]["1"] == "previous"
    assert record.facts["badges"]["encoder.0.self"]["0"] == "faithful"
    assert record.facts["model"] == "tiny translator"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"patterns": []}', '{"patterns": {"a": ["b"]}}'])
def test_files_without_labels_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "atlas.json"
    path.write_text(content)
    with pytest.raises(RecordError, match=r"atlas\.json.*patterns"):
        read_head_labels(path, "patterns")
    with pytest.raises(RecordError):
        labels_in_folder(tmp_path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be read"):
        read_head_labels(tmp_path / "none.json", "patterns")


def test_labels_that_are_not_unicode_are_refused(tmp_path) -> None:
    (tmp_path / "atlas.json").write_text('{"patterns": {"a": {"0": "\\ud800"}}}')
    with pytest.raises(RecordError, match="not valid Unicode"):
        read_head_labels(tmp_path / "atlas.json", "patterns")
