"""The stretch of a passage that answers a question: the task "answering"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.models import OnSpans
from regard.text import (
    Answer,
    AnswerBatch,
    Answered,
    AnsweredFields,
    Answers,
    Batches,
    Columns,
    Tokenizer,
    columns_of,
    grammar,
)
from regard.training.objectives.qa import LONGEST, FindAnswer
from regard.training.recipe import Count, InputPath, Prepared, Recipe, Section, Share
from regard.training.tasks.batching import in_buckets
from regard.training.tasks.finetune import READER, Started, begin, of_its_size
from regard.training.tasks.holdout import Split, kept_back, stored
from regard.training.tasks.tokenizers import AnyTokenizer, Sized, kept_tokenizer, tokenizer_of


class BuiltInQuestions(Section):
    """Questions of the built-in grammar about passages of a few facts: who did it, where it was."""

    kind: Literal["built-in"] = "built-in"
    examples: Count = 4000
    valid: Annotated[int, Field(ge=0)] = 300
    seed: Annotated[int, Field(ge=0)] = 0

    def training(self) -> Iterable[Answered]:
        return self._drawn("train", self.examples)

    def columns(self, folder: Path, fields: AnsweredFields) -> Split:
        valid = columns_of(self._drawn("valid", self.valid), fields) if self.valid else None
        return Split(columns_of(self.training(), fields), valid)

    def _drawn(self, split: str, count: int) -> grammar.Drawn[Answered]:
        return grammar.Drawn(grammar.question, count, split, self.seed)


class Table(Section):
    """Questions, passages and answers from columns of JSON-lines files (or TSV, CSV where numbers are numbers).

    `end` names the column of where the answer ends, or of its text. `valid`: a file of its own, or the share of the
    rows of `train` to hold out, the last ones.
    """

    kind: Literal["table"] = "table"
    train: InputPath
    valid: InputPath | Share = 0.1
    question: str = "question"
    passage: str = "passage"
    start: str = "start"
    end: str = "end"

    def training(self) -> Iterator[Answered]:
        examples = self._read(self.train)
        if not isinstance(self.valid, float):
            return iter(examples)
        return islice(iter(examples), kept_back(sum(1 for _ in examples), self.valid, [self.train]))

    def columns(self, folder: Path, fields: AnsweredFields) -> Split:
        valid = self.valid if isinstance(self.valid, float) else self._read(self.valid)
        return stored(folder, self._read(self.train), valid, fields)

    def _read(self, path: Path) -> Answers:
        return Answers(path, question=self.question, passage=self.passage, start=self.start, end=self.end)


class Bert(Started):
    """BERT, and the likeness of each state to a learned beginning and a learned end."""

    kind: Literal["bert"] = "bert"


class Longest(Section):
    """The most tokens of an answer that is given."""

    longest: Count = LONGEST


class Batching(Section):
    """Rows of like length, padding included at most `tokens` and `rows` a batch; passages are cut at `limit` tokens."""

    tokens: Count = 4096
    rows: Count | None = 32
    limit: Count | None = None


class Answering(Recipe):
    """Where in a passage the answer to a question stands."""

    task: Literal["answering"] = "answering"
    data: Annotated[BuiltInQuestions | Table, Field(discriminator="kind")] = BuiltInQuestions()
    tokenizer: AnyTokenizer = Sized()
    model: Bert = Bert()
    objective: Longest = Longest()
    batches: Batching = Batching()

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> Prepared:
        recipe = self.model_copy(update={"model": of_its_size(self.model, folder)})
        tokenizer = self._tokenizer(folder)
        split = self.data.columns(folder, AnsweredFields(tokenizer))
        limit = recipe.model.limit(self.batches.limit)
        model = recipe.assemble(folder)
        assert isinstance(model, OnSpans)
        begin(model.reading.bert, folder)

        def batches(columns: Columns, rank: int, ranks: int) -> Batches[AnswerBatch]:
            collate = Answer(columns, tokenizer.special, limit, cut_off="leave out")
            plan = in_buckets(collate.lengths, self.batches, self.batches.rows, collate.kept)
            return Batches(plan, collate, self.train.seed, rank, ranks, self.train.ahead)

        train, valid = batches(split.train, rank, ranks), split.valid
        held = "none" if valid is None else f"{len(valid):,}"
        notes = [f"{len(split.train):,} training questions, {held} for validation"]
        if isinstance(train.collate, Answer) and len(train.collate.lost):
            notes.append(f"{len(train.collate.lost):,} left out: their answer lies beyond {limit} tokens")
        return Prepared(
            recipe=recipe,
            model=model,
            objective=FindAnswer(tokenizer, self.objective.longest),
            train=train,
            valid=None if valid is None else partial(batches, valid),
            notes=(*notes, *split.notes),
        )

    def _tokenizer(self, folder: Path) -> Tokenizer:
        if (folder / READER).exists():
            return kept_tokenizer(self.tokenizer, folder)
        texts = (text for one in self.data.training() for text in (one.question, one.passage))
        return tokenizer_of(self.tokenizer, texts, folder)
