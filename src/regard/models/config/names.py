"""Attention scores and cells by their names in recipes; in a module of its own since three configurations share it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from regard.attention import scores

ScoreName = Literal["scaled-dot", "dot", "bilinear", "additive", "cosine"]
SCORES: dict[str, Callable[[int], scores.Score]] = {
    "scaled-dot": lambda width: scores.ScaledDot(),
    "dot": lambda width: scores.Dot(),
    "bilinear": scores.Bilinear,
    "additive": lambda width: scores.Additive(width, width),
    "cosine": lambda width: scores.Cosine(),
}

CellName = Literal["rnn", "gru", "lstm"]
NormName = Literal["layer", "rms"]
