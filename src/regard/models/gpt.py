"""GPT: every token looks at itself and at those before it, layer upon layer, and says what comes next.

Radford et al. 2019 (GPT-2): norms before the work, GELU, learned positions, the output tied to the embedding. Llama
(Touvron et al. 2023) is the same with other values: RMS norms, gated layers, shared key heads, rotary positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from regard.attention import Cache, Residual, compiled_half
from regard.attention.layers import Dropout
from regard.attention.masks import Causal, Documents, Everything, Mask, Padding
from regard.attention.positions import Learned, Rotary, Sinusoidal
from regard.errors import SettingError, ShapeError
from regard.models.blocks import GPT2, Style, readers
from regard.models.chunked_cross_entropy import Say
from regard.models.predictions import Logits

Positions = Learned | Sinusoidal | Rotary
STD = 0.02  # of fresh weights


@dataclass(frozen=True, eq=False)
class Read:
    """What a GPT has read: keys and values of every layer; where texts are kept apart, which token opens one; and
    where prompts of different lengths stand side by side, how far each is from the left end."""

    caches: tuple[Cache, ...]
    documents: Tensor | None = None  # (B, length)
    end: int | None = None
    padded: Tensor | None = None  # (B,)


class GPT(nn.Module):
    """A decoder without an encoder.

    GPT(65, 128, 4, 4, 256)                     # 65 tokens, 128 wide, 4 layers of 4 heads, 256 learned positions
    GPT(65, 128, 4, 4, Rotary(128 // 4))        # positions turned into queries and keys; any length
    GPT(65, 128, 4, 4, Rotary(128 // 4), hidden=344, style=MODERN, tied=False)                               # Llama

    `positions`: how many to learn, or the positions themselves. `hidden`: of the feed-forward layers, 4 x width by
    default. `tied`: the output takes the embedding's matrix, or it has one of its own. Weights of attention are not
    dropped unless the style says so, so that the fused kernels serve them.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        layers: int,
        heads: int,
        positions: int | Positions,
        hidden: int | None = None,
        style: Style = GPT2,
        tied: bool = True,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise SettingError(f"layers={layers}", "at least 1", where="GPT")
        where = Learned(width, positions) if isinstance(positions, int) else positions
        rotary = where if isinstance(where, Rotary) else None
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = None if isinstance(where, Rotary) else where
        self.dropout = Dropout(style.dropout)
        self.decoder = readers(layers, width, heads, hidden or 4 * width, style, rotary)
        self.norm = style.last(width)
        self.output: nn.Module | None = None if tied else nn.Linear(width, vocabulary, bias=False)
        self.apply(_fresh)
        for name, weight in self.named_parameters():
            if name.endswith(("self.out.weight", "feed.outer.weight")):  # 2 x layers of them add up in the stream
                nn.init.normal_(weight, std=STD * (2 * layers) ** -0.5)

    def forward(
        self,
        inputs: Tensor,
        documents: Tensor | None = None,
        caches: Sequence[Cache] | None = None,
        padded: Tensor | None = None,
        last: int | None = None,
        say: Say | None = None,
    ) -> Tensor:
        """inputs (B, T): logits (B, T, V) of the token after each, or of the `last` few only.

        `documents` (B, T): the text each token belongs to, for several in one row; they do not see each other.
        `caches`: what `caches()` gave, filled by the steps before; inputs go on where those ended, and `documents` are
        those of all tokens so far. `padded` (B,): how many tokens at the left end of a row, the first of all, are none.
        `say`: what is made of the last states and the words instead of logits: Surprise(targets), for training.
        """
        states = self.layers(inputs, documents, caches, padded)[-1]
        states = states if last is None else states[:, states.size(1) - last :]
        if say is not None:
            return say(states, self.words, None)
        if self.output is None:
            return nn.functional.linear(states, self.words)
        said: Tensor = self.output(states)
        return said

    def layers(
        self,
        inputs: Tensor,
        documents: Tensor | None = None,
        caches: Sequence[Cache] | None = None,
        padded: Tensor | None = None,
    ) -> list[Tensor]:
        """The states of every layer, what was embedded first, the last one after its norm: layers + 1 of (B, T, D)."""
        before = caches[0].length if caches else 0
        mask = _mask(inputs.size(1), before, documents, padded)
        offset: int | Tensor = before if padded is None else before - padded
        x = self.embedding(inputs)
        x = self.dropout(x if self.positions is None else self.positions(x, offset))
        states = [Residual(x) if compiled_half(x) else x]
        for layer, block in enumerate(self.decoder):
            states.append(block(states[-1], mask=mask, cache=caches[layer] if caches else None, offset=offset))
        added = [state.whole() if isinstance(state, Residual) else state for state in states]
        return [*added[:-1], self.norm(added[-1])]

    def caches(self, longest: int | None = None) -> list[Cache]:
        """An empty cache for each layer, to go on step by step; with room for `longest` tokens, or growing."""
        return [Cache(longest) for _ in self.decoder]

    @property
    def words(self) -> Tensor:
        """(V, D): the vector that a state is likened to for each token."""
        return self.embedding.weight if self.output is None else cast(Tensor, self.output.weight)

    @property
    def longest(self) -> int | None:
        """How many tokens it can read; None: any number."""
        return self.positions.table.num_embeddings if isinstance(self.positions, Learned) else None

    def start(self, inputs: Tensor, lengths: Tensor, end: int | None = None) -> Read:
        """What it knows after reading inputs (B, P), of which the first `lengths` (B,) of a row are real; P may be 0.

        `end`: the token that opens another text in the same row, which does not see those before it.
        """
        shortest, longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
        if shortest < 0 or longest > inputs.size(1):
            came = f"rows of {shortest} to {longest} tokens in {inputs.size(1)} columns"
            raise ShapeError(came, f"0 to {inputs.size(1)} in each", where="GPT.start")
        words = self.embedding.num_embeddings
        if inputs.numel() and not 0 <= int(inputs.min()) <= int(inputs.max()) < words:
            came = f"tokens from {int(inputs.min())} to {int(inputs.max())}"
            raise SettingError(came, f"0 to {words - 1}, the words it has", where="GPT.start")
        inputs, padded = inputs[:, :longest], None
        if shortest < longest:  # so that new tokens stand behind all of them
            padded = longest - lengths.to(inputs.device)
            places = torch.arange(longest, device=inputs.device) - padded.unsqueeze(1)
            inputs = inputs.gather(1, places.clamp(min=0))
        documents = None if end is None else (inputs == end).cumsum(1)
        state = Read(tuple(self.caches()), documents, end, padded)
        if longest:
            self(inputs, documents, state.caches, padded, last=0)
        return state

    def step(self, state: Read, tokens: Tensor) -> tuple[Tensor, None, Read]:
        """tokens (B,): ln p of what comes after them (B, V), and the state to go on from, which owns the caches now."""
        documents = state.documents
        if documents is not None and state.end is not None:
            before = documents[:, -1:] if documents.size(1) else torch.zeros_like(tokens).unsqueeze(1)
            documents = torch.cat((documents, before + (tokens == state.end).unsqueeze(1)), 1)
        logits = self(tokens.unsqueeze(1), documents, state.caches, state.padded).squeeze(1)
        return Logits(logits).log_probs(), None, replace(state, documents=documents)

    def reorder(self, state: Read, rows: Tensor) -> Read:
        """The state of these rows (B',), in caches of its own."""
        caches = tuple(map(copy, state.caches))
        for cache in caches:
            cache.reorder(rows)
        documents, padded = (
            None if one is None else one.index_select(0, rows) for one in (state.documents, state.padded)
        )
        return Read(caches, documents, state.end, padded)


def _mask(count: int, before: int, documents: Tensor | None, padded: Tensor | None) -> Mask:
    """Who sees what when `count` tokens come after so many: the past, of one's own text, without what is none."""
    mask: Mask = Everything() if count == 1 else Causal()
    if documents is not None:
        mask = mask & Documents(documents)
    return mask if padded is None else mask & Padding(count + before - padded, side="left")


def _fresh(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
