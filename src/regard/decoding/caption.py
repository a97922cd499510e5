"""Captions of pictures by a trained captioner: greedy, sampled or by beam, with what each word attended to.

captioner = Captioner(model, tokenizer)
[[best, ...], ...] = captioner([read_image("photo.jpg")], Beam(3))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.decoding.greedy import Greedy
from regard.decoding.search import Rules, Search
from regard.pictures import Fit, resize_image
from regard.text import Tokenizer

MAX_CAPTION = 64  # tokens of a caption, unless the rules say otherwise


@dataclass(frozen=True, eq=False)
class Captioned:
    """One caption of a picture: `tokens` without the end; `log_probs` of each, and of the end if it is `finished`;
    `weights` (T, rows, cols): the attention of each step to each patch of the picture, as it was fitted."""

    text: str
    score: float
    tokens: list[int]
    log_probs: list[float]
    finished: bool = True
    weights: Tensor | None = None


@dataclass(frozen=True)
class Captioner:
    """A trained captioner with its tokenizer. `fit`: how pictures become squares; `rows`: pictures of a batch."""

    model: Any  # a Stepper with an ImageEncoder
    tokenizer: Tokenizer
    fit: Fit = "crop"
    rows: int = 32

    @torch.no_grad()
    def __call__(
        self,
        pictures: Sequence[np.ndarray],
        search: Search | None = None,
        rules: Rules | None = None,
        attention: bool = False,
    ) -> list[list[Captioned]]:
        """The captions of each picture, uint8 (H, W, 3) of any size, best first; greedy by default."""
        search, rules, found = search or Greedy(), rules or self.rules(), list[list[Captioned]]()
        for begin in range(0, len(pictures), self.rows):
            numbers = range(begin, min(begin + self.rows, len(pictures)))
            pixels = self.pixels([pictures[number] for number in numbers])
            first = torch.full((len(pixels),), self.tokenizer.special.need("start"), device=pixels.device)
            written = search(self.model, self.model.start(pixels), first, rules.select(numbers), attention)
            found += [[self._captioned(one) for one in best] for best in written]
        return found

    def rules(self, max_length: int = MAX_CAPTION, min_length: int = 0, **more: Any) -> Rules:
        """Rules for this vocabulary."""
        return Rules(self.tokenizer.special.need("end"), max_length, min_length, **more)

    def pixels(self, pictures: Sequence[np.ndarray]) -> Tensor:
        """Pictures as the model takes them: (B, size, size, 3) uint8, on its device."""
        device = next(iter(self.model.parameters())).device
        return fit_pictures(pictures, self.model.encoder.size, self.fit).to(device)

    def _captioned(self, one: Any) -> Captioned:
        encoder, weights = self.model.encoder, one.weights
        grid = None if weights is None else weights.unflatten(-1, (encoder.rows, encoder.cols))
        text = self.tokenizer.decode(one.tokens)
        return Captioned(text, one.score, one.tokens, one.log_probs, one.finished, grid)


def fit_pictures(pictures: Sequence[np.ndarray], size: int, fit: Fit = "crop") -> Tensor:
    """Pictures of any size as squares, (B, size, size, 3) uint8."""
    squares = [resize_image(one, size, fit) if one.shape != (size, size, 3) else one for one in pictures]
    return torch.from_numpy(np.stack(squares)) if squares else torch.zeros(0, size, size, 3, dtype=torch.uint8)
