"""Cross-attention of a recurrent decoder: queries come one by one, keys are prepared once; with the step's gradient.

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

from regard.attention.grid import Grid, Lead, cut, short_repr
from regard.attention.inputs import (
    AttentionInputs,
    autocast_disabled,
    bound_normaliser,
    check_parameters,
    check_tensors,
    compute_dtype,
    repeat_kv,
    zero_masked,
)
from regard.attention.mask_analysis import is_trivial
from regard.attention.masks import Dense, Everything, Joined, Mask, Not, Padding, as_mask
from regard.attention.normalise import Softmax, as_normaliser
from regard.attention.observe import Attended, Observe, attention_statistics
from regard.attention.scores import Additive, Score, as_score
from regard.attention.transforms import is_readable
from regard.attention.windows import LocalM, LocalP, as_window
from regard.errors import ShapeError

_OBSERVE_NOTHING = Observe()


@dataclass(frozen=True, eq=False, repr=False)
class HiddenKeys(Mask):
    """A mask whose one row serves all queries, evaluated once.

    `hidden` (..., 1, S): the keys that no query may see. `empty_rows` (..., 1, 1): batch rows in which those are all
    keys; None: there are none.
    """

    hidden: Tensor
    empty_rows: Tensor | None

    __repr__ = short_repr

    @classmethod
    def of(cls, mask: Mask, grid: Grid) -> HiddenKeys | None:
        """The row of a mask that is the same for every query; None where it hides nothing."""
        if isinstance(mask, HiddenKeys):
            return mask
        if grid.S and is_trivial(mask, grid):
            return None
        everywhere = torch.arange(grid.S, device=grid.device)
        allowed = mask.allowed(torch.arange(1, device=grid.device), everywhere, grid)
        allowed = allowed.expand(*allowed.shape[:-1], grid.S)
        empty_rows = ~allowed.any(-1, keepdim=True)
        return cls(~allowed, None if is_readable(empty_rows) and not empty_rows.any() else empty_rows)

    def allowed(self, rows: Tensor, cols: Tensor, grid: Grid) -> Tensor:
        return ~self.hidden[..., cols]

    def part(self, lead: Lead) -> Mask:
        return HiddenKeys(cut(self.hidden, lead), None if self.empty_rows is None else cut(self.empty_rows, lead))

    def implied_lead(self) -> tuple[int, ...]:
        return tuple(self.hidden.shape[:-2])


def unsupported_reason(prepared: AttentionInputs, v: Tensor, dropout: float) -> str | None:
    """Why this kernel cannot serve a request; None: it can."""
    if prepared.window is not None:
        return "it has no predicted windows (LocalP)"
    if prepared.bias is not None:
        return "it adds no bias"
    if not isinstance(prepared.normalise, Softmax):
        return f"it computes a softmax, and got {prepared.normalise!r}"
    if not prepared.score.finite:
        return f"a score of {type(prepared.score).__name__} may hide keys by -inf"
    if prepared.grid.T != 1 and not _is_one_row(prepared.mask, prepared.grid):
        return "its mask differs among the queries, and this kernel takes one row of it for all of them"
    return None


def _is_one_row(mask: Mask, grid: Grid) -> bool:
    """Whether a mask is surely the same for every query."""
    if isinstance(mask, Joined):
        return all(_is_one_row(inner, grid) for inner in mask.masks)
    if isinstance(mask, Not):
        return _is_one_row(mask.mask, grid)
    if isinstance(mask, Padding):
        return mask.queries is None
    if isinstance(mask, Dense):
        return mask.table.size(-2) == 1
    return isinstance(mask, HiddenKeys) or is_trivial(mask, grid)


def compute(prepared: AttentionInputs, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """`plain` with one row of the mask for all queries."""
    q, k, grid = prepared.q, prepared.k, prepared.grid
    row = HiddenKeys.of(prepared.mask, grid)
    dtype = compute_dtype(torch.promote_types(q.dtype, k.dtype))
    scores = prepared.score.compare(q.to(dtype), repeat_kv(k, grid).to(dtype))
    weights, lse = _weights(scores, row)
    values = repeat_kv(v, grid).to(dtype)
    output = (torch.nn.functional.dropout(weights, dropout) @ values).to(v.dtype)
    return _as_attended(output, weights, lse, scores, row, observe)


def _weights(scores: Tensor, row: HiddenKeys | None) -> tuple[Tensor, Tensor]:
    """The weights of scores (..., T, S), and their log-sum-exp (..., T)."""
    if row is None:
        return scores.softmax(-1), scores.logsumexp(-1)
    scores = scores.masked_fill(row.hidden, -torch.inf)
    if row.empty_rows is None:
        return scores.softmax(-1), scores.logsumexp(-1)
    scores = scores.masked_fill(row.empty_rows, 0.0)  # a row without keys has no softmax; its weights are 0
    return (
        scores.softmax(-1).masked_fill(row.empty_rows, 0.0),
        scores.logsumexp(-1).masked_fill(row.empty_rows.squeeze(-1), -torch.inf),
    )


def _as_attended(
    output: Tensor, weights: Tensor, lse: Tensor, scores: Tensor, row: HiddenKeys | None, observe: Observe
) -> Attended:
    if not observe.statistics and not observe.weights:
        return Attended(output, lse, "recurrent")
    hidden = torch.zeros_like(weights, dtype=torch.bool) if row is None else row.hidden
    found = attention_statistics(weights, hidden, observe)
    if observe.peak:
        found["peak"] = scores.detach().masked_fill(hidden, -torch.inf).amax(-1)
    return Attended(output, lse, "recurrent", **found)


@dataclass(frozen=True, eq=False, repr=False)
class PreparedKeys:
    """Keys (B, S, D') as the score prepared them, and values (B, S, Dv), for queries that come one by one.

    `hidden` (B, 1, S): the keys that no query may see; None: there are none. `empty_rows` (B, 1, 1): batch rows in
    which those are all keys; None: there are none.
    """

    score: Score
    keys: Tensor
    values: Tensor
    hidden: Tensor | None
    empty_rows: Tensor | None

    __repr__ = short_repr

    @classmethod
    def of(cls, k: Tensor, v: Tensor | None = None, *, score: object = None, mask: Mask | None = None) -> PreparedKeys:
        """k (B, S, Dk), v (B, S, Dv), by default v = k. The mask must not depend on the query: Padding, Everything."""
        v = k if v is None else v
        check_tensors(k, k, v)
        grid = Grid((k.size(0),), 1, k.size(-2), k.device)
        score_module, full_mask = as_score(score), as_mask(mask)
        full_mask.check(grid)
        check_parameters(score_module, None, k)
        row = HiddenKeys.of(full_mask, grid)
        hidden = empty_rows = None
        if row is not None:
            hidden, empty_rows = row.hidden.expand(k.size(0), 1, grid.S), row.empty_rows
            k, v = (zero_masked(x, ~hidden.squeeze(-2), grid) for x in (k, v))
        with autocast_disabled(k):
            return cls(score_module, score_module.keys(k).to(compute_dtype(k.dtype)), v, hidden, empty_rows)

    @cached_property
    def mask(self) -> Mask:
        """The mask, as `attend` takes it."""
        return Everything() if self.hidden is None else HiddenKeys(self.hidden, self.empty_rows)

    def inputs(self, q: Tensor, window: LocalM | LocalP | None = None, normalise: object = None) -> AttentionInputs:
        """The inputs of a kernel for queries q (B, T, Dq)."""
        if q.dim() != 3 or q.size(0) != self.keys.size(0):
            raise ShapeError(f"queries {tuple(q.shape)}", f"({self.keys.size(0)}, T, D)", where="attend, PreparedKeys")
        if self.empty_rows is not None:
            q = torch.where(self.empty_rows, 0.0, q)  # such a query may hold NaN, which must not matter
        mask, local_window = self.mask, as_window(window)
        if isinstance(local_window, LocalM):
            mask, local_window = mask & local_window.mask, None
        with autocast_disabled(q):
            predicted = None if local_window is None else local_window.predict(q)
            queries = self.score.queries(q)
        grid = Grid((q.size(0),), q.size(-2), self.keys.size(-2), q.device)
        normaliser = bound_normaliser(normalise, local_window, grid, q)
        terms = mask, None, local_window, predicted
        return AttentionInputs(self.score, queries, self.keys, *terms, grid, normaliser)

    def rows(self, rows: Tensor) -> PreparedKeys:
        """The keys of these rows (B',), in this order."""
        hidden, empty_rows = (None if x is None else x.index_select(0, rows) for x in (self.hidden, self.empty_rows))
        keys, values = self.keys.index_select(0, rows), self.values.index_select(0, rows)
        return replace(self, keys=keys, values=values, hidden=hidden, empty_rows=empty_rows)

    def as_attended(self, queries: Tensor, scores: Tensor, output: Tensor, observe: Observe) -> Attended:
        """The Attended of a step that has been computed: from prepared queries (B, T, D'), their scores (B, T, S), -inf
        where hidden, and the output (B, T, Dv)."""
        row = None if self.hidden is None else HiddenKeys(self.hidden, self.empty_rows)
        got = _as_attended(output, *_weights(scores, row), scores, row, observe)
        grid = Grid((queries.size(0),), queries.size(-2), self.keys.size(-2), queries.device)
        inputs = AttentionInputs(self.score, queries, self.keys, self.mask, None, None, None, grid, as_normaliser(None))
        return got.with_inputs(inputs, self.values, observe)


def steps_unsupported_reason(keys: PreparedKeys, dtype: torch.dtype) -> str | None:
    """Why `AdditiveSteps` cannot serve queries of this dtype; None: it can."""
    if not isinstance(keys.score, Additive):
        return f"its gradient is that of an Additive score, not of {type(keys.score).__name__}"
    if keys.empty_rows is not None:
        return "rows without a key have no softmax"
    if keys.keys.dtype != dtype or keys.values.dtype != dtype or torch.is_autocast_enabled(keys.keys.device.type):
        return "it computes in one precision"
    return None


class AdditiveSteps:
    """T steps of additive attention, each query known only after the step before it.

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

    def forward(self, doubled_queries: Tensor, step: tuple[Tensor, ...]) -> None:
        """One step, from twice the prepared queries, (B, 1, A)."""
        pairs, flat, scores, flat_scores, weights, row, context = step
        torch.add(doubled_queries, self._keys, out=pairs).sigmoid_()
        torch.addmv(self._base, flat, self._vector, out=flat_scores)
        torch.softmax(scores, -1, out=weights)
        torch.bmm(row, self._values, out=context)


class AdditiveGradients:
    """The backward pass of `AdditiveSteps`, last step first.

    `contexts` (T, B, M) begins as the gradient of the contexts; a loop may add to that of a step before `backward`
    reads it. After all steps, `queries` (T, B, A) holds the gradient of the prepared queries, and `keys`, `values` and
    `vector` return the others.
    """

    def __init__(
        self,
        pairs: Tensor,
        weights: Tensor,
        values: Tensor,
        vector: Tensor,
        grad_contexts: Tensor,
        grad_scores: Tensor | None = None,
    ) -> None:
        """The buffers of the steps, and gradients (T, B, M) of the contexts and, where they were used, (T, B, S) of the
        scores."""
        T, B, _, A = pairs.shape
        self.queries, self.contexts = pairs.new_empty(T, B, A), grad_contexts
        self._pairs, self._weights, self._grad_scores = pairs, weights, grad_scores
        self._pair_grads = (pairs - pairs * pairs).mul_(4 * vector)  # of the scores by queries and keys
        self._scores = torch.empty_like(weights)
        self._values = values.mT

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        """The steps from the first to the last; a loop takes them in reverse."""
        shifts = self._scores if self._grad_scores is None else self._grad_scores
        return zip(
            self.contexts.unsqueeze(2).unbind(0),
            self._weights.unsqueeze(2).unbind(0),
            self._scores.unsqueeze(2).unbind(0),
            self._scores.unsqueeze(3).unbind(0),
            self._pair_grads.unbind(0),
            self.queries.unbind(0),
            shifts.unsqueeze(2).unbind(0),
            strict=True,
        )

    def backward(self, step: tuple[Tensor, ...]) -> None:
        """One step: the gradient of its queries from that of its contexts."""
        context, weights, scores, column, pair_grads, queries, shift = step
        grad_weights = torch.bmm(context, self._values)
        torch.mul(weights, grad_weights - (weights * grad_weights).sum(-1, keepdim=True), out=scores)
        if self._grad_scores is not None:
            scores.add_(shift)
        torch.sum(pair_grads.mul_(column), 1, out=queries)

    def keys(self) -> Tensor:
        """(B, S, A), of the prepared keys."""
        return self._pair_grads.sum(0)

    def values(self) -> Tensor:
        """(B, S, M)."""
        return self._weights.permute(1, 2, 0) @ self.contexts.transpose(0, 1)

    def vector(self) -> Tensor:
        """(A,), of the score's vector."""
        found = 2 * (self._scores.flatten() @ self._pairs.flatten(0, 2))
        # the gradient of a softmax sums to 0 over the keys, that of the scores themselves does not
        return found if self._grad_scores is None else found - self._grad_scores.sum()
