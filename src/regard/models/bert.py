"""BERT: a bidirectional Transformer encoder, pre-trained as a masked language model with next-sentence prediction.

Devlin et al. 2019. [CLS] a [SEP] b [SEP]: the input is the sum of token, position and segment embeddings. Its
pre-trained states are fine-tuned for other tasks (models/bert_heads.py).
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
from regard.models.blocks import BERT, BlockConfig, InputEmbedding, encoder_blocks, gelu_feedforward
from regard.models.chunked_cross_entropy import OutputHead
from regard.models.encoder import Encoder

STD, BASE = 0.02, 768  # of fresh weights, as published for this width; larger for narrower models


@dataclass(frozen=True)
class BertSize:
    """The size of a BERT; by default heads are 64 wide and feed-forward layers 4 x width."""

    layers: int
    width: int
    heads: int | None = None
    feedforward_dim: int | None = None


SIZES = {
    "tiny": BertSize(2, 128),
    "mini": BertSize(4, 256),
    "small": BertSize(4, 512),
    "medium": BertSize(8, 512),
    "base": BertSize(12, 768),
}
"""The published sizes (Devlin et al. 2019, Turc et al. 2019)."""

FEEDFORWARDS: dict[str, Callable[[int, int], nn.Module]] = {
    "gelu": gelu_feedforward,
    "gelu_new": partial(gelu_feedforward, approximate="tanh"),
    "relu": FeedForward,
}
"""Feed-forward layers by the name of their activation in Hugging Face's configurations."""


class Bert(nn.Module):
    """An encoder, and the pooler, one vector for a whole text: tanh(W state of [CLS] + b).

    Bert.of(8000, SIZES["tiny"], max_positions=128)
    Bert(Encoder(InputEmbedding(8000, 128, Learned(128, 512), segments=2), encoder_blocks(2, 128, 2, 512, BERT)))
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooler = nn.Linear(self.width, self.width)
        init_weights(self, self.width)
        positions = encoder.embedding.positions
        if isinstance(positions, Learned):  # initialised as sinusoids, so that neighbours are similar from the start
            table = positions.table.weight
            sinusoids = Sinusoidal(self.width).table(torch.arange(len(table), device=table.device))
            table.data.copy_(2**0.5 * STD * sinusoids)

    @classmethod
    def of(
        cls,
        vocabulary: int,
        size: BertSize,
        *,
        max_positions: int = 512,
        segments: int = 2,
        dropout: float = 0.1,
        block: BlockConfig = BERT,
    ) -> Bert:
        """As published, except attention dropout, for which pass block=replace(BERT, attention_dropout=0.1)."""
        width, heads = size.width, size.heads or max(1, size.width // 64)
        if size.layers < 1 or width < 1 or max_positions < 1:
            given = f"{size.layers} layers, a width of {width}, {max_positions} positions"
            raise SettingError(given, "at least 1 each", where="Bert")
        positions = Learned(width, max_positions)
        embedding = InputEmbedding(
            vocabulary, width, positions, segments=segments, norm=block.norm(width), dropout=dropout
        )
        hidden = size.feedforward_dim or 4 * width
        blocks = encoder_blocks(size.layers, width, heads, hidden, replace(block, dropout=dropout))
        return cls(Encoder(embedding, blocks))

    @property
    def width(self) -> int:
        return self.words.size(1)

    @property
    def layers(self) -> int:
        return len(self.encoder.blocks)

    @property
    def max_positions(self) -> int | None:
        """The longest input, in tokens; None: any length."""
        positions = self.encoder.embedding.positions
        return positions.table.num_embeddings if isinstance(positions, Learned) else None

    @property
    def words(self) -> Tensor:
        """(V, D): the token embedding, which the masked-LM head shares."""
        return self.encoder.embedding.tokens.weight

    def forward(self, ids: Tensor, lengths: Tensor | None, segments: Tensor | None = None) -> Tensor:
        """ids (B, T), of which the first `lengths` (B,) are real (None: all): the last states (B, T, D).

        `segments` (B, T): 0 in the first text, 1 in the second; by default 0.
        """
        return cast(Tensor, self.encoder(ids, lengths, segments))

    def states(self, ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """(B, layers + 1, T, D): every layer, the embeddings first."""
        return torch.stack(self.encoder.layers(ids, lengths, segments), 1)

    def pooled(self, states: Tensor) -> Tensor:
        """The pooler: the last states (B, T, D) to a vector for each text, (B, D)."""
        return torch.tanh(self.pooler(states[:, 0]))


class MaskedLMHead(nn.Module):
    """The masked-LM head: dense, GELU, norm, and the output layer tied to the token embedding, plus a bias."""

    def __init__(self, vocabulary: int, width: int, activation: nn.Module | None = None, eps: float = 1e-12) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(width, width), nn.LayerNorm(width, eps=eps)
        self.activation = nn.GELU() if activation is None else activation
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        init_weights(self, width)

    def forward(self, states: Tensor, words: Tensor, head: OutputHead = linear) -> Tensor:
        """states (..., D), words (V, D): logits (..., V), or the result of `head`."""
        return head(self.norm(self.activation(self.dense(states))), words, self.bias)


class MaskedLMOutput(NamedTuple):
    """Logits (M, V) of each masked token, or the result of another output head; and logits (B, 2) of whether the second
    text follows the first (next-sentence prediction)."""

    logits: Tensor
    next_sentence: Tensor


class MaskedLM(nn.Module):
    """BERT for pre-training: masked language modelling, and next-sentence prediction."""

    def __init__(self, bert: Bert) -> None:
        super().__init__()
        self.bert = bert
        first = cast(Any, bert.encoder.blocks[0])
        vocabulary, width = bert.words.shape
        self.lm_head = MaskedLMHead(vocabulary, width, first.feed.activation, first.after_self.norm.eps)
        self.next_sentence = nn.Linear(bert.width, 2)
        init_weights(self.next_sentence, bert.width)

    def forward(
        self, ids: Tensor, lengths: Tensor | None, segments: Tensor | None, masked: Tensor, head: OutputHead = linear
    ) -> MaskedLMOutput:
        """ids (B, T); masked (M,): row * T + column of each token to predict. The output layer runs on those alone.

        `head`: what maps their states and the token embedding to the result, instead of logits:
        LinearCrossEntropy(targets), for training.
        """
        states = self.bert(ids, lengths, segments)
        hidden = states.flatten(0, 1).index_select(0, masked)
        return MaskedLMOutput(self.lm_head(hidden, self.bert.words, head), self.next_sentence(self.bert.pooled(states)))

    def states(self, ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """(B, layers + 1, T, D), as Bert gives them."""
        return self.bert.states(ids, lengths, segments)


def init_weights(module: nn.Module, width: int) -> None:
    """Initialise all weights of a module as BERT does."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=STD * max(1.0, BASE / width) ** 0.5)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=STD)
