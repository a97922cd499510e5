"""`regard look`: what a model attends to in a text, as a page, a picture or numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import SettingError


def look(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, or of a Hugging Face checkpoint.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text; - is standard input.")],
    text2: Annotated[
        str | None, typer.Argument(metavar="[TEXT2]", help="A second text, or the translation to be read.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where to: .html, .svg, .png, .json, .npz, or .regard, the record.")
    ] = Path("attention.html"),
    places: Annotated[
        list[str] | None, typer.Option("--places", help="Only these places, such as '*.cross'; may be said again.")
    ] = None,
    heads: Annotated[
        list[int] | None, typer.Option("--heads", help="Keep the maps of these heads alone; may be said again.")
    ] = None,
    place: Annotated[str | None, typer.Option("--place", help="The place that a picture shows.")] = None,
    head: Annotated[int | None, typer.Option("--head", min=0, help="The head that a picture shows.")] = None,
    writes: Annotated[int, typer.Option("--write", min=0, help="Let a language model add so many tokens.")] = 0,
    gradient: Annotated[
        bool, typer.Option("--gradient", help="Keep how each weight matters to what the model says, too.")
    ] = False,
    atlas: Annotated[
        Path | None,
        typer.Option("--atlas", metavar="FILE", help="Names of the heads, by `regard atlas`; else RUN/atlas.json."),
    ] = None,
    measures: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            metavar="NAME",
            help="Also compute an attribution map: rollout, flow, norms, gradients, integrated-gradients or "
            "value-zeroing; repeatable.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was seen, place by place, as one object.")
    ] = False,
) -> None:
    """Put a text to a model and save what it attends to: a page to explore, a picture, or numbers."""
    from regard.cli.inputs import lines_of
    from regard.cli.process_tuning import prepare_machine
    from regard.page import expect_ending, look as looked

    prepare_machine()
    expect_ending(out)
    given = "\n".join(lines_of(Path("-"))) if text == "-" else text
    if not given.strip():
        raise SettingError("no words", "a text", where="regard look")
    view = looked(
        run,
        given,
        text2,
        places=places or "*",
        heads=heads,
        writes=writes,
        gradient=gradient,
        atlas=atlas,
        measures=measures or (),
    )
    path = view.save(out, place=place, head=head)
    record = view.record
    if as_json:
        told = [{"place": one.name, "kind": one.kind, "heads": one.heads, "why": one.why} for one in record.places]
        sides = {side.name: list(side.tokens) for side in record.sides}
        found = {"measures": [one.described() for one in record.measures]} if record.measures else {}
        typer.echo(json.dumps({"out": str(path), "sides": sides, "places": told, **found}, ensure_ascii=False))
        return
    counts = ", ".join(f"{len(side)} tokens of {side.name}" for side in record.sides)
    typer.echo(f"{sum(one.heads for one in record.places)} heads at {len(record.places)} places over {counts}")
    for reason in sorted({one.why for one in record.places if one.why}):
        typer.echo(reason)
    for one in record.measures:
        rows, cols = (record.sides[number].name for number in (one.rows, one.cols))
        at = "" if one.place is None else f" at {one.place}"
        typer.echo(f"{one.title}{at}: from {rows} to {cols}, {' x '.join(map(str, one.values.shape))}")
    typer.echo(f"{path} ({path.stat().st_size:,} bytes)")
