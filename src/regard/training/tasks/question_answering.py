"""The task "answering": span question answering, the part of a passage that answers a question, with BERT."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.models import SpanPredictor
from regard.text import (
    AnswerBatch,
    AnswerCollator,
    Answered,
    AnsweredFields,
    AnswerRows,
    Batches,
    Columns,
    Tokenizer,
    encode_columns,
    grammar,
)
from regard.training.objectives.qa import MAX_ANSWER_LENGTH, SpanQAObjective
from regard.training.recipe import PreparedTask, Recipe
from regard.training.section import Count, Fraction, InputPath, RecipeSection
from regard.training.tasks.buckets import BucketBatches
from regard.training.tasks.finetune import PRETRAINED, FinetunedBert, load_pretrained, with_pretrained_size
from regard.training.tasks.holdout import Split, first_held_out, store_split
from regard.training.tasks.tokenizers import AnyTokenizer, SizedTokenizer, load_run_tokenizer, make_tokenizer


class BuiltInQuestions(RecipeSection):
    """Questions of the built-in grammar about passages of a few facts: who did it, where it was."""

    kind: Literal["built-in"] = "built-in"
    examples: Count = 4000
    valid: Annotated[int, Field(ge=0)] = 300
    seed: Annotated[int, Field(ge=0)] = 0

    def training(self) -> Iterable[Answered]:
        return self._generate("train", self.examples)

    def columns(self, folder: Path, fields: AnsweredFields) -> Split:
        valid = encode_columns(self._generate("valid", self.valid), fields) if self.valid else None
        return Split(encode_columns(self.training(), fields), valid)

    def _generate(self, split: str, count: int) -> grammar.GeneratedCorpus[Answered]:
        return grammar.GeneratedCorpus(grammar.question, count, split, self.seed)


class QuestionTable(RecipeSection):
    """Questions, passages and answers from columns of JSON-lines files (or TSV, CSV where numbers are numbers).

    `end`: the column with the end of the answer, or with its text. `valid`: a file, or the share of the rows of `train`
    to hold out, its last ones.
    """

    kind: Literal["table"] = "table"
    train: InputPath
    valid: InputPath | Fraction = 0.1
    question: str = "question"
    passage: str = "passage"
    start: str = "start"
    end: str = "end"

    def training(self) -> Iterator[Answered]:
        examples = self._read(self.train)
        if not isinstance(self.valid, float):
            return iter(examples)
        return islice(iter(examples), first_held_out(sum(1 for _ in examples), self.valid, [self.train]))

    def columns(self, folder: Path, fields: AnsweredFields) -> Split:
        valid = self.valid if isinstance(self.valid, float) else self._read(self.valid)
        return store_split(folder, self._read(self.train), valid, fields)

    def _read(self, path: Path) -> AnswerRows:
        return AnswerRows(path, question=self.question, passage=self.passage, start=self.start, end=self.end)


class BertSpanModel(FinetunedBert):
    """BERT with two linear outputs for each token: is it the start of the answer, is it the end."""

    kind: Literal["bert"] = "bert"


class AnswerSettings(RecipeSection):
    """`max_answer_length`: the most tokens of a predicted answer."""

    max_answer_length: Count = MAX_ANSWER_LENGTH


class AnsweringBatches(BucketBatches):
    """Passages are truncated to `max_length` tokens, by default as many as the model has positions."""

    rows: Count | None = 32


class AnsweringRecipe(Recipe):
    """The answer to a question, as a span of a passage."""

    task: Literal["answering"] = "answering"
    data: Annotated[BuiltInQuestions | QuestionTable, Field(discriminator="kind")] = BuiltInQuestions()
    tokenizer: AnyTokenizer = SizedTokenizer()
    model: BertSpanModel = BertSpanModel()
    objective: AnswerSettings = AnswerSettings()
    batches: AnsweringBatches = AnsweringBatches()

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> PreparedTask:
        recipe = self.model_copy(update={"model": with_pretrained_size(self.model, folder)})
        tokenizer = self._tokenizer(folder)
        split = self.data.columns(folder, AnsweredFields(tokenizer))
        max_length = recipe.model.max_length(self.batches.max_length)
        model = recipe.assemble(folder)
        assert isinstance(model, SpanPredictor)
        load_pretrained(model.features.bert, folder)

        def batches(columns: Columns, rank: int, ranks: int) -> Batches[AnswerBatch]:
            collate = AnswerCollator(columns, tokenizer.special, max_length, cut_off="leave out")
            plan = self.batches.plan(collate.lengths, collate.answerable)
            return Batches(plan, collate, self.train.seed, rank, ranks, self.train.prefetch)

        train, valid = batches(split.train, rank, ranks), split.valid
        held_out = "none" if valid is None else f"{len(valid):,}"
        notes = [f"{len(split.train):,} training questions, {held_out} for validation"]
        if isinstance(train.collate, AnswerCollator) and len(train.collate.truncated_answers):
            notes.append(
                f"{len(train.collate.truncated_answers):,} left out: their answer lies beyond {max_length} tokens"
            )
        return PreparedTask(
            recipe=recipe,
            model=model,
            objective=SpanQAObjective(tokenizer, self.objective.max_answer_length),
            train=train,
            valid=None if valid is None else partial(batches, valid),
            notes=(*notes, *split.notes),
        )

    def _tokenizer(self, folder: Path) -> Tokenizer:
        if (folder / PRETRAINED).exists():
            return load_run_tokenizer(self.tokenizer, folder)
        texts = (text for one in self.data.training() for text in (one.question, one.passage))
        return make_tokenizer(self.tokenizer, texts, folder)
