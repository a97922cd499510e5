"""A recurrent decoder's attention: queries that come one by one to keys that are prepared once, and the derivative of
such a loop, step by step.

keys = PreparedKeys.of(k, v, score=Additive(...), mask=Padding(lengths))
attend(q, keys)                                 # equal to attend(q, k, v, score=..., mask=...)

The score sees every key once, and the mask is evaluated once; a step then costs no more than its own comparison.
`AdditiveSteps` and `AdditiveGradients` are the same average for a loop that has no autograd inside (Bahdanau's): one
step forward, one step backward, over buffers that hold all steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from regard.attention.grid import Grid, Lead, cut
from regard.attention.inputs import (
    Prepared,
    check_parameters,
    check_tensors,
    own_precision,
    share_heads,
    unseen_to_zero,
    working,
)
from regard.attention.mask_analysis import hides_nothing
from regard.attention.masks import Dense, Everything, Joined, Mask, Not, Padding, as_mask
from regard.attention.observe import Attended, Observe, describe
from regard.attention.scores import Additive, Score, as_score
from regard.attention.windows import LocalM, LocalP, as_window
from regard.errors import ShapeError

_NOTHING = Observe()


@dataclass(frozen=True, eq=False)
class HiddenKeys(Mask):
    """A mask of which one row serves all queries, evaluated once.

    `hidden` (..., 1, S): the keys that no query may see. `blind` (..., 1, 1): rows in which those are all keys; None:
    there are none.
    """

    hidden: Tensor
    blind: Tensor | None

    @classmethod
    def of(cls, mask: Mask, grid: Grid) -> HiddenKeys | None:
        """The row of a mask that is the same for every query; None where it hides nothing."""
        if isinstance(mask, HiddenKeys):
            return mask
        if grid.S and hides_nothing(mask, grid):
            return None
        everywhere = torch.arange(grid.S, device=grid.device)
        allowed = mask.allowed(torch.arange(1, device=grid.device), everywhere, grid)
        allowed = allowed.expand(*allowed.shape[:-1], grid.S)
        blind = ~allowed.any(-1, keepdim=True)
        at_hand = blind.device.type == "cpu" and not torch.compiler.is_compiling()
        return cls(~allowed, None if at_hand and not blind.any() else blind)

    def allowed(self, rows: Tensor, cols: Tensor, grid: Grid) -> Tensor:
        return ~self.hidden[..., cols]

    def part(self, lead: Lead) -> Mask:
        return HiddenKeys(cut(self.hidden, lead), None if self.blind is None else cut(self.blind, lead))

    def own_lead(self) -> tuple[int, ...]:
        return tuple(self.hidden.shape[:-2])


def refuses(prepared: Prepared, v: Tensor, dropout: float) -> str | None:
    """Why this kernel cannot serve a request, in words; None: it can."""
    if prepared.window is not None:
        return "it has no predicted windows (LocalP)"
    if prepared.bias is not None:
        return "it adds no bias"
    if not prepared.score.finite:
        return f"a score of {type(prepared.score).__name__} may hide keys by -inf"
    if prepared.grid.T != 1 and not _one_row(prepared.mask, prepared.grid):
        return "its mask differs among the queries, and this kernel takes one row of it for all of them"
    return None


def _one_row(mask: Mask, grid: Grid) -> bool:
    """Whether a mask is surely the same for every query."""
    if isinstance(mask, Joined):
        return all(_one_row(inner, grid) for inner in mask.masks)
    if isinstance(mask, Not):
        return _one_row(mask.mask, grid)
    if isinstance(mask, Padding):
        return mask.queries is None
    if isinstance(mask, Dense):
        return mask.table.size(-2) == 1
    return isinstance(mask, HiddenKeys) or hides_nothing(mask, grid)


def compute(prepared: Prepared, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """`plain` with one row of the mask for all queries."""
    q, k, grid = prepared.q, prepared.k, prepared.grid
    row = HiddenKeys.of(prepared.mask, grid)
    dtype = working(torch.promote_types(q.dtype, k.dtype))
    scores = prepared.score.compare(q.to(dtype), share_heads(k, grid).to(dtype))
    weights, lse = _weights(scores, row)
    values = share_heads(v, grid).to(dtype)
    output = (torch.nn.functional.dropout(weights, dropout) @ values).to(v.dtype)
    return _attended(output, weights, lse, row, observe)


def _weights(scores: Tensor, row: HiddenKeys | None) -> tuple[Tensor, Tensor]:
    """The weights of scores (..., T, S), and their log-sum-exp (..., T)."""
    if row is None:
        return scores.softmax(-1), scores.logsumexp(-1)
    scores = scores.masked_fill(row.hidden, -torch.inf)
    if row.blind is None:
        return scores.softmax(-1), scores.logsumexp(-1)
    scores = scores.masked_fill(row.blind, 0.0)  # such a row has no softmax; its weights are 0
    return (
        scores.softmax(-1).masked_fill(row.blind, 0.0),
        scores.logsumexp(-1).masked_fill(row.blind.squeeze(-1), -torch.inf),
    )


def _attended(output: Tensor, weights: Tensor, lse: Tensor, row: HiddenKeys | None, observe: Observe) -> Attended:
    if not observe.statistics and not observe.weights:
        return Attended(output, lse, "recurrent")
    hidden = torch.zeros_like(weights, dtype=torch.bool) if row is None else row.hidden
    return Attended(output, lse, "recurrent", **describe(weights, hidden, observe))


@dataclass(frozen=True, eq=False)
class PreparedKeys:
    """`keys` (B, S, D') as the score prepared them, `values` (B, S, Dv); `PreparedKeys.of` makes one.

    `hidden` (B, 1, S): what no query may look at; None: nothing. `blind` (B, 1, 1): rows in which that is everything;
    None: there are none.
    """

    score: Score
    keys: Tensor
    values: Tensor
    hidden: Tensor | None
    blind: Tensor | None

    @classmethod
    def of(cls, k: Tensor, v: Tensor | None = None, *, score: object = None, mask: Mask | None = None) -> PreparedKeys:
        """k (B, S, Dk), v (B, S, Dv), by default v = k. The mask must not depend on the query: Padding, Everything."""
        v = k if v is None else v
        check_tensors(k, k, v)
        grid = Grid((k.size(0),), 1, k.size(-2), k.device)
        asked, where = as_score(score), as_mask(mask)
        where.check(grid)
        check_parameters(asked, None, k)
        row = HiddenKeys.of(where, grid)
        hidden = blind = None
        if row is not None:
            hidden, blind = row.hidden.expand(k.size(0), 1, grid.S), row.blind
            k, v = (unseen_to_zero(x, ~hidden.squeeze(-2), grid) for x in (k, v))
        with own_precision(k):
            return cls(asked, asked.keys(k).to(working(k.dtype)), v, hidden, blind)

    @cached_property
    def mask(self) -> Mask:
        """Which keys may be seen, as `attend` takes it."""
        return Everything() if self.hidden is None else HiddenKeys(self.hidden, self.blind)

    def inputs(self, q: Tensor, window: LocalM | LocalP | None = None) -> Prepared:
        """What a kernel is given for queries q (B, T, Dq)."""
        if q.dim() != 3 or q.size(0) != self.keys.size(0):
            raise ShapeError(f"queries {tuple(q.shape)}", f"({self.keys.size(0)}, T, D)", where="attend, PreparedKeys")
        if self.blind is not None:
            q = torch.where(self.blind, 0.0, q)  # such a query may hold NaN, and must not matter
        mask, near = self.mask, as_window(window)
        if isinstance(near, LocalM):
            mask, near = mask & near.mask, None
        with own_precision(q):
            aim = None if near is None else near.aim(q)
            queries = self.score.queries(q)
        grid = Grid((q.size(0),), q.size(-2), self.keys.size(-2), q.device)
        return Prepared(self.score, queries, self.keys, mask, None, near, aim, grid)

    def rows(self, rows: Tensor) -> PreparedKeys:
        """The keys of these rows (B',), in this order."""
        hidden, blind = (None if x is None else x.index_select(0, rows) for x in (self.hidden, self.blind))
        keys, values = self.keys.index_select(0, rows), self.values.index_select(0, rows)
        return replace(self, keys=keys, values=values, hidden=hidden, blind=blind)

    def attended(self, queries: Tensor, scores: Tensor, output: Tensor, observe: Observe) -> Attended:
        """What `attend` would report of a step that has been computed: prepared queries (B, T, D'), their scores
        (B, T, S), -inf where hidden, and the output (B, T, Dv)."""
        row = None if self.hidden is None else HiddenKeys(self.hidden, self.blind)
        got = _attended(output, *_weights(scores, row), row, observe)
        grid = Grid((queries.size(0),), queries.size(-2), self.keys.size(-2), queries.device)
        inputs = Prepared(self.score, queries, self.keys, self.mask, None, None, None, grid)
        return got.with_inputs(inputs, self.values, observe)


def steps_refuse(keys: PreparedKeys, dtype: torch.dtype) -> str | None:
    """Why `AdditiveSteps` cannot serve queries of this dtype, in words; None: it can."""
    if not isinstance(keys.score, Additive):
        return f"its derivative is that of an Additive score, not of {type(keys.score).__name__}"
    if keys.blind is not None:
        return "rows without a key have no softmax"
    if keys.keys.dtype != dtype or keys.values.dtype != dtype or torch.is_autocast_enabled(keys.keys.device.type):
        return "it computes in one precision"
    return None


class AdditiveSteps:
    """T steps of attention by an Additive score, each query known only after the step before it.

    steps = AdditiveSteps(keys, values, hidden, vector, T)
    for step in steps: steps.forward(2 * q, step)        # q (B, 1, A): fills weights and contexts of this step

    All tensors are (T, B, ...). They are unbound before the loop, since indexing would cost as much as the arithmetic.
    """

    def __init__(self, keys: Tensor, values: Tensor, hidden: Tensor | None, vector: Tensor, T: int) -> None:
        """keys (B, S, A) and values (B, S, M), hidden (B, 1, S) or None, the score's vector (A,)."""
        (B, S, A), M, new = keys.shape, values.size(-1), keys.new_empty
        # tanh(x) = 2 sigmoid(2 x) - 1, as in Additive: pairs = sigmoid(2 (q + k)), scores = pairs . 2 v - sum of v
        self.pairs, self.scores, self.weights, self.contexts = new(T, B, S, A), new(T, B, S), new(T, B, S), new(T, B, M)
        base = (-vector.sum()).expand(B, S)
        self._base = (base if hidden is None else base.masked_fill(hidden.squeeze(1), -torch.inf)).flatten()
        self._keys, self._values, self._vector = 2 * keys, values, 2 * vector

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        return zip(
            self.pairs.unbind(0),
            self.pairs.flatten(1, 2).unbind(0),
            self.scores.unbind(0),
            self.scores.flatten(1).unbind(0),
            self.weights.unbind(0),
            self.weights.unsqueeze(2).unbind(0),
            self.contexts.unsqueeze(2).unbind(0),
            strict=True,
        )

    def forward(self, twice: Tensor, step: tuple[Tensor, ...]) -> None:
        """One step of queries of which `twice` (B, 1, A) is twice the prepared ones."""
        pairs, flat, scores, flat_scores, weights, row, context = step
        torch.add(twice, self._keys, out=pairs).sigmoid_()
        torch.addmv(self._base, flat, self._vector, out=flat_scores)
        torch.softmax(scores, -1, out=weights)
        torch.bmm(row, self._values, out=context)


class AdditiveGradients:
    """The way back through `AdditiveSteps`, last step first.

    `contexts` (T, B, M) begins as the gradient of the contexts; a loop may add to that of a step before `backward`
    takes it. After all steps, `queries` (T, B, A) has the gradient of the prepared queries, and `keys`, `values` and
    `vector` give the others.
    """

    def __init__(
        self,
        pairs: Tensor,
        weights: Tensor,
        values: Tensor,
        vector: Tensor,
        to_contexts: Tensor,
        to_scores: Tensor | None = None,
    ) -> None:
        """What the steps left, and gradients (T, B, M) of the contexts and, where somebody used them, (T, B, S) of the
        scores."""
        T, B, _, A = pairs.shape
        self.queries, self.contexts = pairs.new_empty(T, B, A), to_contexts
        self._pairs, self._weights, self._to_scores = pairs, weights, to_scores
        self._slopes = (pairs - pairs * pairs).mul_(4 * vector)  # of the scores by queries and keys
        self._scores = torch.empty_like(weights)
        self._values = values.mT

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        """The steps from the first to the last; a loop takes them in reverse."""
        shifts = self._scores if self._to_scores is None else self._to_scores
        return zip(
            self.contexts.unsqueeze(2).unbind(0),
            self._weights.unsqueeze(2).unbind(0),
            self._scores.unsqueeze(2).unbind(0),
            self._scores.unsqueeze(3).unbind(0),
            self._slopes.unbind(0),
            self.queries.unbind(0),
            shifts.unsqueeze(2).unbind(0),
            strict=True,
        )

    def backward(self, step: tuple[Tensor, ...]) -> None:
        """One step: the gradient of its queries from that of its contexts."""
        context, weights, scores, column, slopes, queries, shift = step
        toward = torch.bmm(context, self._values)
        torch.mul(weights, toward - (weights * toward).sum(-1, keepdim=True), out=scores)
        if self._to_scores is not None:
            scores.add_(shift)
        torch.sum(slopes.mul_(column), 1, out=queries)

    def keys(self) -> Tensor:
        """(B, S, A), of the prepared keys."""
        return self._slopes.sum(0)

    def values(self) -> Tensor:
        """(B, S, M)."""
        return self._weights.permute(1, 2, 0) @ self.contexts.transpose(0, 1)

    def vector(self) -> Tensor:
        """(A,), of the score's vector."""
        found = 2 * (self._scores.flatten() @ self._pairs.flatten(0, 2))
        # the gradient of a softmax sums to 0 over the keys, that of the scores themselves does not
        return found if self._to_scores is None else found - self._to_scores.sum()
