"""Lines: what ends one, what is skipped, what is refused and where."""

import gzip
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from regard.bounded_files import open_regular
from regard.errors import CorpusError
from regard.text.corpora import lines as lines_module
from regard.text.corpora.lines import Lines, SkippedLines


def written(folder: Path, content: bytes, name: str = "text.txt") -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def texts(path: Path, **settings: object) -> list[str]:
    return [line.text for line in Lines(path, **settings)]  # type: ignore[arg-type]


@given(st.lists(st.text().map(lambda text: text.replace("\n", "").rstrip("\r").removeprefix("\ufeff")), min_size=1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_only_the_line_feed_ends_a_line(tmp_path: Path, lines: list[str]) -> None:
    content = "".join(line + "\n" for line in lines).encode()
    for data in (content, content.replace(b"\n", b"\r\n"), gzip.compress(content)):
        found = list(Lines(written(tmp_path, data)))
        assert [line.text for line in found] == lines
        assert [line.number for line in found] == list(range(1, len(lines) + 1))


def test_other_separators_stay_in_the_line(tmp_path: Path) -> None:
    path = written(tmp_path, "a\u2028b\x0cc\x85d\x1ce\rf\nlast".encode())
    assert texts(path) == ["a\u2028b\x0cc\x85d\x1ce\rf", "last"]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    assert texts(written(tmp_path, "\ufeffa\n\ufeffb\n".encode())) == ["a", "\ufeffb"]


def test_gzip_is_known_by_its_content(tmp_path: Path) -> None:
    assert texts(written(tmp_path, gzip.compress(b"a\nb"), "plain.txt")) == ["a", "b"]
    assert texts(written(tmp_path, b"a\nb", "odd.gz")) == ["a", "b"]


def test_a_long_line_is_skipped_and_counted(tmp_path: Path) -> None:
    content = "é" * 10 + "\n" + "é" * 11 + "\nok\n" + "x" * 999 + "\nend"
    lines = Lines(written(tmp_path, content.encode()), max_line=10)
    for _ in range(2):  # the count is of one pass
        assert [(line.number, line.text) for line in lines] == [(1, "é" * 10), (3, "ok"), (5, "end")]
        assert lines.skipped.count == 2
        assert [place.split(": ")[0] for place in lines.skipped.places] == [f"{lines.path}:2", f"{lines.path}:4"]


def test_only_the_first_places_are_kept(tmp_path: Path) -> None:
    lines = Lines(written(tmp_path, b"xxx\n" * 50), max_line=2)
    assert list(lines) == []
    assert (lines.skipped.count, len(lines.skipped.places)) == (50, 10)
    both = lines.skipped | SkippedLines(1, ["elsewhere"])
    assert (both.count, len(both.places)) == (51, 10)


@pytest.mark.parametrize("packed", [False, True])
def test_a_huge_line_takes_no_memory(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "huge"
    with gzip.open(path, "wb", 1) if packed else open(path, "wb") as stream:
        for _ in range(200):
            stream.write(b"x" * (1 << 20))
        stream.write(b"\nend\n")
    script = f"""
import resource
from pathlib import Path
from regard.text.corpora.lines import Lines
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
lines = Lines(Path({str(path)!r}))
assert [line.text for line in lines] == ["end"] and lines.skipped.count == 1
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 30 * 1024  # kilobytes, for a line of 200 MB


def test_what_is_no_utf8_is_refused_with_line_and_byte(tmp_path: Path) -> None:
    path = written(tmp_path, "good\nbäd\n".encode("latin1"))
    with pytest.raises(CorpusError) as caught:
        texts(path)
    assert caught.value.where == f"{path}:2"
    assert "byte 0xe4 at byte 1" in str(caught.value)
    assert "iconv" in str(caught.value)
    assert texts(path, errors="replace") == ["good", "b\ufffdd"]


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    packed = gzip.compress(bytes(range(256)) * 4000)
    damaged = bytearray(gzip.compress(b"hello world\n" * 1000))
    damaged[len(damaged) // 2] ^= 0xFF
    cases = {
        tmp_path: "a folder",
        tmp_path / "missing": "File not found",
        written(tmp_path, b"", "empty"): "The file is empty",
        written(tmp_path, gzip.compress(b""), "empty.gz"): "The file is empty",
        written(tmp_path, packed[:-200], "cut.gz"): "could not be read to its end",
        written(tmp_path, bytes(damaged), "damaged.gz"): "could not be read to its end",
    }
    for path, said in cases.items():
        with pytest.raises(CorpusError, match=said) as caught:
            texts(path, errors="replace")
        assert caught.value.where == str(path)


def test_files_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_files: list[IO[bytes]] = []

    def noted(*arguments: Any) -> IO[bytes]:
        opened_files.append(open_regular(*arguments))
        return opened_files[-1]

    monkeypatch.setattr(lines_module, "open_regular", noted)
    for content in (b"a\nb\n", gzip.compress(b"a\nb\n")):
        assert len(texts(written(tmp_path, content))) == 2
    assert [stream.closed for stream in opened_files] == [True, True]
