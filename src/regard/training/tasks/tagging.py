"""A tag for each word of a text, such as its part of speech: the task "tagging"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from safetensors.torch import load_file
from torch import Tensor

from regard.errors import SettingError
from regard.models import ELMo, OnTokens, Tagger
from regard.models.config import ELMoTaggerConfig, InputName, WordTaggerConfig
from regard.runs import TOKENIZER, fill, load_weights, save_weights, weights_of
from regard.text import (
    Batches,
    Columns,
    Labels,
    SpelledTaggedBatch,
    SpelledTags,
    TagFile,
    Tagged,
    TaggedFields,
    TagSpelled,
    Tokenizer,
    columns_of,
    grammar,
)
from regard.training.config.recipes import read_recipe
from regard.training.objectives.elmo import TagWords
from regard.training.recipe import Count, InputPath, Prepared, Recipe, Section, Share
from regard.training.tasks.batching import in_buckets
from regard.training.tasks.contextual import Batching, Contextual
from regard.training.tasks.finetune import READER, Started, begin, of_its_size
from regard.training.tasks.holdout import Split, kept_back, stored
from regard.training.tasks.smoothing import Smoothing
from regard.training.tasks.tokenizers import AnyTokenizer, Sized, kept_tokenizer, tokenizer_of

Names = list[str] | None


class BuiltInTagged(Section):
    """Parts of speech of the built-in grammar's sentences, in English or French."""

    kind: Literal["built-in"] = "built-in"
    view: Literal["tagged", "tagged_french"] = "tagged"
    examples: Count = 1000
    valid: Annotated[int, Field(ge=0)] = 300
    seed: Annotated[int, Field(ge=0)] = 0
    tags: Names = None

    def training(self) -> Iterable[Tagged]:
        return self._drawn("train", self.examples)

    def columns(self, folder: Path, fields: TaggedFields) -> Split:
        valid = columns_of(self._drawn("valid", self.valid), fields) if self.valid else None
        return Split(columns_of(self.training(), fields), valid)

    def _drawn(self, split: str, count: int) -> grammar.Drawn[Tagged]:
        return grammar.Drawn(getattr(grammar, self.view), count, split, self.seed)


class Conll(Section):
    """A word and its tag a line as CoNLL writes them, a blank line after each sentence.

    `word` and `tag` number the columns, negative ones from the right; lines that begin with `comment` are passed over.
    `valid`: a file of its own, or the share of the sentences of `train` to hold out, the last ones. `tags`: all there
    are, in order; by default those that training has, in alphabetical order.
    """

    kind: Literal["conll"] = "conll"
    train: InputPath
    valid: InputPath | Share = 0.1
    word: int = 0
    tag: int = -1
    comment: str | None = None
    tags: Names = None

    def training(self) -> Iterator[Tagged]:
        sentences = self._read(self.train)
        if not isinstance(self.valid, float):
            return iter(sentences)
        return islice(iter(sentences), kept_back(sum(1 for _ in sentences), self.valid, [self.train]))

    def columns(self, folder: Path, fields: TaggedFields) -> Split:
        valid = self.valid if isinstance(self.valid, float) else self._read(self.valid, fields.tags)
        return stored(folder, self._read(self.train, fields.tags), valid, fields)

    def _read(self, path: Path, tags: Labels | None = None) -> TagFile:
        return TagFile(path, word=self.word, tag=self.tag, labels=tags, comment=self.comment)


class Elmo(Section):
    """The layers of an ELMo, mixed: one that learns from tags alone, or one that has learned from text.

    `elmo`: the run that taught it, whose tokenizer comes along in the place of [tokenizer], as do input, width and
    layers; the run may be gone afterwards. `tuned`: whether it goes on learning.
    """

    kind: Literal["elmo"] = "elmo"
    elmo: InputPath | None = None
    tuned: bool = ELMoTaggerConfig.tuned
    input: InputName | None = ELMoTaggerConfig.input
    width: Count | None = ELMoTaggerConfig.width
    layers: Count | None = ELMoTaggerConfig.layers
    dropout: Share = ELMoTaggerConfig.dropout


class Static(Section):
    """A vector for each word, whatever its neighbours: what context has to be compared with."""

    kind: Literal["words"] = "words"
    input: InputName = WordTaggerConfig.input
    width: Count = WordTaggerConfig.width
    dropout: Share = WordTaggerConfig.dropout


class Bert(Started):
    """BERT and a linear classifier on the state of each word's first piece."""

    kind: Literal["bert"] = "bert"


