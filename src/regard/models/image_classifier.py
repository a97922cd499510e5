"""Image classification: a vision Transformer (ViT) or a convolutional grid, pooled to one vector, and a linear layer.

    logits = W pool(encoder(pixels)) + b

Pooling is the state of the class token (Dosovitskiy et al. 2021), the mean of the patches, or attention pooling with a
learned query, whose weights say which patches decided.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from torch import Tensor, nn

from regard.attention import AttentionPooling
from regard.models.image_encoders import ImageStates

ImagePooling = Literal["cls", "mean", "attention"]


class ImageClassifier(nn.Module):
    """An image encoder, pooling, and a linear layer.

    ImageClassifier(PatchEncoder(64, 8, 96, blocks, registers=4), classes=6)

    `pooling` "cls": the vector that the encoder has for the whole picture, of a ConvEncoder its mean.
    """

    def __init__(self, encoder: nn.Module, classes: int, pooling: ImagePooling = "cls", dropout: float = 0.0) -> None:
        super().__init__()
        self.encoder = encoder
        width = cast(Any, encoder).width
        self.mean = pooling == "mean"
        self.pooling = AttentionPooling(width) if pooling == "attention" else None
        self.dropout = nn.Dropout(dropout)
        self.classes = nn.Linear(width, classes)

    def forward(self, pixels: Tensor) -> Tensor:
        """pixels (B, H, W, 3): logits (B, C)."""
        rows = len(pixels)
        if not rows:  # a rank without rows runs a dummy row, so that all parameters take part
            pixels = pixels.new_zeros(1, *pixels.shape[1:])
        logits: Tensor = self.classes(self.dropout(self._pooled(self.encoder(pixels))))
        return logits[:rows]

    def _pooled(self, encoded: ImageStates) -> Tensor:
        if self.pooling is not None:
            return cast(Tensor, self.pooling(encoded.states))
        return encoded.states.mean(1) if self.mean else encoded.summary
