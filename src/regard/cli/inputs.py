"""Text inputs of the verbs: a text on the command line, a file, or standard input."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from regard.errors import CorpusError

if TYPE_CHECKING:
    from regard.text import Tokenizer

FILE_NAME = re.compile(r"\S+\.(txt|tsv|csv|jsonl?|md|gz|[a-z]{2})")  # looks like a file name
SHOWN = 5  # unknown words


def read_texts(text_or_file: str) -> list[str]:
    """The lines of standard input (`-`) or of a file; anything else is the text itself."""
    if text_or_file == "-" or _is_file(text_or_file):
        return read_lines(Path(text_or_file))
    if FILE_NAME.fullmatch(text_or_file):
        advice = f"If it is the text itself, pipe it: printf '{text_or_file}' | regard ... -"
        raise CorpusError(f"File not found: {text_or_file}", advice=advice)
    return [text_or_file]


def read_lines(path: Path) -> list[str]:
    """Every line of a file, or with `-` of standard input, blank ones included."""
    try:
        if str(path) == "-":
            return [line.rstrip("\r\n") for line in sys.stdin]
        with path.open(encoding="utf-8") as stream:
            return [line.rstrip("\r\n") for line in stream]
    except OSError as error:
        raise CorpusError(f"Could not read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CorpusError("The file is not valid UTF-8", where=str(path)) from error


def warn_oov(tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Warn on standard error of the out-of-vocabulary (OOV) words, which the model reads as the unknown token."""
    unknown = tokenizer.special.unknown
    if unknown is None:
        return
    found: dict[str, None] = {}
    for one in tokenizer.encode_batch(texts):
        if unknown in one.ids:
            spans = (span for number, span in zip(one.ids, one.offsets, strict=True) if number == unknown)
            found |= {one.text[start:end]: None for start, end in spans}
    if found:
        some, more = ", ".join(list(found)[:SHOWN]), max(0, len(found) - SHOWN)
        words = f"{some} and {more:,} more" if more else some
        typer.echo(f"regard: out of vocabulary, read as {tokenizer.token(unknown)}: {words}", err=True)


def _is_file(name: str) -> bool:
    try:
        return bool(name) and Path(name).is_file()
    except (OSError, ValueError):  # too long for a file name, or with characters that no name has
        return False
