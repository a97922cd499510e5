"""The section [tokenizer] of a recipe: which kind to learn from the training text, or the file of one that is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.errors import SettingError
from regard.runs import TOKENIZER
from regard.text import BPE, ByteBPE, Characters as CharacterKind, Kind, Tokenizer, Unigram, WordPiece, Words
from regard.training.recipe import Count, InputPath, Section


class Sized(Section):
    """Words, or pieces of words: at most `size` of them, special tokens included."""

    kind: Literal["words", "bpe", "byte-bpe", "unigram"] = "words"
    size: Count = 8000

    @property
    def learned(self) -> Kind:
        sorts: dict[str, Callable[[int], Kind]] = {
            "words": Words,
            "bpe": BPE,
            "byte-bpe": ByteBPE,
            "unigram": Unigram,
        }
        return sorts[self.kind](self.size)


class WordPieces(Section):
    """BERT's pieces."""

    kind: Literal["wordpiece"] = "wordpiece"
    size: Count = 8000
    lowercase: bool = True

    @property
    def learned(self) -> Kind:
        return WordPiece(self.size, self.lowercase)


class Characters(Section):
    """Every character of the training text."""

    kind: Literal["characters"] = "characters"

    @property
    def learned(self) -> Kind:
        return CharacterKind()


class File(Section):
    """A tokenizer.json, Hugging Face's too; `roles` name special tokens whose spelling is not well known."""

    kind: Literal["file"] = "file"
    path: InputPath
    roles: dict[str, str] = Field(default_factory=dict)


Tokenizing = Sized | WordPieces | Characters | File
AnyTokenizer = Annotated[Tokenizing, Field(discriminator="kind")]


def tokenizer_of(section: Tokenizing, texts: Iterable[str], folder: Path, name: str = TOKENIZER) -> Tokenizer:
    """The tokenizer of a run: the one in its folder, or else one that is learned from texts (or copied) and kept there.

    Texts are read only if there is something to learn.
    """
    kept = folder / name
    if not kept.exists():
        made = _loaded(section, section.path) if isinstance(section, File) else Tokenizer.train(section.learned, texts)
        folder.mkdir(parents=True, exist_ok=True)
        made.save(kept)
    tokenizer = kept_tokenizer(section, folder, name)
    if isinstance(section, File):
        _expect_same(tokenizer, _loaded(section, section.path), kept)
    elif not isinstance(section, Characters):
        _expect_size(tokenizer, section.size, kept)
    return tokenizer


def kept_tokenizer(section: Tokenizing, folder: Path, name: str = TOKENIZER) -> Tokenizer:
    """The tokenizer that a run keeps in its folder."""
    return _loaded(section, folder / name)


def _loaded(section: Tokenizing, path: Path) -> Tokenizer:
    return Tokenizer.load(path, section.roles if isinstance(section, File) else None)


def _expect_same(kept: Tokenizer, asked: Tokenizer, where: Path) -> None:
    if kept.fingerprint != asked.fingerprint:
        raise SettingError(
            f"{kept}, not the one that the recipe names",
            f"the same as its {asked}",
            where=f"{where}",
            advice="Train in a new folder, or name the tokenizer that this run was begun with.",
        )


def _expect_size(kept: Tokenizer, size: int, where: Path) -> None:
    """A vocabulary may be smaller than was asked for, never larger."""
    if len(kept) > size:
        raise SettingError(
            f"a tokenizer of {len(kept)} pieces",
            f"at most {size}, as the recipe says",
            where=f"{where}",
            advice="Train in a new folder, or give the recipe the size that this run was begun with.",
        )
