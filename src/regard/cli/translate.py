"""`regard translate`: beam search translation, with word alignments and constraints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.command import AsJson
from regard.cli.process_tuning import prepare_machine
from regard.errors import SettingError

if TYPE_CHECKING:
    from regard.decoding import Rules, Translated, Translator


def translate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of a translation model.")],
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT|FILE|-", help="A sentence, or a file with one on each line; - reads standard input."
        ),
    ] = "-",
    beam: Annotated[int, typer.Option("--beam", metavar="N", min=1, help="Beam width; 1 is greedy search.")] = 5,
    n_best: Annotated[int, typer.Option("--n-best", metavar="N", min=1, help="Translations of each sentence.")] = 1,
    length_penalty: Annotated[
        float, typer.Option("--length-penalty", metavar="NUMBER", min=0, help="Alpha of Wu et al. 2016; 0 is off.")
    ] = 0.6,
    coverage_penalty: Annotated[
        float, typer.Option("--coverage-penalty", metavar="NUMBER", min=0, help="Beta of Wu et al. 2016; 0 is off.")
    ] = 0.0,
    min_length: Annotated[int, typer.Option("--min-length", metavar="N", min=0, help="Minimum length in tokens.")] = 0,
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length", metavar="N", min=1, help="Maximum length in tokens.", show_default="by source length"
        ),
    ] = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="TEXT", help="Text that every translation begins with.")
    ] = None,
    ban: Annotated[
        list[str] | None, typer.Option("--ban", metavar="TEXT", help="Text that must not occur (repeatable).")
    ] = None,
    require: Annotated[
        list[str] | None, typer.Option("--require", metavar="TEXT", help="Text that must occur (repeatable).")
    ] = None,
    alignment: Annotated[bool, typer.Option("--alignment", help="Append the word alignment, as 0-0 1-2.")] = False,
    as_json: AsJson = False,
) -> None:
    """Translate sentences with a trained model.

    Prints one translation per line; blank lines stay blank. With --json, prints one object per translation.
    """
    prepare_machine()
    from regard.cli.inputs import MAX_SENTENCE, portions, read_texts, warn_oov
    from regard.cli.progress_ui import progress_bar
    from regard.decoding import Beam, LengthPenalty
    from regard.runs import Run

    lines = read_texts(text, MAX_SENTENCE)
    translator = Run.open(run).translator()
    sources = [line for line in lines if line.strip()]
    search = Beam(max(beam, n_best), LengthPenalty(length_penalty), coverage_penalty, n_best)
    attention = alignment or as_json or coverage_penalty > 0
    if not translator.model.copies:
        warn_oov(translator.source, sources)
    with progress_bar("sentences", len(sources)) as advance:

        def translations() -> Iterator[list[Translated]]:
            for portion in portions(sources):  # translations with their scores and attention are not held for long
                rules = _rules(translator, len(portion), min_length, max_length, prefix, ban or [], require or [])
                yield from translator(portion, search, rules, attention, advance)

        found = translations()
        for number, line in enumerate(lines, start=1):
            for rank, one in enumerate(next(found) if line.strip() else [None] * n_best, start=1):
                _print(translator, one, number, rank, alignment, as_json)


def _rules(
    translator: Translator,
    rows: int,
    min_length: int,
    max_length: int | None,
    prefix: str | None,
    ban: list[str],
    require: list[str],
) -> Rules:
    def ids(text: str) -> list[int]:
        found = list(translator.target.encode(text).ids)
        if not found or translator.target.special.unknown in found:
            raise SettingError(
                f"{text!r} has words that are not in the target vocabulary", where="--prefix, --ban, --require"
            )
        return found

    return translator.rules(
        max_length,
        min_length,
        prefix=None if prefix is None else [ids(prefix)] * rows,
        banned=tuple(map(ids, ban)),
        required=[list(map(ids, require))] * rows if require else None,
    )


def _print(
    translator: Translator, one: Translated | None, number: int, rank: int, alignment: bool, as_json: bool
) -> None:
    from regard.inspection import to_pharaoh, translation_links, translation_to_dict

    if one is None:
        typer.echo(json.dumps({"line": number, "text": ""}) if as_json else "")
    elif as_json:
        typer.echo(
            json.dumps({"line": number, "rank": rank, **translation_to_dict(translator, one)}, ensure_ascii=False)
        )
    elif alignment:
        typer.echo(f"{one.text} ||| {to_pharaoh(translation_links(translator, one))}")
    else:
        typer.echo(one.text)
