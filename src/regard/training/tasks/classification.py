"""Labels for texts, which are classes or numbers: the task "classification"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.errors import SettingError
from regard.models import OnText, Pooling as PoolingName
from regard.models.config import PoolingClassifierConfig, ScoreName, SequenceClassifierConfig, StatesName
from regard.text import (
    Batches,
    Classified,
    Columns,
    Label,
    Labelled,
    LabelledBatch,
    LabelledFields,
    Labels,
    Scale,
    Tokenizer,
    columns_of,
    grammar,
)
from regard.training.objectives.classification import Classify, Estimate
from regard.training.recipe import Count, InputPath, Positive, Prepared, Recipe, Section, Share
from regard.training.tasks.batching import in_buckets
from regard.training.tasks.finetune import READER, Started, begin, of_its_size
from regard.training.tasks.holdout import Split, kept_back, stored
from regard.training.tasks.smoothing import Smoothing
from regard.training.tasks.tokenizers import AnyTokenizer, Sized, kept_tokenizer, tokenizer_of


class Numbers(Section):
    """Labels that are numbers, with the mean and the spread of those that training had."""

    center: float
    spread: Positive


Names = list[str] | Literal["numbers"] | Numbers | None


class BuiltInLabelled(Section):
    """Opinions of the built-in grammar, in English or French: which clause decides is what there is to learn."""

    kind: Literal["built-in"] = "built-in"
    view: Literal["opinion", "opinion_french", "verdict", "verdict_french"] = "opinion"
    examples: Count = 4000
    valid: Annotated[int, Field(ge=0)] = 500
    seed: Annotated[int, Field(ge=0)] = 0
    labels: Names = None

    def training(self) -> Iterable[Labelled]:
        return self._drawn("train", self.examples)

    def columns(self, folder: Path, fields: LabelledFields) -> Split:
        valid = columns_of(self._drawn("valid", self.valid), fields) if self.valid else None
        return Split(columns_of(self.training(), fields), valid)

    def _drawn(self, split: str, count: int) -> grammar.Drawn[Labelled]:
        return grammar.Drawn(getattr(grammar, self.view), count, split, self.seed)


class Table(Section):
    """Texts and labels from columns of TSV, CSV or JSON-lines files.

    `valid`: a file of its own, or the share of the rows of `train` to hold out, the last ones. `labels`: the classes in
    order; by default those that training has, in alphabetical order; "numbers": each is a number to be estimated.
    """

    kind: Literal["table"] = "table"
    train: InputPath
    valid: InputPath | Share = 0.1
    text: str = "text"
    label: str = "label"
    other: str | None = None
    labels: Names = None

    def training(self) -> Iterator[Labelled]:
        examples = self._read(self.train)
        if not isinstance(self.valid, float):
            return iter(examples)
        return islice(iter(examples), kept_back(sum(1 for _ in examples), self.valid, [self.train]))

    def columns(self, folder: Path, fields: LabelledFields) -> Split:
        valid = self.valid if isinstance(self.valid, float) else self._read(self.valid, fields.labels)
        return stored(folder, self._read(self.train, fields.labels), valid, fields)

    def _read(self, path: Path, labels: Labels | Scale | None = None) -> Classified:
        return Classified(path, self.text, self.label, self.other, labels)


class Pooling(Section):
    """One question over the states of a text: the words themselves, each through a layer of its own ("alone"), or what
    two recurrent readers made of them.

    `states_width`: where states are not as wide as words. `spread`: how large the numbers of a word are to begin with.
    """

    kind: Literal["pooling"] = "pooling"
    width: Count = PoolingClassifierConfig.width
    states: StatesName = PoolingClassifierConfig.states
    states_width: Count | None = PoolingClassifierConfig.states_width
    cell: Literal["gru", "lstm"] = PoolingClassifierConfig.cell
    score: ScoreName = PoolingClassifierConfig.score
    dropout: Share = PoolingClassifierConfig.dropout
    spread: Positive = PoolingClassifierConfig.spread


class Bert(Started):
    """BERT and a linear classifier on one vector of the text.

    `pooling`: "pooler" is tanh(W [CLS] + b), as published and of the last layer alone; or the state of [CLS], the mean
    of all states, or their average by a learned question.
    """

    kind: Literal["bert"] = "bert"
    pooling: PoolingName = SequenceClassifierConfig.pooling


class Batching(Section):
    """Rows of like length, padding included at most `tokens` and `rows` a batch; texts are cut at `limit` tokens."""

    tokens: Count = 4096
    rows: Count | None = 32
    limit: Count | None = 512


class Classification(Recipe):
    """A label for each text, or pair of texts."""

    task: Literal["classification"] = "classification"
    data: Annotated[BuiltInLabelled | Table, Field(discriminator="kind")] = BuiltInLabelled()
    tokenizer: AnyTokenizer = Sized()
    model: Annotated[Pooling | Bert, Field(discriminator="kind")] = Pooling()
    objective: Smoothing = Smoothing()
    batches: Batching = Batching()

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> Prepared:
        labels = self._labels()
        section = of_its_size(self.model, folder) if isinstance(self.model, Bert) else self.model
        tokenizer = self._tokenizer(folder)
        split = self.data.columns(folder, LabelledFields(tokenizer, labels))
        known = list(labels.names) if isinstance(labels, Labels) else Numbers(**asdict(labels))
        data = self.data.model_copy(update={"labels": known})
        recipe = self.model_copy(update={"data": data, "model": section})
        limit = section.limit(self.batches.limit) if isinstance(section, Bert) else self.batches.limit
        model = recipe.assemble(folder)
        if isinstance(model, OnText):
            begin(model.reading.bert, folder)

        def batches(columns: Columns, rank: int, ranks: int) -> Batches[LabelledBatch]:
            collate = Label(columns, tokenizer.special, limit)
            plan = in_buckets(collate.lengths, self.batches, self.batches.rows)
            return Batches(plan, collate, self.train.seed, rank, ranks, self.train.ahead)

        train, valid = batches(split.train, rank, ranks), split.valid
        held = "none" if valid is None else f"{len(valid):,}"
        told = ", ".join(labels.names) if isinstance(labels, Labels) else f"numbers about {labels.center:.4g}"
        notes = [f"{len(split.train):,} training examples, {held} for validation; {told}"]
        if isinstance(train.collate, Label) and train.collate.truncated:
            notes.append(f"{train.collate.truncated:,} training examples cut to {limit} tokens")
        return Prepared(
            recipe=recipe,
            model=model,
            objective=self._objective(labels, tokenizer),
            train=train,
            valid=None if valid is None else partial(batches, valid),
            notes=(*notes, *split.notes),
        )

    def _objective(self, labels: Labels | Scale, tokenizer: Tokenizer) -> Classify | Estimate:
        smoothing = self.objective.smoothing
        if isinstance(labels, Labels):
            return Classify(labels, tokenizer, smoothing)
        if smoothing:
            raise SettingError(f"smoothing={smoothing}", "0: numbers are no classes", where="objective.smoothing")
        return Estimate(labels, tokenizer)

    def _tokenizer(self, folder: Path) -> Tokenizer:
        if (folder / READER).exists():
            return kept_tokenizer(self.tokenizer, folder)
        return tokenizer_of(self.tokenizer, _texts(self.data.training()), folder)

    def _labels(self) -> Labels | Scale:
        given = self.data.labels
        if isinstance(given, Numbers):
            return Scale(given.center, given.spread)
        if given == "numbers":
            return Scale.of(one.label for one in self.data.training())
        labels = Labels.of(one.label for one in self.data.training()) if given is None else Labels(tuple(given))
        if len(labels) < 2 or len(set(labels.names)) < len(labels):
            raise SettingError(f"the labels {', '.join(labels.names)}", "two different ones or more", where="data")
        return labels


def _texts(examples: Iterable[Labelled]) -> Iterator[str]:
    for example in examples:
        yield example.text
        if example.other is not None:
            yield example.other
