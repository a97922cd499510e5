"""The adapter of any other torch module of token ids (B, T) or of tensors by name, captured where it calls torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.adapters.base import ForwardPass, ModelAdapter, ModelOutput
from regard.adapters.tensor_inputs import describe_inputs, expect_row, longest_input, possible_rows
from regard.adapters.token_row import TokenRow
from regard.errors import SettingError
from regard.text import Tokenizer


@dataclass(frozen=True, eq=False, repr=False)
class TorchAdapter(ModelAdapter):
    """A module called with ids (1, T); the tokenizer is one of ours, or any object with encode(text) -> ids and
    decode(ids) -> text."""

    model: nn.Module
    tokenizer: Any
    name: str = "model"
    description: str = ""

    def prepare(self, text: str, other: str | None = None, prefix: Sequence[int] | None = None) -> ForwardPass:
        if other is not None or prefix is not None:
            problem = f"A {type(self.model).__name__} takes one text, without a second one or a prefix"
            raise SettingError(problem, where="look", advice="regard knows no more of a model of this class.")
        axis, ids = self._encode(text)

        def forward() -> ModelOutput:
            self.model(torch.tensor([ids], device=self.device))
            return ModelOutput((axis,))

        return ForwardPass(len(ids), forward)

    def prepare_tensors(self, inputs: Mapping[str, Tensor], row: int = 0) -> ForwardPass:
        rows = possible_rows(inputs)
        expect_row(row, max(rows))

        def forward() -> ModelOutput:
            self.model(**inputs)
            return ModelOutput((), facts={"inputs": describe_inputs(inputs)}, rows=rows)

        return ForwardPass(longest_input(inputs), forward)

    def _encode(self, text: str) -> tuple[TokenRow, list[int]]:
        if isinstance(self.tokenizer, Tokenizer):
            one = self.tokenizer.encode(text)
            return TokenRow("text").add_text(text, one.pieces, one.offsets, one.words), list(one.ids)
        if self.tokenizer is None:
            raise SettingError("This model has no tokenizer", where="look", advice="Pass tokenizer=.")
        if not hasattr(self.tokenizer, "encode") or not hasattr(self.tokenizer, "decode"):
            came = f"a tokenizer of type {type(self.tokenizer).__name__}"
            raise SettingError(came, "an object with encode(text) and decode(ids)", where="look")
        ids = [int(number) for number in self.tokenizer.encode(text)]
        return TokenRow("text").add_words([self.tokenizer.decode([number]) for number in ids]), ids
