"""GPT: a decoder-only Transformer language model (causal self-attention), with a KV cache for generation.

Radford et al. 2019 (GPT-2): pre-norm, GELU, learned positions, the output tied to the embedding. Llama (Touvron et al.
2023) is the same with other values: RMSNorm, SwiGLU, grouped-query attention, rotary positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from regard.attention import KVCache, Residual, is_compiled_half_cuda
from regard.attention.layers import Dropout
from regard.attention.masks import Causal, Documents, Everything, Mask, Padding
from regard.attention.positions import Learned, Rotary, Sinusoidal
from regard.errors import SettingError, ShapeError
from regard.models.blocks import GPT2, BlockConfig, encoder_blocks
from regard.models.chunked_cross_entropy import OutputHead
from regard.models.cross_entropy import Logits

Positions = Learned | Sinusoidal | Rotary
STD = 0.02  # of fresh weights


@dataclass(frozen=True, eq=False)
class GPTState:
    """The state of generation: the KV cache of every layer; where rows hold several documents, their numbers and the
    token that starts one; where prompts differ in length, the left padding of each."""

    caches: tuple[KVCache, ...]
    documents: Tensor | None = None  # (B, length)
    end: int | None = None
    padded: Tensor | None = None  # (B,)


class GPT(nn.Module):
    """A decoder-only Transformer.

    GPT(65, 128, 4, 4, 256)                     # 65 tokens, 128 wide, 4 layers of 4 heads, 256 learned positions
    GPT(65, 128, 4, 4, Rotary(128 // 4))        # rotary positions; any length
    GPT(65, 128, 4, 4, Rotary(128 // 4), feedforward_dim=344, block=LLAMA, tied=False)                       # Llama

    `positions`: how many to learn, or the positions themselves. `feedforward_dim`: 4 x width by default. `tied`: the
    output shares the embedding matrix. Attention weights have no dropout unless the block config says so, so that the
    fused kernels serve them.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        layers: int,
        heads: int,
        positions: int | Positions,
        feedforward_dim: int | None = None,
        block: BlockConfig = GPT2,
        tied: bool = True,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise SettingError(f"layers={layers}", "at least 1", where="GPT")
        encoding = Learned(width, positions) if isinstance(positions, int) else positions
        rotary = encoding if isinstance(encoding, Rotary) else None
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = None if isinstance(encoding, Rotary) else encoding
        self.dropout = Dropout(block.dropout)
        self.decoder = encoder_blocks(layers, width, heads, feedforward_dim or 4 * width, block, rotary)
        self.final_norm = block.final_norm(width)
        self.output: nn.Module | None = None if tied else nn.Linear(width, vocabulary, bias=False)
        self.apply(_init_weights)
        for name, weight in self.named_parameters():
            if name.endswith(
                ("self.out.weight", "feed.outer.weight")
            ):  # 2 x layers of them add up in the residual stream
                nn.init.normal_(weight, std=STD * (2 * layers) ** -0.5)

    def forward(
        self,
        inputs: Tensor,
        documents: Tensor | None = None,
        caches: Sequence[KVCache] | None = None,
        padded: Tensor | None = None,
        last: int | None = None,
        head: OutputHead | None = None,
    ) -> Tensor:
        """inputs (B, T): logits (B, T, V) of the token after each, or of the `last` few only.

        `documents` (B, T): the document of each token, for several in one row; they do not attend to each other.
        `caches`: those of `caches()`, with the keys and values of the steps before; inputs continue there, and
        `documents` are those of all tokens so far. `padded` (B,): the left padding of each row. `head`: what maps the
        last states and output embeddings to the result, instead of logits: LinearCrossEntropy(targets), for training.
        """
        states = self.layers(inputs, documents, caches, padded)[-1]
        states = states if last is None else states[:, states.size(1) - last :]
        if head is not None:
            return head(states, self.words, None)
        if self.output is None:
            return nn.functional.linear(states, self.words)
        logits: Tensor = self.output(states)
        return logits

    def layers(
        self,
        inputs: Tensor,
        documents: Tensor | None = None,
        caches: Sequence[KVCache] | None = None,
        padded: Tensor | None = None,
    ) -> list[Tensor]:
        """The states of every layer (B, T, D): layers + 1, the embeddings first, the last one after the final norm."""
        before = caches[0].length if caches else 0
        mask = _causal_mask(inputs.size(1), before, documents, padded)
        offset: int | Tensor = before if padded is None else before - padded
        x = self.embedding(inputs)
        x = self.dropout(x if self.positions is None else self.positions(x, offset))
        states = [Residual(x) if is_compiled_half_cuda(x) else x]
        for layer, block in enumerate(self.decoder):
            states.append(block(states[-1], mask=mask, cache=caches[layer] if caches else None, offset=offset))
        added = [state.total() if isinstance(state, Residual) else state for state in states]
        return [*added[:-1], self.final_norm(added[-1])]

    def caches(self, max_length: int | None = None) -> list[KVCache]:
        """An empty KV cache for each layer; with room for `max_length` tokens, or growing."""
        return [KVCache(max_length) for _ in self.decoder]

    @property
    def words(self) -> Tensor:
        """(V, D): the output embedding of each token."""
        return self.embedding.weight if self.output is None else cast(Tensor, self.output.weight)

    @property
    def max_positions(self) -> int | None:
        """The longest input, in tokens; None: any length."""
        return self.positions.table.num_embeddings if isinstance(self.positions, Learned) else None

    def start(self, inputs: Tensor, lengths: Tensor, end: int | None = None) -> GPTState:
        """The state after prompts (B, P), of which the first `lengths` (B,) of a row are real; P may be 0.

        `end`: the token that starts another document in the same row, which does not see those before it.
        """
        shortest, longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
        if shortest < 0 or longest > inputs.size(1):
            given = f"lengths from {shortest} to {longest}"
            raise ShapeError(given, f"0 to {inputs.size(1)}, the columns of the prompts", where="GPT.start")
        words = self.embedding.num_embeddings
        if inputs.numel() and not 0 <= int(inputs.min()) <= int(inputs.max()) < words:
            given = f"tokens from {int(inputs.min())} to {int(inputs.max())}"
            raise SettingError(given, f"ids from 0 to {words - 1}, its vocabulary", where="GPT.start")
        inputs, padded = inputs[:, :longest], None
        if shortest < longest:  # prompts end in the same column, so that new tokens follow all of them
            padded = longest - lengths.to(inputs.device)
            places = torch.arange(longest, device=inputs.device) - padded.unsqueeze(1)
            inputs = inputs.gather(1, places.clamp(min=0))
        documents = None if end is None else (inputs == end).cumsum(1)
        state = GPTState(tuple(self.caches()), documents, end, padded)
        if longest:
            self(inputs, documents, state.caches, padded, last=0)
        return state

    def step(self, state: GPTState, tokens: Tensor) -> tuple[Tensor, None, GPTState]:
        """tokens (B,): ln p of the next token (B, V), and the new state, which owns the caches now."""
        documents = state.documents
        if documents is not None and state.end is not None:
            before = documents[:, -1:] if documents.size(1) else torch.zeros_like(tokens).unsqueeze(1)
            documents = torch.cat((documents, before + (tokens == state.end).unsqueeze(1)), 1)
        logits = self(tokens.unsqueeze(1), documents, state.caches, state.padded).squeeze(1)
        return Logits(logits).log_probs(), None, replace(state, documents=documents)

    def reorder(self, state: GPTState, rows: Tensor) -> GPTState:
        """The state of these rows (B',), with caches of its own."""
        caches = tuple(map(copy, state.caches))
        for cache in caches:
            cache.reorder(rows)
        documents, padded = (
            None if one is None else one.index_select(0, rows) for one in (state.documents, state.padded)
        )
        return GPTState(caches, documents, state.end, padded)


def _causal_mask(count: int, before: int, documents: Tensor | None, padded: Tensor | None) -> Mask:
    """The mask of `count` tokens after `before` others: causal, within documents, without padding."""
    mask: Mask = Everything() if count == 1 else Causal()
    if documents is not None:
        mask = mask & Documents(documents)
    return mask if padded is None else mask & Padding(count + before - padded, side="left")


def _init_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
