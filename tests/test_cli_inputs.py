"""What a verb is given to read: a file, a text, or the name of a file that is not there; and what it may be asked."""

from __future__ import annotations

import io
import os
import sys
import tracemalloc
from pathlib import Path

import pytest

from regard.cli.inputs import read_lines, read_texts, warn_oov
from regard.errors import CorpusError
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.trainers import ByteBPE, WordLevel


def test_a_file_is_its_lines_and_a_text_is_itself(tmp_path: Path) -> None:
    file = tmp_path / "some.txt"
    file.write_text("one\n\ntwo words\n", encoding="utf-8")
    assert read_texts(str(file)) == ["one", "", "two words"]
    for text in ("the cat sleeps .", "yes", "3.14", "e.g.", "Mr. Smith", "see notes.txt for more", ""):
        assert read_texts(text) == [text]


@pytest.mark.parametrize("name", ["missing.txt", "data/valid.en", "corpus.fr.gz", "table.tsv"])
def test_the_name_of_a_missing_file_is_not_taken_for_a_text(name: str) -> None:
    with pytest.raises(CorpusError, match=rf"File not found: {name}.*printf '{name}'"):
        read_texts(name)


def test_out_of_vocabulary_words_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    known = Tokenizer.train(WordLevel(50), ["the cat sleeps ."])
    warn_oov(known, ["the cat sleeps .", "", "the dog sleeps near the cat , dog ."])
    assert capsys.readouterr().err == "regard: out of vocabulary, read as <unk>: dog, near, ,\n"
    warn_oov(known, ["a b c d e f g"])
    assert ": a, b, c, d, e and 2 more" in capsys.readouterr().err
    warn_oov(known, ["the cat ."])
    warn_oov(Tokenizer.train(ByteBPE(300), ["the cat"]), ["a dog"])  # nothing is unknown
    assert capsys.readouterr().err == ""


class Piped(io.TextIOWrapper):
    """Standard input as a process has it: text over bytes."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="utf-8")


def test_what_is_no_file_is_not_taken_for_a_text(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "zero").symlink_to("/dev/zero")
    cases = {"fifo": "got a FIFO", "loop": "symbolic links", "zero": "got a character device", ".": "got a folder"}
    for name, said in cases.items():
        with pytest.raises(CorpusError, match=rf"(?s){said}.*regard \.\.\. -"):
            read_texts(str(tmp_path / name))


def test_a_long_line_is_refused_with_its_number_before_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "some.txt"
    for sign in "aé😀":
        file.write_text(f"one\n{sign * 100}\n{sign * 101}\nlast", encoding="utf-8")
        with pytest.raises(CorpusError, match=r"some\.txt:3: got a line of more than 100 characters"):
            read_texts(str(file), 100)
        file.write_text(f"one\n{sign * 100}\r\n{sign * 100}", encoding="utf-8")
        assert read_texts(str(file), 100) == ["one", sign * 100, sign * 100]
    with file.open("wb") as stream:
        stream.truncate(10_000_000)
    tracemalloc.start()
    with pytest.raises(CorpusError, match=r"some\.txt:1: got a line of more than 100,000 characters"):
        read_texts(str(file))
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    monkeypatch.setattr(sys, "stdin", Piped(b"x" * 10_000_000))
    with pytest.raises(CorpusError, match="standard input:1: got a line of more"):
        read_lines(Path("-"))
    with pytest.raises(CorpusError, match="got a text of 100,001 characters"):
        read_texts("x" * 100_001)


def test_a_byte_order_mark_is_no_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "some.txt"
    file.write_bytes("\ufeffHe saw us .\n\ufeffx\n".encode())
    assert read_texts(str(file)) == ["He saw us .", "\ufeffx"]
    assert read_texts("\ufeffHe saw us .") == ["He saw us ."]
    monkeypatch.setattr(sys, "stdin", Piped(file.read_bytes()))
    assert read_texts("-") == ["He saw us .", "\ufeffx"]
    for content in (b"one\ntwo \xff\n", b"\xff"):
        monkeypatch.setattr(sys, "stdin", Piped(content))
        with pytest.raises(CorpusError, match=r"standard input:[12]: The line is not valid UTF-8: byte 0xff at byte"):
            read_texts("-")
