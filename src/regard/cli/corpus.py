"""`regard corpus`: write the built-in corpus to files: English-French text, another task of it, or pictures."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.command import AsJson
from regard.errors import SettingError, unknown

WORTH_IT = 20_000  # examples of text from which on several processes are faster
PICTURES_WORTH_IT = 2_000  # the same, of pictures
TEXTS, PICTURES = 50_000, 10_000  # training examples by default


def corpus(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Output folder.")],
    pairs: Annotated[
        int | None,
        typer.Option(
            "--pairs",
            "-n",
            metavar="N",
            help="Number of training examples.",
            show_default=f"{TEXTS:,}; pictures: {PICTURES:,}",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Random seed.")] = 0,
    view: Annotated[
        str,
        typer.Option(
            "--view",
            metavar="NAME",
            help="translation, prose, document, opinion, verdict, tagged, question or sense; "
            "pictures or labelled-pictures.",
        ),
    ] = "translation",
    size: Annotated[
        int | None,
        typer.Option("--size", metavar="N", help="Side of the pictures in pixels, 64 to 128.", show_default="64"),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing files.")] = False,
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", min=1, help="Processes.", show_default="one per core for large corpora"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the built-in English-French corpus, or pictures, to files.

    By default {train,valid,test,names}.{en,fr,align}, a parallel corpus with gold word alignments. The splits never
    share a pair, whatever the seed; `names` contains names that occur in no other split.

    --view pictures writes {train,valid,test}/000001.png, ... and {train,valid,test}.jsonl: for each picture the exact
    scene with the region of every object, a caption with the objects of which each word speaks, a question with its
    answer, and a phrase that refers to one object.

    --view labelled-pictures writes class folders, {train,valid,test}/star/000001.png, ..., and doubled/: pictures with
    two classes each, for testing class sensitivity; the .jsonl files have the labels and the regions.
    """
    from regard.cli.progress_ui import progress_bar
    from regard.text.grammar import TEXT_VIEWS, write_corpus

    write: Callable[..., Any] = write_corpus
    options: dict[str, int] = {}
    is_text = view in TEXT_VIEWS
    if not is_text:
        from regard.pictures import PICTURE_VIEWS, write_pictures

        if view not in PICTURE_VIEWS:
            raise unknown(view, (*TEXT_VIEWS, *PICTURE_VIEWS), kind="view", where="corpus")
        write = write_pictures
        options = {} if size is None else {"size": size}
    elif size is not None:
        raise SettingError(f"--size {size} with --view {view}", "--view pictures or labelled-pictures", where="corpus")
    number = pairs if pairs is not None else TEXTS if is_text else PICTURES
    processes = workers or (os.cpu_count() or 1 if number >= (WORTH_IT if is_text else PICTURES_WORTH_IT) else 1)
    started = time.perf_counter()
    with progress_bar("examples", hidden=as_json) as advance:
        written = write(folder, number, seed, view, workers=processes, replace=replace, progress=advance, **options)
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
    rate = f"{written.drawn / seconds:,.0f} drawn" if is_text else f"{written.examples / seconds:,.0f} written"
    typer.echo(f"{written.examples:,} examples in {seconds:.1f} s; {rate} per second")
