"""`regard export`: write a run for other programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import SettingError, unknown

if TYPE_CHECKING:
    from regard.exports import Checked


def _hf(run: Path, folder: Path) -> None:
    from regard.hub import export_checkpoint

    export_checkpoint(run, folder)


def _ctranslate2(run: Path, folder: Path, quantization: str | None = None) -> Checked:
    from regard.exports import ctranslate2

    return ctranslate2.export(run, folder, quantization)


def _onnx(run: Path, folder: Path) -> Checked:
    from regard.exports import onnx

    return onnx.export(run, folder)


# What each gives back is what its trial found; None where none was held.
FORMATS: dict[str, Callable[..., Checked | None]] = {"hf": _hf, "ctranslate2": _ctranslate2, "onnx": _onnx}


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained model.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The new folder to write.")],
    to: Annotated[
        str, typer.Option("--to", help="hf: what Hugging Face's transformers loads; ctranslate2; onnx.")
    ] = "hf",
    quantization: Annotated[
        str | None,
        typer.Option(help="How CTranslate2 keeps numbers: int8, int8_float32, float16, or float32, the default."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print an object.")] = False,
) -> None:
    """Write a run as other programs read it, with its tokenizer: a folder for transformers, CTranslate2 or ONNX."""
    if to not in FORMATS:
        raise unknown(to, FORMATS, kind="format", where="regard export --to")
    if quantization is not None and to != "ctranslate2":
        raise SettingError(f"a quantization with --to {to}", "--to ctranslate2", where="regard export --quantization")
    write = FORMATS[to] if quantization is None else partial(FORMATS[to], quantization=quantization)
    tried = write(run, folder)
    if as_json:
        found = {} if tried is None else tried._asdict()
        typer.echo(json.dumps({"run": str(run), "to": to, "folder": str(folder), **found}))
        return
    typer.echo(f"{folder}: {run} for {to}" + ("" if tried is None else f"; {_told(tried)}"))


def _told(tried: Checked) -> str:
    if tried.equal == tried.checked:
        return f"{tried.checked} texts come out the same"
    return f"{tried.equal} of {tried.checked} texts come out the same, {tried.tokens:.1%} of their tokens"
