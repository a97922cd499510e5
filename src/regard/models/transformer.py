"""The Transformer: an encoder-decoder translator of attention alone, with a KV cache for decoding.

    memory = encoder(source);   x = blocks(embedding(target), memory);   p(y_t+1) = softmax(W x_t)

Vaswani et al. 2017 by default. Pre-norm, rotary positions, grouped-query attention, SwiGLU and RMSNorm are another
BlockConfig and other positions: models/blocks.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import Attended, KVCache, Observe, TapListener, listen
from regard.attention.layers import DecoderBlock, FeedForward, FusedQKV, MultiHead, Projections, SeparateQKV
from regard.attention.masks import Causal, Padding
from regard.attention.positions import Learned, Rotary, Sinusoidal
from regard.errors import SettingError
from regard.models.blocks import BlockConfig, InputEmbedding, SwiGLU, decoder_blocks, encoder_blocks
from regard.models.cross_entropy import Logits, Prediction
from regard.models.embedding import OutputProjection
from regard.models.encoder import Encoder

Positions = Sinusoidal | Learned | Rotary


@dataclass(frozen=True, eq=False)
class TransformerState:
    """The decoding state: for each block a KV cache of the target so far, and one of the source.

    `memory` (B, S, D) of which `lengths` (B,) are real; `source_rows` (B,): which of the sources each row has.
    """

    memory: Tensor
    lengths: Tensor
    source_rows: Tensor
    caches: tuple[tuple[KVCache, KVCache], ...]

    @property
    def length(self) -> int:
        """The number of target words so far."""
        return self.caches[0][0].length

    def rows(self, rows: Tensor) -> TransformerState:
        """The state of these rows, with caches of its own."""
        source_rows = self.source_rows.index_select(0, rows)
        same = torch.equal(source_rows, self.source_rows)  # in a beam mostly so: then the source is not copied
        caches = tuple(
            (_reordered(own, rows), source if same else _reordered(source, rows)) for own, source in self.caches
        )
        if same:
            return replace(self, caches=caches)
        return TransformerState(
            self.memory.index_select(0, rows), self.lengths.index_select(0, rows), source_rows, caches
        )


class Transformer(nn.Module):
    """An encoder, decoder blocks with self-attention and cross-attention, and a softmax.

    Transformer(encoder, embedding, decoder_blocks(6, 512, 8, 2048, BlockConfig()))   # or build_transformer(37_000)

    `embedding`: of the target; where it is the encoder's own, both sides share one vocabulary. `output`: the softmax
    layer, by default tied to `embedding`. With `num_sampled`, training uses a sampled softmax, over the words of
    the batch and about `num_sampled` others. `eos` is the token that targets end with.

    It is a Stepper: `start`, `step`, `reorder`. The attention that a step reports is the mean over the heads of the
    cross-attention of block `alignment_layer`.
    """

    copies = False  # whether it can output words outside the vocabulary

    def __init__(
        self,
        encoder: Encoder,
        embedding: InputEmbedding,
        blocks: nn.ModuleList,
        final_norm: nn.Module | None = None,
        output: OutputProjection | None = None,
        *,
        alignment_layer: int = -1,
        num_sampled: int = 0,
        eos: int | None = None,
    ) -> None:
        super().__init__()
        if not -len(blocks) <= alignment_layer < len(blocks):
            given, known = f"alignment_layer={alignment_layer}", f"one of the {len(blocks)} decoder blocks"
            raise SettingError(given, known, where="Transformer")
        if num_sampled and eos is None:
            raise SettingError("num_sampled needs eos, the id that targets end with", where="Transformer")
        self.alignment_layer, self.num_sampled, self.eos = alignment_layer, num_sampled, eos
        self.encoder, self.embedding, self.decoder = encoder, embedding, blocks
        self.final_norm = nn.Identity() if final_norm is None else final_norm
        tokens = embedding.tokens
        self.output = (
            OutputProjection(tokens.embedding_dim, tokens.num_embeddings, tokens) if output is None else output
        )

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> tuple[Prediction, None]:
        """source (B, S) of which `lengths` (B,) are real, target (B, T): the prediction after each target word."""
        rows = len(source)
        if not rows:  # a rank without rows runs a dummy row, so that all parameters take part
            source, lengths, target = source.new_zeros(1, 1), lengths.new_ones(1), target.new_zeros(1, 1)
        memory, padding = self.encoder(source, lengths), Padding(lengths)
        x = self.embedding(target)
        for block in self.decoder:
            x = block(x, memory, mask=Causal(), memory_mask=padding)
        vectors = self.final_norm(x)[:rows]
        if self.num_sampled and self.training:
            # the next word is another word of the targets, or eos
            targets = nn.functional.pad(target.flatten(), (0, 1), value=self.eos)
            return self.output.sampled(vectors, targets, self.num_sampled), None
        return Logits(self.output(vectors)), None

    def start(self, inputs: Tensor, lengths: Tensor) -> TransformerState:
        """The state before the first word: sources (B, S) are encoded, and every block caches their keys and values."""
        memory = self.encoder(inputs, lengths)
        caches = tuple((KVCache(), memory_cache(block, memory)) for block in self.decoder)
        return TransformerState(memory, lengths, torch.arange(len(inputs), device=inputs.device), caches)

    def step(self, state: TransformerState, tokens: Tensor) -> tuple[Tensor, Tensor, TransformerState]:
        """After these words (B,): ln p of the next (B, V), the attention to the source (B, S), and the new state, which
        owns the caches now."""
        alignment: list[Tensor] = []

        def on_attention(place: str, got: Attended) -> None:
            assert got.weights is not None
            alignment.append(got.weights.mean(1).squeeze(1))

        padding = Padding(state.lengths)
        x = self.embedding(tokens.unsqueeze(1), state.length)
        with listen(TapListener({self._alignment_attention.tap: "alignment"}, Observe(weights=True), on_attention)):
            for block, caches in zip(self.decoder, state.caches, strict=True):
                x = block(x, state.memory, mask=Causal(), memory_mask=padding, caches=caches)
        return Logits(self.output(self.final_norm(x).squeeze(1))).log_probs(), alignment[0], state

    def reorder(self, state: TransformerState, rows: Tensor) -> TransformerState:
        return state.rows(rows)

    @property
    def _alignment_attention(self) -> MultiHead:
        """The cross-attention whose weights a step reports."""
        block = self.decoder[self.alignment_layer]
        assert isinstance(block, DecoderBlock)
        return block.cross


class TransformerSize(NamedTuple):
    """The size of a Transformer: `layers` of the encoder and as many of the decoder."""

    layers: int
    width: int
    heads: int
    feedforward_dim: int


BASE, BIG = TransformerSize(6, 512, 8, 2048), TransformerSize(6, 1024, 16, 4096)  # Vaswani et al. 2017, table 3
VASWANI_2017 = BlockConfig(dropout=0.1)


def build_transformer(
    vocabulary: int | tuple[int, int],
    size: TransformerSize = BASE,
    block: BlockConfig = VASWANI_2017,
    positions: Positions | Sequence[Positions] | None = None,
    *,
    embedding_lr_scale: float = 1.0,
    project: nn.Module | None = None,
    alignment_layer: int = -1,
    num_sampled: int = 0,
    eos: int | None = None,
) -> Transformer:
    """A Transformer with fresh weights; `vocabulary`: one size for both sides, or (source, target).

    build_transformer(37_000)                                                                     # Transformer-base
    build_transformer(8000, TransformerSize(3, 256, 4, 700), replace(LLAMA, key_heads=2), Rotary(256 // 4))   # modern

    `positions`: sinusoidal by default. Rotary ones give cross-attention no positions; (Sinusoidal(256), Rotary(64))
    does, and learns alignments sooner. `embedding_lr_scale`: embeddings are stored divided by it and multiplied
    by it where they are used, which changes only their learning rate relative to the matrices; it helps where half of
    the words are rare. `project`: the projection before the softmax, see OutputProjection.
    """
    layers, width, heads, hidden = size
    given = (Sinusoidal(width),) if positions is None else positions
    kinds = (given,) if isinstance(given, Positions) else given
    rotary = next((one for one in kinds if isinstance(one, Rotary)), None)
    added = next((one for one in kinds if not isinstance(one, Rotary)), None)

    def embedding(words: int) -> InputEmbedding:
        made = InputEmbedding(words, width, added, scale=embedding_lr_scale * width**0.5, dropout=block.dropout)
        nn.init.normal_(made.tokens.weight, std=1 / made.scale)  # inputs have unit variance
        return made

    source, target = vocabulary if isinstance(vocabulary, tuple) else (vocabulary, None)
    source_embedding = embedding(source)
    target_embedding = source_embedding if target is None else embedding(target)
    stack = encoder_blocks(layers, width, heads, hidden, block, rotary)
    encoder = Encoder(source_embedding, stack, block.final_norm(width))
    blocks = decoder_blocks(layers, width, heads, hidden, block, rotary)
    for half in (encoder.blocks, blocks):
        _init_blocks(half)
    output = OutputProjection(width, target or source, target_embedding.tokens, embedding_lr_scale, project)
    return Transformer(
        encoder,
        target_embedding,
        blocks,
        block.final_norm(width),
        output,
        alignment_layer=alignment_layer,
        num_sampled=num_sampled,
        eos=eos,
    )


def _init_blocks(blocks: nn.ModuleList) -> None:
    """Glorot (Xavier) initialisation, and query projections equal to key projections: similar vectors, such as equal
    positions of source and target, then attend to each other from the start, and alignments are learned sooner."""
    for module in blocks.modules():
        if isinstance(module, MultiHead):
            _init_queries_as_keys(module.project)
            _init_linear(module.out)
        elif isinstance(module, FeedForward | SwiGLU):
            for matrix in module.children():
                _init_linear(matrix)


def _init_linear(matrix: nn.Module) -> None:
    if isinstance(matrix, nn.Linear):
        nn.init.xavier_uniform_(matrix.weight)
        if matrix.bias is not None:
            nn.init.zeros_(matrix.bias)


@torch.no_grad()
def _init_queries_as_keys(project: Projections) -> None:
    """Initialise the query projection with the key projection."""
    if isinstance(project, FusedQKV):
        sizes = [heads * project.width for heads in (project.heads, project.key_heads, project.key_heads)]
        queries, keys, _ = project.joint.weight.split(sizes)
    else:
        assert isinstance(project, SeparateQKV)
        queries, keys = project.query.weight, project.key.weight
    group = project.heads // project.key_heads
    queries.copy_(keys.unflatten(0, (project.key_heads, -1)).repeat_interleave(group, 0).flatten(0, 1))


def memory_cache(block: nn.Module, memory: Tensor) -> KVCache:
    """A KV cache of the encoder's states for the cross-attention of a block, filled once."""
    assert isinstance(block, DecoderBlock)
    cache = KVCache()
    cache.extend(*block.cross.project.keys_values(memory))
    return cache


def _reordered(cache: KVCache, rows: Tensor) -> KVCache:
    reordered = copy(cache)
    reordered.reorder(rows)
    return reordered
