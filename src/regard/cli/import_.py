"""`regard import`: make a run of a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def import_(
    folder: Annotated[
        Path, typer.Argument(metavar="HF_DIR", help="A folder with config.json, model.safetensors, tokenizer.json.")
    ],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The new folder of the run.")],
    tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer.json that lies elsewhere.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print an object.")] = False,
) -> None:
    """Bring a Hugging Face checkpoint here, as a run that the other verbs take.

    Nothing is downloaded, no code of the checkpoint is run, and pickled weights are not opened.
    """
    from regard.hub import import_checkpoint

    model = import_checkpoint(folder, run, tokenizer)
    told = {
        "run": str(run),
        "model": type(model).__name__,
        "parameters": sum(one.numel() for one in model.parameters()),
    }
    typer.echo(json.dumps(told) if as_json else f"{run}: {told['model']}, {told['parameters']:,} parameters")
