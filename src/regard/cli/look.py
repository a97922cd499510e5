"""`regard look`: the attention of a model on a text or an image, as a page, a picture or numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.command import AsJson
from regard.errors import SettingError


def look(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, or Hugging Face checkpoint folder.")],
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT|IMAGE", help="The text, - to read standard input, or an image: .png, .jpg or .webp."
        ),
    ],
    text2: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT2",
            help="A second text, the translation, or the text to an image.",
            show_default="the model translates",
        ),
    ] = None,
    image: Annotated[
        list[Path] | None,
        typer.Option("--image", metavar="FILE", help="A further image (repeatable)."),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Output: .html, .svg, .png, .json, .npz or .regard (a record)."
        ),
    ] = Path("attention.html"),
    places: Annotated[
        list[str] | None,
        typer.Option(
            "--places", metavar="PATTERN", help="Attention modules to record, such as '*.cross' (repeatable)."
        ),
    ] = None,
    heads: Annotated[
        list[int] | None,
        typer.Option(
            "--heads",
            metavar="N",
            help="Head to store in full; the others keep statistics only (repeatable).",
        ),
    ] = None,
    draw_place: Annotated[
        str | None,
        typer.Option("--draw-place", metavar="NAME", help="Attention module that an .svg or .png picture shows."),
    ] = None,
    draw_head: Annotated[
        int | None,
        typer.Option("--draw-head", metavar="N", min=0, help="Head that an .svg or .png picture shows."),
    ] = None,
    draw_query: Annotated[
        str | None,
        typer.Option(
            "--draw-query",
            metavar="N|NAME",
            help="In a record of pictures, the token (text or number) whose attention an .svg or .png shows.",
        ),
    ] = None,
    draw_key: Annotated[
        str | None,
        typer.Option("--draw-key", metavar="N|NAME", help="Instead of a query: the token to which the others attend."),
    ] = None,
    draw_measure: Annotated[
        str,
        typer.Option(
            "--draw-measure",
            metavar="NAME",
            help="What is drawn over a picture: weights, norms, gradient or a --measure.",
        ),
    ] = "weights",
    max_new_tokens: Annotated[
        int,
        typer.Option(
            "--max-new-tokens",
            metavar="N",
            min=0,
            help="Tokens that a language model adds to the text at most.",
        ),
    ] = 0,
    gradient: Annotated[
        bool,
        typer.Option("--gradient", help="Also store the gradient of the output with respect to each attention weight."),
    ] = False,
    atlas: Annotated[
        Path | None,
        typer.Option(
            "--atlas", metavar="FILE", help="Head labels, as written by `regard atlas`.", show_default="RUN/atlas.json"
        ),
    ] = None,
    measures: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            metavar="NAME",
            help="Also compute an attribution map: rollout, flow, relevance, norms, gradients, integrated-gradients "
            "or value-zeroing (repeatable).",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Record a model's attention on a text as a page or figure.

    Runs the model on the text, or on images, and saves its attention: a page to explore, a picture, or the numbers.
    With --json, prints a summary of what was recorded.
    """
    from regard.adapters import is_image_path
    from regard.cli.inputs import MAX_PASSAGE, expect_length, read_lines
    from regard.cli.process_tuning import prepare_machine
    from regard.page import expect_suffix, look as looked

    prepare_machine()
    expect_suffix(out)
    given: Any = "\n".join(read_lines(Path("-"), MAX_PASSAGE)) if text == "-" else text
    if not given.strip():
        raise SettingError("The text is empty", where="look")
    for words in (given if isinstance(given, str) else "", text2 or ""):
        expect_length(words, MAX_PASSAGE, "look")
    pictured = text != "-" and is_image_path(text)
    if image and not pictured and text2 is not None:
        raise SettingError("Two texts and an image", "one text", where="look")
    if pictured or image:
        text2 = text2 if pictured else given
        given = [*([Path(text)] if pictured else []), *(image or [])]
    view = looked(
        run,
        given,
        text2,
        places=places or "*",
        heads=heads,
        max_new_tokens=max_new_tokens,
        gradient=gradient,
        atlas=atlas,
        measures=measures or (),
    )
    path = view.save(out, place=draw_place, head=draw_head, query=draw_query, key=draw_key, measure=draw_measure)
    record = view.record
    if as_json:
        entries = [
            {"place": one.name, "kind": one.kind, "heads": one.heads, "why": one.why, "note": one.note}
            for one in record.places
        ]
        axes = {axis.name: list(axis.tokens) for axis in record.axes}
        found: dict[str, object] = {"out": str(path), "axes": axes, "places": entries}
        found |= {"measures": [one.header() for one in record.measures]} if record.measures else {}
        found |= {"unheard": dict(record.unheard)} if record.unheard else {}
        found |= {"notes": record.notes} if record.notes else {}
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    counts = ", ".join(axis.summary for axis in record.axes)
    typer.echo(f"{sum(one.heads for one in record.places)} heads at {len(record.places)} places over {counts}")
    for note in record.notes:
        typer.echo(f"{note}.")
    for reason in sorted({one.why for one in record.places if one.why}):
        typer.echo(reason)
    for note in sorted({one.note for one in record.places if one.note}):
        typer.echo(f"{note[:1].upper()}{note[1:]}.")
    for one in record.measures:
        rows, cols = (record.axes[number].name for number in (one.rows, one.cols))
        at = "" if one.place is None else f" at {one.place}"
        typer.echo(f"{one.title}{at}: from {rows} to {cols}, {' x '.join(map(str, one.values.shape))}")
    typer.echo(f"{path} ({path.stat().st_size:,} bytes)")
