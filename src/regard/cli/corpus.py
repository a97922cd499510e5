"""`regard corpus`: write the built-in English-French corpus, or another view of its grammar, as files."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated

import typer

WORTH_IT = 20_000  # examples from which on several processes pay for their start


def corpus(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder for the files.")],
    pairs: Annotated[int, typer.Option("--pairs", "-n", help="How many training examples.")] = 50_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same files.")] = 0,
    view: Annotated[
        str, typer.Option(help="translation, prose, document, opinion, verdict, tagged, question or sense.")
    ] = "translation",
    replace: Annotated[bool, typer.Option("--replace", help="Replace files that are there already.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that draw; by default one a core for large corpora.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write the built-in corpus: {train,valid,test,names}.{en,fr,align}, with gold word alignments.

    The splits never share a pair, whatever the seed; `names` holds names that no other split contains.
    """
    from regard.cli.progress_ui import progress_bar
    from regard.text.grammar import write

    processes = workers or (os.cpu_count() or 1 if pairs >= WORTH_IT else 1)
    started = time.perf_counter()
    with progress_bar("examples", hidden=as_json) as tell:
        written = write(folder, pairs, seed, view, processes, replace, tell)
    seconds = time.perf_counter() - started
    if as_json:
        report = {
            "folder": str(folder),
            "view": view,
            "seed": seed,
            "files": written.files,
            "examples": written.examples,
        }
        typer.echo(json.dumps(report | {"seconds": round(seconds, 3)}, indent=2))
        return
    for name, examples in written.files.items():
        typer.echo(f"{folder / name}\t{examples:,}")
    rate = written.drawn / seconds
    typer.echo(f"{written.examples:,} examples in {seconds:.1f} s; {rate:,.0f} drawn a second")
