"""The task "classification": a class, or a number (regression), for each text or pair of texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.errors import SettingError
from regard.models import Pooling as PoolingName, SequenceClassifier
from regard.models.config import PoolingClassifierConfig, PoolingEncoderName, ScoreName, SequenceClassifierConfig
from regard.text import (
    Batches,
    Columns,
    LabelCollator,
    Labelled,
    LabelledBatch,
    LabelledFields,
    LabelledRows,
    Labels,
    Scale,
    Tokenizer,
    encode_columns,
    grammar,
)
from regard.training.objectives.classification import ClassificationObjective, RegressionObjective
from regard.training.recipe import PreparedTask, Recipe
from regard.training.section import Count, Fraction, InputPath, LabelSmoothing, Positive, RecipeSection
from regard.training.tasks.buckets import BucketBatches
from regard.training.tasks.finetune import PRETRAINED, FinetunedBert, load_pretrained, with_pretrained_size
from regard.training.tasks.holdout import Split, first_held_out, store_split
from regard.training.tasks.tokenizers import AnyTokenizer, SizedTokenizer, load_run_tokenizer, make_tokenizer


class RegressionScale(RecipeSection):
    """The mean and the standard deviation of labels that are numbers."""

    mean: float
    std: Positive


LabelNames = list[str] | Literal["numbers"] | RegressionScale | None


class BuiltInLabelled(RecipeSection):
    """Opinions of the built-in grammar, in English or French; one of two clauses decides the label."""

    kind: Literal["built-in"] = "built-in"
    view: Literal["opinion", "opinion_french", "verdict", "verdict_french"] = "opinion"
    examples: Count = 4000
    valid: Annotated[int, Field(ge=0)] = 500
    seed: Annotated[int, Field(ge=0)] = 0
    labels: LabelNames = None

    def training(self) -> Iterable[Labelled]:
        return self._generate("train", self.examples)

    def columns(self, folder: Path, fields: LabelledFields) -> Split:
        valid = encode_columns(self._generate("valid", self.valid), fields) if self.valid else None
        return Split(encode_columns(self.training(), fields), valid)

    def _generate(self, split: str, count: int) -> grammar.GeneratedCorpus[Labelled]:
        return grammar.GeneratedCorpus(getattr(grammar, self.view), count, split, self.seed)


class LabelTable(RecipeSection):
    """Texts and labels from columns of TSV, CSV or JSON-lines files.

    `text_pair`: the column of a second text. `valid`: a file, or the share of the rows of `train` to hold out, its last
    ones. `labels`: the classes in order, by default those of `train` in alphabetical order; "numbers" for regression.
    """

    kind: Literal["table"] = "table"
    train: InputPath
    valid: InputPath | Fraction = 0.1
    text: str = "text"
    label: str = "label"
    text_pair: str | None = None
    labels: LabelNames = None

    def training(self) -> Iterator[Labelled]:
        examples = self._read(self.train)
        if not isinstance(self.valid, float):
            return iter(examples)
        return islice(iter(examples), first_held_out(sum(1 for _ in examples), self.valid, [self.train]))

    def columns(self, folder: Path, fields: LabelledFields) -> Split:
        valid = self.valid if isinstance(self.valid, float) else self._read(self.valid, fields.labels)
        return store_split(folder, self._read(self.train, fields.labels), valid, fields)

    def _read(self, path: Path, labels: Labels | Scale | None = None) -> LabelledRows:
        return LabelledRows(path, self.text, self.label, self.text_pair, labels)


class PoolingModel(RecipeSection):
    """Attention pooling with one learned query: over the embeddings ("none"), over each through a layer of its own
    ("position-wise"), or over the states of a bidirectional RNN ("birnn").

    `encoder_dim`: the width of the states, where it is not that of the embeddings. `embedding_std`: the standard
    deviation of initial embeddings.
    """

    kind: Literal["pooling"] = "pooling"
    width: Count = PoolingClassifierConfig.width
    encoder: PoolingEncoderName = PoolingClassifierConfig.encoder
    encoder_dim: Count | None = PoolingClassifierConfig.encoder_dim
    cell: Literal["gru", "lstm"] = PoolingClassifierConfig.cell
    score: ScoreName = PoolingClassifierConfig.score
    dropout: Fraction = PoolingClassifierConfig.dropout
    embedding_std: Positive = PoolingClassifierConfig.embedding_std


class BertClassifierModel(FinetunedBert):
    """BERT and a linear classifier on one vector of the text.

    `pooling`: "pooler" is tanh(W [CLS] + b) of the last layer, as published; or the state of [CLS], the mean of all
    states, or attention pooling with a learned query.
    """

    kind: Literal["bert"] = "bert"
    pooling: PoolingName = SequenceClassifierConfig.pooling


class ClassificationBatches(BucketBatches):
    rows: Count | None = 32
    max_length: Count | None = 512


class ClassificationRecipe(Recipe):
    """A label for each text, or pair of texts."""

    task: Literal["classification"] = "classification"
    data: Annotated[BuiltInLabelled | LabelTable, Field(discriminator="kind")] = BuiltInLabelled()
    tokenizer: AnyTokenizer = SizedTokenizer()
    model: Annotated[PoolingModel | BertClassifierModel, Field(discriminator="kind")] = PoolingModel()
    objective: LabelSmoothing = LabelSmoothing()
    batches: ClassificationBatches = ClassificationBatches()

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> PreparedTask:
        labels = self._labels()
        section = (
            with_pretrained_size(self.model, folder) if isinstance(self.model, BertClassifierModel) else self.model
        )
        tokenizer = self._tokenizer(folder)
        split = self.data.columns(folder, LabelledFields(tokenizer, labels))
        known = list(labels.names) if isinstance(labels, Labels) else RegressionScale(mean=labels.mean, std=labels.std)
        data = self.data.model_copy(update={"labels": known})
        recipe = self.model_copy(update={"data": data, "model": section})
        max_length = self.batches.max_length
        if isinstance(section, BertClassifierModel):
            max_length = section.max_length(max_length)
        model = recipe.assemble(folder)
        if isinstance(model, SequenceClassifier):
            load_pretrained(model.features.bert, folder)

        def batches(columns: Columns, rank: int, ranks: int) -> Batches[LabelledBatch]:
            collate = LabelCollator(columns, tokenizer.special, max_length)
            plan = self.batches.plan(collate.lengths)
            return Batches(plan, collate, self.train.seed, rank, ranks, self.train.prefetch)

        train, valid = batches(split.train, rank, ranks), split.valid
        held_out = "none" if valid is None else f"{len(valid):,}"
        described = ", ".join(labels.names) if isinstance(labels, Labels) else f"numbers about {labels.mean:.4g}"
        notes = [f"{len(split.train):,} training examples, {held_out} for validation; {described}"]
        if isinstance(train.collate, LabelCollator) and train.collate.truncated:
            notes.append(f"{train.collate.truncated:,} training examples cut to {max_length} tokens")
        return PreparedTask(
            recipe=recipe,
            model=model,
            objective=self._objective(labels, tokenizer),
            train=train,
            valid=None if valid is None else partial(batches, valid),
            notes=(*notes, *split.notes),
        )

    def _objective(self, labels: Labels | Scale, tokenizer: Tokenizer) -> ClassificationObjective | RegressionObjective:
        smoothing = self.objective.label_smoothing
        if isinstance(labels, Labels):
            return ClassificationObjective(labels, tokenizer, smoothing)
        if smoothing:
            raise SettingError(
                f"label_smoothing = {smoothing} is for classes, and these labels are numbers",
                where="objective.label_smoothing",
                advice="Set it to 0.",
            )
        return RegressionObjective(labels, tokenizer)

    def _tokenizer(self, folder: Path) -> Tokenizer:
        if (folder / PRETRAINED).exists():
            return load_run_tokenizer(self.tokenizer, folder)
        return make_tokenizer(self.tokenizer, _texts(self.data.training()), folder)

    def _labels(self) -> Labels | Scale:
        given = self.data.labels
        if isinstance(given, RegressionScale):
            return Scale(given.mean, given.std)
        if given == "numbers":
            return Scale.of(one.label for one in self.data.training())
        labels = Labels.of(one.label for one in self.data.training()) if given is None else Labels(tuple(given))
        if len(labels) < 2 or len(set(labels.names)) < len(labels):
            problem = f"The labels are {', '.join(labels.names) or 'none'}: two different ones or more are needed"
            raise SettingError(problem, where="data.labels")
        return labels


def _texts(examples: Iterable[Labelled]) -> Iterator[str]:
    for example in examples:
        yield example.text
        if example.other is not None:
            yield example.other
