"""`regard classify`: text classification and regression, of texts or pairs of texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.command import AsJson
from regard.cli.inputs import read_texts, warn_oov
from regard.errors import SettingError


def classify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of a classifier.")],
    text: Annotated[
        str,
        typer.Argument(metavar="TEXT|FILE|-", help="A text, or a file with one on each line; - reads standard input."),
    ] = "-",
    other: Annotated[
        str | None, typer.Argument(metavar="TEXT2|FILE", help="The second text of each pair, for a pair classifier.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Classify texts or pairs of texts.

    Prints the likeliest label of each and its probability; the estimate, if the labels are numbers.
    With --json, prints one object per text, with the probabilities of all labels.
    """
    from regard.inspection import Classifier

    texts = read_texts(text)
    others = None if other is None else read_texts(other)
    if not any(map(str.strip, texts)):
        raise SettingError("The text is empty", where="classify")
    classifier = Classifier.of(run)
    answers = classifier(texts, others)
    warn_oov(classifier.adapter.tokenizer, [*texts, *(others or [])])
    for given, found in zip(texts, answers, strict=True):
        if as_json:
            entry = {"text": given, "label": found.label, "probabilities": found.probabilities}
            typer.echo(json.dumps(entry, ensure_ascii=False))
        elif isinstance(found.label, float):
            typer.echo(f"{found.label:.4g}")
        else:
            typer.echo(f"{found.label}  {100 * found.probabilities[found.label]:.1f}%")
