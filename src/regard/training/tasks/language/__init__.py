"""The task "language": causal language modelling, the next token of a text."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from regard.errors import SettingError
from regard.models.config import GPTConfig
from regard.text import Batches, BlockBatch, BlockCollator, DocumentFields, Lanes, TokenBlocks, TokenStream
from regard.training.objectives.lm import CausalLMObjective
from regard.training.objectives.stateful_lm import StatefulLMObjective
from regard.training.recipe import PreparedTask, Recipe
from regard.training.section import Count, LabelSmoothing, RecipeSection
from regard.training.tasks.language.data import BuiltInText, RawTextFile, TextSplit
from regard.training.tasks.language.models import AnyModel, AttentiveModel, GPTModel, RecurrentModel, WindowModel
from regard.training.tasks.tokenizers import AnyTokenizer, CharacterTokenizer, make_tokenizer

__all__ = [
    "AttentiveModel",
    "BuiltInText",
    "GPTModel",
    "BlockBatches",
    "LaneBatches",
    "LanguageRecipe",
    "RecurrentModel",
    "TextSplit",
    "RawTextFile",
    "WindowModel",
]


class BlockBatches(RecipeSection):
    """Blocks of `sequence_length` tokens, cut at other places in every epoch, `rows` a batch; each is independent."""

    kind: Literal["blocks"] = "blocks"
    sequence_length: Annotated[int, Field(ge=2)] = GPTConfig.max_positions
    rows: Count = 32

    def plan(self, stream: TokenStream) -> TokenBlocks:
        return TokenBlocks(stream, self.sequence_length, self.rows)


class LaneBatches(RecipeSection):
    """The text in `lanes` that are read in parallel, `sequence_length` tokens a batch; each continues in the next.

    A text too short for one batch in every lane gets fewer lanes.
    """

    kind: Literal["lanes"] = "lanes"
    sequence_length: Annotated[int, Field(ge=2)] = 32
    lanes: Count = 32

    def plan(self, stream: TokenStream) -> Lanes:
        return Lanes(stream, self.sequence_length, max(1, min(self.lanes, (len(stream) - 1) // self.sequence_length)))


class LanguageRecipe(Recipe):
    """The next token, at every position of a text."""

    task: Literal["language"] = "language"
    data: Annotated[BuiltInText | RawTextFile, Field(discriminator="kind")] = BuiltInText()
    tokenizer: AnyTokenizer = CharacterTokenizer()
    model: Annotated[AnyModel, Field(discriminator="kind")] = GPTModel()
    objective: LabelSmoothing = LabelSmoothing()
    batches: Annotated[BlockBatches | LaneBatches, Field(discriminator="kind")] = BlockBatches()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if isinstance(self.batches, LaneBatches) and not self.model.carries_state:
            raise SettingError(
                f"A {self.model.kind} carries no state from batch to batch, which batches of kind 'lanes' are for",
                where="batches.kind",
                advice="Set batches.kind = blocks.",
            )
        return self

    @property
    def has_open_vocabulary(self) -> bool:
        """Whether words outside the vocabulary have ids of their own: a model that copies can produce them."""
        return isinstance(self.model, AttentiveModel) and self.model.copying != "none"

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> PreparedTask:
        tokenizer = make_tokenizer(self.tokenizer, self.data.training(), folder)
        text = self.data.read(folder, DocumentFields(tokenizer, open_vocabulary=self.has_open_vocabulary))

        def batches(stream: TokenStream, rank: int, ranks: int) -> Batches[BlockBatch]:
            collate = BlockCollator(stream, tokenizer.special.pad or 0)
            return Batches(self.batches.plan(stream), collate, self.train.seed, rank, ranks, self.train.prefetch)

        valid = text.valid
        held_out = "none" if valid is None else f"{len(valid):,}"
        count = f"{len(text.train):,} training tokens, {held_out} for validation; a vocabulary of {len(tokenizer):,}"
        options = (tokenizer, text.characters_per_token, self.batches.sequence_length, self.objective.label_smoothing)
        is_carried = isinstance(self.batches, LaneBatches)
        return PreparedTask(
            recipe=self,
            model=self.assemble(folder),
            objective=StatefulLMObjective(*options, carries_state=is_carried, open_vocabulary=self.has_open_vocabulary)
            if self.model.carries_state
            else CausalLMObjective(*options),
            train=batches(text.train, rank, ranks),
            valid=None if valid is None else partial(batches, valid),
            notes=(count, *text.notes),
        )
