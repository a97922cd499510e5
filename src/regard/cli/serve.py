"""`regard serve`: a local web page where models are run on text and their attention is explored."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.command import AsJson
from regard.errors import RecordError, SettingError

LARGEST_PORT = 65535


def serve(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN", help="Run folders, or Hugging Face checkpoint folders, to serve."),
    ] = None,
    records: Annotated[
        list[Path] | None,
        typer.Option("--record", metavar="FILE", help="Record saved by `regard look` to view (repeatable)."),
    ] = None,
    port: Annotated[
        int,
        typer.Option("--port", metavar="N", min=0, max=LARGEST_PORT, help="Port to listen on; 0 chooses a free one."),
    ] = 8421,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="NAME",
            help="Address to listen on. With any other than the default, other machines can connect.",
        ),
    ] = "127.0.0.1",
    max_new_tokens: Annotated[
        int,
        typer.Option(
            "--max-new-tokens",
            metavar="N",
            min=0,
            help="Tokens that a language model adds to a text at most.",
        ),
    ] = 20,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Serve a local web page to explore attention.

    On the page, choose a model, type a text, and see what the model attends to. Saved records can be viewed too. Ctrl-C
    stops the server. With --json, prints the address once the server is ready.
    """
    if not runs and not records:
        advice = "`regard train NAME --out RUN` makes a run; `regard look` saves records."
        raise SettingError("Give a run or --record FILE", where="serve", advice=advice)
    from regard.cli.process_tuning import prepare_machine

    prepare_machine()
    from regard.adapters import adapter
    from regard.inspection import Record
    from regard.page.serve import is_loopback, serve as serve_page

    loaded: dict[str, Record | RecordError] = {}
    for name, path in named(records or ()):
        try:
            loaded[name] = Record.load(path)
        except RecordError as error:  # the others are served; the page lists this one with its error
            loaded[name] = error
    unread = {name: one for name, one in loaded.items() if isinstance(one, RecordError)}
    if unread and len(unread) == len(loaded) and not runs:
        raise next(iter(unread.values()))
    for one in unread.values():
        typer.echo(f"Warning: {one}", err=True)
    models = [adapter(path, max_new_tokens=max_new_tokens) for path in runs or ()]
    if not is_loopback(host):
        warning = (
            f"Warning: there is no password, so everybody who can reach {host} can use these models and read these "
            "records."
        )
        typer.echo(warning, err=True)

    def ready(address: str) -> None:
        if as_json:
            served = [name for name in loaded if name not in unread]
            entry: dict[str, Any] = {"address": address, "runs": [one.name for one in models], "records": served}
            entry |= {"unread": {name: str(one) for name, one in unread.items()}} if unread else {}
            typer.echo(json.dumps(entry, ensure_ascii=False))
        else:
            typer.echo(f"{address} is ready; Ctrl-C ends it.")
        if open_:
            typer.launch(address)

    if serve_page(models, loaded, host=host, port=port, ready=ready):
        # every client has its answer; Python would wait for the rest of a computation that nobody reads
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def named(paths: Iterable[Path]) -> list[tuple[str, Path]]:
    """Each file with an id for URLs: its name, with a number added to duplicates."""
    taken: dict[str, Path] = {}
    for path in paths:
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem).strip("-") or "record"
        name, number = plain, 2
        while name in taken:
            name, number = f"{plain}-{number}", number + 1
        taken[name] = path
    return list(taken.items())
