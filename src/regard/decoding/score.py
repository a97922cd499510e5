"""Teacher forcing: the log-probability of each token of a given text, and the attention of each step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.decoding.search import Stepper
from regard.errors import ShapeError


@torch.no_grad()
def teacher_force(
    model: Stepper[Any], state: Any, first: Tensor, tokens: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Teacher forcing: ln p of tokens (B, T), of which the first `lengths` (B,) are real, and weights (B, T, S) | None.

    log_probs, weights = forced(model, model.start(source, source_lengths), first, target, target_lengths)

    Both are 0 beyond the length of a row. `first` (B,): the tokens to step with first; an end counts as a token.
    """
    rows, count = tokens.shape
    real = torch.arange(count, device=tokens.device) < lengths.unsqueeze(1)  # (B, T)
    tokens = tokens.where(real, first.unsqueeze(1))  # a valid token where there is padding
    found, attention = [], []
    for step in range(count):
        log_probs, weights, state = model.step(state, first if step == 0 else tokens[:, step - 1])
        if step == 0:
            _expect_inside(tokens[real], log_probs.size(1))
        places = tokens[:, step : step + 1].clamp(max=log_probs.size(1) - 1)
        found.append(log_probs.gather(1, places).squeeze(1).masked_fill(~real[:, step], 0.0))
        if weights is not None:
            attention.append(weights.masked_fill(~real[:, step, None], 0.0))
    if not found:
        return torch.zeros(rows, 0, device=tokens.device), None
    width = max((weights.size(1) for weights in attention), default=0)  # a language model's grow with the text
    pages = [pad(weights, (0, width - weights.size(1))) for weights in attention]
    return torch.stack(found, 1), torch.stack(pages, 1) if pages else None


def _expect_inside(tokens: Tensor, width: int) -> None:
    if tokens.numel() and (int(tokens.min()) < 0 or int(tokens.max()) >= width):
        raise ShapeError(
            f"tokens from {int(tokens.min())} to {int(tokens.max())}",
            f"0 to {width - 1}, the tokens of the model",
            where="teacher_force",
        )
