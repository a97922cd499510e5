"""Text that a verb is given: on the command line, in a file, or on standard input."""

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

NAME = re.compile(r"\S+\.(txt|tsv|csv|jsonl?|md|gz|[a-z]{2})")  # no text, by its looks
NAMED = 5  # unknown words


def texts_of(said: str) -> list[str]:
    """`-`: the lines of standard input; the name of a file: its lines; anything else is the text itself."""
    if said == "-" or _is_file(said):
        return lines_of(Path(said))
    if NAME.fullmatch(said):
        advice = f"If that is the text itself: printf '{said}' | regard ... -"
        raise CorpusError(
            f"{said}, and there is no such file", "a file, or a text", where="the command line", advice=advice
        )
    return [said]


def lines_of(path: Path) -> list[str]:
    """Every line of a file, or with `-` of standard input; blank ones too, so that what comes out has as many."""
    try:
        if str(path) == "-":
            return [line.rstrip("\r\n") for line in sys.stdin]
        with path.open(encoding="utf-8") as stream:
            return [line.rstrip("\r\n") for line in stream]
    except OSError as error:
        raise CorpusError(f"{path} ({error.strerror})", "a file of text", where="the command line") from error
    except UnicodeDecodeError as error:
        raise CorpusError("bytes that are no UTF-8", "text in UTF-8", where=str(path)) from error


def tell_unknown(tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Say on standard error which words of the texts are in no vocabulary: a model reads one sign for all of them."""
    unknown = tokenizer.special.unknown
    if unknown is None:
        return
    found: dict[str, None] = {}
    for one in tokenizer.encode_batch(texts):
        if unknown in one.ids:
            spans = (span for number, span in zip(one.ids, one.offsets, strict=True) if number == unknown)
            found |= {one.text[start:end]: None for start, end in spans}
    if found:
        some, more = ", ".join(list(found)[:NAMED]), max(0, len(found) - NAMED)
        told = f"{some} and {more:,} more" if more else some
        typer.echo(f"regard: the model does not know {told}: it reads {tokenizer.token(unknown)} there", err=True)


def _is_file(said: str) -> bool:
    try:
        return bool(said) and Path(said).is_file()
    except (OSError, ValueError):  # longer than a name may be, or with signs that no name has
        return False
