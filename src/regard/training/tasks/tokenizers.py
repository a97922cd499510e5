"""The section [tokenizer] of a recipe: the kind of tokenizer to train on the training text, or a tokenizer file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.errors import SettingError
from regard.runs import TOKENIZER
from regard.text import (
    BPE,
    ByteBPE,
    CharacterLevel as CharacterKind,
    Tokenizer,
    TokenizerKind,
    Unigram,
    WordLevel,
    WordPiece,
)
from regard.training.section import Count, InputPath, RecipeSection


class SizedTokenizer(RecipeSection):
    """Words, or subwords: a vocabulary of at most `size`, special tokens included."""

    kind: Literal["words", "bpe", "byte-bpe", "unigram"] = "words"
    size: Count = 8000

    @property
    def tokenizer_kind(self) -> TokenizerKind:
        trainers: dict[str, Callable[[int], TokenizerKind]] = {
            "words": WordLevel,
            "bpe": BPE,
            "byte-bpe": ByteBPE,
            "unigram": Unigram,
        }
        return trainers[self.kind](self.size)


class WordPieceTokenizer(RecipeSection):
    """WordPiece, as BERT's."""

    kind: Literal["wordpiece"] = "wordpiece"
    size: Count = 8000
    lowercase: bool = True

    @property
    def tokenizer_kind(self) -> TokenizerKind:
        return WordPiece(self.size, self.lowercase)


class CharacterTokenizer(RecipeSection):
    """Every character of the training text."""

    kind: Literal["characters"] = "characters"

    @property
    def tokenizer_kind(self) -> TokenizerKind:
        return CharacterKind()


class TokenizerFile(RecipeSection):
    """A tokenizer.json, of Hugging Face too; `roles` name special tokens that are not recognised by their spelling."""

    kind: Literal["file"] = "file"
    path: InputPath
    roles: dict[str, str] = Field(default_factory=dict)


TokenizerSettings = SizedTokenizer | WordPieceTokenizer | CharacterTokenizer | TokenizerFile
AnyTokenizer = Annotated[TokenizerSettings, Field(discriminator="kind")]


def make_tokenizer(section: TokenizerSettings, texts: Iterable[str], folder: Path, name: str = TOKENIZER) -> Tokenizer:
    """The tokenizer of a run: the one in its folder, or else one trained on texts (or copied), which is saved there.

    Texts are read only if a tokenizer must be trained.
    """
    path = folder / name
    if not path.exists():
        made = (
            _load(section, section.path)
            if isinstance(section, TokenizerFile)
            else Tokenizer.train(section.tokenizer_kind, texts)
        )
        folder.mkdir(parents=True, exist_ok=True)
        made.save(path)
    tokenizer = load_run_tokenizer(section, folder, name)
    if isinstance(section, TokenizerFile):
        _check_same(tokenizer, _load(section, section.path), path)
    elif not isinstance(section, CharacterTokenizer):
        _check_size(tokenizer, section.size, path)
    return tokenizer


def load_run_tokenizer(section: TokenizerSettings, folder: Path, name: str = TOKENIZER) -> Tokenizer:
    """The tokenizer in the folder of a run."""
    return _load(section, folder / name)


def _load(section: TokenizerSettings, path: Path) -> Tokenizer:
    return Tokenizer.load(path, section.roles if isinstance(section, TokenizerFile) else None)


def _check_same(saved: Tokenizer, named: Tokenizer, where: Path) -> None:
    if saved.fingerprint != named.fingerprint:
        raise SettingError(
            f"The run has {saved}, and the recipe names another one, {named}",
            where=f"{where}",
            advice="Train in a new folder, or name the tokenizer that this run began with.",
        )


def _check_size(saved: Tokenizer, size: int, where: Path) -> None:
    """A vocabulary may be smaller than the recipe's size, never larger."""
    if len(saved) > size:
        raise SettingError(
            f"The run has a tokenizer of {len(saved)} tokens, more than the {size} of the recipe",
            where=f"{where}",
            advice="Train in a new folder, or set the size that this run began with.",
        )
