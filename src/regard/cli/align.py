"""`regard align`: which word answers to which in sentences and translations that are given, and how right that is."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import CorpusError


def align(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained translator with attention.")],
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A file, a sentence a line; - is standard input.")],
    target: Annotated[Path, typer.Argument(metavar="TGT", help="Its translations, a line each.")],
    gold: Annotated[
        Path | None, typer.Option("--gold", help="Gold links (i-j sure, ipj possible): prints AER.")
    ] = None,
    first: Annotated[int, typer.Option("--first", min=0, max=1, help="What gold links count words from.")] = 0,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="A share that links a source word to its best target word too.")
    ] = 0.2,
    balance: Annotated[
        bool, typer.Option("--balance/--raw", help="Let words compete for each other, or take the weights as they are.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print an object a line, or the measures as one.")] = False,
) -> None:
    """Print the word links of each pair as 0-0 1-2, read off the attention that the model pays while it is made to
    write the given translation; with --gold, their precision, recall and alignment error rate."""
    from regard.cli.progress import progress_bar
    from regard.cli.texts import lines_of
    from regard.inspection.alignment import as_it_is, balanced, measure, pharaoh, read_gold
    from regard.inspection.translations import links, told
    from regard.training.use import translator as opened

    sources, targets = lines_of(source), lines_of(target)
    _same_length(source, sources, target, targets)
    truths = None if gold is None else lines_of(gold)
    if gold is not None and truths is not None:
        _same_length(source, sources, gold, truths)
    translator = opened(run)
    with progress_bar("pairs", len(sources)) as tell:
        read = translator.read(list(zip(sources, targets, strict=True)), tell)
    found = [links(translator, one, threshold, balanced if balance else as_it_is) for one in read]
    if truths is None:
        for one, made in zip(read, found, strict=True):
            whole = {**told(translator, one), "links": made}
            typer.echo(json.dumps(whole, ensure_ascii=False) if as_json else pharaoh(made))
        return
    expected = [read_gold(line, f"{gold}:{number}", first) for number, line in enumerate(truths, start=1)]
    got = measure(found, expected)
    if as_json:
        rates = {"precision": got.precision, "recall": got.recall, "aer": got.aer}
        typer.echo(json.dumps({"sentences": len(found), **rates, **asdict(got)}))
    else:
        typer.echo(
            f"precision {got.precision:.1%}  recall {got.recall:.1%}  AER {got.aer:.1%}"
            f"  ({len(found):,} sentences, {got.links:,} links, {got.sure:,} sure ones)"
        )


def _same_length(one: Path, lines: list[str], other: Path, others: list[str]) -> None:
    if len(lines) != len(others):
        raise CorpusError(
            f"{len(lines)} lines in {one} and {len(others)} in {other}", "as many in each", where="regard align"
        )
