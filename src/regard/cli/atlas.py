"""`regard atlas`: attention heads labelled by measured patterns (previous token, induction ...)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.command import AsJson

if TYPE_CHECKING:
    from regard.inspection.atlas import Atlas, Head

TITLES = ("place", "head", "looks at", "weight", "in 95%", "to beat", "largest", "for example")
WIDE = 120  # terminal columns from which on examples are shown


def atlas(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, or Hugging Face checkpoint folder.")],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Text file, one text per line; a tab before a second text or translation, another before gold links. "
            "built-in: the built-in corpus, for the task of the run.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Output: .json, .html, .svg or .png.", show_default="RUN/atlas.json"
        ),
    ] = None,
    tags: Annotated[
        Path | None,
        typer.Option(
            "--tags", metavar="FILE", help="Part-of-speech tags: word_TAG on a line per text, or CoNLL columns."
        ),
    ] = None,
    max_texts: Annotated[int, typer.Option("--max-texts", metavar="N", min=5, help="Maximum number of texts.")] = 500,
    max_words: Annotated[
        int, typer.Option("--max-words", metavar="N", min=4, help="Maximum words of a text; longer ones are truncated.")
    ] = 100,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Random seed, of the induction probe and the bootstrap.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Label the attention heads of a model by their patterns.

    Previous token, identical word, delimiter, induction ...: each label comes with its score, the baseline it had to
    exceed, and examples. `regard look` and `regard serve` show the labels. With --json, prints the whole
    atlas as one object.
    """
    from regard.cli.process_tuning import prepare_machine

    prepare_machine()
    from regard.adapters import adapter
    from regard.cli.progress_ui import progress_bar
    from regard.inspection.atlas import PROBES, atlas as named, expect_writable, load_passages
    from regard.training import init_distributed

    path = out or run / "atlas.json"
    expect_writable(path)
    with init_distributed("cpu") as world:
        model = adapter(run)
        given = load_passages(model, file, max_texts, tags)
        mine = -(-(len(given) + PROBES) // world.ranks)
        with progress_bar("texts", mine, hidden=as_json or not world.is_main) as advance:
            found = named(model, given, max_words=max_words, seed=seed, world=world, on_progress=advance)
        if not world.is_main:
            return
        found.save(path)
    if as_json:
        typer.echo(json.dumps({"out": str(path), **found.to_dict()}, ensure_ascii=False))
    else:
        _print_table(found, path)


def _print_table(found: Atlas, path: Path) -> None:
    """Print a line for each head, and the counts."""
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
