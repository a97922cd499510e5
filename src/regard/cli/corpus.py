"""`regard corpus`: write the built-in English-French corpus, or another task of its grammar, to files."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.command import AsJson

WORTH_IT = 20_000  # examples from which on several processes are faster


def corpus(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Output folder.")],
    pairs: Annotated[int, typer.Option("--pairs", "-n", metavar="N", help="Number of training examples.")] = 50_000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Random seed.")] = 0,
    view: Annotated[
        str,
        typer.Option(
            "--view",
            metavar="NAME",
            help="translation, prose, document, opinion, verdict, tagged, question or sense.",
        ),
    ] = "translation",
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing files.")] = False,
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", min=1, help="Processes.", show_default="one per core for large corpora"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the built-in English-French corpus to files.

    By default {train,valid,test,names}.{en,fr,align}, a parallel corpus with gold word alignments. The splits never
    share a pair, whatever the seed; `names` contains names that occur in no other split.
    """
    from regard.cli.progress_ui import progress_bar
    from regard.text.grammar import write_corpus

    processes = workers or (os.cpu_count() or 1 if pairs >= WORTH_IT else 1)
    started = time.perf_counter()
    with progress_bar("examples", hidden=as_json) as advance:
        written = write_corpus(folder, pairs, seed, view, processes, replace, advance)
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
    typer.echo(f"{written.examples:,} examples in {seconds:.1f} s; {rate:,.0f} drawn per second")
