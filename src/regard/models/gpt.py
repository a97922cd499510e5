"""GPT: every token looks at itself and at those before it, layer upon layer, and says what comes next.

Radford et al. 2019 (GPT-2): norms before the work, GELU, learned positions, the output tied to the embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from regard.attention.layers import AddNorm, Cache, EncoderBlock, FeedForward, Fused, MultiHead
from regard.attention.masks import Causal, Documents
from regard.attention.positions import Learned, Rotary, Sinusoidal
from regard.errors import SettingError

Positions = Learned | Sinusoidal | Rotary
STD = 0.02  # of fresh weights


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


def _fresh(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
