"""`regard fill`: what a BERT would put behind the masks of a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.inputs import texts_of
from regard.errors import SettingError


def fill(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a pre-trained BERT.")],
    text: Annotated[
        str,
        typer.Argument(metavar="[TEXT|FILE|-]", help="A text with [MASK] in it; of a file or of -, each line."),
    ] = "-",
    count: Annotated[int, typer.Option("--count", "-k", min=1, help="So many words for each mask.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything, an object a line.")] = False,
) -> None:
    """Print the likeliest words behind each [MASK] of a text, and how likely they are."""
    from regard.inspection import Filler

    texts = [line for line in texts_of(text) if line.strip()]
    if not texts:
        raise SettingError("no words", "a text with a mask", where="regard fill")
    filler = Filler.of(run)
    for line, (given, found) in enumerate(zip(texts, filler(texts, count), strict=True), 1):
        if as_json:
            masks = [{"words": one.words, "probabilities": one.probabilities} for one in found]
            told = {"line": line, "text": given, "filled": filler.filled(given, found), "masks": masks}
            typer.echo(json.dumps(told, ensure_ascii=False))
            continue
        typer.echo(filler.filled(given, found))
        for one in found:
            pairs = zip(one.words, one.probabilities, strict=True)
            typer.echo("  " + "  ".join(f"{word} {100 * share:.1f}%" for word, share in pairs))
