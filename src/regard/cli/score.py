"""`regard score`: how well a model does on text that is given: perplexity of a language model, BLEU of a translator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.errors import SettingError

if TYPE_CHECKING:
    from regard.runs import Run


def score(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained model.")],
    text: Annotated[Path, typer.Argument(metavar="TEXT", help="A file of text; for a translator, of sources.")],
    target: Annotated[Path | None, typer.Argument(metavar="[TARGET]", help="Their translations, a line each.")] = None,
    beam: Annotated[int, typer.Option(min=1, help="Translator: hypotheses side by side.")] = 5,
    length_penalty: Annotated[float, typer.Option(min=0, help="Translator: alpha of Wu et al. 2016.")] = 0.6,
    cache: Annotated[int | None, typer.Option(min=1, help="Language model: a neural cache of so many places.")] = None,
    flatness: Annotated[float, typer.Option(help="Of the cache: how sharply it looks.")] = 1.0,
    share: Annotated[float, typer.Option(min=0, max=1, help="Of the cache: its share of the mixture.")] = 0.1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measures as JSON.")] = False,
) -> None:
    """Print the perplexity of a language model, or BLEU and chrF of a translator, with sacrebleu's signature."""
    from regard.runs import Run

    opened = Run.open(run)
    translates = opened.task == "translation"
    if translates != (target is not None):
        came = "a translator and one file" if translates else "two files for a run that does not translate"
        raise SettingError(came, "RUN SRC TGT for a translator, RUN TEXT for a language model", where="regard score")
    if target is not None:
        told = _translations(opened, text, target, beam, length_penalty, hidden=as_json)
    else:
        from regard.training import Cache, score_text

        told = score_text(opened, text, None if cache is None else Cache(cache, flatness, share))
    if as_json:
        typer.echo(json.dumps(told, indent=2))
        return
    for name, value in told.items():
        number = value["value"] if isinstance(value, dict) else value
        signature = f"  {value['signature']}" if isinstance(value, dict) else ""
        typer.echo(f"{name:<18} {number:.4g}{signature}")


def _translations(run: Run, source: Path, target: Path, beam: int, alpha: float, hidden: bool) -> dict[str, Any]:
    from dataclasses import asdict

    from regard.cli.progress_ui import progress_bar
    from regard.decoding import Beam, LengthPenalty
    from regard.inspection import judge
    from regard.text import Parallel
    from regard.training import perplexity

    pairs = list(Parallel(source, target))
    translator = run.translator()
    with progress_bar("sentences", len(pairs), hidden) as tell:
        found = judge(translator, pairs, Beam(beam, LengthPenalty(alpha)), tell=tell)
    read = translator.read([(pair.source, pair.target) for pair in pairs])
    surprise, tokens = -sum(one.score for one in read), sum(len(one.log_probs) for one in read)
    return {"bleu": asdict(found.bleu), "chrf": asdict(found.chrf), "perplexity": perplexity(surprise, tokens)}
