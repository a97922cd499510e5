"""Multi-head attention (self-attention, cross-attention, grouped-query attention), feed-forward, Transformer blocks.

Every layer attends through a Tap and stores nothing on itself. Vectors are (B, T, D) throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from torch import Tensor, nn

from regard.attention.kv_cache import KVCache
from regard.attention.masks import Mask
from regard.attention.normalise import Normaliser, Sink
from regard.attention.positions import Rotary
from regard.attention.residual import Residual
from regard.attention.scores import Score
from regard.attention.tap import Tap
from regard.errors import SettingError, ShapeError

Stream = TypeVar("Stream", Tensor, Residual)
"""The residual stream of a block: vectors (B, T, D), or a Residual whose last branch is not added yet."""


class MultiHead(nn.Module):
    """Multi-head attention: project, split into heads, attend, join, project back.

    heads = MultiHead(512, 8)                                 # self-attention: heads(x, mask=Causal())
    heads = MultiHead(512, SeparateQKV(512, 8, key_heads=2))  # grouped-query; cross-attention: heads(x, memory)

    `heads`: the number of heads, with one matrix each for queries, keys and values; or the module that projects them
    (SeparateQKV, FusedQKV).
    `normalise`: how scores become weights; the logits of a Sink are learned, starting from its own.
    """

    def __init__(
        self,
        dim: int,
        heads: int | Projections = 8,
        *,
        score: Score | None = None,
        normalise: Normaliser | None = None,
        rotary: Rotary | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.project = SeparateQKV(dim, heads) if isinstance(heads, int) else heads
        self.fixed_normalise = None if isinstance(normalise, Sink) else normalise
        self.sink = nn.Parameter(normalise.logits.clone()) if isinstance(normalise, Sink) else None
        self.score, self.rotary, self.dropout = score, rotary, dropout
        self.tap = Tap()
        self.out = nn.Linear(self.project.heads * self.project.width, dim, bias=self.project.bias)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Mask | None = None,
        bias: object | None = None,
        cache: KVCache | None = None,
        offset: int | Tensor | None = None,
    ) -> Tensor:
        """Self-attention of x (B, T, D), or cross-attention of x to memory (B, S, M): (B, T, D).

        `cache`: keys and values of earlier steps, to which the new ones are appended; those of a memory are reused.
        `offset`: the position of x, for rotary positions; by default after what the cache holds.
        """
        cached = 0 if cache is None else cache.length
        start = cached if offset is None else offset
        if memory is not None:
            q = self.project.queries(x)
            k, v = self.project.keys_values(memory) if cache is None or not cached else cache.contents()
            if cache is not None and not cached:
                k, v = cache.extend(k, v)
        else:
            q, k, v = self.project.all(x)
            if self.rotary is not None:
                q, k = self.rotary(q, start), self.rotary(k, start)
            if cache is not None:
                k, v = cache.extend(k, v)
        dropout = self.dropout if self.training else 0.0
        how = {"score": self.score, "mask": mask, "bias": bias, "normalise": self.normalise, "dropout": dropout}
        got = self.tap(q, k, v, **how)
        return self.out(got.output.transpose(1, 2).flatten(2))

    @property
    def is_plain(self) -> bool:
        """Whether this is softmax attention over scaled dot products, and nothing else, which any other program has."""
        return self.normalise is None and self.score is None

    @property
    def normalise(self) -> Normaliser | None:
        """How scores become weights; None is a softmax."""
        return self.fixed_normalise if self.sink is None else Sink(self.sink)


class Projections(Protocol):
    """Projections of vectors (B, T, D) to queries, keys and values (B, H, T, width)."""

    heads: int
    width: int
    bias: bool

    def queries(self, x: Tensor) -> Tensor: ...

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]: ...

    def all(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]: ...


class SeparateQKV(nn.Module):
    """Three projections. `key_heads`: fewer heads for keys and values (grouped-query attention).

    `memory`: the width of the memory, if it is not dim. `width`: of one head, if it is not dim / heads.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        key_heads: int | None = None,
        memory: int | None = None,
        width: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.heads, self.key_heads, self.width = _check_heads(dim, heads, key_heads, width)
        self.bias = bias
        self.query = nn.Linear(dim, heads * self.width, bias=bias)
        self.key = nn.Linear(memory or dim, self.key_heads * self.width, bias=bias)
        self.value = nn.Linear(memory or dim, self.key_heads * self.width, bias=bias)
        for matrix in (self.query, self.key, self.value):
            _init_xavier(matrix)

    def queries(self, x: Tensor) -> Tensor:
        return split_heads(_project(self.query, x), self.heads)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        k, v = _project(self.key, memory), _project(self.value, memory)
        return split_heads(k, self.key_heads), split_heads(v, self.key_heads)

    def all(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (self.queries(x), *self.keys_values(x))


class FusedQKV(nn.Module):
    """One projection for queries, keys and values together, one product instead of three; for self-attention."""

    def __init__(
        self, dim: int, heads: int, *, key_heads: int | None = None, width: int | None = None, bias: bool = True
    ) -> None:
        super().__init__()
        self.heads, self.key_heads, self.width = _check_heads(dim, heads, key_heads, width)
        self.bias = bias
        self.joint = nn.Linear(dim, (heads + 2 * self.key_heads) * self.width, bias=bias)
        for part in self.joint.weight.split(self._sizes()):
            nn.init.xavier_uniform_(part)
        if bias:
            nn.init.zeros_(self.joint.bias)

    def queries(self, x: Tensor) -> Tensor:
        size = self._sizes()[0]
        bias = self.joint.bias[:size] if self.bias else None
        return split_heads(nn.functional.linear(x, self.joint.weight[:size], bias), self.heads)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        size = self._sizes()[0]
        bias = self.joint.bias[size:] if self.bias else None
        k, v = nn.functional.linear(memory, self.joint.weight[size:], bias).chunk(2, -1)
        return split_heads(k, self.key_heads), split_heads(v, self.key_heads)

    def all(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = _project(self.joint, x).split(self._sizes(), -1)
        return split_heads(q, self.heads), split_heads(k, self.key_heads), split_heads(v, self.key_heads)

    def _sizes(self) -> list[int]:
        return [self.heads * self.width, self.key_heads * self.width, self.key_heads * self.width]


class Dropout(nn.Dropout):
    """torch's Dropout without its copy where nothing is dropped, which compiled code would write to memory."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.training and self.p > 0 else x


class FeedForward(nn.Module):
    """Two linear layers with an activation between them, applied to every vector alike."""

    def __init__(
        self, dim: int, hidden: int, activation: nn.Module | None = None, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(dim, hidden, bias=bias), nn.Linear(hidden, dim, bias=bias)
        self.activation = nn.ReLU() if activation is None else activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(self.activation(self.inner(x))))


class AddNorm(nn.Module):
    """The residual connection and layer norm around a sublayer: order "post" norms the sum, "pre" norms the input.

    post: norm(x + sublayer(x)), as published in 2017; pre: x + sublayer(norm(x)), which trains without a warmup.
    """

    def __init__(
        self, dim: int, order: str = "post", dropout: float = 0.0, norm: Callable[[int], nn.Module] = nn.LayerNorm
    ) -> None:
        super().__init__()
        if order not in ("post", "pre"):
            raise SettingError(f"order={order!r}", "'post' or 'pre'", where="AddNorm")
        self.order, self.norm, self.dropout = order, norm(dim), Dropout(dropout)

    def forward(self, x: Stream, sublayer: Callable[[Tensor], Tensor]) -> Stream:
        if isinstance(x, Residual):
            return self._deferred(x, sublayer)
        if self.order == "pre":
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))

    def _deferred(self, x: Residual, sublayer: Callable[[Tensor], Tensor]) -> Residual:
        if self.order == "pre":
            total, normed = x.add_norm(self.norm)
            return Residual(total, self.dropout(sublayer(normed)))
        total = x.total()
        return Residual(self.norm(total + self.dropout(sublayer(total))))


AddNorms = Callable[[int], AddNorm]
"""Makes the AddNorm for a width: `AddNorm` itself, or partial(AddNorm, order="pre", dropout=0.1)."""


class EncoderBlock(nn.Module):
    """Self-attention, then a feed-forward layer, each inside an AddNorm."""

    def __init__(self, attention: MultiHead, feed: nn.Module, add_norm: AddNorms = AddNorm) -> None:
        super().__init__()
        self.self, self.feed = attention, feed
        self.after_self, self.after_feed = add_norm(attention.dim), add_norm(attention.dim)

    def forward(
        self,
        x: Stream,
        *,
        mask: Mask | None = None,
        bias: object | None = None,
        cache: KVCache | None = None,
        offset: int | Tensor | None = None,
    ) -> Stream:
        """x (B, T, D) to (B, T, D); with mask=Causal() this is GPT's block. `cache`, `offset`: as of MultiHead."""
        x = self.after_self(x, lambda y: self.self(y, mask=mask, bias=bias, cache=cache, offset=offset))
        return self.after_feed(x, self.feed)


class DecoderBlock(nn.Module):
    """Self-attention, cross-attention to the memory, then a feed-forward layer."""

    def __init__(self, attention: MultiHead, cross: MultiHead, feed: nn.Module, add_norm: AddNorms = AddNorm) -> None:
        super().__init__()
        self.self, self.cross, self.feed = attention, cross, feed
        self.after_self, self.after_cross, self.after_feed = (add_norm(attention.dim) for _ in range(3))

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        *,
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
        caches: tuple[KVCache, KVCache] | None = None,
    ) -> Tensor:
        """x (B, T, D), memory (B, S, M); `caches`: one for self-attention, one for cross-attention."""
        self_cache, cross_cache = caches or (None, None)
        x = self.after_self(x, lambda y: self.self(y, mask=mask, cache=self_cache))
        x = self.after_cross(x, lambda y: self.cross(y, memory, mask=memory_mask, cache=cross_cache))
        return self.after_feed(x, self.feed)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, heads * width) to (B, heads, T, width)."""
    return x.unflatten(-1, (heads, -1)).transpose(-2, -3)


def _check_heads(dim: int, heads: int, key_heads: int | None, width: int | None) -> tuple[int, int, int]:
    if heads < 1 or (width is None and dim % heads):
        raise SettingError(f"{heads} heads for a width of {dim}", "a divisor of the width", where="MultiHead")
    key_heads = heads if key_heads is None else key_heads
    if key_heads < 1 or heads % key_heads:
        raise SettingError(f"{key_heads} key heads", f"a divisor of the {heads} query heads", where="MultiHead")
    return heads, key_heads, width or dim // heads


def _init_xavier(matrix: nn.Linear) -> None:
    nn.init.xavier_uniform_(matrix.weight)
    if matrix.bias is not None:
        nn.init.zeros_(matrix.bias)


def _project(matrix: nn.Linear, x: Tensor) -> Tensor:
    if x.size(-1) != matrix.in_features:
        raise ShapeError(f"vectors of width {x.size(-1)}", f"width {matrix.in_features}", where="MultiHead")
    return matrix(x)
