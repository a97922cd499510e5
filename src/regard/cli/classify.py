"""`regard classify`: text classification and regression, of texts or pairs of texts; image classification."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.command import AsJson
from regard.cli.inputs import read_texts, warn_oov
from regard.errors import SettingError

if TYPE_CHECKING:
    from regard.runs import Run


def classify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of a classifier.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT|FILE|-|IMAGE...",
            help="A text, or a file with one on each line (- reads standard input); then the second text of each pair, "
            "for a pair classifier. Of an image classifier, image files.",
            show_default="-",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Classify texts, pairs of texts, or images.

    Prints the likeliest label of each and its probability; the estimate, if the labels are numbers.
    With --json, prints one object per text, with the probabilities of all labels.
    """
    from regard.inspection import Classifier
    from regard.runs import Run

    opened = Run.open(run)
    if opened.task == "image-classification":
        _classify_images(opened, inputs or [], as_json)
        return
    if inputs is not None and len(inputs) > 2:
        raise SettingError(f"{len(inputs)} texts", "one, or a pair: quote each", where="classify")
    text, other = (*(inputs or ["-"]), None)[:2]
    assert text is not None
    texts = read_texts(text)
    others = None if other is None else read_texts(other)
    if not any(map(str.strip, texts)):
        raise SettingError("The text is empty", where="classify")
    classifier = Classifier.of(opened)
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


def _classify_images(run: Run, images: Sequence[str], as_json: bool) -> None:
    from regard.inspection import PictureClassifier
    from regard.pictures import read_image

    if not images:
        raise SettingError("There is no image", where="classify", advice="Name one or more: regard classify RUN IMAGE.")
    classifier = PictureClassifier.of(run)
    for path in images:
        [found] = classifier([read_image(path, classifier.size)])
        if as_json:
            typer.echo(
                json.dumps(
                    {"image": path, "label": found.label, "probabilities": found.probabilities}, ensure_ascii=False
                )
            )
        else:
            typer.echo(f"{path}\t{found.label}  {100 * found.probabilities[str(found.label)]:.1f}%")
