"""`regard fill`: the masked words of a text, predicted by a masked language model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.command import AsJson
from regard.cli.inputs import read_texts
from regard.errors import SettingError


def fill(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of a BERT model.")],
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT|FILE|-",
            help="A text with [MASK] in it, or a file with one on each line; - reads standard input.",
        ),
    ] = "-",
    top_k: Annotated[int, typer.Option("--top-k", "-k", metavar="N", min=1, help="Predictions for each mask.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Predict the masked words of a text.

    Prints the likeliest words for each [MASK], and their probabilities. With --json, prints one object per text.
    """
    from regard.inspection import MaskFiller

    texts = [line for line in read_texts(text) if line.strip()]
    if not texts:
        raise SettingError("The text is empty", where="fill")
    filler = MaskFiller.of(run)
    for line, (given, found) in enumerate(zip(texts, filler(texts, top_k), strict=True), 1):
        if as_json:
            masks = [{"words": one.words, "probabilities": one.probabilities} for one in found]
            entry = {"line": line, "text": given, "filled": filler.fill_text(given, found), "masks": masks}
            typer.echo(json.dumps(entry, ensure_ascii=False))
            continue
        typer.echo(filler.fill_text(given, found))
        for one in found:
            pairs = zip(one.words, one.probabilities, strict=True)
            typer.echo("  " + "  ".join(f"{word} {100 * share:.1f}%" for word, share in pairs))
