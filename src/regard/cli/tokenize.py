"""`regard tokenize`: learn a tokenizer from files, see what it makes of text, and tokenise a corpus into a store."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.progress_ui import progress_bar
from regard.errors import SettingError

if TYPE_CHECKING:
    from regard.text import Corpus, Fields, Kind, Lines, Skipped

app = typer.Typer(
    help="Learn a tokenizer, try it on text, tokenise a corpus.", no_args_is_help=True, rich_markup_mode=None
)


class KindName(StrEnum):
    bpe = "bpe"
    byte_bpe = "byte-bpe"
    wordpiece = "wordpiece"
    unigram = "unigram"
    words = "words"
    characters = "characters"


class Reading(StrEnum):
    documents = "documents"
    translation = "translation"


Files = Annotated[list[Path], typer.Argument(help="Files of text, plain or gzip; - is standard input.")]
TokenizerFile = Annotated[Path, typer.Argument(metavar="TOKENIZER", help="A tokenizer.json, ours or Hugging Face's.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def train(
    files: Files,
    kind: Annotated[KindName, typer.Option(help="How text is cut.")] = KindName.bpe,
    size: Annotated[int | None, typer.Option(help="Pieces in the vocabulary; 8000 unless told.")] = None,
    cased: Annotated[bool, typer.Option("--cased", help="wordpiece: keep capitals and accents.")] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("tokenizer.json"),
    as_json: AsJson = False,
) -> None:
    """Learn a tokenizer from files of text."""
    from regard.text import Tokenizer

    value = _kind(kind, size, cased)
    _writable(out)
    sources = [_lines(path) for path in files]
    with progress_bar("lines read") as progress:
        tokenizer = Tokenizer.train(value, (line.text for lines in sources for line in lines), progress)
    tokenizer.save(out)
    skipped = reduce(or_, (lines.skipped for lines in sources))
    if as_json:
        told = {"path": str(out), "kind": kind.value, "size": len(tokenizer), "fingerprint": tokenizer.fingerprint}
        typer.echo(json.dumps({**told, "special": tokenizer.special.roles, "skipped": asdict(skipped)}))
    else:
        asked = getattr(value, "size", len(tokenizer))
        fewer = f" (the text has no more to give; {asked} were asked)" if len(tokenizer) < asked else ""
        typer.echo(f"{out}: {kind.value}, {len(tokenizer)} pieces{fewer}")
        _warn(skipped)


@app.command()
def text(
    tokenizer: TokenizerFile,
    file: Annotated[Path, typer.Argument(help="A file of text; - is standard input.")] = Path("-"),
    ids: Annotated[bool, typer.Option("--ids", help="Print ids in the place of pieces.")] = False,
    specials: Annotated[bool, typer.Option("--specials", help="Read [MASK] and its like as special tokens.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Print the pieces of each line of a text."""
    from regard.text import Tokenizer

    loaded = Tokenizer.load(tokenizer)
    lines = _lines(file)
    for line in lines:
        encoding = loaded.encode(line.text, specials=specials)
        if as_json:
            names = ("ids", "pieces", "offsets", "words")
            told = {"line": line.number, **{name: getattr(encoding, name) for name in names}}
            typer.echo(json.dumps(told, ensure_ascii=False))
        else:
            typer.echo(" ".join(map(str, encoding.ids)) if ids else " ".join(encoding.pieces))
    _warn(lines.skipped)


@app.command()
def store(
    tokenizer: TokenizerFile,
    files: Annotated[list[Path], typer.Argument(help="Files of text, plain or gzip.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the store.")],
    reading: Annotated[
        Reading, typer.Option("--as", help="documents: plain text; translation: SOURCE TARGET, line by line.")
    ] = Reading.documents,
    target: Annotated[
        Path | None, typer.Option("--target-tokenizer", help="translation: another tokenizer for TARGET.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes; 1 uses the threads of one.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Tokenise files once into a store; a build that was stopped goes on where it was."""
    from regard.text import Store

    corpus, fields = _reading(reading, tokenizer, target, files)
    with progress_bar("examples tokenised") as progress:
        built = Store.build(out, corpus, fields, workers=workers, progress=progress)
    manifest = built.manifest
    if as_json:
        told = {"path": str(out), "examples": manifest.examples, "tokens": manifest.tokens}
        typer.echo(json.dumps({**told, "dtypes": manifest.dtypes, "skipped": asdict(manifest.skipped)}))
    else:
        tokens = ", ".join(f"{count:,} tokens of {name}" for name, count in manifest.tokens.items())
        typer.echo(f"{out}: {manifest.examples:,} examples, {tokens}")
        _warn(manifest.skipped)


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="The folder of a store.")],
    as_json: AsJson = False,
) -> None:
    """Read a store through and compare every checksum."""
    from regard.text import Store

    found = Store.open(folder)
    found.verify()
    files = [file.path for file in found.manifest.files]
    typer.echo(json.dumps({"path": str(folder), "sound": files}) if as_json else f"{folder}: {len(files)} files, sound")


def _kind(name: KindName, size: int | None, cased: bool) -> Kind:
    from regard.text import BPE, ByteBPE, Characters, Unigram, WordPiece, Words

    if cased and name is not KindName.wordpiece:
        raise SettingError(f"--cased with --kind {name.value}", "it with wordpiece alone", where="--cased")
    if name is KindName.characters:
        if size is not None:
            raise SettingError(f"--size {size} with characters", "no size: all characters are kept", where="--size")
        return Characters()
    pieces = 8000 if size is None else size
    if name is KindName.wordpiece:
        return WordPiece(pieces, lowercase=not cased)
    sized: dict[KindName, Callable[[int], Kind]] = {
        KindName.bpe: BPE,
        KindName.byte_bpe: ByteBPE,
        KindName.unigram: Unigram,
        KindName.words: Words,
    }
    return sized[name](pieces)


def _reading(
    reading: Reading, tokenizer: Path, target: Path | None, files: list[Path]
) -> tuple[Corpus[Any], Fields[Any]]:
    from regard.text import Chain, DocumentFields, Documents, Parallel, Tokenizer, TranslationFields

    loaded = Tokenizer.load(tokenizer)
    if reading is Reading.documents:
        if target is not None:
            raise SettingError("--target-tokenizer with documents", "--as translation", where="--target-tokenizer")
        return Chain(tuple(Documents(path) for path in files)), DocumentFields(loaded)
    if len(files) != 2:
        raise SettingError(f"{len(files)} files", "two: SOURCE TARGET", where="--as translation")
    return Parallel(files[0], files[1]), TranslationFields(loaded, Tokenizer.load(target) if target else None)


def _lines(path: Path) -> Lines:
    from regard.text import Lines

    return Lines(Path("/dev/stdin") if str(path) == "-" else path)


def _writable(path: Path) -> None:
    if not path.parent.is_dir():
        raise SettingError(f"{path}", "a file in a folder that exists", where="--out")


def _warn(skipped: Skipped) -> None:
    """Say on standard error what was left out."""
    if skipped.count:
        typer.echo(f"regard: skipped {skipped.count}: {'; '.join(skipped.places)}", err=True)
