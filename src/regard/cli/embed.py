"""`regard embed`: contextual embeddings of words or texts, printed, as JSON, or in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from regard.cli.command import AsJson
from regard.errors import SettingError, unknown

if TYPE_CHECKING:
    from regard.inspection import Embedded, Layer, Pool


def embed(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of an ELMo or BERT model.")],
    text: Annotated[
        str,
        typer.Argument(metavar="TEXT|FILE|-", help="A text, or a file with one on each line; - reads standard input."),
    ] = "-",
    layer: Annotated[
        str,
        typer.Option(
            "--layer",
            metavar="N|NAME",
            help="Layer number (0: input embeddings), mix (learned mixture or mean) or all.",
        ),
    ] = "mix",
    pool: Annotated[
        str | None,
        typer.Option("--pool", metavar="NAME", help="One vector per text: cls, mean, or attention if the run has it."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Output: .npz or .safetensors.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print or save contextual embeddings of words or texts.

    A word of several pieces has the mean of their vectors. Without --out or --json, prints each word's nearest
    neighbour in the text by cosine similarity. With --json, prints one object per text, with the vectors.
    """
    from regard.inspection import Embedder, concat_embedded, save_embedded

    chosen, texts = _layer(layer), _texts(text)
    if out is not None and out.suffix not in (".npz", ".safetensors"):
        raise SettingError(f"{out}", "a file that ends in .npz or .safetensors", where="--out")
    if pool not in (None, "cls", "mean", "attention"):
        raise unknown(pool, ("cls", "mean", "attention"), kind="pooling", where="embed --pool")
    embedder = Embedder.of(run)
    embedded = embedder.embed(texts, chosen) if pool is None else embedder.pool(texts, cast("Pool", pool), chosen)
    if out is not None:
        save_embedded(embedded, out)
    if pool is not None and out is None and not as_json:
        typer.echo("\n".join(_neighbour_lines(concat_embedded(embedded), "texts")))
        return
    for one, given in zip(embedded, texts, strict=True):
        if as_json and pool is not None:
            typer.echo(json.dumps({"text": given, "vector": one.vectors[0].tolist()}))
        elif as_json:
            typer.echo(json.dumps({"text": given, "words": one.words, "vectors": one.vectors.tolist()}))
        elif out is None:
            typer.echo("\n".join(_neighbour_lines(one)))
    if out is not None and not as_json:
        count = f"{sum(len(one.words) for one in embedded):,} words of " if pool is None else ""
        typer.echo(f"{out}: {count}{len(texts):,} texts, {_shape(embedded[0])} numbers each")


def _layer(name: str) -> Layer:
    match name:
        case "mix":
            return "mix"
        case "all":
            return "all"
    if not name.isdecimal():
        raise SettingError(f"--layer {name}", "a number, mix or all", where="embed")
    return int(name)


def _texts(text: str) -> list[str]:
    """The lines of standard input, of a file, or the text itself."""
    from regard.cli.inputs import read_texts

    texts = [line for line in read_texts(text) if line.strip()]
    if not texts:
        raise SettingError("The text is empty", where="embed")
    return texts


def _neighbour_lines(one: Embedded, kind: str = "words") -> Sequence[str]:
    """A line for each word: its nearest neighbour in the text, and their cosine similarity."""
    lines = [f"{len(one.words)} {kind}, {_shape(one)} numbers each"]
    width = max(map(len, one.words))
    for word, (other, cosine) in zip(one.words, one.nearest(), strict=False):
        lines.append(f"  {word:<{width}}  {cosine:6.3f}  {one.words[other]}")
    return lines


def _shape(one: Embedded) -> str:
    return " x ".join(map(str, one.vectors.shape[1:]))
