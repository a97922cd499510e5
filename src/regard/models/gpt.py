"""GPT: every token looks at itself and at those before it, layer upon layer, and says what comes next.

Radford et al. 2019 (GPT-2): norms before the work, GELU, learned positions, the output tied to the embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from regard.attention.layers import AddNorm, Cache, EncoderBlock, FeedForward, Fused, MultiHead
from regard.attention.masks import Causal, Documents
from regard.attention.positions import Learned, Rotary, Sinusoidal
from regard.errors import SettingError, ShapeError
from regard.models.predictions import Logits

Positions = Learned | Sinusoidal | Rotary
STD = 0.02  # of fresh weights
READ_AT_ONCE = 128  # tokens of a prompt; what the model says after each of them is not wanted


@dataclass(frozen=True, eq=False)
class Read:
    """What a GPT has read: keys and values of every layer; and where texts are kept apart, which token opens one."""

    caches: tuple[Cache, ...]
    documents: Tensor | None = None  # (B, length)
    end: int | None = None


class GPT(nn.Module):
    """A decoder without an encoder.

    GPT(65, 128, 4, 4, 256)                     # 65 tokens, 128 wide, 4 layers of 4 heads, 256 learned positions
    GPT(65, 128, 4, 4, Rotary(128 // 4))        # positions turned into queries and keys; any length

    `positions`: how many to learn, or the positions themselves. `hidden`: of the feed-forward layers, 4 x width by
    default. Dropout falls on what is added to the residual stream; weights of attention are not dropped, so that the
    fused kernels serve them.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        layers: int,
        heads: int,
        positions: int | Positions,
        hidden: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise SettingError(f"layers={layers}", "at least 1", where="GPT")
        where = Learned(width, positions) if isinstance(positions, int) else positions
        rotary = where if isinstance(where, Rotary) else None
        add_norm = partial(AddNorm, order="pre", dropout=dropout)
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = None if isinstance(where, Rotary) else where
        self.dropout = nn.Dropout(dropout)
        self.decoder = nn.ModuleList(
            EncoderBlock(
                MultiHead(width, Fused(width, heads), rotary=rotary),
                FeedForward(width, hidden or 4 * width, nn.GELU(approximate="tanh")),
                add_norm,
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.apply(_fresh)
        for name, weight in self.named_parameters():
            if name.endswith(("self.out.weight", "feed.outer.weight")):  # 2 x layers of them add up in the stream
                nn.init.normal_(weight, std=STD * (2 * layers) ** -0.5)

    def forward(self, inputs: Tensor, documents: Tensor | None = None, caches: Sequence[Cache] | None = None) -> Tensor:
        """inputs (B, T): logits (B, T, V) of the token after each.

        `documents` (B, T): the text each token belongs to, for several in one row; they do not see each other.
        `caches`: what `caches()` gave, filled by the steps before; inputs go on where those ended, and `documents` are
        those of all tokens so far.
        """
        before = caches[0].length if caches else 0
        mask = Causal() if documents is None else Causal() & Documents(documents)
        x = self.embedding(inputs)
        x = self.dropout(x if self.positions is None else self.positions(x, before))
        for layer, block in enumerate(self.decoder):
            x = block(x, mask=mask, cache=caches[layer] if caches else None)
        return nn.functional.linear(self.norm(x), self.embedding.weight)

    def caches(self) -> list[Cache]:
        """An empty cache for each layer, to go on step by step."""
        return [Cache() for _ in self.decoder]

    @property
    def longest(self) -> int | None:
        """How many tokens it can read; None: any number."""
        return self.positions.table.num_embeddings if isinstance(self.positions, Learned) else None

    def start(self, inputs: Tensor, lengths: Tensor, end: int | None = None) -> Read:
        """What it knows after reading inputs (B, P), all of them real; P may be 0.

        `end`: the token that opens another text in the same row, which does not see those before it.
        """
        if bool((lengths != inputs.size(1)).any()):
            raise ShapeError(
                f"rows of {int(lengths.min())} to {int(lengths.max())} tokens in {inputs.size(1)} columns",
                "rows of one length, without padding",
                where="GPT.start",
                advice="Start rows of each length by themselves.",
            )
        documents = None if end is None else (inputs == end).cumsum(1)
        state = Read(tuple(self.caches()), documents, end)
        for first in range(0, inputs.size(1), READ_AT_ONCE):
            until = first + READ_AT_ONCE
            self(inputs[:, first:until], None if documents is None else documents[:, :until], state.caches)
        return state

    def step(self, state: Read, tokens: Tensor) -> tuple[Tensor, None, Read]:
        """tokens (B,): ln p of what comes after them (B, V), and the state to go on from, which owns the caches now."""
        documents = state.documents
        if documents is not None and state.end is not None:
            before = documents[:, -1:] if documents.size(1) else torch.zeros_like(tokens).unsqueeze(1)
            documents = torch.cat((documents, before + (tokens == state.end).unsqueeze(1)), 1)
        logits = self(tokens.unsqueeze(1), documents, state.caches).squeeze(1)
        return Logits(logits).log_probs(), None, Read(state.caches, documents, state.end)

    def reorder(self, state: Read, rows: Tensor) -> Read:
        """The state of these rows (B',), in caches of its own."""
        caches = tuple(map(copy, state.caches))
        for cache in caches:
            cache.reorder(rows)
        return Read(caches, None if state.documents is None else state.documents.index_select(0, rows), state.end)


def _fresh(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
