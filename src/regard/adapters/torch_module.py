"""Any other torch module that takes token ids (B, T), captured through torch's own attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.adapters.base import ModelAdapter, Output, Pass
from regard.adapters.tokens import TokenRow
from regard.errors import SettingError
from regard.text import Tokenizer


@dataclass(frozen=True, eq=False)
class TorchAdapter(ModelAdapter):
    """A module called with ids (1, T); the tokenizer is ours, or anything with encode(text) -> ids and
    decode(ids) -> text."""

    model: nn.Module
    tokenizer: Any
    name: str = "model"
    description: str = ""

    def prepare(self, text: str, other: str | None = None, prefix: Sequence[int] | None = None) -> Pass:
        if other is not None or prefix is not None:
            raise SettingError(
                "a second text or a prefix", "one text: nobody knows how this model takes two", where="look"
            )
        axis, ids = self._read(text)

        def forward() -> Output:
            self.model(torch.tensor([ids], device=self.device))
            return Output((axis,))

        return Pass(len(ids), forward)

    def _read(self, text: str) -> tuple[TokenRow, list[int]]:
        if isinstance(self.tokenizer, Tokenizer):
            one = self.tokenizer.encode(text)
            return TokenRow("text").part(text, one.pieces, one.offsets, one.words), list(one.ids)
        if not hasattr(self.tokenizer, "encode") or not hasattr(self.tokenizer, "decode"):
            raise SettingError(
                "no tokenizer" if self.tokenizer is None else f"a {type(self.tokenizer).__name__}",
                "something with encode(text) and decode(ids)",
                where="look",
                advice="Pass tokenizer=.",
            )
        ids = [int(number) for number in self.tokenizer.encode(text)]
        return TokenRow("text").written([self.tokenizer.decode([number]) for number in ids]), ids
