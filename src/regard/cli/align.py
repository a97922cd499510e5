"""`regard align`: which word answers to which in sentences and translations that are given, and how right that is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from regard.errors import CorpusError, SettingError

if TYPE_CHECKING:
    from regard.inspection import Aligned, Alignments, Gold

T = TypeVar("T")


class By(StrEnum):
    raw = "raw"
    norm = "norm"


class Merge(StrEnum):
    intersection = "intersection"
    union = "union"
    grow_diag = "grow-diag"
    grow_diag_final = "grow-diag-final"
    grow_diag_final_and = "grow-diag-final-and"


def align(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A model that translates: its folder.")] = None,
    source: Annotated[
        Path | None, typer.Argument(metavar="SRC", help="A file, a sentence a line; - is standard input.")
    ] = None,
    target: Annotated[Path | None, typer.Argument(metavar="TGT", help="Its translations, a line each.")] = None,
    gold: Annotated[
        Path | None, typer.Option("--gold", help="Gold links (i-j sure, ipj possible): prints AER.")
    ] = None,
    first: Annotated[int, typer.Option("--first", min=0, max=1, help="What gold links count words from.")] = 0,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="A share that links a source word to its best target word too.")
    ] = 0.2,
    balance: Annotated[
        bool, typer.Option("--balance/--raw", help="Let words compete for each other, or take the map as it is.")
    ] = True,
    place: Annotated[
        str | None,
        typer.Option(help="Where to look: decoder.1.cross, with heads decoder.1.cross/0,3; best: half of --gold says."),
    ] = None,
    reading: Annotated[By, typer.Option(help="Weights as they are, or times the norm of what they let through.")] = (
        By.raw
    ),
    shift: Annotated[
        bool, typer.Option("--shift", help="Look for a word in the step that has read it, not in that which writes it.")
    ] = False,
    back: Annotated[
        Path | None, typer.Option(help="A model that translates the other way; with --found, a file of its links.")
    ] = None,
    merge: Annotated[Merge, typer.Option(help="How the links of both directions become one.")] = (
        Merge.grow_diag_final_and
    ),
    found: Annotated[Path | None, typer.Option(help="A file of links, 0-0 1-2 a line, instead of a model.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print an object a line, or the measures as one.")] = False,
) -> None:
    """Print the word links of each pair as 0-0 1-2, read off the attention that a model pays while it is made to write
    the given translation; with --gold, their precision, recall and alignment error rate."""
    from regard.cli.progress_ui import progress_bar
    from regard.inspection import (
        BEST,
        Aligning,
        Alignments,
        align as aligned,
        as_it_is,
        balanced,
        both_ways,
        evaluate_links,
    )

    truths = None if gold is None else _gold(gold, first)
    if found is not None:
        if run is not None:
            raise SettingError(f"{run} and --found {found}", "one of the two", where="regard align")
        read = _read(found)
        if gold is not None and truths is not None:
            _same_length(found, read, gold, truths)
        if back is not None:
            read = both_ways(read, _same_length(found, read, back, _read(back)), merge)
        made = Alignments(read, None if truths is None else evaluate_links([one.links for one in read], truths))
    else:
        if run is None or source is None or target is None:
            raise SettingError("not all of RUN SRC TGT", "all three, or --found FILE", where="regard align")
        pairs = _pairs(source, target)
        if gold is not None and truths is not None:
            _same_length(source, pairs, gold, truths)
        if place == BEST and (truths is None or len(pairs) < 2):
            raise SettingError(f"--place {BEST}", "--gold with two lines or more", where="regard align")
        how = Aligning(place, reading.value, shift, balanced if balance else as_it_is, threshold)
        with progress_bar("pairs", None if place == BEST else (1 + bool(back)) * len(pairs), hidden=as_json) as tell:
            made = aligned(run, pairs, how, gold=truths, back=back, merge=merge, tell=tell)
    _print(made, as_json)


def _pairs(source: Path, target: Path) -> list[tuple[str, str]]:
    from regard.cli.inputs import lines_of

    sources = lines_of(source)
    return list(zip(sources, _same_length(source, sources, target, lines_of(target)), strict=True))


def _gold(path: Path, first: int) -> list[Gold]:
    from regard.cli.inputs import lines_of
    from regard.inspection import read_gold

    return [read_gold(line, f"{path}:{number}", first) for number, line in enumerate(lines_of(path), start=1)]


def _read(path: Path) -> list[Aligned]:
    """Links from a file."""
    from regard.inspection import Aligned

    found = []
    for one in _gold(path, 0):
        made = tuple(sorted(one.possible))
        found.append(Aligned(made, {"links": made}))
    return found


def _print(made: Alignments, as_json: bool) -> None:
    from regard.inspection import pharaoh

    if made.chosen is not None:
        best, there = made.chosen
        typer.echo(
            f"{best}: AER {there.aer:.1%} on the first {made.held_out:,} pairs; what follows is of the others", err=True
        )
    got = made.agreement
    if got is None:
        for one in made.aligned:
            typer.echo(json.dumps(one.told, ensure_ascii=False) if as_json else pharaoh(one.links))
        return
    if as_json:
        rates = {"precision": got.precision, "recall": got.recall, "aer": got.aer}
        typer.echo(json.dumps({"sentences": len(made.aligned), **rates, **asdict(got)}))
    else:
        typer.echo(
            f"precision {got.precision:.1%}  recall {got.recall:.1%}  AER {got.aer:.1%}"
            f"  ({len(made.aligned):,} sentences, {got.links:,} links, {got.sure:,} sure ones)"
        )


def _same_length(one: Path, lines: Sequence[object], other: Path, others: list[T]) -> list[T]:
    """The others, of which there must be as many."""
    if len(lines) != len(others):
        raise CorpusError(
            f"{len(lines)} lines in {one} and {len(others)} in {other}", "as many in each", where="regard align"
        )
    return others
