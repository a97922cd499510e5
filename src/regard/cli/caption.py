"""`regard caption`: captions of image files by a captioner, greedy or by beam search, with what each word looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.command import AsJson
from regard.cli.process_tuning import prepare_machine

if TYPE_CHECKING:
    from regard.decoding import Captioned


def caption(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of a captioner.")],
    images: Annotated[list[str], typer.Argument(metavar="IMAGE...", help="Image files: PNG, JPEG or WebP.")],
    beam: Annotated[int, typer.Option("--beam", metavar="N", min=1, help="Beam width; 1 is greedy search.")] = 1,
    max_length: Annotated[int, typer.Option("--max-length", metavar="N", min=1, help="Maximum length in tokens.")] = 64,
    attention: Annotated[
        bool, typer.Option("--attention", help="Also print the patch that each token attends to most.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Describe pictures with a trained captioner.

    Prints the file and its caption, one picture a line.
    With --json, prints one object per picture; with --attention, it has the weights over the patches.
    """
    prepare_machine()
    from regard.cli.inputs import portions
    from regard.decoding import Beam, Greedy
    from regard.pictures import read_image
    from regard.runs import Run

    captioner = Run.open(run).captioner()
    size, search = captioner.model.encoder.size, Greedy() if beam == 1 else Beam(beam)
    for some in portions(images, captioner.rows):  # pictures are not held for long
        pictures = [read_image(path, size) for path in some]
        found = captioner(pictures, search, captioner.rules(max_length), attention)
        for path, (best,) in zip(some, found, strict=True):
            _print(path, best, captioner.tokenizer, as_json)


def _print(path: str, best: Captioned, tokenizer: object, as_json: bool) -> None:
    if as_json:
        entry: dict[str, object] = {"image": path, "caption": best.text, "log_prob": sum(best.log_probs)}
        if best.weights is not None:
            entry |= {"tokens": _words(best, tokenizer), "attention": best.weights.tolist()}
        typer.echo(json.dumps(entry, ensure_ascii=False))
        return
    typer.echo(f"{path}\t{best.text}")
    if best.weights is not None:
        cols = best.weights.size(-1)
        for word, weights in zip(_words(best, tokenizer), best.weights.flatten(1), strict=True):
            value, cell = weights.max(0)
            row, col = divmod(int(cell), cols)
            typer.echo(f"  {word:<12} row {row + 1}, column {col + 1}  {100 * float(value):.1f}%")


def _words(best: Captioned, tokenizer: object) -> list[str]:
    """The text of each step, the end included."""
    ids = best.tokens
    words = [tokenizer.decode([token]) or tokenizer.token(token) for token in ids]  # type: ignore[attr-defined]
    return [*words, "(end)"][: len(best.log_probs)]
