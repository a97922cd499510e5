"""The Transformer encoder: layers of self-attention; BERT is one, the Transformer has one before its decoder."""

from __future__ import annotations

from torch import Tensor, nn

from regard.attention.masks import Padding
from regard.models.blocks import InputEmbedding


class Encoder(nn.Module):
    """Input embedding, self-attention blocks, and a final norm (of pre-norm blocks).

    Encoder(InputEmbedding(8000, 512, Sinusoidal(512)), encoder_blocks(6, 512, 8, 2048, BlockConfig()))
    """

    def __init__(self, embedding: InputEmbedding, blocks: nn.ModuleList, final_norm: nn.Module | None = None) -> None:
        super().__init__()
        self.embedding, self.blocks = embedding, blocks
        self.final_norm = nn.Identity() if final_norm is None else final_norm

    def forward(self, ids: Tensor, lengths: Tensor | None, segments: Tensor | None = None) -> Tensor:
        """ids (B, T), of which the first `lengths` (B,) of each row are real (None: all): the last states (B, T, D)."""
        return self.layers(ids, lengths, segments)[-1]

    def layers(self, ids: Tensor, lengths: Tensor | None, segments: Tensor | None = None) -> list[Tensor]:
        """The states of every layer (B, T, D): layers + 1, the embeddings first, the last one after the final norm."""
        mask = None if lengths is None else Padding(lengths)
        states = [self.embedding(ids, segments=segments)]
        for block in self.blocks:
            states.append(block(states[-1], mask=mask))
        return [*states[:-1], self.final_norm(states[-1])]
