"""Configuration of the text classifier with attention pooling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from regard.errors import SettingError
from regard.models.config.names import SCORES, ScoreName
from regard.models.pooling import BiRNN, PoolingClassifier, Positionwise

PoolingEncoderName = Literal["none", "position-wise", "birnn"]


@dataclass(frozen=True, kw_only=True)
class PoolingClassifierConfig:
    """Attention pooling with one learned query over word embeddings ("none"), over a position-wise layer, or over the
    states of a bidirectional RNN.

    `encoder_dim`: where states are not as wide as embeddings. `embedding_std`: of fresh embeddings.
    """

    vocabulary: int
    classes: int
    width: int = 64
    encoder: PoolingEncoderName = "birnn"
    encoder_dim: int | None = None
    cell: Literal["gru", "lstm"] = "gru"
    score: ScoreName = "scaled-dot"
    dropout: float = 0.1
    embedding_std: float = 1.0

    def build(self) -> PoolingClassifier:
        encoder = self._encoder()
        score = SCORES[self.score](self.width if encoder is None else encoder.width)
        model = PoolingClassifier(self.vocabulary, self.classes, self.width, score, self.dropout, encoder)
        with torch.no_grad():
            model.embedding.weight.mul_(self.embedding_std)
        return model

    def _encoder(self) -> BiRNN | Positionwise | None:
        match self.encoder:
            case "birnn":
                return BiRNN(self.width, self.encoder_dim, self.cell)
            case "position-wise":
                return Positionwise(self.width, self.encoder_dim)
            case "none":
                if self.encoder_dim not in (None, self.width):
                    given = f"encoder_dim={self.encoder_dim} without an encoder"
                    raise SettingError(given, f"the width of the embeddings, {self.width}", where="model.encoder_dim")
                return None
