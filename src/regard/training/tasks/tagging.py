"""The task "tagging": a tag for each word of a text, such as its part of speech, with ELMo, BERT or word vectors."""

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
from regard.models import ELMo, Tagger, TokenClassifier
from regard.models.config import ELMoTaggerConfig, InputName, WordTaggerConfig
from regard.runs import TOKENIZER, copy_weights, load_weights, save_weights, weights_of
from regard.text import (
    Batches,
    Columns,
    Labels,
    OovTaggedFields,
    SpelledTagCollator,
    SpelledTaggedBatch,
    TagFile,
    Tagged,
    TaggedFields,
    Tokenizer,
    encode_columns,
    grammar,
)
from regard.training.config.recipes import read_recipe
from regard.training.objectives.tagging import TaggingObjective
from regard.training.recipe import PreparedTask, Recipe
from regard.training.section import Count, Fraction, InputPath, LabelSmoothing, RecipeSection
from regard.training.tasks.contextual import ContextualBatches, ContextualRecipe
from regard.training.tasks.finetune import (
    PRETRAINED,
    FinetunedBert,
    expect_pretrained_size,
    load_pretrained,
    with_pretrained_size,
)
from regard.training.tasks.holdout import Split, first_held_out, store_split
from regard.training.tasks.tokenizers import AnyTokenizer, SizedTokenizer, load_run_tokenizer, make_tokenizer

TagNames = list[str] | None


class BuiltInTagged(RecipeSection):
    """Parts of speech of the built-in grammar's sentences, in English or French."""

    kind: Literal["built-in"] = "built-in"
    view: Literal["tagged", "tagged_french"] = "tagged"
    examples: Count = 1000
    valid: Annotated[int, Field(ge=0)] = 300
    seed: Annotated[int, Field(ge=0)] = 0
    tags: TagNames = None

    def training(self) -> Iterable[Tagged]:
        return self._generate("train", self.examples)

    def columns(self, folder: Path, fields: TaggedFields) -> Split:
        valid = encode_columns(self._generate("valid", self.valid), fields) if self.valid else None
        return Split(encode_columns(self.training(), fields), valid)

    def _generate(self, split: str, count: int) -> grammar.GeneratedCorpus[Tagged]:
        return grammar.GeneratedCorpus(getattr(grammar, self.view), count, split, self.seed)


class ConllFile(RecipeSection):
    """A word and its tag a line as CoNLL writes them, a blank line after each sentence.

    `word` and `tag` number the columns, negative ones from the right; lines that begin with `comment` are ignored.
    `valid`: a file, or the share of the sentences of `train` to hold out, its last ones. `tags`: all tags in order, by
    default those of `train` in alphabetical order.
    """

    kind: Literal["conll"] = "conll"
    train: InputPath
    valid: InputPath | Fraction = 0.1
    word: int = 0
    tag: int = -1
    comment: str | None = None
    tags: TagNames = None

    def training(self) -> Iterator[Tagged]:
        sentences = self._read(self.train)
        if not isinstance(self.valid, float):
            return iter(sentences)
        return islice(iter(sentences), first_held_out(sum(1 for _ in sentences), self.valid, [self.train]))

    def columns(self, folder: Path, fields: TaggedFields) -> Split:
        valid = self.valid if isinstance(self.valid, float) else self._read(self.valid, fields.tags)
        return store_split(folder, self._read(self.train, fields.tags), valid, fields)

    def _read(self, path: Path, tags: Labels | None = None) -> TagFile:
        return TagFile(path, word=self.word, tag=self.tag, labels=tags, comment=self.comment)


class ElmoTaggerModel(RecipeSection):
    """A tagger on the learned mix of the layers of an ELMo, pre-trained or not.

    `pretrained`: a run of the recipe `elmo`; its tokenizer replaces [tokenizer], and its input, width and layers those
    of [model]. All of it is copied, so that run may be deleted. `finetune`: whether the ELMo is trained further.
    """

    kind: Literal["elmo"] = "elmo"
    pretrained: InputPath | None = None
    finetune: bool = ELMoTaggerConfig.finetune
    input: InputName | None = ELMoTaggerConfig.input
    width: Count | None = ELMoTaggerConfig.width
    layers: Count | None = ELMoTaggerConfig.layers
    dropout: Fraction = ELMoTaggerConfig.dropout


class WordTaggerModel(RecipeSection):
    """A tagger on word vectors without context: the baseline."""

    kind: Literal["words"] = "words"
    input: InputName = WordTaggerConfig.input
    width: Count = WordTaggerConfig.width
    dropout: Fraction = WordTaggerConfig.dropout


class BertTaggerModel(FinetunedBert):
    """BERT and a linear classifier on the state of each word's first piece."""

    kind: Literal["bert"] = "bert"


