"""`regard serve`: the page on this machine, where one puts text to models and looks at what they attend to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import SettingError

LARGEST_PORT = 65535


def serve(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="[RUN ...]", help="Folders of models that text can be put to.")
    ] = None,
    records: Annotated[
        list[Path] | None, typer.Option("--record", metavar="FILE", help="A saved record to look at; may be repeated.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=LARGEST_PORT, help="0: one that is free.")] = 8421,
    host: Annotated[str, typer.Option(help="The address to listen at; others than this let other machines in.")] = (
        "127.0.0.1"
    ),
    writes: Annotated[int, typer.Option(min=0, help="Tokens that a language model adds to a text.")] = 20,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print an object with the address, once it answers.")] = False,
) -> None:
    """Serve a page, until Ctrl-C, in which a visitor types text and looks at what a model attends to."""
    if not runs and not records:
        advice = "`regard train NAME --out RUN` makes a run; --record shows a record that was saved."
        raise SettingError("nothing to serve", "a run's folder, or --record FILE", where="regard serve", advice=advice)
    from regard.cli.process_tuning import prepare_machine

    prepare_machine()
    from regard.adapters import adapter
    from regard.inspection import Record
    from regard.page.serve import is_loopback, serve as serve_page

    given = {name: Record.load(path) for name, path in named(records or ())}
    subjects = [adapter(path, writes=writes) for path in runs or ()]
    if not is_loopback(host):
        warning = (
            f"Warning: whoever can reach {host} can use these models and read these records; there is no password."
        )
        typer.echo(warning, err=True)

    def ready(address: str) -> None:
        if as_json:
            told = {"address": address, "runs": [one.name for one in subjects], "records": list(given)}
            typer.echo(json.dumps(told, ensure_ascii=False))
        else:
            typer.echo(f"{address} is ready; Ctrl-C ends it.")
        if open_:
            typer.launch(address)

    serve_page(subjects, given, host=host, port=port, ready=ready)


def named(paths: Iterable[Path]) -> list[tuple[str, Path]]:
    """Each file with an id that an address can hold: its name, and a number where two would be the same."""
    taken: dict[str, Path] = {}
    for path in paths:
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem).strip("-") or "record"
        name, number = plain, 2
        while name in taken:
            name, number = f"{plain}-{number}", number + 1
        taken[name] = path
    return list(taken.items())
