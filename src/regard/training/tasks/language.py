"""The next token of a text: the task "language"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.attention.positions import Rotary, Sinusoidal
from regard.models.gpt import GPT, Positions
from regard.text import grammar
from regard.text.batches.batch import BlockBatch
from regard.text.batches.blocks import Blocks, Read, Stream
from regard.text.batches.plan import Batches
from regard.text.corpora.running import Running
from regard.text.examples import Document
from regard.text.grammar.writing import as_prose
from regard.text.store.fields import DocumentFields, columns_of
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.objectives import PredictNext
from regard.training.recipe import Count, InputPath, Prepared, Recipe, Section, Share
from regard.training.tasks.chance import seeded
from regard.training.tasks.holdout import kept_back, stored
from regard.training.tasks.smoothing import Smoothing
from regard.training.tasks.tokenizers import AnyTokenizer, Characters, kept_tokenizer, tokenizer_of


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


class BuiltIn(Section):
    """Stories of the built-in grammar, a sentence a line: words and signs apart, or prose as one writes it."""

    kind: Literal["built-in"] = "built-in"
    view: Literal["document", "document_french", "prose", "prose_french"] = "prose"
    examples: Count = 4000
    valid: Annotated[int, Field(ge=0)] = 100
    seed: Annotated[int, Field(ge=0)] = 0

    def training(self) -> Iterator[str]:
        return (line for story in self._stories("train", self.examples) for line in story.sentences)

    def read(self, folder: Path, tokenizer: Tokenizer) -> Text:
        train = self._stream(self._stories("train", self.examples), tokenizer)
        if not self.valid:
            return Text(train, None, _characters(self.training()))
        stories = list(self._stories("valid", self.valid))
        lines = (line for story in stories for line in story.sentences)
        return Text(train, self._stream(stories, tokenizer), _characters(lines))

    def _stream(self, stories: Iterable[Document], tokenizer: Tokenizer) -> Stream:
        return Stream.documents(columns_of(stories, DocumentFields(tokenizer)), tokenizer.special.need("end"))

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

    def read(self, folder: Path, tokenizer: Tokenizer) -> Text:
        whole = Running(self.train)
        other = self.valid if isinstance(self.valid, float) else Running(self.valid)
        split = stored(folder, whole, other, DocumentFields(tokenizer))
        if isinstance(other, Running):
            measured = other.lines()
        else:
            measured = islice(whole.lines(), len(split.train) if other else 0, None)
        valid = None if split.valid is None else Stream.plain(split.valid)
        return Text(Stream.plain(split.train), valid, _characters(measured), split.notes)


class Gpt(Section):
    """Layers of heads over one stream of vectors, `width` wide; positions up to the size of a block are learned."""

    kind: Literal["gpt"] = "gpt"
    layers: Count = 4
    heads: Count = 4
    width: Count = 128
    positions: Literal["learned", "sinusoidal", "rotary"] = "learned"
    dropout: Share = 0.0

    def make(self, vocabulary: int, longest: int) -> GPT:
        positions: int | Positions = longest
        if self.positions == "sinusoidal":
            positions = Sinusoidal(self.width)
        elif self.positions == "rotary":
            positions = Rotary(self.width // self.heads)
        return GPT(vocabulary, self.width, self.layers, self.heads, positions, dropout=self.dropout)


class InBlocks(Section):
    """Stretches of `size` tokens, cut elsewhere in every epoch, `rows` of them a batch."""

    kind: Literal["blocks"] = "blocks"
    size: Annotated[int, Field(ge=2)] = 128
    rows: Count = 32


class Language(Recipe):
    """What comes next, at every place of a text."""

    task: Literal["language"] = "language"
    data: Annotated[BuiltIn | TextFile, Field(discriminator="kind")] = BuiltIn()
    tokenizer: AnyTokenizer = Characters()
    model: Gpt = Gpt()
    objective: Smoothing = Smoothing()
    batches: InBlocks = InBlocks()

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> Prepared:
        tokenizer = tokenizer_of(self.tokenizer, self.data.training(), folder)
        text = self.data.read(folder, tokenizer)

        def batches(stream: Stream, rank: int, ranks: int) -> Batches[BlockBatch]:
            plan = Blocks(stream, self.batches.size, self.batches.rows)
            collate = Read(stream, tokenizer.special.pad or 0)
            return Batches(plan, collate, self.train.seed, rank, ranks, self.train.ahead)

        valid = text.valid
        held = "none" if valid is None else f"{len(valid):,}"
        count = f"{len(text.train):,} training tokens, {held} for validation; a vocabulary of {len(tokenizer):,}"
        return Prepared(
            recipe=self,
            model=self.assemble(folder),
            objective=PredictNext(
                tokenizer, text.characters_per_token, self.batches.size, smoothing=self.objective.smoothing
            ),
            train=batches(text.train, rank, ranks),
            valid=None if valid is None else partial(batches, valid),
            notes=(count, *text.notes),
        )

    def assemble(self, folder: Path) -> GPT:
        """The model of a run in its folder, with the weights that chance gives it."""
        with seeded(self.train.seed):
            return self.model.make(len(kept_tokenizer(self.tokenizer, folder)), self.batches.size)


def _characters(lines: Iterable[str]) -> int:
    return sum(map(len, lines))
