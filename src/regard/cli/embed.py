"""`regard embed`: the vectors of words in their context, or of whole texts, to look at, as JSON, or in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from regard.errors import SettingError

if TYPE_CHECKING:
    from regard.inspection import Embedded, Layer, Pool


def embed(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run of ELMo or BERT.")],
    text: Annotated[
        str,
        typer.Argument(metavar="[TEXT|FILE|-]", help="A text, or a file of texts, one a line; - is standard input."),
    ] = "-",
    layer: Annotated[
        str, typer.Option(help="A number (0: words by themselves), mix (as the run has learned to, or the mean), all.")
    ] = "mix",
    pool: Annotated[
        str | None, typer.Option(help="One vector for each text: cls, mean, or attention if the run has learned it.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the words and vectors to a .npz or .safetensors file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print words and vectors, a JSON object a text.")] = False,
) -> None:
    """Give each word of a text its vector there, or each text one; a word of several pieces has their mean."""
    from regard.inspection import Embedder, joined, save_embedded

    chosen, texts = _layer(layer), _texts(text)
    if out is not None and out.suffix not in (".npz", ".safetensors"):
        raise SettingError(f"{out}", "a file ending in .npz or .safetensors", where="--out")
    if pool not in (None, "cls", "mean", "attention"):
        raise SettingError(f"--pool {pool}", "cls, mean or attention", where="regard embed")
    embedder = Embedder.of(run)
    embedded = embedder.embed(texts, chosen) if pool is None else embedder.pool(texts, cast("Pool", pool), chosen)
    if out is not None:
        save_embedded(embedded, out)
    if pool is not None and out is None and not as_json:
        typer.echo("\n".join(_told(joined(embedded), "texts")))
        return
    for one, given in zip(embedded, texts, strict=True):
        if as_json and pool is not None:
            typer.echo(json.dumps({"text": given, "vector": one.vectors[0].tolist()}))
        elif as_json:
            typer.echo(json.dumps({"text": given, "words": one.words, "vectors": one.vectors.tolist()}))
        elif out is None:
            typer.echo("\n".join(_told(one)))
    if out is not None and not as_json:
        count = f"{sum(len(one.words) for one in embedded):,} words of " if pool is None else ""
        typer.echo(f"{out}: {count}{len(texts):,} texts, {_shape(embedded[0])} numbers each")


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
    from regard.cli.inputs import texts_of

    texts = [line for line in texts_of(said) if line.strip()]
    if not texts:
        raise SettingError("no words", "a text", where="regard embed")
    return texts


def _told(one: Embedded, kind: str = "words") -> Sequence[str]:
    """A line for each word: the most similar other one of its text, and how similar."""
    lines = [f"{len(one.words)} {kind}, {_shape(one)} numbers each"]
    width = max(map(len, one.words))
    for word, (other, cosine) in zip(one.words, one.nearest(), strict=False):
        lines.append(f"  {word:<{width}}  {cosine:6.3f}  {one.words[other]}")
    return lines


def _shape(one: Embedded) -> str:
    return " x ".join(map(str, one.vectors.shape[1:]))
