"""`regard score`: the perplexity of a language model, or BLEU, chrF and perplexity of a translator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.command import AsJson
from regard.errors import SettingError

if TYPE_CHECKING:
    from regard.runs import Run


def score(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder to evaluate.")],
    text: Annotated[Path, typer.Argument(metavar="FILE", help="Text file; for a translator, the source sentences.")],
    target: Annotated[
        Path | None,
        typer.Argument(metavar="TARGET", help="For a translator: the reference translations, one per line."),
    ] = None,
    beam: Annotated[int, typer.Option("--beam", metavar="N", min=1, help="Translator: beam width.")] = 5,
    length_penalty: Annotated[
        float, typer.Option("--length-penalty", metavar="NUMBER", min=0, help="Translator: alpha of Wu et al. 2016.")
    ] = 0.6,
    cache_size: Annotated[
        int | None,
        typer.Option("--cache-size", metavar="N", min=1, help="Language model: use a neural cache of N positions."),
    ] = None,
    cache_theta: Annotated[
        float,
        typer.Option("--cache-theta", metavar="NUMBER", help="Neural cache: theta, the sharpness of its weights."),
    ] = 1.0,
    cache_weight: Annotated[
        float,
        typer.Option(
            "--cache-weight", metavar="NUMBER", min=0, max=1, help="Neural cache: lambda, its mixture weight."
        ),
    ] = 0.1,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model: perplexity, or BLEU and chrF.

    BLEU and chrF of a translator come with sacrebleu's signature. The neural cache is that of Grave et al. 2017.
    """
    from regard.runs import Run

    opened = Run.open(run)
    translates = opened.task == "translation"
    if translates != (target is not None):
        problem = "A translator needs two files" if translates else "Only a translator takes two files"
        advice = "Give RUN FILE TARGET for a translator, RUN FILE for a language model."
        raise SettingError(problem, where="score", advice=advice)
    if target is not None:
        metrics = _translations(opened, text, target, beam, length_penalty, hidden=as_json)
    else:
        from regard.training import NeuralCacheSettings, score_text

        metrics = score_text(
            opened, text, None if cache_size is None else NeuralCacheSettings(cache_size, cache_theta, cache_weight)
        )
    if as_json:
        typer.echo(json.dumps(metrics, indent=2))
        return
    for name, value in metrics.items():
        number = value["value"] if isinstance(value, dict) else value
        signature = f"  {value['signature']}" if isinstance(value, dict) else ""
        typer.echo(f"{name:<18} {number:.4g}{signature}")


def _translations(run: Run, source: Path, target: Path, beam: int, alpha: float, hidden: bool) -> dict[str, Any]:
    from dataclasses import asdict

    from regard.cli.progress_ui import progress_bar
    from regard.decoding import Beam, LengthPenalty
    from regard.inspection import evaluate_translator
    from regard.text import ParallelCorpus
    from regard.training import perplexity

    pairs = list(ParallelCorpus(source, target))
    translator = run.translator()
    with progress_bar("sentences", len(pairs), hidden) as advance:
        found = evaluate_translator(translator, pairs, Beam(beam, LengthPenalty(alpha)), on_progress=advance)
    read = translator.score([(pair.source, pair.target) for pair in pairs])
    nll, tokens = -sum(one.score for one in read), sum(len(one.log_probs) for one in read)
    return {"bleu": asdict(found.bleu), "chrf": asdict(found.chrf), "perplexity": perplexity(nll, tokens)}
