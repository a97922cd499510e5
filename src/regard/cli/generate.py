"""`regard generate`: let a language model go on with a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.inputs import tell_unknown, texts_of
from regard.errors import SettingError

if TYPE_CHECKING:
    from regard.decoding import Search

LENGTH = 200


def generate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained language model.")],
    prompt: Annotated[
        str,
        typer.Argument(
            metavar="[PROMPT|FILE|-]", help="What to go on with; of a file or of standard input, each line."
        ),
    ] = "",
    length: Annotated[
        int | None, typer.Option(min=1, help=f"At most so many tokens; {LENGTH}, or what the model can, unless told.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Below 1: likelier texts; above: wilder ones.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest that make up this share.")] = None,
    min_p: Annotated[float | None, typer.Option(help="Draw from those this share as likely as the likeliest.")] = None,
    repetition: Annotated[float | None, typer.Option(help="Above 1: what was written comes less easily again.")] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed, another text; 0 unless told.")] = None,
    beam: Annotated[
        int | None,
        typer.Option(min=1, help="Search the likeliest text instead of drawing one; 1 is greedy."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="So many texts for each prompt.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything, an object a line.")] = False,
) -> None:
    """Go on with a text, or begin one, as a trained language model does.

    A text ends where the model ends it, or after --length tokens. The same seed gives the same text.
    """
    drawing = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "repetition": repetition}
    search = _search({**drawing, "seed": seed}, beam, count)
    prompts = texts_of(prompt)
    from regard.runs import Run

    opened = Run.open(run)
    opened.expect_task("language")
    model: Any = opened.model()
    tokenizer = opened.tokenizer
    from regard.decoding import Rules, continued, unsaid
    from regard.models import packed

    room = _room(model, max((len(ids) for ids in tokenizer.ids_batch(prompts)), default=0))
    rules = Rules(tokenizer.special.end, length or max(1, min(LENGTH, room)), banned=unsaid(tokenizer))
    answers = continued(packed(model, max(1, len(prompts)) * max(count, beam or 1)), tokenizer, prompts, search, rules)
    if not getattr(model, "copies", False):
        tell_unknown(tokenizer, prompts)
    for line, (given, found) in enumerate(zip(prompts, answers, strict=True)):
        for rank, one in enumerate(found):
            if as_json:
                told = {"line": line + 1, "rank": rank + 1, "prompt": given, "text": one.text, "tokens": one.tokens}
                told |= {"score": one.score, "finished": one.finished}
                typer.echo(json.dumps(told, ensure_ascii=False))
            else:
                typer.echo("\n" * (line + rank > 0) + given + one.text)


def _search(drawing: dict[str, Any], beam: int | None, count: int) -> Search:
    from regard.decoding import Beam, Sample

    told = {name: value for name, value in drawing.items() if value is not None}
    if beam is None:
        return Sample(**{"temperature": 0.8, **told}, count=count)
    if told:
        name = next(iter(told)).replace("_", "-")
        raise SettingError(f"--beam with --{name}", "one or the other: a beam draws nothing", where="regard generate")
    return Beam(max(beam, count), best=count)


def _room(model: Any, prompt: int) -> int:
    """How many tokens it can write behind a prompt of so many."""
    longest = getattr(model, "longest", None)
    return LENGTH if longest is None else int(longest) - max(prompt, 1) + 1
