"""The adapter of regard's causal language models: attention to earlier tokens, greedy continuation, the next token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from regard.adapters.base import (
    Decision,
    ForwardPass,
    Kind,
    ModelAdapter,
    ModelOutput,
    PredictedTokens,
    check_prefix,
    generate_greedy,
    top_tokens,
)
from regard.adapters.bert_inputs import pad_ids
from regard.adapters.case import Case, EncodedText, Example, InputRow
from regard.adapters.readout import find_output_layer, gather_positions, restrict_to_positions
from regard.adapters.token_row import TokenRow
from regard.errors import SettingError
from regard.models import Logits
from regard.text import Tokenizer


@dataclass(frozen=True, eq=False, repr=False)
class CausalLMAdapter(ModelAdapter):
    """A language model with its tokenizer; `max_new_tokens`: how many tokens it generates after a text."""

    model: Any
    tokenizer: Tokenizer
    name: str = "language model"
    description: str = ""
    max_new_tokens: int = 0

    @property
    def kind(self) -> Kind:
        return "continues"

    @property
    def max_length(self) -> int | None:
        return getattr(self.model, "max_positions", None)

    def prepare(self, text: str, other: str | None = None, prefix: Sequence[int] | None = None) -> ForwardPass:
        if other is not None:
            raise SettingError("A language model reads one text, but two were given", where="look")
        encoding = self.tokenizer.encode(text)
        given = list(encoding.ids) or [self.tokenizer.special.need("end")]
        new = self._continuation(given, check_prefix(prefix or (), len(self.tokenizer)))
        ids = given + new
        axis = TokenRow("text")
        if encoding.ids:
            axis.add_text(text, encoding.pieces, encoding.offsets, encoding.words)
        else:
            axis.add_special(self.tokenizer.token(given[0]))
        axis.add_words([self.label(token) for token in new])

        def forward() -> ModelOutput:
            logs = _next_token_log_probs(self.model(torch.tensor([ids], device=self.device)))[0]
            after = torch.tensor(ids[1:], device=self.device).unsqueeze(-1)
            target = logs[:-1].gather(1, after)[max(0, len(given) - 1) if new else 0 :].sum()
            if not new:
                return ModelOutput((axis,), target, facts={"next": top_tokens(logs[-1], self.label)})
            positions = range(len(given), len(ids))
            predicted = PredictedTokens(logs[len(given) - 1 : len(ids) - 1], new, positions, self.label)
            return ModelOutput((axis,), target, predicted)

        return ForwardPass(len(ids), forward)

    @property
    def decision(self) -> Decision:
        return "next word"

    def make_cases(self, example: Example, number: int, rng: Random) -> list[Case]:
        if not isinstance(example, str):
            raise SettingError(f"a {type(example).__name__}", "a text, for a language model", where="audit")
        encoding, max_length = self.tokenizer.encode(example), self.max_length
        ids = tuple(encoding.ids[: None if max_length is None else max_length + 1])
        return EncodedText(InputRow(ids, (True,) * len(ids)), tuple(encoding.pieces)).next_token_case(number, rng)

    def log_probs(self, rows: Sequence[InputRow]) -> Tensor:
        ids, lengths = self._pad(rows)
        with restrict_to_positions(find_output_layer(self.model), lengths - 1):
            logs = _next_token_log_probs(self.model(ids))
        return gather_positions(logs, lengths - 1)

    def input_ids(self, rows: Sequence[InputRow]) -> Tensor:
        return self._pad(rows)[0]

    def readout_position(self, place: str, rows: Sequence[InputRow]) -> list[int]:
        return [len(row.ids) - 1 for row in rows]

    def label(self, number: int) -> str:
        return self.tokenizer.decode([number]) or self.tokenizer.token(number)

    def _pad(self, rows: Sequence[InputRow]) -> tuple[Tensor, Tensor]:
        return pad_ids([row.ids for row in rows], 0, self.device)  # no token attends to the padding on its right

    def _continuation(self, given: list[int], prefix: list[int]) -> list[int]:
        """The tokens generated after the given ones, of which the first are the prefix."""
        count, max_length = max(self.max_new_tokens, len(prefix)), self.max_length
        if max_length is not None and len(given) + count > max_length:
            if len(given) > max_length:
                expected = f"at most {max_length}, the maximum length of this model"
                raise SettingError(f"a text of {len(given)} tokens", expected, where="look")
            count = max_length - len(given)
        if not count:
            return []
        begun = torch.tensor([given], device=self.device)
        state = self.model.start(begun[:, :-1], torch.tensor([len(given) - 1], device=self.device))
        end = self.tokenizer.special.end
        return generate_greedy(self.model, state, begun[:, -1], prefix[:count], end, count)


def _next_token_log_probs(output: Any) -> Tensor:
    """ln p (B, T, V) of the token after each token."""
    if isinstance(output, Tensor):
        return Logits(output).log_probs()
    found: Tensor = output[0].log_probs()
    return found
