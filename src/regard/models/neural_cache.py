"""A neural cache (Grave et al. 2017): a trained model remembers what followed on states like this one, untrained.

p(w) = (1 - share) p_model(w) + share sum_{i<t} softmax_i(flatness h_t.h_i) [x_{i+1} = w]

The keys are the model's own vectors of the last `size` places, the values are the words that came after them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.attention import Attended, Observe, Tap
from regard.attention.masks import Mask, Window
from regard.attention.scores import ScaledDot
from regard.errors import SettingError
from regard.models.predictions import Logits, Mixture, Prediction
from regard.models.rnn import Carry
from regard.models.rnn_lm import Reading
from regard.models.state_memory import NO_TOKEN, Seen, texts_of


class Readable(Protocol):
    """What a cache needs of a model: WindowLM, RecurrentLM and AttentiveLM have it."""

    def read(self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None) -> Reading: ...


@dataclass(frozen=True)
class Cached:
    """Where rows stand that are written step by step: what they carry, the number of the text (B,) that each is in, the
    token that opens another one, and the width of the distributions.
    """

    carry: Carry
    text: Tensor
    end: int | None
    width: int


class NeuralCache(nn.Module):
    """Any of the language models with a cache around it; what it says is a Mixture.

    NeuralCache(model, size=500, flatness=0.3, share=0.2)        # the settings are tried out on held-out text

    With `documents` it looks at what was cached in the same text alone.
    """

    copies = True

    def __init__(self, model: nn.Module, size: int, flatness: float = 1.0, share: float = 0.1) -> None:
        super().__init__()
        if size < 1:
            raise SettingError(f"size={size}", "at least 1 place", where="NeuralCache")
        if not 0 <= share < 1:
            raise SettingError(f"share={share}", "a share of at least 0 and below 1", where="NeuralCache")
        self.model, self.size, self.share = model, size, share
        self.score = ScaledDot(flatness)
        self.cached = Tap()

    def forward(
        self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None
    ) -> tuple[Prediction, dict[str, Tensor]]:
        """inputs (B, T): what comes after each, and what to hand in with the tokens after these."""
        inner = None if carry is None else _inner(carry)
        reading = cast(Readable, self.model).read(inputs, documents, inner)
        here = Seen.of(reading.hidden, inputs, documents)
        keys = here if carry is None else Seen.carried(carry).then(here)
        mask: Mask = Window(self.size, -1)
        if carry is not None or documents is not None:
            mask = mask & keys.mask(documents, inputs.size(1))
        nexts = pad(keys.tokens[:, 1:], (0, 1), value=NO_TOKEN)  # the last place has no successor yet; nobody sees it
        observe = Observe(weights=True)
        got = self.cached(reading.hidden, keys.states, score=self.score, mask=mask, observe=observe)
        prediction = self._mixed(reading.prediction, got, nexts)
        after = {f"{_INNER}{name}": one for name, one in reading.carry.items()}
        return prediction, after | keys.last(self.size).carry

    def start(self, inputs: Tensor, lengths: Tensor, end: int | None = None) -> Cached:
        """Token by token, so that each row stays where its own text ends.

        `end`: the token that opens another text in the same row, which does not see those before it.
        """
        texts, text = texts_of(inputs, end), torch.zeros_like(lengths)
        _, carry = self(inputs[:, :0], texts[:, :0])
        for place in range(inputs.size(1)):
            here = slice(place, place + 1)
            _, read = self(inputs[:, here], texts[:, here], carry)
            going = place < lengths  # (B,)
            carry = {name: torch.where(_beside(going, one), one, carry[name]) for name, one in read.items()}
            text = torch.where(going, texts[:, place], text)
        real = torch.arange(inputs.size(1), device=lengths.device) < lengths.unsqueeze(-1)
        return Cached(carry, text, end, self._wide(0, inputs.where(real, NO_TOKEN)))

    def step(self, state: Cached, tokens: Tensor) -> tuple[Tensor, None, Cached]:
        text = state.text if state.end is None else state.text + (tokens == state.end)
        prediction, carry = self(tokens.unsqueeze(-1), text.unsqueeze(-1), state.carry)
        width, log_probs = self._wide(state.width, tokens), prediction.log_probs().squeeze(1)
        wider = pad(log_probs, (0, max(0, width - log_probs.size(-1))), value=-torch.inf)
        return wider, None, Cached(carry, text, state.end, width)

    def reorder(self, state: Cached, rows: Tensor) -> Cached:
        carry = {name: one.index_select(0, rows) for name, one in state.carry.items()}
        return replace(state, carry=carry, text=state.text.index_select(0, rows))

    def _mixed(self, prediction: Prediction, got: Attended, nexts: Tensor) -> Mixture:
        assert got.weights is not None
        share = torch.full_like(got.lse, self.share).masked_fill(got.lse == -torch.inf, 0.0)  # nothing is cached yet
        copied = got.weights * share.unsqueeze(-1)
        if not isinstance(prediction, Mixture):
            return Mixture(cast(Logits, prediction).logits, 1 - share, copied, nexts)
        copied = torch.cat((prediction.weights() * (1 - share).unsqueeze(-1), copied), -1)
        return Mixture(
            prediction.logits, prediction.share * (1 - share), copied, torch.cat((prediction.seen, nexts), -1)
        )

    def _wide(self, width: int, tokens: Tensor) -> int:
        """How many columns a distribution needs after these tokens."""
        return max(width, int(tokens.max()) + 1) if tokens.numel() else width


_INNER = "model."


def _inner(carry: Carry) -> dict[str, Tensor]:
    """What belongs to the model inside."""
    return {name.removeprefix(_INNER): one for name, one in carry.items() if name.startswith(_INNER)}


def _beside(rows: Tensor, tensor: Tensor) -> Tensor:
    """rows (B,) with as many dimensions as a tensor (B, ...)."""
    return rows.view(-1, *[1] * (tensor.dim() - 1))
