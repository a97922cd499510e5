"""`regard embed`: the vectors of words in their context, to look at, as JSON, or in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import SettingError

if TYPE_CHECKING:
    from regard.inspection.embeddings import Embedded, Layer


def embed(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run of recipe elmo or elmo-tagger.")],
    text: Annotated[
        str,
        typer.Argument(metavar="[TEXT|FILE|-]", help="A text, or a file of texts, one a line; - is standard input."),
    ] = "-",
    layer: Annotated[
        str, typer.Option(help="A number (0: words by themselves), mix (as the run has learned to, or the mean), all.")
    ] = "mix",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the words and vectors to a .npz or .safetensors file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print words and vectors, a JSON object a text.")] = False,
) -> None:
    """Give each word of a text its vector there; a word of several pieces has their mean."""
    from regard.inspection.embeddings import Embedder, save_embedded

    chosen, texts = _layer(layer), _texts(text)
    if out is not None and out.suffix not in (".npz", ".safetensors"):
        raise SettingError(f"{out}", "a file ending in .npz or .safetensors", where="--out")
    embedded = Embedder.of(run).embed(texts, chosen)
    if out is not None:
        save_embedded(embedded, out)
    for one, given in zip(embedded, texts, strict=True):
        if as_json:
            typer.echo(json.dumps({"text": given, "words": one.words, "vectors": one.vectors.tolist()}))
        elif out is None:
            typer.echo("\n".join(_told(one)))
    if out is not None and not as_json:
        count = sum(len(one.words) for one in embedded)
        typer.echo(f"{out}: {count:,} words of {len(texts):,} texts, {_shape(embedded[0])} numbers each")


def _layer(said: str) -> Layer:
    match said:
        case "mix":
            return "mix"
        case "all":
            return "all"
    if not said.isdecimal():
        raise SettingError(f"--layer {said}", "a number, mix or all", where="regard embed")
    return int(said)


def _texts(said: str) -> list[str]:
    """The lines of standard input, of a file, or the text itself."""
    from regard.cli.texts import texts_of

    texts = [line for line in texts_of(said) if line.strip()]
    if not texts:
        raise SettingError("no words", "a text", where="regard embed")
    return texts


def _told(one: Embedded) -> Sequence[str]:
    """A line for each word: the most similar other one of its text, and how similar."""
    lines = [f"{len(one.words)} words, {_shape(one)} numbers each"]
    width = max(map(len, one.words))
    for word, (other, cosine) in zip(one.words, one.nearest(), strict=False):
        lines.append(f"  {word:<{width}}  {cosine:6.3f}  {one.words[other]}")
    return lines


def _shape(one: Embedded) -> str:
    return " x ".join(map(str, one.vectors.shape[1:]))
