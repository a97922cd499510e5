"""The neural cache (Grave et al. 2017): a trained model copies what followed similar states; nothing is trained.

p(w) = (1 - share) p_model(w) + share sum_{i<t} softmax_i(flatness h_t.h_i) [x_{i+1} = w]

The keys are the model's own vectors at the last `size` positions, the values the words that came after them. (The KV
cache of incremental decoding is attention/kv_cache.py.)
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
from regard.models.cross_entropy import Logits, Mixture, Prediction
from regard.models.rnn import Carry
from regard.models.rnn_lm import LMOutput
from regard.models.state_memory import NO_TOKEN, StateMemory, document_ids


class CacheableLM(Protocol):
    """What a neural cache needs of a model: WindowLM, RecurrentLM and AttentiveLM have it."""

    def predict(self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None) -> LMOutput: ...


@dataclass(frozen=True)
class NeuralCacheState:
    """The state of generation: the carry, the document number (B,) of each row, the token that starts another document,
    and the width of the distributions.
    """

    carry: Carry
    document: Tensor
    end: int | None
    width: int


class NeuralCache(nn.Module):
    """A language model with a neural cache around it; its prediction is a Mixture.

    NeuralCache(model, size=500, flatness=0.3, share=0.2)        # choose the settings on held-out text

    With `documents` it attends to cached states of the same document alone.
    """

    copies = True

    def __init__(self, model: nn.Module, size: int, flatness: float = 1.0, share: float = 0.1) -> None:
        super().__init__()
        if size < 1:
            raise SettingError(f"size={size}", "at least 1 position", where="NeuralCache")
        if not 0 <= share < 1:
            raise SettingError(f"share={share}", "a share of at least 0 and below 1", where="NeuralCache")
        self.model, self.size, self.share = model, size, share
        self.score = ScaledDot(flatness)
        self.cached = Tap()

    def forward(
        self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None
    ) -> tuple[Prediction, dict[str, Tensor]]:
        """inputs (B, T): the prediction of the token after each, and the carry for the tokens after these."""
        inner = None if carry is None else _model_carry(carry)
        output = cast(CacheableLM, self.model).predict(inputs, documents, inner)
        current = StateMemory.of(output.hidden, inputs, documents)
        keys = current if carry is None else StateMemory.from_carry(carry).append(current)
        mask: Mask = Window(self.size, -1)
        if carry is not None or documents is not None:
            mask = mask & keys.mask(documents, inputs.size(1))
        nexts = pad(keys.tokens[:, 1:], (0, 1), value=NO_TOKEN)  # the last position has no successor yet, and is masked
        observe = Observe(weights=True)
        got = self.cached(output.hidden, keys.states, score=self.score, mask=mask, observe=observe)
        prediction = self._mixture(output.prediction, got, nexts)
        after = {f"{_INNER}{name}": one for name, one in output.carry.items()}
        return prediction, after | keys.last(self.size).carry

    def start(self, inputs: Tensor, lengths: Tensor, end: int | None = None) -> NeuralCacheState:
        """Token by token, so that each row stops at its own length.

        `end`: the token that starts another document in the same row, which does not see those before it.
        """
        documents, document = document_ids(inputs, end), torch.zeros_like(lengths)
        _, carry = self(inputs[:, :0], documents[:, :0])
        for position in range(inputs.size(1)):
            column = slice(position, position + 1)
            _, after = self(inputs[:, column], documents[:, column], carry)
            active = position < lengths  # (B,)
            carry = {name: torch.where(_broadcast_rows(active, one), one, carry[name]) for name, one in after.items()}
            document = torch.where(active, documents[:, position], document)
        real = torch.arange(inputs.size(1), device=lengths.device) < lengths.unsqueeze(-1)
        return NeuralCacheState(carry, document, end, self._width(0, inputs.where(real, NO_TOKEN)))

    def step(self, state: NeuralCacheState, tokens: Tensor) -> tuple[Tensor, None, NeuralCacheState]:
        document = state.document if state.end is None else state.document + (tokens == state.end)
        prediction, carry = self(tokens.unsqueeze(-1), document.unsqueeze(-1), state.carry)
        width, log_probs = self._width(state.width, tokens), prediction.log_probs().squeeze(1)
        wider = pad(log_probs, (0, max(0, width - log_probs.size(-1))), value=-torch.inf)
        return wider, None, NeuralCacheState(carry, document, state.end, width)

    def reorder(self, state: NeuralCacheState, rows: Tensor) -> NeuralCacheState:
        carry = {name: one.index_select(0, rows) for name, one in state.carry.items()}
        return replace(state, carry=carry, document=state.document.index_select(0, rows))

    def _mixture(self, prediction: Prediction, got: Attended, nexts: Tensor) -> Mixture:
        assert got.weights is not None
        share = torch.full_like(got.lse, self.share).masked_fill(got.lse == -torch.inf, 0.0)  # the cache is empty
        copied = got.weights * share.unsqueeze(-1)
        if not isinstance(prediction, Mixture):
            return Mixture(cast(Logits, prediction).logits, 1 - share, copied, nexts)
        copied = torch.cat((prediction.weights() * (1 - share).unsqueeze(-1), copied), -1)
        return Mixture(
            prediction.logits, prediction.p_gen * (1 - share), copied, torch.cat((prediction.copy_tokens, nexts), -1)
        )

    def _width(self, width: int, tokens: Tensor) -> int:
        """The width of a distribution that covers these tokens."""
        return max(width, int(tokens.max()) + 1) if tokens.numel() else width


_INNER = "model."


def _model_carry(carry: Carry) -> dict[str, Tensor]:
    """The part of the carry that belongs to the wrapped model."""
    return {name.removeprefix(_INNER): one for name, one in carry.items() if name.startswith(_INNER)}


def _broadcast_rows(rows: Tensor, tensor: Tensor) -> Tensor:
    """rows (B,) with as many dimensions as a tensor (B, ...)."""
    return rows.view(-1, *[1] * (tensor.dim() - 1))
