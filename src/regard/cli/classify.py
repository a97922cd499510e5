"""`regard classify`: the label of a text, or of a pair of texts, or the number estimated for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.inputs import tell_unknown, texts_of
from regard.errors import SettingError


def classify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained classifier.")],
    text: Annotated[
        str, typer.Argument(metavar="[TEXT|FILE|-]", help="A text; of a file or of standard input, each line.")
    ] = "-",
    other: Annotated[
        str | None, typer.Argument(metavar="[OTHER|FILE]", help="The second text of each pair, for such a classifier.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every probability, an object a line.")] = False,
) -> None:
    """Print the likeliest label of each text and how likely it is; or, where labels are numbers, the estimate."""
    from regard.inspection import Classifier

    texts = texts_of(text)
    others = None if other is None else texts_of(other)
    if not any(map(str.strip, texts)):
        raise SettingError("no words", "a text", where="regard classify")
    classifier = Classifier.of(run)
    answers = classifier(texts, others)
    tell_unknown(classifier.adapter.tokenizer, [*texts, *(others or [])])
    for given, found in zip(texts, answers, strict=True):
        if as_json:
            told = {"text": given, "label": found.label, "probabilities": found.probabilities}
            typer.echo(json.dumps(told, ensure_ascii=False))
        elif isinstance(found.label, float):
            typer.echo(f"{found.label:.4g}")
        else:
            typer.echo(f"{found.label}  {100 * found.probabilities[found.label]:.1f}%")
