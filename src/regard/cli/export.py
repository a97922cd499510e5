"""`regard export`: write a run for other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import unknown

FORMATS = ("hf",)


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained model.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The new folder to write.")],
    to: Annotated[str, typer.Option("--to", help="hf: what Hugging Face's transformers loads.")] = "hf",
    as_json: Annotated[bool, typer.Option("--json", help="Print an object.")] = False,
) -> None:
    """Write a run as other programs read it: `--to hf`, a folder that transformers loads, with its tokenizer."""
    if to not in FORMATS:
        raise unknown(to, FORMATS, kind="format", where="regard export --to")
    from regard.hub import carry

    carry(run, folder)
    typer.echo(
        json.dumps({"run": str(run), "to": to, "folder": str(folder)}) if as_json else f"{folder}: {run} for {to}"
    )
