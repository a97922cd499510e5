"""Phrase grounding: a phrase points at the region of a picture to which it refers; the attention is the prediction.

    x = blocks(phrase, patches);   ln p = ln softmax(W x_[CLS] . patches / sqrt(D))

The words of the phrase attend to each other and to the patches (cross-attention) in a few blocks, so that "the circle
left of the blue square" can first find the square; then the state of [CLS] points, by one attention at the place
"pointer" whose weights are trained as a distribution over the patches.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.attention import Observe, Tap
from regard.attention.masks import Padding
from regard.models.blocks import InputEmbedding


class PhrasePointer(nn.Module):
    """An image encoder, an embedding of phrases, blocks of self-attention and cross-attention, and the pointer.

    PhrasePointer(ConvEncoder(64, 4, 64), InputEmbedding(40, 64, Sinusoidal(64)), decoder_blocks(2, 64, 4, 128, LLAMA))
    """

    def __init__(
        self, encoder: nn.Module, embedding: InputEmbedding, blocks: nn.ModuleList, final_norm: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.encoder, self.embedding, self.blocks = encoder, embedding, blocks
        self.final_norm = nn.Identity() if final_norm is None else final_norm
        width = cast(Any, encoder).width
        self.query = nn.Linear(embedding.tokens.embedding_dim, width)
        self.pointer = Tap()

    def forward(self, pixels: Tensor, phrases: Tensor, lengths: Tensor) -> Tensor:
        """pixels (B, H, W, 3), phrases (B, T) of which `lengths` (B,) are real: ln weight of each patch, (B, S)."""
        rows = len(pixels)
        if not rows:
            pixels = pixels.new_zeros(1, *pixels.shape[1:])
            phrases, lengths = phrases.new_zeros(1, 1), lengths.new_ones(1)
        patches = self.encoder(pixels).states
        x = self.embedding(phrases)
        for block in self.blocks:
            x = block(x, patches, mask=Padding(lengths))
        query = self.query(self.final_norm(x)[:, :1])
        got = self.pointer(query, patches, observe=Observe(weights=True))
        weights = got.weights.squeeze(1)[:rows]
        # the smallest normal number keeps the logarithm of a weight that rounds to zero finite
        return weights.clamp(min=torch.finfo(weights.dtype).tiny).log()
