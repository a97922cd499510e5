"""Text that a verb is given: on the command line, in a file, or on standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from regard.errors import CorpusError


def texts_of(said: str) -> list[str]:
    """`-`: the lines of standard input; the name of a file: its lines; anything else is the text itself."""
    return lines_of(Path(said)) if said == "-" or _is_file(said) else [said]


def lines_of(path: Path) -> list[str]:
    """Every line of a file, or with `-` of standard input; blank ones too, so that what comes out has as many."""
    try:
        if str(path) == "-":
            return [line.rstrip("\r\n") for line in sys.stdin]
        with path.open(encoding="utf-8") as stream:
            return [line.rstrip("\r\n") for line in stream]
    except OSError as error:
        raise CorpusError(f"{path} ({error.strerror})", "a file of text", where="regard") from error
    except UnicodeDecodeError as error:
        raise CorpusError("bytes that are no UTF-8", "text in UTF-8", where=str(path)) from error


def _is_file(said: str) -> bool:
    try:
        return bool(said) and Path(said).is_file()
    except (OSError, ValueError):  # longer than a name may be, or with signs that no name has
        return False
