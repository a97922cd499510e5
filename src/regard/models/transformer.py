"""The Transformer: attention alone. Read a sentence, then write another one, each word looking at all it may see.

    memory = encoder(source);   x = blocks(embedded(target), memory);   p(y_t+1) = softmax(W x_t)

Vaswani et al. 2017 by default. Norms before the work, turned positions, grouped heads, SwiGLU and RMSNorm are another
Style and other positions: models/blocks.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import Attended, Cache, Listener, Observe, listening
from regard.attention.layers import DecoderBlock, FeedForward, Fused, MultiHead, Projections, Separate
from regard.attention.masks import Causal, Padding
from regard.attention.positions import Learned, Rotary, Sinusoidal
from regard.errors import SettingError
from regard.models.blocks import Embedded, Gated, Style, readers, writers
from regard.models.embedding import Softmax
from regard.models.encoder import Encoder
from regard.models.predictions import Logits, Prediction

Positions = Sinusoidal | Learned | Rotary


@dataclass(frozen=True, eq=False)
class Written:
    """What was read and written so far: for each block the keys and values of the target, and those of the source.

    `memory` (B, S, D) of which `lengths` (B,) are real; `sentence` (B,): which of the sources a row reads.
    """

    memory: Tensor
    lengths: Tensor
    sentence: Tensor
    caches: tuple[tuple[Cache, Cache], ...]

    @property
    def length(self) -> int:
        """How many words were written."""
        return self.caches[0][0].length

    def rows(self, rows: Tensor) -> Written:
        """The same for these rows, in caches of its own."""
        sentence = self.sentence.index_select(0, rows)
        same = torch.equal(sentence, self.sentence)  # survivors of a beam mostly stay with their source
        caches = tuple((_moved(own, rows), other if same else _moved(other, rows)) for own, other in self.caches)
        if same:
            return replace(self, caches=caches)
        return Written(self.memory.index_select(0, rows), self.lengths.index_select(0, rows), sentence, caches)


class Transformer(nn.Module):
    """An encoder, blocks that look back at themselves and across at what was read, and a softmax.

    Transformer(encoder, embedded, writers(6, 512, 8, 2048, Style()))   # or all at once: build_transformer(37_000)

    `embedded`: the target's words; where it is the encoder's own, both sides share one vocabulary. `output` says words:
    by default its vectors are those of `embedded`. `negatives` and `end`: in training the softmax is taken over the
    words of the batch and about so many others; `end` is the word that targets end with.

    It is a Stepper: `start`, `step`, `reorder`. The attention that a step reports is the mean over the heads of the
    block `looks`.
    """

    copies = False  # whether it can say words that are in no vocabulary

    def __init__(
        self,
        encoder: Encoder,
        embedded: Embedded,
        blocks: nn.ModuleList,
        last: nn.Module | None = None,
        output: Softmax | None = None,
        *,
        looks: int = -1,
        negatives: int = 0,
        end: int | None = None,
    ) -> None:
        super().__init__()
        if not -len(blocks) <= looks < len(blocks):
            raise SettingError(f"looks={looks}", f"one of the {len(blocks)} blocks that write", where="Transformer")
        if negatives and end is None:
            raise SettingError("negatives without an end", "the id that targets end with", where="Transformer")
        self.looks, self.negatives, self.end = looks, negatives, end
        self.encoder, self.embedded, self.decoder = encoder, embedded, blocks
        self.last = nn.Identity() if last is None else last
        tokens = embedded.tokens
        self.output = Softmax(tokens.embedding_dim, tokens.num_embeddings, tokens) if output is None else output

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> tuple[Prediction, None]:
        """source (B, S) of which `lengths` (B,) are real, target (B, T): what comes after each word of the target."""
        rows = len(source)
        if not rows:  # a rank without rows: one that does not count, so that the weights take part all the same
            source, lengths, target = source.new_zeros(1, 1), lengths.new_ones(1), target.new_zeros(1, 1)
        memory, across = self.encoder(source, lengths), Padding(lengths)
        x = self.embedded(target)
        for block in self.decoder:
            x = block(x, memory, mask=Causal(), memory_mask=across)
        vectors = self.last(x)[:rows]
        if self.negatives and self.training:
            # what comes after a word of a target is another one of them, or its end
            surely = nn.functional.pad(target.flatten(), (0, 1), value=self.end)
            return self.output.among(vectors, surely, self.negatives), None
        return Logits(self.output(vectors)), None

    def start(self, inputs: Tensor, lengths: Tensor) -> Written:
        """The state before the first word, of sources (B, S): they are read, and every block has its keys of them."""
        memory = self.encoder(inputs, lengths)
        caches = tuple((Cache(), _of_memory(block, memory)) for block in self.decoder)
        return Written(memory, lengths, torch.arange(len(inputs), device=inputs.device), caches)

    def step(self, state: Written, tokens: Tensor) -> tuple[Tensor, Tensor, Written]:
        """After these words (B,): ln p of the next (B, V), the attention to the source (B, S), and the state to go on
        from, which owns the caches now."""
        heard: list[Tensor] = []

        def hear(place: str, got: Attended) -> None:
            assert got.weights is not None
            heard.append(got.weights.mean(1).squeeze(1))

        across = Padding(state.lengths)
        x = self.embedded(tokens.unsqueeze(1), state.length)
        with listening(Listener({self._looking.tap: "looks"}, Observe(weights=True), hear)):
            for block, caches in zip(self.decoder, state.caches, strict=True):
                x = block(x, state.memory, mask=Causal(), memory_mask=across, caches=caches)
        return Logits(self.output(self.last(x).squeeze(1))).log_probs(), heard[0], state

    def reorder(self, state: Written, rows: Tensor) -> Written:
        return state.rows(rows)

    @property
    def _looking(self) -> MultiHead:
        """Whose attention to the source is told."""
        block = self.decoder[self.looks]
        assert isinstance(block, DecoderBlock)
        return block.cross


class Size(NamedTuple):
    """How large a Transformer is: `layers` that read and as many that write, `hidden` of the feed-forward ones."""

    layers: int
    width: int
    heads: int
    hidden: int


BASE, BIG = Size(6, 512, 8, 2048), Size(6, 1024, 16, 4096)  # Vaswani et al. 2017, table 3
PUBLISHED = Style(dropout=0.1)


def build_transformer(
    vocabulary: int | tuple[int, int],
    size: Size = BASE,
    style: Style = PUBLISHED,
    positions: Positions | Sequence[Positions] | None = None,
    *,
    gain: float = 1.0,
    project: nn.Module | None = None,
    looks: int = -1,
    negatives: int = 0,
    end: int | None = None,
) -> Transformer:
    """A fresh one: one vocabulary for source, target and output, or (source, target), the latter the output's too.

    build_transformer(37_000)                                                         # Transformer-base
    build_transformer(8000, Size(3, 256, 4, 700), replace(MODERN, key_heads=2), Rotary(256 // 4))   # a modern one

    `positions`: sinusoidal ones by default. Rotary ones tell places within a side alone; (Sinusoidal(256), Rotary(64))
    tells them across too, which finds out sooner where to look. `gain`: words are kept so many times smaller and
    multiplied by it where they are read and said; it changes nothing but how fast they learn beside the matrices, which
    matters where half of them come up a few times only. `project`: what comes before the softmax, see there.
    """
    layers, width, heads, hidden = size
    given = (Sinusoidal(width),) if positions is None else positions
    kinds = (given,) if isinstance(given, Positions) else given
    rotary = next((one for one in kinds if isinstance(one, Rotary)), None)
    added = next((one for one in kinds if not isinstance(one, Rotary)), None)

    def embedded(words: int) -> Embedded:
        made = Embedded(words, width, added, scale=gain * width**0.5, dropout=style.dropout)
        nn.init.normal_(made.tokens.weight, std=1 / made.scale)  # what is read has numbers of size 1
        return made

    source, target = vocabulary if isinstance(vocabulary, tuple) else (vocabulary, None)
    read = embedded(source)
    written = read if target is None else embedded(target)
    encoder = Encoder(read, readers(layers, width, heads, hidden, style, rotary), style.last(width))
    blocks = writers(layers, width, heads, hidden, style, rotary)
    for half in (encoder.blocks, blocks):
        _begin(half)
    output = Softmax(width, target or source, written.tokens, gain, project)
    return Transformer(encoder, written, blocks, style.last(width), output, looks=looks, negatives=negatives, end=end)


def _begin(blocks: nn.ModuleList) -> None:
    """Glorot's numbers for all matrices, and queries begin as keys: what is alike, such as two places equally far from
    the beginning, then looks at each other from the start, and where to look is found in fewer steps."""
    for module in blocks.modules():
        if isinstance(module, MultiHead):
            _alike(module.project)
            _fresh(module.out)
        elif isinstance(module, FeedForward | Gated):
            for matrix in module.children():
                _fresh(matrix)


def _fresh(matrix: nn.Module) -> None:
    if isinstance(matrix, nn.Linear):
        nn.init.xavier_uniform_(matrix.weight)
        if matrix.bias is not None:
            nn.init.zeros_(matrix.bias)


@torch.no_grad()
def _alike(project: Projections) -> None:
    """Give queries the matrix of the keys that they look at."""
    if isinstance(project, Fused):
        sizes = [heads * project.width for heads in (project.heads, project.key_heads, project.key_heads)]
        queries, keys, _ = project.joint.weight.split(sizes)
    else:
        assert isinstance(project, Separate)
        queries, keys = project.query.weight, project.key.weight
    group = project.heads // project.key_heads
    queries.copy_(keys.unflatten(0, (project.key_heads, -1)).repeat_interleave(group, 0).flatten(0, 1))


def _of_memory(block: nn.Module, memory: Tensor) -> Cache:
    """The keys and values that a block will look at, filled once."""
    assert isinstance(block, DecoderBlock)
    cache = Cache()
    cache.extend(*block.cross.project.keys_values(memory))
    return cache


def _moved(cache: Cache, rows: Tensor) -> Cache:
    own = copy(cache)
    own.reorder(rows)
    return own
