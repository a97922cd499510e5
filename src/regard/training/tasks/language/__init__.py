"""The next token of a text: the task "language"."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from regard.errors import SettingError
from regard.text import Batches, BlockBatch, DocumentFields, Read, Stream
from regard.training.objectives.lm import PredictNext
from regard.training.objectives.stateful_lm import ReadOn
from regard.training.recipe import Prepared, Recipe
from regard.training.tasks.language.batches import InBlocks, InLanes
from regard.training.tasks.language.data import BuiltInText, Text, TextFile
from regard.training.tasks.language.models import AnyModel, Attentive, Gpt, Recurrent, Window
from regard.training.tasks.smoothing import Smoothing
from regard.training.tasks.tokenizers import AnyTokenizer, Characters, tokenizer_of

__all__ = [
    "Attentive",
    "BuiltInText",
    "Gpt",
    "InBlocks",
    "InLanes",
    "Language",
    "Recurrent",
    "Text",
    "TextFile",
    "Window",
]


class Language(Recipe):
    """What comes next, at every place of a text."""

    task: Literal["language"] = "language"
    data: Annotated[BuiltInText | TextFile, Field(discriminator="kind")] = BuiltInText()
    tokenizer: AnyTokenizer = Characters()
    model: Annotated[AnyModel, Field(discriminator="kind")] = Gpt()
    objective: Smoothing = Smoothing()
    batches: Annotated[InBlocks | InLanes, Field(discriminator="kind")] = InBlocks()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if isinstance(self.batches, InLanes) and not self.model.carries_state:
            raise SettingError(
                f"lanes for a {self.model.kind}",
                "blocks",
                where="batches.kind",
                advice="Lanes are for models that carry a state from batch to batch, and this one has none.",
            )
        return self

    @property
    def open(self) -> bool:
        """Whether words outside the vocabulary are told apart: a model that copies can say them."""
        return isinstance(self.model, Attentive) and self.model.copying != "none"

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> Prepared:
        tokenizer = tokenizer_of(self.tokenizer, self.data.training(), folder)
        text = self.data.read(folder, DocumentFields(tokenizer, open=self.open))

        def batches(stream: Stream, rank: int, ranks: int) -> Batches[BlockBatch]:
            collate = Read(stream, tokenizer.special.pad or 0)
            return Batches(self.batches.plan(stream), collate, self.train.seed, rank, ranks, self.train.ahead)

        valid = text.valid
        held = "none" if valid is None else f"{len(valid):,}"
        count = f"{len(text.train):,} training tokens, {held} for validation; a vocabulary of {len(tokenizer):,}"
        told = (tokenizer, text.characters_per_token, self.batches.size, self.objective.smoothing)
        lanes = isinstance(self.batches, InLanes)
        return Prepared(
            recipe=self,
            model=self.assemble(folder),
            objective=ReadOn(*told, carries=lanes, open=self.open) if self.model.carries_state else PredictNext(*told),
            train=batches(text.train, rank, ranks),
            valid=None if valid is None else partial(batches, valid),
            notes=(count, *text.notes),
        )
