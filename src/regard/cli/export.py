"""`regard export`: write a run in the format of Hugging Face, CTranslate2 or ONNX."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.command import AsJson
from regard.errors import SettingError, unknown

if TYPE_CHECKING:
    from regard.exports import ExportCheck


def _hf(run: Path, folder: Path) -> None:
    from regard.hub import export_checkpoint

    export_checkpoint(run, folder)


def _ctranslate2(run: Path, folder: Path, quantization: str | None = None) -> ExportCheck:
    from regard.exports import ctranslate2

    return ctranslate2.export(run, folder, quantization)


def _onnx(run: Path, folder: Path) -> ExportCheck:
    from regard.exports import onnx

    return onnx.export(run, folder)


# Each returns the result of its check, None without one.
FORMATS: dict[str, Callable[..., ExportCheck | None]] = {"hf": _hf, "ctranslate2": _ctranslate2, "onnx": _onnx}


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder to export.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New output folder.")],
    to: Annotated[
        str, typer.Option("--to", metavar="NAME", help="hf (Hugging Face transformers), ctranslate2 or onnx.")
    ] = "hf",
    quantization: Annotated[
        str | None,
        typer.Option(
            "--quantization",
            metavar="NAME",
            help="CTranslate2: int8, int8_float32, float16 or float32.",
            show_default="float32",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Export a run to Hugging Face, CTranslate2 or ONNX.

    Writes the model and its tokenizer, and checks the export on sample texts where the format can be run.
    """
    if to not in FORMATS:
        raise unknown(to, FORMATS, kind="format", where="export --to")
    if quantization is not None and to != "ctranslate2":
        raise SettingError("--quantization needs --to ctranslate2", where="export")
    write = FORMATS[to] if quantization is None else partial(FORMATS[to], quantization=quantization)
    check = write(run, folder)
    if as_json:
        found = {} if check is None else check._asdict()
        typer.echo(json.dumps({"run": str(run), "to": to, "folder": str(folder), **found}))
        return
    typer.echo(f"{folder}: {run} for {to}" + ("" if check is None else f"; {_check_summary(check)}"))


def _check_summary(check: ExportCheck) -> str:
    if check.equal == check.checked:
        return f"{check.checked} texts have equal outputs"
    return f"{check.equal} of {check.checked} texts have equal outputs, {check.tokens:.1%} of their tokens"
