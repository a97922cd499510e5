"""`regard audit`: is this attention an explanation? Every test, its control, and what to believe of each map."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import SettingError

if TYPE_CHECKING:
    from regard.faithfulness import Report
    from regard.inspection import Estimate

KEPT = "audit.json"
COLUMNS = {  # test: how it is called in the table
    "comprehensiveness": "gone",
    "points": "gain",
    "tau left out": "tau",
    "permuted": "moved",
    "other map": "others",
    "precision": "true",
}
ABOUT = """gone    probability in % that is lost without the map's best words; gain: how much more than at random
tau     how its order of the words agrees with that of leaving each word out, from -1 to 1
moved   how far, in %, the output moves when the words exchange their weights
others  how often, in %, a very different map gives the same output
true    how many, in %, of the words that hold half of the map are known to decide"""


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, or of a Hugging Face checkpoint.")],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A text a line, a tab before its translation; for a classifier also a table (.tsv, .csv, .jsonl) with "
            "columns text and label. built-in: of the built-in corpus, as the run's own task has it.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to: .html with figures, or .json with every number.")
    ] = None,
    examples: Annotated[int, typer.Option("--examples", min=1, help="At most so many examples, the first ones.")] = 200,
    places: Annotated[
        list[str] | None, typer.Option("--places", help="Only where attention is at places like this; again for more.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of everything that is left to chance.")] = 0,
    hard: Annotated[
        bool, typer.Option("--hard", help="Search for other maps as long as Jain & Wallace 2019 did; far slower.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole report as one object.")] = False,
) -> None:
    """Test whether the attention of a model explains what it decides, and say so in plain words for every head.

    The report of a run is kept in its folder as well, where `regard look` and `regard serve` find it. An interrupted
    audit goes on where it stopped. With several processes: torchrun --nproc-per-node N -m regard audit ...
    """
    from regard.cli.process_tuning import prepare_machine

    prepare_machine()
    from regard.cli.progress_ui import progress_bar
    from regard.faithfulness import PUBLISHED, QUICK, Settings, audit as audited
    from regard.runs import open_run
    from regard.training import join

    opened = open_run(run)
    kept = None if opened is None else run / KEPT
    if out is None and kept is None and not as_json:
        raise SettingError(f"{run}, which is no run to keep a report in", "-o FILE", where="regard audit")
    settings = Settings(places=places or "*", seed=seed, search=PUBLISHED if hard else QUICK)
    paths = [path for path in (out, kept) if path is not None]
    with join("cpu") as world:
        with progress_bar("decisions", None, hidden=as_json or not world.first) as tell:
            found = audited(opened or run, file, most=examples, settings=settings, out=paths, world=world, tell=tell)
        if not world.first:
            return
    if as_json:
        typer.echo(json.dumps(found.told(), ensure_ascii=False))
    else:
        _tell(found, out or kept)


def _tell(found: Report, path: Path | None) -> None:
    """A line for each map, and what to believe of every layer in words."""
    from rich.console import Console
    from rich.table import Table

    from regard.faithfulness import called

    console = Console(highlight=False)
    tests = [test for test in COLUMNS if any(one.test == test for one in found.findings)]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("map", overflow="fold", min_width=20)
    for test in tests:
        table.add_column(COLUMNS[test], justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    names = called(found)
    statuses = {one.map: one.status for one in found.verdicts}
    for name in found.maps:
        known = found.of(name)
        cells = [_cell(test, known[test]) if test in known else "" for test in tests]
        table.add_row(names[name], *cells, statuses.get(name, ""))
    console.print(table)
    facts = found.facts
    right = facts["accuracy"]
    told = "" if right is None else f", {right['value']:.1%} of them right"
    console.print(f"\n{facts['decisions']} decisions ({facts['decides']}){told}; means ± half of a 95% interval")
    console.print(
        "\n".join(line for line in ABOUT.splitlines() if line.split()[0] in map(COLUMNS.get, tests)), soft_wrap=True
    )
    for one in found.verdicts:
        if one.kind == "layer":
            console.print(f"\n[bold]{one.map}[/bold]  {one.words}", soft_wrap=True)
    if path is not None:
        console.print(f"\n{path} ({path.stat().st_size:,} bytes)", soft_wrap=True)


def _cell(test: str, one: Estimate) -> str:
    """A mean and how far its interval reaches, on average, to either side."""
    spread = None if one.low is None or one.high is None else (one.high - one.low) / 2
    if test.startswith("tau"):
        return f"{one.value:.2f}" if spread is None else f"{one.value:.2f}±{spread:.2f}"
    return f"{100 * one.value:.0f}" if spread is None else f"{100 * one.value:.0f}±{100 * spread:.0f}"
