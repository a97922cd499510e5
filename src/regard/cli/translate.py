"""`regard translate`: sentences in another language, with word links and everything else that is known about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.process_tuning import prepare_machine
from regard.errors import SettingError

if TYPE_CHECKING:
    from regard.decoding import Rules, Translated, Translator


def translate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained translator.")],
    text: Annotated[
        str,
        typer.Argument(metavar="[TEXT|FILE|-]", help="A sentence, or a file of them, one a line; - is standard input."),
    ] = "-",
    beam: Annotated[int, typer.Option(min=1, help="Hypotheses side by side; 1 is greedy.")] = 5,
    best: Annotated[int, typer.Option(min=1, help="So many translations of each sentence.")] = 1,
    length_penalty: Annotated[float, typer.Option(min=0, help="Alpha of Wu et al. 2016; 0 is none.")] = 0.6,
    coverage: Annotated[float, typer.Option(min=0, help="Beta of Wu et al. 2016: look at all of the source.")] = 0.0,
    shortest: Annotated[int, typer.Option(min=0, help="At least so many tokens.")] = 0,
    longest: Annotated[int | None, typer.Option(min=1, help="At most so many tokens.")] = None,
    prefix: Annotated[str | None, typer.Option(help="Every translation begins with this.")] = None,
    ban: Annotated[list[str] | None, typer.Option("--ban", help="Words that are never said; again for more.")] = None,
    require: Annotated[list[str] | None, typer.Option("--require", help="Words that must be said.")] = None,
    alignment: Annotated[bool, typer.Option("--alignment", help="Add the word links, as 0-0 1-2.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything, an object a line.")] = False,
) -> None:
    """Translate sentences, a line each; blank lines stay blank."""
    prepare_machine()
    from regard.cli.inputs import tell_unknown, texts_of
    from regard.cli.progress_ui import progress_bar
    from regard.decoding import Beam, LengthPenalty
    from regard.runs import Run

    lines = texts_of(text)
    translator = Run.open(run).translator()
    said = [line for line in lines if line.strip()]
    search = Beam(max(beam, best), LengthPenalty(length_penalty), coverage, best)
    rules = _rules(translator, len(said), shortest, longest, prefix, ban or [], require or [])
    with progress_bar("sentences", len(said)) as tell:
        found = iter(translator(said, search, rules, attention=alignment or as_json or coverage > 0, tell=tell))
    if not translator.model.copies:
        tell_unknown(translator.source, said)
    for number, line in enumerate(lines, start=1):
        for rank, one in enumerate(next(found) if line.strip() else [None] * best, start=1):
            _print(translator, one, number, rank, alignment, as_json)


def _rules(
    translator: Translator,
    rows: int,
    shortest: int,
    longest: int | None,
    prefix: str | None,
    ban: list[str],
    require: list[str],
) -> Rules:
    def ids(text: str) -> list[int]:
        found = list(translator.target.encode(text).ids)
        if not found or translator.target.special.unknown in found:
            raise SettingError(repr(text), "words of the target's vocabulary", where="--prefix, --ban, --require")
        return found

    return translator.rules(
        longest,
        shortest,
        prefix=None if prefix is None else [ids(prefix)] * rows,
        banned=tuple(map(ids, ban)),
        required=[list(map(ids, require))] * rows if require else None,
    )


def _print(
    translator: Translator, one: Translated | None, number: int, rank: int, alignment: bool, as_json: bool
) -> None:
    from regard.inspection import links, pharaoh, told

    if one is None:
        typer.echo(json.dumps({"line": number, "text": ""}) if as_json else "")
    elif as_json:
        typer.echo(json.dumps({"line": number, "rank": rank, **told(translator, one)}, ensure_ascii=False))
    elif alignment:
        typer.echo(f"{one.text} ||| {pharaoh(links(translator, one))}")
    else:
        typer.echo(one.text)
