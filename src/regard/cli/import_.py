"""`regard import`: make a run from a Hugging Face checkpoint folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.command import AsJson


def import_(
    folder: Annotated[
        Path,
        typer.Argument(metavar="HF_DIR", help="Folder with config.json, model.safetensors and tokenizer.json."),
    ],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="New run folder.")],
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", metavar="FILE", help="tokenizer.json in another place.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import a Hugging Face checkpoint as a run.

    Nothing is downloaded, no code of the checkpoint is run, and pickled weights are not opened.
    """
    from regard.hub import import_checkpoint

    model = import_checkpoint(folder, run, tokenizer)
    entry = {
        "run": str(run),
        "model": type(model).__name__,
        "parameters": sum(one.numel() for one in model.parameters()),
    }
    typer.echo(json.dumps(entry) if as_json else f"{run}: {entry['model']}, {entry['parameters']:,} parameters")
