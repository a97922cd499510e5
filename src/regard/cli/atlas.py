"""`regard atlas`: what every head of a model looks at, named by patterns that can be checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.inspection.atlas import Atlas, Head

TITLES = ("place", "head", "looks at", "weight", "in 95%", "to beat", "largest", "for example")
WIDE = 120  # columns of a terminal in which examples have room


def atlas(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, or of a Hugging Face checkpoint.")],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A text a line; a tab before a second text or translation, another before gold links. "
            "built-in: the built-in corpus, as the run's own task has it.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to: .json, .html, .svg or .png. By default RUN/atlas.json."),
    ] = None,
    tags: Annotated[
        Path | None, typer.Option("--tags", help="Tags of the words: word_TAG a line each text, or two columns.")
    ] = None,
    texts: Annotated[int, typer.Option("--texts", min=5, help="At most so many texts, the first ones.")] = 500,
    words: Annotated[int, typer.Option("--words", min=4, help="Texts are cut after so many words.")] = 100,
    seed: Annotated[int, typer.Option("--seed", help="Of the random texts for induction, and the bootstrap.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole atlas as one object.")] = False,
) -> None:
    """Read texts with a model once and name its heads: previous word, identical word, delimiter, induction ... each
    with its score, what it had to beat, and examples. `regard look` and `regard serve` show the names."""
    from regard.cli.process_tuning import prepare_machine

    prepare_machine()
    from regard.adapters import adapter
    from regard.cli.progress_ui import progress_bar
    from regard.inspection.atlas import PROBES, atlas as named, expect_writable, passages_for
    from regard.training import join

    path = out or run / "atlas.json"
    expect_writable(path)
    with join("cpu") as world:
        model = adapter(run)
        given = passages_for(model, file, texts, tags)
        mine = -(-(len(given) + PROBES) // world.ranks)
        with progress_bar("texts", mine, hidden=as_json or not world.first) as tell:
            found = named(model, given, words=words, seed=seed, world=world, tell=tell)
        if not world.first:
            return
        found.save(path)
    if as_json:
        typer.echo(json.dumps({"out": str(path), **found.told()}, ensure_ascii=False))
    else:
        _tell(found, path)


def _tell(found: Atlas, path: Path) -> None:
    """A line for each head, and what they are together."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from regard.inspection.atlas import LEGEND, UNKNOWN

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    titles = TITLES if console.width >= WIDE else TITLES[:-1]
    for title in titles:
        right = title in ("head", "weight", "to beat", "largest")
        table.add_column(title, justify="right" if right else "left", no_wrap=title != "for example")
    last = ""
    for head in found.heads:
        rows = [_cells(head, name) for name in head.names] or [[UNKNOWN]]
        for number, cells in enumerate(rows):
            start = "" if head.place == last else head.place, "" if number else str(head.head)
            table.add_row(*(Text(cell) for cell in (*start, *cells)[: len(titles)]))
            last = head.place
    console.print(table)
    counts = ", ".join(f"{name} {count}" for name, count in found.counts.items())
    heads = "1 head" if len(found.heads) == 1 else f"{len(found.heads)} heads"
    console.print(f"\n{heads} over {found.texts:,} texts: {counts}", soft_wrap=True)
    console.print(LEGEND)
    console.print(f"{path} ({path.stat().st_size:,} bytes)", soft_wrap=True)


def _cells(head: Head, name: str) -> list[str]:
    one = head.measures[name]
    examples = "; ".join(f"{shown.query} > {shown.key}" for shown in head.examples.get(name, ()))
    return [
        name,
        f"{one.weight.value:.0%}",
        f"{one.weight.low:.0%} - {one.weight.high:.0%}",
        f"{one.baseline:.0%}",
        f"{one.largest.value:.0%}",
        examples,
    ]