class TaggingRecipe(Recipe):
    """A tag for each word."""

    task: Literal["tagging"] = "tagging"
    data: Annotated[BuiltInTagged | ConllFile, Field(discriminator="kind")] = BuiltInTagged()
    tokenizer: AnyTokenizer = SizedTokenizer()
    model: Annotated[ElmoTaggerModel | WordTaggerModel | BertTaggerModel, Field(discriminator="kind")] = (
        ElmoTaggerModel()
    )
    objective: LabelSmoothing = LabelSmoothing()
    batches: ContextualBatches = ContextualBatches()

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> PreparedTask:
        recipe = self._complete(folder)
        tokenizer = recipe._tokenizer(folder)
        tags = Labels(tuple(recipe.data.tags or ()))
        section = recipe.model
        reads_characters = not isinstance(section, BertTaggerModel) and section.input == "characters"
        fields = OovTaggedFields if reads_characters else TaggedFields
        max_length = self.batches.max_length
        if isinstance(section, BertTaggerModel):
            max_length = section.max_length(max_length)
        split = self.data.columns(folder, fields(tokenizer, tags))
        model = recipe.assemble(folder)
        if isinstance(model, TokenClassifier):
            load_pretrained(model.features.bert, folder)
        elif isinstance(model, Tagger) and (folder / PRETRAINED).exists():
            copy_weights(model.encoder, load_file(folder / PRETRAINED), f"{folder / PRETRAINED}")

        def batches(columns: Columns, rank: int, ranks: int) -> Batches[SpelledTaggedBatch]:
            collate = SpelledTagCollator(columns, tokenizer.special, len(tokenizer), max_length)
            plan = self.batches.plan(collate.lengths)
            return Batches(plan, collate, self.train.seed, rank, ranks, self.train.prefetch)

        train, valid = batches(split.train, rank, ranks), split.valid
        held_out = "none" if valid is None else f"{len(valid):,}"
        notes = [f"{len(split.train):,} training texts, {held_out} for validation; {', '.join(tags.names)}"]
        if isinstance(train.collate, SpelledTagCollator) and train.collate.truncated:
            notes.append(f"{train.collate.truncated:,} training texts cut to {max_length} tokens")
        return PreparedTask(
            recipe=recipe,
            model=model,
            objective=TaggingObjective(tags, tokenizer, self.objective.label_smoothing),
            train=train,
            valid=None if valid is None else partial(batches, valid),
            notes=(*notes, *split.notes),
        )

    def _complete(self, folder: Path) -> TaggingRecipe:
        """The recipe with the tags of the data, and with the sizes of its pre-trained ELMo or BERT."""
        given = self.data.tags
        tags = (
            Labels.of(tag for one in self.data.training() for tag in one.tags) if given is None else Labels((*given,))
        )
        if len(tags) < 2 or len(set(tags.names)) < len(tags):
            problem = f"The tags are {', '.join(tags.names) or 'none'}: a tagger needs two different ones or more"
            raise SettingError(problem, where="data.tags")
        model = self.model
        if isinstance(model, ElmoTaggerModel) and model.pretrained is not None:
            if not (folder / PRETRAINED).exists():
                _copy_pretrained(model.pretrained, folder)
            model = _with_pretrained_size(model, load_file(folder / PRETRAINED))
        elif isinstance(model, BertTaggerModel):
            model = with_pretrained_size(model, folder)
        data = self.data.model_copy(update={"tags": list(tags.names)})
        return self.model_copy(update={"data": data, "model": model})

    def _tokenizer(self, folder: Path) -> Tokenizer:
        if (folder / PRETRAINED).exists():
            return load_run_tokenizer(self.tokenizer, folder)
        return make_tokenizer(self.tokenizer, (" ".join(one.words) for one in self.data.training()), folder)


def _copy_pretrained(run: Path, folder: Path) -> None:
    """Copy a pre-trained ELMo into the folder of a new run: tokenizer and encoder weights."""
    if not (run / "recipe.toml").exists():
        advice = "Name the folder of a run of the recipe elmo."
        raise SettingError(f"{run} is not a run folder", where="model.pretrained", advice=advice)
    recipe = read_recipe(run / "recipe.toml", tasks={"contextual": ContextualRecipe})
    assert isinstance(recipe, ContextualRecipe)
    elmo = recipe.assemble(run)
    assert isinstance(elmo, ELMo)
    load_weights(elmo, run)
    (folder / PRETRAINED).parent.mkdir(parents=True, exist_ok=True)
    load_run_tokenizer(recipe.tokenizer, run).save(folder / TOKENIZER)
    save_weights(weights_of(elmo.encoder), folder / PRETRAINED)  # last: if it exists, the tokenizer does


def _with_pretrained_size(section: ElmoTaggerModel, weights: Mapping[str, Tensor]) -> ElmoTaggerModel:
    """The section with the sizes of its pre-trained ELMo encoder; other sizes are refused."""
    sizes = {
        "input": "characters" if "words.characters.weight" in weights else "tokens",
        "width": weights["forward_rnn.0.weight_hh_l0"].size(-1),
        "layers": sum(name.startswith("forward_rnn.") and name.endswith("weight_hh_l0") for name in weights),
    }
    for name, value in sizes.items():
        expect_pretrained_size(section, name, value, f"the ELMo of {section.pretrained}")
    return section.model_copy(update=sizes)
