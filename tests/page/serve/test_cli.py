"""`regard serve`: its arguments, and its output before the first request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from page.serve.fakes import place_of, record_of
from regard.cli.serve import named, serve
from regard.errors import RecordError, SettingError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record; the server is replaced by one that is ready at once and ends."""

    def pretend(subjects: object, records: object, *, host: str, port: int, ready: object) -> None:
        ready(f"http://{host}:{port}/")  # type: ignore[operator]

    monkeypatch.setattr("regard.page.serve.serve", pretend)
    record_of(place_of(3)).save(tmp_path / "seen.regard")
    return tmp_path / "seen.regard"


def run(file: Path | None, host: str = "127.0.0.1", as_json: bool = False) -> None:
    serve(None, [file] if file else None, 8421, host, 0, False, as_json)


def test_nothing_to_serve_is_refused_with_advice() -> None:
    with pytest.raises(SettingError, match="regard train"):
        run(None)


def test_it_prints_its_address(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(file)
    said = capsys.readouterr()
    assert said.out == "http://127.0.0.1:8421/ is ready; Ctrl-C ends it.\n"
    assert said.err == ""
    run(file, as_json=True)
    told = {"address": "http://127.0.0.1:8421/", "runs": [], "records": ["seen"]}
    assert json.loads(capsys.readouterr().out) == told


def test_a_public_host_gives_a_warning(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(file, host="0.0.0.0", as_json=True)
    said = capsys.readouterr()
    assert "no password" in said.err and "0.0.0.0" in said.err
    assert len(said.out.splitlines()) == 1


def test_files_get_ids_that_are_valid_in_urls() -> None:
    paths = [Path("a/été 1.regard"), Path("b/t-1.regard"), Path("c/t 1.x"), Path("<>.regard"), Path("t-1-2.y")]
    assert [name for name, _ in named(paths)] == ["t-1", "t-1-2", "t-1-3", "record", "t-1-2-2"]


def test_a_damaged_record_is_reported_and_the_others_are_served(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = file.with_name("bad.regard")
    bad.write_bytes(b"no record")
    serve(None, [bad, file], 8421, "127.0.0.1", 0, False, True)
    said = capsys.readouterr()
    assert said.err.startswith("Warning: ") and "bad.regard: The file cannot be read" in said.err
    told = json.loads(said.out)
    assert told["records"] == ["seen"] and "cannot be read" in told["unread"]["bad"]
    with pytest.raises(RecordError, match="cannot be read"):
        serve(None, [bad], 8421, "127.0.0.1", 0, False, True)
