"""BERT: every token looks at all the others, on both sides, layer upon layer, and the hidden ones are guessed.

Devlin et al. 2019. [CLS] a [SEP] b [SEP]: a token is the sum of what it is, where it stands and which text it is of.
What is learned from guessing hidden tokens, and whether b follows a, other tasks take over (models/bert_heads.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from regard.attention.layers import FeedForward
from regard.attention.positions import Learned, Sinusoidal
from regard.errors import SettingError
from regard.models.blocks import BERT, Embedded, Style, gelu, readers
from regard.models.chunked_cross_entropy import Say
from regard.models.encoder import Encoder

STD, BASE = 0.02, 768  # of fresh weights, as published for this width; of narrower ones they are larger


@dataclass(frozen=True)
class Size:
    """How many layers, how wide; heads are 64 wide and feed-forward layers 4 x width unless told."""

    layers: int
    width: int
    heads: int | None = None
    hidden: int | None = None


SIZES = {
    "tiny": Size(2, 128),
    "mini": Size(4, 256),
    "small": Size(4, 512),
    "medium": Size(8, 512),
    "base": Size(12, 768),
}
"""The published ones (Devlin et al. 2019, Turc et al. 2019)."""

FEEDS: dict[str, Callable[[int, int], nn.Module]] = {
    "gelu": gelu,
    "gelu_new": partial(gelu, approximate="tanh"),
    "relu": FeedForward,
}
"""Feed-forward layers by the activation that BERT's kin call so."""


class Bert(nn.Module):
    """An encoder, and one vector for a whole text: tanh(W state of [CLS] + b).

    Bert.of(8000, SIZES["tiny"], positions=128)
    Bert(Encoder(Embedded(8000, 128, Learned(128, 512), segments=2), readers(2, 128, 2, 512, BERT)))
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooler = nn.Linear(self.width, self.width)
        fresh(self, self.width)
        positions = encoder.embedded.positions
        if isinstance(positions, Learned):  # they begin as waves, so that neighbours are alike from the start
            table = positions.table.weight
            waves = Sinusoidal(self.width).table(torch.arange(len(table), device=table.device))
            table.data.copy_(2**0.5 * STD * waves)

    @classmethod
    def of(
        cls,
        vocabulary: int,
        size: Size,
        *,
        positions: int = 512,
        segments: int = 2,
        dropout: float = 0.1,
        style: Style = BERT,
    ) -> Bert:
        """As published, but that weights of attention are not dropped (style: replace(BERT, attention_dropout=0.1))."""
        width, heads = size.width, size.heads or max(1, size.width // 64)
        if size.layers < 1 or width < 1 or positions < 1:
            came = f"{size.layers} layers, a width of {width}, {positions} positions"
            raise SettingError(came, "at least 1 each", where="Bert")
        embedded = Embedded(
            vocabulary, width, Learned(width, positions), segments=segments, norm=style.norm(width), dropout=dropout
        )
        hidden = size.hidden or 4 * width
        return cls(Encoder(embedded, readers(size.layers, width, heads, hidden, replace(style, dropout=dropout))))

    @property
    def width(self) -> int:
        return self.words.size(1)

    @property
    def layers(self) -> int:
        return len(self.encoder.blocks)

    @property
    def longest(self) -> int | None:
        """How many tokens it can read; None: any number."""
        positions = self.encoder.embedded.positions
        return positions.table.num_embeddings if isinstance(positions, Learned) else None

    @property
    def words(self) -> Tensor:
        """(V, D): the vector of each token, which the vocabulary layer shares."""
        return self.encoder.embedded.tokens.weight

    def forward(self, ids: Tensor, lengths: Tensor | None, segments: Tensor | None = None) -> Tensor:
        """ids (B, T), of which the first `lengths` (B,) are real, None: all: the last states (B, T, D).

        `segments` (B, T): 0 in the first text, 1 in the second; all of it the first if not told.
        """
        return cast(Tensor, self.encoder(ids, lengths, segments))

    def states(self, ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """(B, layers + 1, T, D): every layer, what was embedded first."""
        return torch.stack(self.encoder.layers(ids, lengths, segments), 1)

    def pooled(self, states: Tensor) -> Tensor:
        """The last states (B, T, D): a vector for each text, (B, D)."""
        return torch.tanh(self.pooler(states[:, 0]))


class MaskedWords(nn.Module):
    """From states to guesses: dense, GELU, norm, and the likeness to each token's own vector, plus a bias."""

    def __init__(self, vocabulary: int, width: int, activation: nn.Module | None = None, eps: float = 1e-12) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(width, width), nn.LayerNorm(width, eps=eps)
        self.activation = nn.GELU() if activation is None else activation
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        fresh(self, width)

    def forward(self, states: Tensor, words: Tensor, say: Say = linear) -> Tensor:
        """states (..., D), words (V, D): logits (..., V), or what `say` makes of them."""
        return say(self.norm(self.activation(self.dense(states))), words, self.bias)


class Guesses(NamedTuple):
    """Logits (M, V) of what is hidden at each masked place, or what was made instead of them; and (B, 2), whether the
    second text follows the first."""

    words: Tensor
    next: Tensor


class MaskedLM(nn.Module):
    """BERT as it is pre-trained: hidden tokens, with the activation and norm of its layers, and next sentences."""

    def __init__(self, bert: Bert) -> None:
        super().__init__()
        self.bert = bert
        first = cast(Any, bert.encoder.blocks[0])
        vocabulary, width = bert.words.shape
        self.guess = MaskedWords(vocabulary, width, first.feed.activation, first.after_self.norm.eps)
        self.next = nn.Linear(bert.width, 2)
        fresh(self.next, bert.width)

    def forward(
        self, ids: Tensor, lengths: Tensor | None, segments: Tensor | None, places: Tensor, say: Say = linear
    ) -> Guesses:
        """ids (B, T); places (M,): row * T + column of each token to guess. The vocabulary layer is for those alone.

        `say`: what is made of their states and the words instead of logits: Surprise(targets), for training.
        """
        states = self.bert(ids, lengths, segments)
        hidden = states.flatten(0, 1).index_select(0, places)
        return Guesses(self.guess(hidden, self.bert.words, say), self.next(self.bert.pooled(states)))

    def states(self, ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """(B, layers + 1, T, D), as Bert gives them."""
        return self.bert.states(ids, lengths, segments)


def fresh(module: nn.Module, width: int) -> None:
    """Draw the weights of everything in a module, as BERT begins."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=STD * max(1.0, BASE / width) ** 0.5)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=STD)
