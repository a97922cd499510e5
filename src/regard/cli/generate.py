"""`regard generate`: text from a language model, by sampling or beam search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.command import AsJson
from regard.cli.inputs import read_texts, warn_oov
from regard.errors import SettingError

if TYPE_CHECKING:
    from regard.decoding import Search

MAX_LENGTH = 200  # new tokens


def generate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of a language model.")],
    prompt: Annotated[
        str,
        typer.Argument(
            metavar="PROMPT|FILE|-",
            help="A prompt, or a file with one on each line; - reads standard input. Without one, start a new text.",
            show_default=False,
        ),
    ] = "",
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length",
            metavar="N",
            min=1,
            help="Maximum new tokens.",
            show_default=f"{MAX_LENGTH}, if the model has room",
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature", metavar="NUMBER", help="Sampling temperature; lower is less random.", show_default="0.8"
        ),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", metavar="N", help="Sample from the N likeliest tokens.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option("--top-p", metavar="NUMBER", help="Sample from the likeliest tokens of this total probability."),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(
            "--min-p", metavar="NUMBER", help="Sample from tokens of at least this share of the highest probability."
        ),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option("--repetition-penalty", metavar="NUMBER", help="Above 1: make repeated tokens less likely."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Random seed.", show_default="0")] = None,
    beam: Annotated[
        int | None,
        typer.Option("--beam", metavar="N", min=1, help="Beam search of this width instead of sampling; 1 is greedy."),
    ] = None,
    num_samples: Annotated[int, typer.Option("--num-samples", metavar="N", min=1, help="Texts for each prompt.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Generate text with a language model.

    A text ends where the model ends it, or at --max-length. The same seed gives the same text.
    With --json, prints one object per text.
    """
    search = _search(temperature, top_k, top_p, min_p, repetition_penalty, seed, beam, num_samples)
    prompts = read_texts(prompt)
    from regard.runs import Run

    opened = Run.open(run)
    opened.expect_task("language")
    model: Any = opened.model()
    tokenizer = opened.tokenizer
    from regard.decoding import Rules, ban_unknown, generate_text
    from regard.models import pack_for_decoding

    room = _room(model, max((len(ids) for ids in tokenizer.ids_batch(prompts)), default=0))
    rules = Rules(tokenizer.special.end, max_length or max(1, min(MAX_LENGTH, room)), banned=ban_unknown(tokenizer))
    rows = max(1, len(prompts)) * max(num_samples, beam or 1)
    answers = generate_text(pack_for_decoding(model, rows), tokenizer, prompts, search, rules)
    if not getattr(model, "copies", False):
        warn_oov(tokenizer, prompts)
    for line, (given, found) in enumerate(zip(prompts, answers, strict=True)):
        for rank, one in enumerate(found):
            if as_json:
                entry = {"line": line + 1, "rank": rank + 1, "prompt": given, "text": one.text, "tokens": one.tokens}
                entry |= {"score": one.score, "finished": one.finished}
                typer.echo(json.dumps(entry, ensure_ascii=False))
            else:
                typer.echo("\n" * (line + rank > 0) + given + one.text)


def _search(
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    repetition_penalty: float | None,
    seed: int | None,
    beam: int | None,
    num_samples: int,
) -> Search:
    from regard.decoding import Beam, Sample

    if beam is None:
        heat = 0.8 if temperature is None else temperature
        penalty = 1.0 if repetition_penalty is None else repetition_penalty
        return Sample(heat, top_k, top_p, min_p, penalty, seed or 0, num_samples)
    sampling = {
        "temperature": temperature,
        "top-k": top_k,
        "top-p": top_p,
        "min-p": min_p,
        "repetition-penalty": repetition_penalty,
        "seed": seed,
    }
    for name, value in sampling.items():
        if value is not None:
            problem = f"--beam cannot be combined with --{name}, because beam search does not sample"
            raise SettingError(problem, where="generate")
    return Beam(max(beam, num_samples), n_best=num_samples)


def _room(model: Any, prompt: int) -> int:
    """The number of tokens that the model can add to a prompt of this length."""
    limit = getattr(model, "max_positions", None)
    return MAX_LENGTH if limit is None else int(limit) - max(prompt, 1) + 1
