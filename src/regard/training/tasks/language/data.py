"""The section [data] of the task "language": text for training and validation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.text import Document, DocumentFields, RawText, TokenStream, encode_columns, grammar
from regard.text.grammar import detokenize
from regard.training.section import Count, Fraction, InputPath, RecipeSection
from regard.training.tasks.holdout import first_held_out, store_split


@dataclass(frozen=True, eq=False)
class TextSplit:
    """The training and validation text; `characters`: their number in the validation text, or the training text."""

    train: TokenStream
    valid: TokenStream | None
    characters: int
    notes: tuple[str, ...] = ()

    @property
    def characters_per_token(self) -> float:
        return self.characters / max(1, len(self.valid or self.train) - 1)  # all but the first are targets


class BuiltInText(RecipeSection):
    """Stories of the built-in grammar, a sentence a line: tokenized, or as ordinary prose."""

    kind: Literal["built-in"] = "built-in"
    view: Literal["document", "document_french", "prose", "prose_french"] = "prose"
    examples: Count = 4000
    valid: Annotated[int, Field(ge=0)] = 100
    seed: Annotated[int, Field(ge=0)] = 0

    def training(self) -> Iterator[str]:
        return (line for story in self._stories("train", self.examples) for line in story.sentences)

    def read(self, folder: Path, fields: DocumentFields) -> TextSplit:
        train = self._stream(self._stories("train", self.examples), fields)
        if not self.valid:
            return TextSplit(train, None, _characters(self.training()))
        stories = list(self._stories("valid", self.valid))
        lines = (line for story in stories for line in story.sentences)
        return TextSplit(train, self._stream(stories, fields), _characters(lines))

    def _stream(self, stories: Iterable[Document], fields: DocumentFields) -> TokenStream:
        return TokenStream.documents(encode_columns(stories, fields), fields.tokenizer.special.need("end"))

    def _stories(self, split: str, count: int) -> Iterator[Document]:
        """Stories whose lines end in a line break."""
        french = self.view.endswith("french")
        for story in grammar.GeneratedCorpus(
            grammar.document_french if french else grammar.document, count, split, self.seed
        ):
            lines = story.sentences
            if self.view.startswith("prose"):
                lines = tuple(detokenize(line.split(), "fr" if french else "en") for line in lines)
            yield Document(tuple(line + "\n" for line in lines))


class RawTextFile(RecipeSection):
    """Plain text, read as one stream with its line breaks.

    `valid`: a file, or the share of the lines of `train` to hold out, its last ones.
    """

    kind: Literal["text"] = "text"
    train: InputPath
    valid: InputPath | Fraction = 0.1

    def training(self) -> Iterator[str]:
        lines = RawText(self.train)
        if not isinstance(self.valid, float):
            return lines.lines()
        return islice(lines.lines(), first_held_out(sum(1 for _ in lines.lines()), self.valid, lines.sources))

    def read(self, folder: Path, fields: DocumentFields) -> TextSplit:
        full = RawText(self.train)
        other = self.valid if isinstance(self.valid, float) else RawText(self.valid)
        split = store_split(folder, full, other, fields)
        if isinstance(other, RawText):
            measured = other.lines()
        else:
            measured = islice(full.lines(), len(split.train) if other else 0, None)
        valid = None if split.valid is None else TokenStream.plain(split.valid)
        return TextSplit(TokenStream.plain(split.train), valid, _characters(measured), split.notes)


def _characters(lines: Iterable[str]) -> int:
    return sum(map(len, lines))
