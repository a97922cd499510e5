"""`regard audit`: is attention an explanation? Faithfulness tests with controls, and a verdict for each map."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.command import AsJson
from regard.errors import SettingError

if TYPE_CHECKING:
    from regard.faithfulness import Report
    from regard.inspection import ConfidenceInterval

REPORT = "audit.json"
COLUMNS = {  # test: the heading of its column
    "comprehensiveness": "compr",
    "comprehensiveness_gain": "gain",
    "tau_leave_one_out": "tau",
    "permuted": "perm",
    "alternative_exists": "altern",
    "precision": "prec",
}
ABOUT = """compr   comprehensiveness: probability, in %, lost without the map's top words; gain: more than random words
tau     Kendall's tau of its ranking of the words with that of leave-one-out, from -1 to 1
perm    permutation test: change of the output, in %, when the weights are permuted
altern  how often, in %, a very different map gives the same output
prec    precision: of the top words that hold half of the map, the share, in %, that are known to decide"""


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, or Hugging Face checkpoint folder.")],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Text file, one text per line, a tab before its translation; for a classifier also a table (.tsv, "
            ".csv, .jsonl) with columns text and label. built-in: the built-in corpus, for the task of the run.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Output: .html with figures, or .json with every number."),
    ] = None,
    max_examples: Annotated[
        int, typer.Option("--max-examples", metavar="N", min=1, help="Maximum number of examples.")
    ] = 200,
    places: Annotated[
        list[str] | None,
        typer.Option("--places", metavar="PATTERN", help="Attention modules to audit, such as '*.cross' (repeatable)."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Random seed.")] = 0,
    full_search: Annotated[
        bool,
        typer.Option("--full-search", help="Search for adversarial maps as long as Jain & Wallace 2019; much slower."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Test whether a model's attention explains its decisions.

    Gives a verdict in plain words for every head and layer. The report of a run is also saved in its folder, where
    `regard look` and `regard serve` find it. An interrupted audit resumes where it stopped. With --json,
    prints the whole report as one object.
    With several processes: torchrun --nproc-per-node N -m regard audit ...
    """
    from regard.cli.process_tuning import prepare_machine

    prepare_machine()
    from regard.cli.progress_ui import progress_bar
    from regard.faithfulness import PUBLISHED_SEARCH, QUICK_SEARCH, AuditSettings, audit as audited
    from regard.runs import open_run
    from regard.training import init_distributed

    opened = open_run(run)
    saved = None if opened is None else run / REPORT
    if out is None and saved is None and not as_json:
        raise SettingError(f"{run} is not a run that can hold the report", where="audit", advice="Give -o FILE.")
    settings = AuditSettings(places=places or "*", seed=seed, search=PUBLISHED_SEARCH if full_search else QUICK_SEARCH)
    paths = [path for path in (out, saved) if path is not None]
    with init_distributed("cpu") as world:
        with progress_bar("decisions", None, hidden=as_json or not world.is_main) as advance:
            found = audited(
                opened or run,
                file,
                max_examples=max_examples,
                settings=settings,
                out=paths,
                world=world,
                on_progress=advance,
            )
        if not world.is_main:
            return
    if as_json:
        typer.echo(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        _print_tables(found, out or saved)


def _print_tables(found: Report, path: Path | None) -> None:
    """Print a line for each map, and the verdict on every layer."""
    from rich.console import Console
    from rich.table import Table

    from regard.faithfulness import display_names

    console = Console(highlight=False)
    tests = [test for test in COLUMNS if any(one.test == test for one in found.findings)]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("map", overflow="fold", min_width=20)
    for test in tests:
        table.add_column(COLUMNS[test], justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    names = display_names(found)
    statuses = {one.map: one.status for one in found.verdicts}
    for name in found.maps:
        known = found.estimates(name)
        cells = [_cell(test, known[test]) if test in known else "" for test in tests]
        table.add_row(names[name], *cells, statuses.get(name, ""))
    console.print(table)
    facts = found.facts
    right = facts["accuracy"]
    accuracy = "" if right is None else f", {right['value']:.1%} of them right"
    level = f"{facts['settings']['confidence']:.0%}"
    console.print(
        f"\n{facts['decisions']} decisions ({facts['decision']}){accuracy}; means ± half of a {level} interval"
    )
    console.print(
        "\n".join(line for line in ABOUT.splitlines() if line.split()[0] in map(COLUMNS.get, tests)), soft_wrap=True
    )
    for one in found.verdicts:
        if one.kind == "layer":
            console.print(f"\n[bold]{one.map}[/bold]  {one.reason}", soft_wrap=True)
    if path is not None:
        console.print(f"\n{path} ({path.stat().st_size:,} bytes)", soft_wrap=True)


def _cell(test: str, one: ConfidenceInterval) -> str:
    """A mean and half the width of its confidence interval."""
    spread = None if one.low is None or one.high is None else (one.high - one.low) / 2
    if test.startswith("tau"):
        return f"{one.value:.2f}" if spread is None else f"{one.value:.2f}±{spread:.2f}"
    return f"{100 * one.value:.0f}" if spread is None else f"{100 * one.value:.0f}±{100 * spread:.0f}"
