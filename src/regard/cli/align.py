"""`regard align`: word alignments from attention, symmetrisation, and the alignment error rate (AER)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from regard.cli.command import AsJson
from regard.errors import CorpusError, SettingError

if TYPE_CHECKING:
    from regard.inspection import Aligned, Alignments, Gold

T = TypeVar("T")


class Weights(StrEnum):
    raw = "raw"
    norm = "norm"


class Symmetrization(StrEnum):
    intersection = "intersection"
    union = "union"
    grow_diag = "grow-diag"
    grow_diag_final = "grow-diag-final"
    grow_diag_final_and = "grow-diag-final-and"


def align(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="Run folder of a translation model; with --links, leave out all three."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Argument(metavar="SOURCE", help="File of source sentences, one per line; - reads standard input."),
    ] = None,
    target: Annotated[
        Path | None, typer.Argument(metavar="TARGET", help="File of their translations, one per line.")
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Option(
            "--gold", metavar="FILE", help="File of gold alignments (0-0 sure, 0p0 possible); prints the AER."
        ),
    ] = None,
    index_base: Annotated[
        int, typer.Option("--index-base", metavar="N", min=0, max=1, help="Index of the first word in --gold.")
    ] = 0,
    threshold: Annotated[
        float,
        typer.Option(
            "--threshold",
            metavar="NUMBER",
            min=0,
            max=1,
            help="Minimum weight of a link that is best for its source word only.",
        ),
    ] = 0.2,
    use_sinkhorn: Annotated[
        bool,
        typer.Option("--sinkhorn/--no-sinkhorn", help="Normalise the map over both rows and columns (Sinkhorn)."),
    ] = True,
    place: Annotated[
        str | None,
        typer.Option(
            "--place",
            metavar="NAME",
            help="Attention module, such as decoder.1.cross, or heads of it, decoder.1.cross/0,3; "
            "best: chosen by AER on the first half of --gold.",
        ),
    ] = None,
    weights: Annotated[
        Weights,
        typer.Option(
            "--weights", metavar="NAME", help="raw: attention weights; norm: times the norms of the value vectors."
        ),
    ] = Weights.raw,
    shift: Annotated[
        bool, typer.Option("--shift", help="Use the attention of the step after each word, which has it as input.")
    ] = False,
    reverse: Annotated[
        Path | None,
        typer.Option(
            "--reverse", metavar="RUN|FILE", help="Run folder of the reverse model; with --links, its file of links."
        ),
    ] = None,
    symmetrize: Annotated[
        Symmetrization,
        typer.Option(
            "--symmetrize",
            metavar="NAME",
            help="With --reverse: intersection, union, grow-diag, grow-diag-final or grow-diag-final-and.",
        ),
    ] = Symmetrization.grow_diag_final_and,
    links: Annotated[
        Path | None,
        typer.Option("--links", metavar="FILE", help="Alignments from a file (0-0 1-2 per line) instead of a model."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print word alignments from attention, and their AER.

    The model scores each given translation (teacher forcing), and the links are read from its attention, as 0-0 1-2.
    With --gold, prints precision, recall and alignment error rate instead. With --json, prints an object per pair; with
    --gold, one in all.
    """
    from regard.cli.progress_ui import progress_bar
    from regard.inspection import (
        BEST,
        AlignmentExtractor,
        Alignments,
        align as aligned,
        evaluate_links,
        sinkhorn,
        symmetrize_aligned,
        unnormalized,
    )

    truths = None if gold is None else _gold(gold, index_base)
    if links is not None:
        if run is not None:
            raise SettingError("Give either RUN or --links, not both", where="align")
        read = _read_alignments(links)
        if gold is not None and truths is not None:
            _same_length(links, read, gold, truths)
        if reverse is not None:
            read = symmetrize_aligned(read, _same_length(links, read, reverse, _read_alignments(reverse)), symmetrize)
        made = Alignments(read, None if truths is None else evaluate_links([one.links for one in read], truths))
    else:
        if run is None or source is None or target is None:
            raise SettingError("RUN, SOURCE and TARGET are required, unless --links is given", where="align")
        pairs = _pairs(source, target)
        if gold is not None and truths is not None:
            _same_length(source, pairs, gold, truths)
        if place == BEST and (truths is None or len(pairs) < 2):
            raise SettingError(f"--place {BEST} needs --gold with at least two lines", where="align")
        how = AlignmentExtractor(place, weights.value, shift, sinkhorn if use_sinkhorn else unnormalized, threshold)
        with progress_bar(
            "pairs", None if place == BEST else (1 + bool(reverse)) * len(pairs), hidden=as_json
        ) as advance:
            made = aligned(
                run, pairs, how, gold=truths, reverse_model=reverse, symmetrization=symmetrize, on_progress=advance
            )
    _print(made, as_json)


def _pairs(source: Path, target: Path) -> list[tuple[str, str]]:
    from regard.cli.inputs import MAX_SENTENCE, read_lines

    sources, targets = (read_lines(path, MAX_SENTENCE) for path in (source, target))
    return list(zip(sources, _same_length(source, sources, target, targets), strict=True))


def _gold(path: Path, first: int) -> list[Gold]:
    from regard.cli.inputs import read_lines
    from regard.inspection import read_gold

    return [read_gold(line, f"{path}:{number}", first) for number, line in enumerate(read_lines(path), start=1)]


def _read_alignments(path: Path) -> list[Aligned]:
    """Alignments from a file."""
    from regard.inspection import Aligned

    found = []
    for one in _gold(path, 0):
        made = tuple(sorted(one.possible))
        found.append(Aligned(made, {"links": made}))
    return found


def _print(made: Alignments, as_json: bool) -> None:
    from regard.inspection import to_pharaoh

    if made.chosen is not None:
        best, there = made.chosen
        typer.echo(
            f"{best}: AER {there.aer:.1%} on the first {made.held_out:,} pairs; the following is for the others",
            err=True,
        )
    got = made.agreement
    if got is None:
        for one in made.aligned:
            typer.echo(json.dumps(one.details, ensure_ascii=False) if as_json else to_pharaoh(one.links))
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
    """`others`, checked to be as many as `lines`."""
    if len(lines) != len(others):
        raise CorpusError(f"{one} has {len(lines)} lines, but {other} has {len(others)}", where="align")
    return others