class Tagging(Recipe):
    """A tag for each word."""

    task: Literal["tagging"] = "tagging"
    data: Annotated[BuiltInTagged | Conll, Field(discriminator="kind")] = BuiltInTagged()
    tokenizer: AnyTokenizer = Sized()
    model: Annotated[Elmo | Static | Bert, Field(discriminator="kind")] = Elmo()
    objective: Smoothing = Smoothing()
    batches: Batching = Batching()

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> Prepared:
        recipe = self._filled(folder)
        tokenizer = recipe._tokenizer(folder)
        tags = Labels(tuple(recipe.data.tags or ()))
        section = recipe.model
        letters = not isinstance(section, Bert) and section.input == "characters"
        fields = SpelledTags if letters else TaggedFields
        limit = section.limit(self.batches.limit) if isinstance(section, Bert) else self.batches.limit
        split = self.data.columns(folder, fields(tokenizer, tags))
        model = recipe.assemble(folder)
        if isinstance(model, OnTokens):
            begin(model.reading.bert, folder)
        elif isinstance(model, Tagger) and (folder / READER).exists():
            fill(model.reader, load_file(folder / READER), f"{folder / READER}")

        def batches(columns: Columns, rank: int, ranks: int) -> Batches[SpelledTaggedBatch]:
            collate = TagSpelled(columns, tokenizer.special, len(tokenizer), limit)
            plan = in_buckets(collate.lengths, self.batches, self.batches.rows)
            return Batches(plan, collate, self.train.seed, rank, ranks, self.train.ahead)

        train, valid = batches(split.train, rank, ranks), split.valid
        held = "none" if valid is None else f"{len(valid):,}"
        notes = [f"{len(split.train):,} training texts, {held} for validation; {', '.join(tags.names)}"]
        if isinstance(train.collate, TagSpelled) and train.collate.truncated:
            notes.append(f"{train.collate.truncated:,} training texts cut to {limit} tokens")
        return Prepared(
            recipe=recipe,
            model=model,
            objective=TagWords(tags, tokenizer, self.objective.smoothing),
            train=train,
            valid=None if valid is None else partial(batches, valid),
            notes=(*notes, *split.notes),
        )

    def _filled(self, folder: Path) -> Tagging:
        """The recipe with the tags of the data, and the sizes of the ELMo or BERT that is taken along."""
        given = self.data.tags
        tags = (
            Labels.of(tag for one in self.data.training() for tag in one.tags) if given is None else Labels((*given,))
        )
        if len(tags) < 2 or len(set(tags.names)) < len(tags):
            raise SettingError(f"the tags {', '.join(tags.names)}", "two different ones or more", where="data")
        model = self.model
        if isinstance(model, Elmo) and model.elmo is not None:
            if not (folder / READER).exists():
                _take_along(model.elmo, folder)
            model = _of_its_size(model, load_file(folder / READER))
        elif isinstance(model, Bert):
            model = of_its_size(model, folder)
        data = self.data.model_copy(update={"tags": list(tags.names)})
        return self.model_copy(update={"data": data, "model": model})

    def _tokenizer(self, folder: Path) -> Tokenizer:
        if (folder / READER).exists():
            return kept_tokenizer(self.tokenizer, folder)
        return tokenizer_of(self.tokenizer, (" ".join(one.words) for one in self.data.training()), folder)


def _take_along(run: Path, folder: Path) -> None:
    """Copy what a tagger needs of an ELMo run into its own: the tokenizer and the reader's weights."""
    if not (run / "recipe.toml").exists():
        raise SettingError(f"{run}, which is no run", "a folder where ELMo was trained", where="model.elmo")
    theirs = read_recipe(run / "recipe.toml", tasks={"contextual": Contextual})
    assert isinstance(theirs, Contextual)
    elmo = theirs.assemble(run)
    assert isinstance(elmo, ELMo)
    load_weights(elmo, run)
    (folder / READER).parent.mkdir(parents=True, exist_ok=True)
    kept_tokenizer(theirs.tokenizer, run).save(folder / TOKENIZER)
    save_weights(weights_of(elmo.reader), folder / READER)  # last: where it is, the tokenizer is


def _of_its_size(section: Elmo, reader: Mapping[str, Tensor]) -> Elmo:
    """The section with the sizes of a reader that was taken along; others are refused."""
    sizes = {
        "input": "characters" if "words.letters.weight" in reader else "tokens",
        "width": reader["forth.0.weight_hh_l0"].size(-1),
        "layers": sum(name.startswith("forth.") and name.endswith("weight_hh_l0") for name in reader),
    }
    for name, value in sizes.items():
        if (asked := getattr(section, name)) not in (None, value):
            came = f"{name} = {asked!r} for the ELMo of {section.elmo}"
            raise SettingError(came, f"{value!r}, as it has, or nothing", where=f"model.{name}")
    return section.model_copy(update=sizes)
