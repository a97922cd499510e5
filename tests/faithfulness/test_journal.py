"""The journal: finished parts are read back, also after a torn last line, and only by the same audit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.errors import RunError
from regard.faithfulness.journal import Journal, remove_journals

HEAD = {"model": "ab12", "settings": {"seed": 0, "sizes": (0.1, 0.5)}}
PARTS = {number: [{"number": number, "tokens": ["é", "b"], "p": 0.1 + number / 3}] for number in range(4)}


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def begun(folder: Path, *parts: int, rank: int = 0, head: dict | None = None) -> Journal:
    journal = Journal(folder / "audit.json", head or HEAD, rank)
    for part in parts:
        journal.append(part, PARTS[part])
    return journal


def test_a_journal_is_read_back(tmp_path: Path) -> None:
    begun(tmp_path, 0, 2).close()
    assert files(tmp_path) == ["audit.json.0.journal"]
    again = begun(tmp_path, 1)
    assert again.done == {number: PARTS[number] for number in (0, 1, 2)}
    again.close()
    remove_journals(tmp_path / "audit.json")
    assert files(tmp_path) == [] and begun(tmp_path).done == {}


def test_a_part_is_on_disk_at_once(tmp_path: Path) -> None:
    journal = begun(tmp_path, 0)  # nobody closes it: the process was killed
    assert begun(tmp_path, rank=1).done == {0: PARTS[0]}
    journal.close()


@pytest.mark.parametrize("lost", [1, 20])
def test_an_incomplete_last_line_is_dropped(tmp_path: Path, lost: int) -> None:
    begun(tmp_path, 0, 1).close()
    file = tmp_path / "audit.json.0.journal"
    file.write_bytes(file.read_bytes()[:-lost])
    again = begun(tmp_path)
    assert again.done == {0: PARTS[0]}
    again.append(1, PARTS[1])
    again.close()
    assert [json.loads(line).get("part") for line in file.read_text().splitlines()] == [None, 0, 1]


@pytest.mark.parametrize("left", [0, 5])
def test_an_incomplete_first_line_starts_anew(tmp_path: Path, left: int) -> None:
    begun(tmp_path)
    file = tmp_path / "audit.json.0.journal"
    file.write_bytes(file.read_bytes()[:left])
    begun(tmp_path, 3).close()
    assert begun(tmp_path).done == {3: PARTS[3]}


def test_the_journal_of_another_audit_is_refused(tmp_path: Path) -> None:
    begun(tmp_path, 0).close()
    with pytest.raises(
        RunError, match=r"audit.json.0.journal belongs to an audit of another model.*Delete it to start anew"
    ):
        begun(tmp_path, head={**HEAD, "model": "cd34"})
    assert begun(tmp_path).done == {0: PARTS[0]}  # and nothing was lost


def test_an_empty_journal_is_deleted(tmp_path: Path) -> None:
    begun(tmp_path).close()
    assert files(tmp_path) == []
    begun(tmp_path)  # killed: its first line stays behind
    other = {**HEAD, "model": "cd34"}
    begun(tmp_path, 1, head=other).close()
    assert begun(tmp_path, head=other).done == {1: PARTS[1]}


def test_every_process_reads_all_journals(tmp_path: Path) -> None:
    for rank, part in enumerate((0, 1, 2)):
        begun(tmp_path, part, rank=rank).close()
    for rank in range(4):
        assert begun(tmp_path, rank=rank).done == {number: PARTS[number] for number in (0, 1, 2)}


def test_a_process_never_changes_the_journal_of_another(tmp_path: Path) -> None:
    """That file may be empty or end with an incomplete line."""
    first = begun(tmp_path, 0)
    file = tmp_path / "audit.json.0.journal"
    whole = file.read_bytes()
    for written in (b"", whole[:7], whole[:-3]):
        file.write_bytes(written)
        begun(tmp_path, rank=1).close()
        assert file.read_bytes() == written
    first.close()


def test_the_journals_of_all_processes_are_removed(tmp_path: Path) -> None:
    """Also those of an earlier try with more processes."""
    for rank in range(3):
        begun(tmp_path, rank, rank=rank).close()
    for rank in range(2):
        begun(tmp_path, rank=rank).close()
    assert len(files(tmp_path)) == 3  # closed, not cleared: the report is not saved yet
    remove_journals(tmp_path / "audit.json")
    assert files(tmp_path) == []


def test_the_journals_of_other_reports_stay(tmp_path: Path) -> None:
    other = Journal(tmp_path / "other.json", {"model": "else"})
    other.append(0, PARTS[0])
    begun(tmp_path, 0).close()
    remove_journals(tmp_path / "audit.json")
    other.close()
    assert files(tmp_path) == ["other.json.0.journal"]
