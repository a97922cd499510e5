"""Files of others are read within bounds: no FIFO, device, folder or link loop, no endless file, no deep nesting."""

from __future__ import annotations

import json
import os
import socket
import tracemalloc
from pathlib import Path

import pytest

from regard.bounded_files import (
    MAX_DEPTH,
    expect_depth,
    expect_readable_folder,
    parse_json,
    read_bytes,
    read_json,
    read_text,
)
from regard.errors import CheckpointError, SettingError


def test_what_is_not_a_regular_file_is_refused_in_words_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        kinds = {"fifo": "a FIFO", "link": "a FIFO", "zero": "a character device", "socket": "a socket"}
        for name, kind in kinds.items():
            with pytest.raises(CheckpointError, match=f"got {kind}, expected a regular file"):
                read_bytes(tmp_path / name, CheckpointError)
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path, CheckpointError)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="levels of symbolic links"):
        read_bytes(tmp_path / "loop", CheckpointError)


def test_a_file_beyond_the_limit_is_refused_before_it_is_held(tmp_path: Path) -> None:
    file = tmp_path / "sparse.json"
    with file.open("wb") as stream:
        stream.truncate(1 << 40)
    tracemalloc.start()
    with pytest.raises(
        SettingError, match=r"sparse\.json: got a file of more than 1,000 bytes, expected at most 1,000"
    ):
        read_bytes(file, SettingError, limit=1000)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    file.write_bytes(b"x" * 1000)
    assert read_bytes(file, SettingError, limit=1000) == b"x" * 1000


def test_a_byte_order_mark_is_no_text_and_bad_utf8_is_located(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"\xef\xbb\xbfone\n")
    assert read_text(file, SettingError) == "one\n"
    file.write_bytes(b"\xef\xbb\xbfone\ntwo \xff\n")
    with pytest.raises(SettingError, match=r"text:2: The file is not UTF-8: byte 0xff at offset 11"):
        read_text(file, SettingError)


def test_nesting_is_counted_outside_strings_without_recursion(tmp_path: Path) -> None:
    inside = json.dumps({"text": "[" * 500 + '\\"' + "{" * 500})
    assert parse_json(inside, "x", SettingError)["text"].startswith("[[")
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse_json(deepest, "x", SettingError) == json.loads(deepest)
    for opening in ("[", '{"a":'):
        (tmp_path / "deep.json").write_text("\n" + opening * 1_000_000)
        with pytest.raises(SettingError, match=r"deep\.json:2: got more than 100 lists and objects inside each other"):
            read_json(tmp_path / "deep.json", SettingError)
    expect_depth("[]" * 10_000, "x", SettingError)  # many, but not inside each other
    with pytest.raises(SettingError, match="not valid JSON"):
        parse_json("1" * 5000, "x", SettingError)


def test_a_folder_for_another_library_has_no_devices_and_no_endless_files(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"0" * 2000)
    expect_readable_folder(tmp_path, CheckpointError, 1000)
    (tmp_path / "vocab.txt").write_bytes(b"0" * 2000)
    with pytest.raises(CheckpointError, match=r"vocab\.txt: got a file of 2,000 bytes, expected at most 1,000"):
        expect_readable_folder(tmp_path, CheckpointError, 1000)
    (tmp_path / "vocab.txt").unlink()
    os.mkfifo(tmp_path / "merges.txt")
    with pytest.raises(CheckpointError, match=r"merges\.txt: got a FIFO"):
        expect_readable_folder(tmp_path, CheckpointError, 1000)
