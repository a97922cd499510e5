"""A language model of ours asked for the next token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from regard.errors import SettingError
from regard.models.predictions import Logits
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.trust.asking.case import Case, Example, Row
from regard.trust.asking.lastly import only_at, picked, speaking
from regard.trust.asking.padding import padded

SHORTEST = 3  # tokens that are read before a decision is worth asking for


@dataclass(frozen=True, eq=False)
class Continuing:
    """Texts are cut at some token; what comes there is the decision, what stands before it is to be explained."""

    model: Any
    tokenizer: Tokenizer
    name: str
    kind: str = "next word"

    def cases(self, example: Example, number: int, chance: Random) -> list[Case]:
        if not isinstance(example, str):
            raise SettingError(f"a {type(example).__name__}", "a text, for a language model", where="audit")
        encoding = self.tokenizer.encode(example)
        longest = getattr(self.model, "longest", None)
        ids = tuple(encoding.ids[: None if longest is None else longest + 1])
        if len(ids) <= SHORTEST:
            return []
        cut = chance.randrange(SHORTEST, len(ids))
        free = (*[True] * (cut - 1), False)  # the last one asks
        return [Case(number, Row(ids[:cut], free), tuple(encoding.pieces[:cut]), ids[cut])]

    def say(self, rows: Sequence[Row]) -> Tensor:
        ids, lengths = self._padded(rows)
        with only_at(speaking(self.model), lengths - 1):
            said: Any = self.model(ids)
        logs = Logits(said).log_probs() if isinstance(said, Tensor) else said[0].log_probs()
        return picked(logs, lengths - 1)

    def ids(self, rows: Sequence[Row]) -> Tensor:
        return self._padded(rows)[0]

    def looks_at_text(self, place: str) -> bool:
        return True

    def asks_from_text(self, place: str) -> bool:
        return True

    def decider(self, place: str, rows: Sequence[Row]) -> list[int]:
        return [len(row.ids) - 1 for row in rows]

    def called(self, number: int) -> str:
        return self.tokenizer.decode([number]) or self.tokenizer.token(number)

    def _padded(self, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
        device: torch.device = next(self.model.parameters()).device
        return padded([row.ids for row in rows], 0, device)  # nothing looks ahead at what a row is filled up with
