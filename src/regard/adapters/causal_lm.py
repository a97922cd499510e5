"""A language model of ours: what every token attends to before it, how a text goes on, and the next token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from regard.adapters.base import (
    Decision,
    Kind,
    ModelAdapter,
    Output,
    Pass,
    Predicted,
    continued,
    expect_known,
    likeliest,
)
from regard.adapters.bert_inputs import padded
from regard.adapters.case import Case, Example, ReadText, Row
from regard.adapters.readout import only_at, output_layer, picked
from regard.adapters.tokens import TokenRow
from regard.errors import SettingError
from regard.models import Logits
from regard.text import Tokenizer


@dataclass(frozen=True, eq=False)
class CausalLMAdapter(ModelAdapter):
    """A language model with its tokenizer; `writes`: how many tokens it adds to what it is given."""

    model: Any
    tokenizer: Tokenizer
    name: str = "language model"
    description: str = ""
    writes: int = 0

    @property
    def kind(self) -> Kind:
        return "continues"

    @property
    def longest(self) -> int | None:
        return getattr(self.model, "longest", None)

    def prepare(self, text: str, other: str | None = None, prefix: Sequence[int] | None = None) -> Pass:
        if other is not None:
            raise SettingError("a second text", "one text for a language model", where="look")
        encoding = self.tokenizer.encode(text)
        given = list(encoding.ids) or [self.tokenizer.special.need("end")]
        new = self._continuation(given, expect_known(prefix or (), len(self.tokenizer)))
        ids = given + new
        axis = TokenRow("text")
        if encoding.ids:
            axis.part(text, encoding.pieces, encoding.offsets, encoding.words)
        else:
            axis.special(self.tokenizer.token(given[0]))
        axis.written([self.label(token) for token in new])

        def forward() -> Output:
            logs = _log_probs(self.model(torch.tensor([ids], device=self.device)))[0]
            after = torch.tensor(ids[1:], device=self.device).unsqueeze(-1)
            target = logs[:-1].gather(1, after)[max(0, len(given) - 1) if new else 0 :].sum()
            if not new:
                return Output((axis,), target, facts={"next": likeliest(logs[-1], self.label)})
            positions = range(len(given), len(ids))
            predicted = Predicted(logs[len(given) - 1 : len(ids) - 1], new, positions, self.label)
            return Output((axis,), target, predicted)

        return Pass(len(ids), forward)

    @property
    def decides(self) -> Decision:
        return "next word"

    def cases(self, example: Example, number: int, chance: Random) -> list[Case]:
        if not isinstance(example, str):
            raise SettingError(f"a {type(example).__name__}", "a text, for a language model", where="audit")
        encoding, longest = self.tokenizer.encode(example), self.longest
        ids = tuple(encoding.ids[: None if longest is None else longest + 1])
        return ReadText(Row(ids, (True,) * len(ids)), tuple(encoding.pieces)).next_token_case(number, chance)

    def log_probs(self, rows: Sequence[Row]) -> Tensor:
        ids, lengths = self._padded(rows)
        with only_at(output_layer(self.model), lengths - 1):
            logs = _log_probs(self.model(ids))
        return picked(logs, lengths - 1)

    def input_ids(self, rows: Sequence[Row]) -> Tensor:
        return self._padded(rows)[0]

    def readout_position(self, place: str, rows: Sequence[Row]) -> list[int]:
        return [len(row.ids) - 1 for row in rows]

    def label(self, number: int) -> str:
        return self.tokenizer.decode([number]) or self.tokenizer.token(number)

    def _padded(self, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
        return padded([row.ids for row in rows], 0, self.device)  # nothing attends to what comes after it

    def _continuation(self, given: list[int], prefix: list[int]) -> list[int]:
        """The likeliest tokens after those given, of which the first are the prefix."""
        count, longest = max(self.writes, len(prefix)), self.longest
        if longest is not None and len(given) + count > longest:
            if len(given) > longest:
                raise SettingError(f"a text of {len(given)} tokens", f"at most {longest}, which it reads", where="look")
            count = longest - len(given)
        if not count:
            return []
        begun = torch.tensor([given], device=self.device)
        state = self.model.start(begun[:, :-1], torch.tensor([len(given) - 1], device=self.device))
        end = self.tokenizer.special.end
        return continued(self.model, state, begun[:, -1], prefix[:count], end, count)


def _log_probs(said: Any) -> Tensor:
    """ln p (B, T, V) of what comes after each token."""
    if isinstance(said, Tensor):
        return Logits(said).log_probs()
    found: Tensor = said[0].log_probs()
    return found
