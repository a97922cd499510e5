"""The section [data] of the task "language": text to read, and text held out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.text import Document, DocumentFields, Running, Stream, columns_of, grammar
from regard.text.grammar import as_prose
from regard.training.recipe import Count, InputPath, Section, Share
from regard.training.tasks.holdout import kept_back, stored


@dataclass(frozen=True, eq=False)
class Text:
    """Text as a model reads it; `characters`: how many the measured text has, the held-out one where there is one."""

    train: Stream
    valid: Stream | None
    characters: int
    notes: tuple[str, ...] = ()

    @property
    def characters_per_token(self) -> float:
        return self.characters / max(1, len(self.valid or self.train) - 1)  # all but the first are targets


class BuiltInText(Section):
    """Stories of the built-in grammar, a sentence a line: words and signs apart, or prose as one writes it."""

    kind: Literal["built-in"] = "built-in"
    view: Literal["document", "document_french", "prose", "prose_french"] = "prose"
    examples: Count = 4000
    valid: Annotated[int, Field(ge=0)] = 100
    seed: Annotated[int, Field(ge=0)] = 0

    def training(self) -> Iterator[str]:
        return (line for story in self._stories("train", self.examples) for line in story.sentences)

    def read(self, folder: Path, fields: DocumentFields) -> Text:
        train = self._stream(self._stories("train", self.examples), fields)
        if not self.valid:
            return Text(train, None, _characters(self.training()))
        stories = list(self._stories("valid", self.valid))
        lines = (line for story in stories for line in story.sentences)
        return Text(train, self._stream(stories, fields), _characters(lines))

    def _stream(self, stories: Iterable[Document], fields: DocumentFields) -> Stream:
        return Stream.documents(columns_of(stories, fields), fields.tokenizer.special.need("end"))

    def _stories(self, split: str, count: int) -> Iterator[Document]:
        """Every line with its end."""
        french = self.view.endswith("french")
        for story in grammar.Drawn(grammar.document_french if french else grammar.document, count, split, self.seed):
            lines = story.sentences
            if self.view.startswith("prose"):
                lines = tuple(as_prose(line.split(), "fr" if french else "en") for line in lines)
            yield Document(tuple(line + "\n" for line in lines))


class TextFile(Section):
    """Plain text, read on and on with its line breaks.

    `valid`: a file of its own, or the share of the lines of `train` to hold out, the last ones.
    """

    kind: Literal["text"] = "text"
    train: InputPath
    valid: InputPath | Share = 0.1

    def training(self) -> Iterator[str]:
        lines = Running(self.train)
        if not isinstance(self.valid, float):
            return lines.lines()
        return islice(lines.lines(), kept_back(sum(1 for _ in lines.lines()), self.valid, lines.sources))

    def read(self, folder: Path, fields: DocumentFields) -> Text:
        whole = Running(self.train)
        other = self.valid if isinstance(self.valid, float) else Running(self.valid)
        split = stored(folder, whole, other, fields)
        if isinstance(other, Running):
            measured = other.lines()
        else:
            measured = islice(whole.lines(), len(split.train) if other else 0, None)
        valid = None if split.valid is None else Stream.plain(split.valid)
        return Text(Stream.plain(split.train), valid, _characters(measured), split.notes)


def _characters(lines: Iterable[str]) -> int:
    return sum(map(len, lines))
