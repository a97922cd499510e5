"""Configuration of the text classifier with attention pooling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from regard.errors import SettingError
from regard.models.config.names import SCORES, ScoreName
from regard.models.pooling import Alone, BothWays, PoolingClassifier

StatesName = Literal["words", "alone", "both-ways"]


@dataclass(frozen=True, kw_only=True)
class PoolingClassifierConfig:
    """Attention pooling with one learned query over the words themselves, over each through a layer ("alone"), or over
    the states of a bidirectional RNN.

    `states_width`: where states are not as wide as words. `spread`: the scale of fresh embeddings.
    """

    vocabulary: int
    classes: int
    width: int = 64
    states: StatesName = "both-ways"
    states_width: int | None = None
    cell: Literal["gru", "lstm"] = "gru"
    score: ScoreName = "scaled-dot"
    dropout: float = 0.1
    spread: float = 1.0

    def build(self) -> PoolingClassifier:
        states = self._states()
        score = SCORES[self.score](self.width if states is None else states.width)
        model = PoolingClassifier(self.vocabulary, self.classes, self.width, score, self.dropout, states)
        with torch.no_grad():
            model.embedding.weight.mul_(self.spread)
        return model

    def _states(self) -> BothWays | Alone | None:
        match self.states:
            case "both-ways":
                return BothWays(self.width, self.states_width, self.cell)
            case "alone":
                return Alone(self.width, self.states_width)
            case "words":
                if self.states_width not in (None, self.width):
                    came = f"states_width={self.states_width} with states that are the words"
                    raise SettingError(came, f"their width, {self.width}", where="model.states_width")
                return None
