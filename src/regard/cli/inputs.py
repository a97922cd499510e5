"""Text inputs of the verbs: a text on the command line, a file, or standard input; each line of bounded length."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from regard.bounded_files import kind_of, open_regular
from regard.errors import CorpusError

if TYPE_CHECKING:
    from regard.text import Tokenizer

FILE_NAME = re.compile(r"\S+\.(txt|tsv|csv|jsonl?|md|gz|[a-z]{2})")  # looks like a file name
SHOWN = 5  # unknown words
MAX_LINE = 100_000  # characters of a line that a verb reads
MAX_SENTENCE = 5_000  # of one that a decoder with a beam reads: its memory grows with beam x length
MAX_PASSAGE = 1_000_000  # of one whose attention is recorded, which takes memory linear in its length
MARK = "\ufeff"  # byte order mark
PORTION = 1000  # texts whose encodings are held at once


def read_texts(text_or_file: str, max_line: int = MAX_LINE) -> list[str]:
    """The lines of standard input (`-`) or of a file; anything else is the text itself."""
    if text_or_file == "-" or _is_file(text_or_file):
        return read_lines(Path(text_or_file), max_line)
    if FILE_NAME.fullmatch(text_or_file):
        raise CorpusError(f"File not found: {text_or_file}", advice=_pipe(text_or_file))
    expect_length(text_or_file, max_line, "the text")
    return [text_or_file.removeprefix(MARK)]


def read_lines(path: Path, max_line: int = MAX_LINE) -> list[str]:
    """Every line of a file, or with `-` of standard input, blank ones included; a longer line is refused."""
    return list(_bounded_lines(path, max_line))


def expect_length(text: str, max_line: int, where: str) -> None:
    """Refuse a text of more characters."""
    if len(text) > max_line:
        raise CorpusError(f"a text of {len(text):,} characters", f"at most {max_line:,}", where=where)


def _bounded_lines(path: Path, max_line: int) -> Iterator[str]:
    where = "standard input" if str(path) == "-" else f"{path}"
    try:
        most = 4 * max_line + 2  # bytes, four of a character at most
        for number, line in enumerate(_raw_lines(path, most), start=1):
            cut = isinstance(line, bytes) and len(line) == most and not line.endswith(b"\n")
            text = "" if cut else _decoded(line, f"{where}:{number}").rstrip("\r\n")
            if cut or len(text) > max_line:
                advice = "Split it into sentences, one on each line."
                problem = f"a line of more than {max_line:,} characters"
                raise CorpusError(problem, "shorter ones", where=f"{where}:{number}", advice=advice)
            yield text.removeprefix(MARK) if number == 1 else text
    except OSError as error:
        raise CorpusError(f"Could not read {where}: {error.strerror}") from error


def _raw_lines(path: Path, most: int) -> Iterator[bytes | str]:
    """Lines of at most `most` bytes, or the first bytes of a longer one; text where standard input is no file."""
    if str(path) != "-":
        with open_regular(path, CorpusError) as stream:
            yield from iter(lambda: stream.readline(most), b"")
    elif (raw := getattr(sys.stdin, "buffer", None)) is not None:
        yield from iter(lambda: raw.readline(most), b"")
    else:
        yield from sys.stdin


def _decoded(line: bytes | str, where: str) -> str:
    try:
        return line if isinstance(line, str) else line.decode()
    except UnicodeDecodeError as error:
        problem = f"The line is not valid UTF-8: byte 0x{error.object[error.start]:02x} at byte {error.start}"
        raise CorpusError(problem, where=where, advice="Convert the file with iconv.") from error


def warn_oov(tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Warn on standard error of the out-of-vocabulary (OOV) words, which the model reads as the unknown token."""
    unknown = tokenizer.special.unknown
    if unknown is None:
        return
    found: dict[str, None] = {}
    for portion in portions(texts):
        for one in tokenizer.encode_batch(portion):
            if unknown in one.ids:
                spans = (span for number, span in zip(one.ids, one.offsets, strict=True) if number == unknown)
                found |= {one.text[start:end]: None for start, end in spans}
    if found:
        some, more = ", ".join(list(found)[:SHOWN]), max(0, len(found) - SHOWN)
        words = f"{some} and {more:,} more" if more else some
        typer.echo(f"regard: out of vocabulary, read as {tokenizer.token(unknown)}: {words}", err=True)


def portions(texts: Sequence[str], size: int = PORTION) -> Iterator[Sequence[str]]:
    """Texts in portions, so that what is made of them takes bounded memory."""
    return (texts[begin : begin + size] for begin in range(0, len(texts), size))


def _is_file(name: str) -> bool:
    """Whether a text is the name of a file; a folder, a FIFO, a device or a link to itself is refused."""
    try:
        mode = os.stat(name).st_mode if name else 0
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a zero, which no name has
        return False
    except OSError as error:
        if os.path.islink(name):
            raise CorpusError(f"Could not read {name}: {error.strerror}", advice=_pipe(name)) from error
        return False  # too long for a name, or in a folder that is closed to us
    kind = "a folder" if stat.S_ISDIR(mode) else kind_of(mode)
    if kind is not None:
        advice = f"`regard ... - < {name}` reads standard input. {_pipe(name)}"
        raise CorpusError(kind, "a text file, a text, or -", where=name, advice=advice)
    return stat.S_ISREG(mode)


def _pipe(name: str) -> str:
    return f"If it is the text itself, pipe it: printf '{name}' | regard ... -"
