"""Any other model that takes token ids (B, T), heard through torch's own attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from regard.errors import SettingError
from regard.inspection.record.record import Record
from regard.inspection.subjects.gathering import gathered, listened
from regard.inspection.subjects.rows import Row
from regard.inspection.subjects.subject import ALL, Wanted
from regard.text.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class Foreign:
    """A model of somebody else's, called with ids (1, T); the tokenizer is ours, or anything with encode(text) -> ids
    and decode(ids) -> text."""

    model: nn.Module
    tokenizer: Any
    name: str = "model"
    description: str = ""
    kind: Literal["reads"] = "reads"

    def look(
        self, text: str, other: str | None = None, *, prefix: Sequence[int] | None = None, wanted: Wanted = ALL
    ) -> Record:
        """The attention of every token."""
        if other is not None or prefix is not None:
            raise SettingError(
                "a second text or a prefix", "one text: nobody knows how this model takes two", where="look"
            )
        row, ids = self._read(text)
        device = next((one.device for one in self.model.parameters()), torch.device("cpu"))
        with listened(self.model, wanted, len(ids)) as heard:
            self.model(torch.tensor([ids], device=device))
            heard.explain(None)
        sides = (row.side(),)
        places = gathered(self.model, heard, wanted, sides, lambda place: (0, 0, "self"))
        return Record(sides, places, {"model": self.name, "kind": self.kind})

    def _read(self, text: str) -> tuple[Row, list[int]]:
        if isinstance(self.tokenizer, Tokenizer):
            one = self.tokenizer.encode(text)
            return Row("text").part(text, one.pieces, one.offsets, one.words), list(one.ids)
        if not hasattr(self.tokenizer, "encode") or not hasattr(self.tokenizer, "decode"):
            raise SettingError(
                "no tokenizer" if self.tokenizer is None else f"a {type(self.tokenizer).__name__}",
                "something with encode(text) and decode(ids)",
                where="look",
                advice="Pass tokenizer=.",
            )
        ids = [int(number) for number in self.tokenizer.encode(text)]
        return Row("text").written([self.tokenizer.decode([number]) for number in ids]), ids
