"""`regard tokenize`: train a tokenizer, tokenize text, and tokenize a corpus into a store."""

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

from regard.cli.command import CONTEXT, AsJson, Command
from regard.cli.progress_ui import progress_bar
from regard.errors import SettingError

if TYPE_CHECKING:
    from regard.text import Corpus, Fields, Lines, SkippedLines, TokenizerKind

app = typer.Typer(
    help="Train a tokenizer, tokenize text, build a token store.",
    context_settings=CONTEXT,
    subcommand_metavar="COMMAND ...",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class KindName(StrEnum):
    bpe = "bpe"
    byte_bpe = "byte-bpe"
    wordpiece = "wordpiece"
    unigram = "unigram"
    words = "words"
    characters = "characters"


class CorpusFormat(StrEnum):
    documents = "documents"
    translation = "translation"


TokenizerFile = Annotated[
    Path, typer.Argument(metavar="TOKENIZER", help="A tokenizer.json, of regard or of Hugging Face.")
]


@app.command(cls=Command)
def train(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Text files, plain or gzip; - reads standard input.")
    ],
    kind: Annotated[
        KindName,
        typer.Option(
            "--kind", metavar="NAME", help="bpe, byte-bpe, wordpiece, unigram, words (word-level) or characters."
        ),
    ] = KindName.bpe,
    size: Annotated[
        int | None, typer.Option("--size", metavar="N", help="Maximum vocabulary size.", show_default="8000")
    ] = None,
    cased: Annotated[bool, typer.Option("--cased", help="wordpiece: keep case and accents.")] = False,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Output file.")] = Path("tokenizer.json"),
    as_json: AsJson = False,
) -> None:
    """Train a tokenizer on text files."""
    from regard.text import Tokenizer

    value = _kind(kind, size, cased)
    _writable(out)
    sources = [_lines(path) for path in files]
    with progress_bar("lines read") as advance:
        tokenizer = Tokenizer.train(value, (line.text for lines in sources for line in lines), advance)
    tokenizer.save(out)
    skipped = reduce(or_, (lines.skipped for lines in sources))
    if as_json:
        entry = {"path": str(out), "kind": kind.value, "size": len(tokenizer), "fingerprint": tokenizer.fingerprint}
        typer.echo(json.dumps({**entry, "special": tokenizer.special.roles, "skipped": asdict(skipped)}))
    else:
        requested = getattr(value, "size", len(tokenizer))
        fewer = f" (the text has no more; {requested} were requested)" if len(tokenizer) < requested else ""
        typer.echo(f"{out}: {kind.value}, {len(tokenizer)} pieces{fewer}")
        _warn(skipped)


@app.command(cls=Command)
def text(
    tokenizer: TokenizerFile,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Text file; - reads standard input.")] = Path("-"),
    ids: Annotated[bool, typer.Option("--ids", help="Print token ids instead of pieces.")] = False,
    special_tokens: Annotated[
        bool, typer.Option("--special-tokens", help="Read [MASK] and the like as special tokens.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Tokenize each line of a text and print the pieces.

    With --json, prints one object per line.
    """
    from regard.text import Tokenizer

    loaded = Tokenizer.load(tokenizer)
    lines = _lines(file)
    for line in lines:
        encoding = loaded.encode(line.text, specials=special_tokens)
        if as_json:
            names = ("ids", "pieces", "offsets", "words")
            entry = {"line": line.number, **{name: getattr(encoding, name) for name in names}}
            typer.echo(json.dumps(entry, ensure_ascii=False))
        else:
            typer.echo(" ".join(map(str, encoding.ids)) if ids else " ".join(encoding.pieces))
    _warn(lines.skipped)


@app.command(cls=Command)
def store(
    tokenizer: TokenizerFile,
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Text files, plain or gzip.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder of the store.")],
    corpus_format: Annotated[
        CorpusFormat,
        typer.Option(
            "--format", metavar="NAME", help="documents: plain text; translation: two parallel files, SOURCE TARGET."
        ),
    ] = CorpusFormat.documents,
    target: Annotated[
        Path | None,
        typer.Option("--target-tokenizer", metavar="FILE", help="translation: another tokenizer for TARGET."),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=1, help="Processes; 1 uses threads instead.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Tokenize files into a store, once for many trainings.

    An interrupted build is resumed.
    """
    from regard.text import Store

    corpus, fields = _corpus(corpus_format, tokenizer, target, files)
    with progress_bar("examples tokenized") as advance:
        built = Store.build(out, corpus, fields, workers=workers, progress=advance)
    manifest = built.manifest
    if as_json:
        entry = {"path": str(out), "examples": manifest.examples, "tokens": manifest.tokens}
        typer.echo(json.dumps({**entry, "dtypes": manifest.dtypes, "skipped": asdict(manifest.skipped)}))
    else:
        tokens = ", ".join(f"{count:,} tokens of {name}" for name, count in manifest.tokens.items())
        typer.echo(f"{out}: {manifest.examples:,} examples, {tokens}")
        _warn(manifest.skipped)


@app.command(cls=Command)
def verify(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a store.")],
    as_json: AsJson = False,
) -> None:
    """Verify the checksums of a store."""
    from regard.text import Store

    found = Store.open(folder)
    found.verify()
    files = [file.path for file in found.manifest.files]
    typer.echo(json.dumps({"path": str(folder), "sound": files}) if as_json else f"{folder}: {len(files)} files, sound")


def _kind(name: KindName, size: int | None, cased: bool) -> TokenizerKind:
    from regard.text import BPE, ByteBPE, CharacterLevel, Unigram, WordLevel, WordPiece

    if cased and name is not KindName.wordpiece:
        raise SettingError("--cased is only for --kind wordpiece", where="tokenize train")
    if name is KindName.characters:
        if size is not None:
            raise SettingError("--kind characters takes no --size: it keeps all characters", where="tokenize train")
        return CharacterLevel()
    pieces = 8000 if size is None else size
    if name is KindName.wordpiece:
        return WordPiece(pieces, lowercase=not cased)
    sized: dict[KindName, Callable[[int], TokenizerKind]] = {
        KindName.bpe: BPE,
        KindName.byte_bpe: ByteBPE,
        KindName.unigram: Unigram,
        KindName.words: WordLevel,
    }
    return sized[name](pieces)


def _corpus(
    corpus_format: CorpusFormat, tokenizer: Path, target: Path | None, files: list[Path]
) -> tuple[Corpus[Any], Fields[Any]]:
    from regard.text import Chain, DocumentFields, ParallelCorpus, TextDocuments, Tokenizer, TranslationFields

    loaded = Tokenizer.load(tokenizer)
    if corpus_format is CorpusFormat.documents:
        if target is not None:
            raise SettingError("--target-tokenizer needs --format translation", where="tokenize store")
        return Chain(tuple(TextDocuments(path) for path in files)), DocumentFields(loaded)
    if len(files) != 2:
        raise SettingError(f"{len(files)} files", "two, SOURCE TARGET", where="--format translation")
    return ParallelCorpus(files[0], files[1]), TranslationFields(loaded, Tokenizer.load(target) if target else None)


def _lines(path: Path) -> Lines:
    from regard.text import Lines

    return Lines(path)


def _writable(path: Path) -> None:
    if not path.parent.is_dir():
        raise SettingError(f"The folder of {path} does not exist", where="--out")


def _warn(skipped: SkippedLines) -> None:
    """Report skipped lines on standard error."""
    if skipped.count:
        typer.echo(f"regard: skipped {skipped.count}: {'; '.join(skipped.places)}", err=True)
