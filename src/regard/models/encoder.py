"""Tokens that look at one another, layer upon layer: the half that reads, alone in BERT, before a decoder elsewhere."""

from __future__ import annotations

from torch import Tensor, nn

from regard.attention.masks import Padding
from regard.models.blocks import Embedded


class Encoder(nn.Module):
    """Embedded tokens, blocks, and what comes after the last of them.

    Encoder(Embedded(8000, 512, Sinusoidal(512)), readers(6, 512, 8, 2048, Style()))
    """

    def __init__(self, embedded: Embedded, blocks: nn.ModuleList, last: nn.Module | None = None) -> None:
        super().__init__()
        self.embedded, self.blocks = embedded, blocks
        self.last = nn.Identity() if last is None else last

    def forward(self, ids: Tensor, lengths: Tensor | None, segments: Tensor | None = None) -> Tensor:
        """ids (B, T), of which the first `lengths` (B,) of each row are real, None: all: the last states (B, T, D)."""
        return self.layers(ids, lengths, segments)[-1]

    def layers(self, ids: Tensor, lengths: Tensor | None, segments: Tensor | None = None) -> list[Tensor]:
        """The states of every layer, what was embedded first, the last one after its norm: layers + 1 of (B, T, D)."""
        mask = None if lengths is None else Padding(lengths)
        states = [self.embedded(ids, segments=segments)]
        for block in self.blocks:
            states.append(block(states[-1], mask=mask))
        return [*states[:-1], self.last(states[-1])]
