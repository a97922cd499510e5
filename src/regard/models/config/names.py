"""Attention scores, normalisers and cells by their names in recipes; in a module of its own, for all configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

from regard.attention import scores
from regard.attention.normalise import Entmax, Normaliser, Sink, Sparsemax

ScoreName = Literal["scaled-dot", "dot", "bilinear", "additive", "cosine"]
SCORES: dict[str, Callable[[int], scores.Score]] = {
    "scaled-dot": lambda width: scores.ScaledDot(),
    "dot": lambda width: scores.Dot(),
    "bilinear": scores.Bilinear,
    "additive": lambda width: scores.Additive(width, width),
    "cosine": lambda width: scores.Cosine(),
}

NormaliserName = Literal["softmax", "sink", "sparsemax", "entmax"]
NORMALISERS: dict[str, Callable[[int], Normaliser | None]] = {
    "softmax": lambda heads: None,
    "sink": lambda heads: Sink(torch.zeros(heads)),
    "sparsemax": lambda heads: Sparsemax(),
    "entmax": lambda heads: Entmax(1.5),
}

CellName = Literal["rnn", "gru", "lstm"]
NormName = Literal["layer", "rms"]
