"""`regard demo`: the main job on the built-in corpus: train a translator that attends, use it, look into it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.process_tuning import prepare_machine

if TYPE_CHECKING:
    from rich.console import Console

    from regard.decoding import Translator
    from regard.inspection import Judged
    from regard.text import Translation

RECIPE = "bahdanau"
SHOWN = 3  # best translations, and as many worst
LONG = 30  # words: where a fixed vector has long given up

OPENING = f"""[bold]Attention, from nothing[/bold]
A translator reads an English sentence and writes French. Before each word it
looks at every word it has read: it scores them, turns the scores into weights
that sum to one, and averages (Bahdanau, Cho & Bengio 2015). Nobody tells it
which word answers to which. The corpus is drawn from the built-in grammar; the
recipe is `{RECIPE}`. On two cores this takes about four minutes.
"""


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for the run and the picture.")] = Path(
        "regard-demo"
    ),
    steps: Annotated[int | None, typer.Option(min=1, help="Train so many steps only: quicker, and worse.")] = None,
    sentences: Annotated[int, typer.Option(min=1, help="Held-out sentences to translate.")] = 500,
    served: Annotated[bool, typer.Option("--serve", help="In the end, serve the translator to the browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Train a translator that attends on the built-in corpus, translate what it has never seen, and look at it.

    Interrupted, it goes on where it was; with a trained one in the folder, it goes straight to the looking.
    """
    from rich.console import Console

    prepare_machine()
    console = Console(highlight=False, quiet=as_json)
    console.print(OPENING)
    seconds = _train(out / "run", steps, as_json)
    from regard.cli.progress_ui import progress_bar
    from regard.inspection import judge
    from regard.runs import Run
    from regard.text import grammar

    translator = Run.open(out / "run").translator()
    pairs = list(grammar.Drawn(grammar.translation, sentences, "test"))
    with progress_bar("held-out sentences", len(pairs), hidden=as_json) as tell:
        judged = judge(translator, pairs, lengths=(10, 20, LONG), tell=tell)
    shown = _worth_showing(pairs)
    picture, pages = _draw(translator, shown, out), _pages(translator, pairs, judged, out / "pages")
    if as_json:
        typer.echo(json.dumps(_told(judged, seconds, picture, pages), indent=2, ensure_ascii=False))
    else:
        _show(console, translator, pairs, judged, shown)
        console.print(f"\ntrained in {seconds:.0f} s; the run: {out / 'run'}; the picture: {picture}", soft_wrap=True)
        console.print(f"Its best and worst translations, to look into: {pages}", soft_wrap=True)
        console.print(
            f"Go on:  regard look {out / 'run'} 'The old judge did not see us .' -o judge.html", soft_wrap=True
        )
        console.print(f"        regard serve {out / 'run'}", soft_wrap=True)
    if served:
        from regard.cli.serve import serve

        serve([out / "run"])


def _train(folder: Path, steps: int | None, quiet: bool) -> float:
    """Train, or go on; how many seconds the training has taken in all."""
    from regard.cli.progress_ui import Screen
    from regard.runs import is_run
    from regard.training import read_recipe, recorded, train as train_run
    from regard.training.tasks import TASKS

    begun = is_run(folder)
    sets = [] if steps is None else [f"train.steps={steps}", f"evaluate.every={steps}"]
    recipe = recorded(folder, sets) if begun else read_recipe(RECIPE, sets, tasks=TASKS)
    with Screen(hidden=quiet) as screen:
        return train_run(recipe, folder, resume=begun, listeners=[screen], tell=screen.say).seconds


def _worth_showing(pairs: list[Translation]) -> Translation:
    """A sentence of handy length in which most words do not answer in order."""

    def crossings(pair: Translation) -> int:
        links = pair.links or ()
        return sum(i < k and j > m for i, j in links for k, m in links)

    handy = [pair for pair in pairs if 7 <= len(pair.source.split()) <= 13] or pairs
    return max(handy, key=crossings)


def _draw(translator: Translator, pair: Translation, out: Path) -> Path:
    from regard.inspection import draw_map, word_map

    [read] = translator.read([(pair.source, pair.target)])
    words = pair.source.split(), pair.target.split()
    return draw_map(word_map(translator, read), *words, out / "attention.svg", pair.links, "who looks at whom")


def _pages(translator: Translator, pairs: list[Translation], judged: Judged, folder: Path) -> Path:
    """A page for each of some translations, longest first: right ones, and those that are most unlike the reference."""
    from regard.adapters import TranslatorAdapter
    from regard.inspection import collect
    from regard.page import Exhibit, save_gallery
    from regard.training import chrf

    adapter = TranslatorAdapter(translator, RECIPE)
    scored = [
        (chrf([made.text], [pair.target]).value, len(pair.source.split()), made.text, pair)
        for made, pair in zip(judged.translations, pairs, strict=True)
        if len(pair.source.split()) <= LONG
    ]
    best = sorted(scored, key=lambda one: (-one[0], -one[1]))[:SHOWN]
    worst = sorted((one for one in scored if one[2] != one[3].target), key=lambda one: one[0])[:SHOWN]

    def exhibit(value: float, text: str, pair: Translation) -> Exhibit:
        lines = [
            pair.source,
            text,
            "word for word the reference" if text == pair.target else f"expected: {pair.target}",
        ]
        return Exhibit(collect(adapter, pair.source, text), [*lines, f"chrF {value:.0f}"])

    groups = {"Best": best, "Worst": worst}
    shown = [(name, [exhibit(value, text, pair) for value, _, text, pair in some]) for name, some in groups.items()]
    return save_gallery(shown, folder, "What a translator looked at")


def _show(
    console: Console, translator: Translator, pairs: list[Translation], judged: Judged, shown: Translation
) -> None:
    from regard.cli.matrix import matrix_table
    from regard.inspection import word_map

    console.print("\n[bold]Sentences it has never seen[/bold]")
    short = [at for at, pair in enumerate(pairs) if 5 <= len(pair.source.split()) <= 14]
    for at in short[:4]:
        right = "the reference, word for word" if judged.translations[at].text == pairs[at].target else pairs[at].target
        console.print(
            f"  {pairs[at].source}\n  [bold]{judged.translations[at].text}[/bold]\n  = {right}", soft_wrap=True
        )
    [[best]] = translator([shown.source], attention=True)
    console.print("\n[bold]Where it looked[/bold] (percent; a row for each word it wrote)")
    matrix = word_map(translator, best).tolist()
    console.print(matrix_table(matrix, shown.source.split(), best.text.split(), console))
    lengths = "  ".join(f"{name} words {value:.1f}" for name, value in judged.by_length.items())
    console.print(f"\nBLEU {judged.bleu.value:.1f} on {len(pairs)} held-out sentences ({lengths})", soft_wrap=True)
    console.print(f"     {judged.bleu.signature}", soft_wrap=True)
    if judged.agreement is not None:
        got = judged.agreement
        rates = f"precision {got.precision:.1%}, recall {got.recall:.1%}, AER {got.aer:.1%}"
        console.print(f"Its links against the grammar's own: {rates}")


def _told(judged: Judged, seconds: float, picture: Path, pages: Path) -> dict[str, Any]:
    rates = None
    if judged.agreement is not None:
        got = judged.agreement
        rates = {"precision": got.precision, "recall": got.recall, "aer": got.aer}
    return {
        "bleu": asdict(judged.bleu),
        "chrf": asdict(judged.chrf),
        "by_length": judged.by_length,
        "alignment": rates,
        "training_seconds": round(seconds, 1),
        "picture": str(picture),
        "pages": str(pages),
    }
