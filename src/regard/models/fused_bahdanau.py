"""Fused training path of the Bahdanau decoder: its loop as one autograd function with a hand-written gradient.

    w_t = softmax(v . tanh(Wq h_t-1 + words_t + keys));   c_t = w_t values;   h_t = GRU(gates_t + Wc c_t, h_t-1)

Each step needs the one before, so the cost of a step is the cost of training. Under autograd a step is thirty small
calls forward and as many nodes backward, most of it bookkeeping. Here the backward pass is a second loop over a few
large tensors that the first one saved, and each weight gets its gradient from one product over all steps. The GRU is
here; the attention of a step and its gradient are those of `regard.attention.kernels.recurrent`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.kernels.recurrent import AdditiveGradients, AdditiveSteps


class LoopWeights(NamedTuple):
    """The parameters of the loop: of the score (Wq, v) and of the cell (context and state to gates)."""

    query: Tensor  # (A, H)
    vector: Tensor  # (A,)
    context: Tensor  # (3 H, M)
    state: Tensor  # (3 H, H)
    bias: Tensor  # (3 H,)


class LoopOutput(NamedTuple):
    """The outputs of T steps. `scores` and `twice` (twice the prepared queries) are what attention is reported from."""

    states: Tensor  # (B, T, H)
    contexts: Tensor  # (B, T, M)
    scores: Tensor  # (B, T, S)
    twice: Tensor  # (B, T, A), without a gradient


def run_loop(
    gates: Tensor,
    from_words: Tensor | None,
    first: Tensor,
    keys: Tensor,
    values: Tensor,
    hidden: Tensor | None,
    weights: LoopWeights,
) -> LoopOutput:
    """All steps: what the words add to gates (B, T, 3 H) and queries (B, T, A), the state before them (B, H), prepared
    keys (B, S, A), values (B, S, M), and which keys are masked (B, 1, S)."""
    return LoopOutput(*_BahdanauLoop.apply(gates, from_words, first, keys, values, hidden, *weights))


class _BahdanauLoop(torch.autograd.Function):
    """Tensors of all steps are (T, B, ...). They are unbound before the loop, since indexing would cost as much as the
    sums. Whatever does not depend on the loop is computed for all steps before or after it."""

    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        from_words: Tensor | None,
        first: Tensor,
        keys: Tensor,
        values: Tensor,
        hidden: Tensor | None,
        *parameters: Tensor,
    ) -> tuple[Tensor, ...]:
        query, vector, context, state, bias = parameters
        (B, T, _), A, H = gates.shape, keys.size(-1), first.size(-1)
        new = gates.new_empty
        states = new(T + 1, B, H)  # states[t] is the one before step t
        attention = AdditiveSteps(keys, values, hidden, vector, T)
        # one product gives the query and the state's part of the gates; r, z and n in the order of torch's GRU
        given = new(T, B, A + 3 * H)
        given[..., :A] = 0.0 if from_words is None else 2 * from_words.transpose(0, 1)
        given[..., A:] = bias
        reset_update, candidates = new(T, B, 2 * H), new(T, B, H)
        from_state, over = torch.cat((2 * query, state)).t(), context.t()
        states[0] = first
        steps = zip(
            gates.unbind(1),
            given.unbind(0),
            given[..., :A].unsqueeze(2).unbind(0),
            given[..., A : A + 2 * H].unbind(0),
            given[..., A + 2 * H :].unbind(0),
            states.unbind(0),
            states[1:].unbind(0),
            attention,
            attention.contexts.unbind(0),
            reset_update.unbind(0),
            reset_update[..., :H].unbind(0),
            reset_update[..., H:].unbind(0),
            candidates.unbind(0),
            strict=False,  # there is one state more
        )
        for x, own, twice, own_rz, own_n, h, after, attended, c, rz, r, z, n in steps:
            torch.addmm(own, h, from_state, out=own)
            attention.forward(twice, attended)
            x = torch.addmm(x, c, over)
            torch.add(x[:, : 2 * H], own_rz, out=rz).sigmoid_()
            torch.addcmul(x[:, 2 * H :], r, own_n, out=n).tanh_()
            torch.lerp(n, h, z, out=after)
        weights, contexts, queries = attention.weights, attention.contexts, given[..., :A].transpose(0, 1)
        ctx.save_for_backward(
            values, attention.pairs, weights, states, contexts, reset_update, given, candidates, *parameters
        )
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(queries)
        return states[1:].transpose(0, 1), contexts.transpose(0, 1), attention.scores.transpose(0, 1), queries

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        values, pairs, weights, states, contexts, reset_update, given, candidates, *parameters = ctx.saved_tensors
        query, vector, context, state, _ = parameters
        (T, B, _, A), H = pairs.shape, states.size(-1)
        to_states, to_contexts, to_scores, _ = grads
        to_states = states.new_zeros(B, T, H) if to_states is None else to_states
        to_contexts = torch.zeros_like(contexts) if to_contexts is None else to_contexts.transpose(0, 1).clone()
        to_scores = None if to_scores is None else to_scores.transpose(0, 1)
        attention = AdditiveGradients(pairs, weights, values, vector, to_contexts, to_scores)
        before, (r, z) = states[:-1], reset_update.chunk(2, -1)
        # the derivative of the next state by the pre-activations of n, of z, and of r through n
        grad_n, grad_z = (1 - z) * (1 - candidates * candidates), (before - candidates) * z * (1 - z)
        grad_r = given[..., A + 2 * H :] * r * (1 - r)
        # gradients of the pre-activations: [n, r z] of the word's and the context's part, [r z, n] of the state's part
        sums = states.new_empty(T, B, 4 * H)
        entering = torch.cat((context[2 * H :], context[: 2 * H]))
        back = states.new_zeros(B, H)  # the gradient that a state gets from later steps
        steps = zip(
            to_states.unbind(1),
            grad_n.unbind(0),
            grad_r.unbind(0),
            grad_z.unbind(0),
            r.unbind(0),
            z.unbind(0),
            sums[..., :H].unbind(0),
            sums[..., H : 2 * H].unbind(0),
            sums[..., 2 * H : 3 * H].unbind(0),
            sums[..., 3 * H :].unbind(0),
            sums[..., : 3 * H].unbind(0),
            sums[..., H:].unbind(0),
            attention.contexts.unbind(0),
            attention,
            attention.queries.unbind(0),
            strict=True,
        )
        for (
            grad, by_n, by_r, by_z, reset, update, n, to_r, to_z, own_n, entered, kept, c, attended, q
        ) in reversed(list(steps)):  # fmt: skip
            back = back + grad
            torch.mul(back, by_n, out=n)
            torch.mul(n, by_r, out=to_r)
            torch.mul(back, by_z, out=to_z)
            torch.mul(n, reset, out=own_n)
            c.addmm_(entered, entering)
            attention.backward(attended)
            back = torch.addmm(back * update, kept, state).addmm_(q, query)
        earlier, entered = before.flatten(0, 1), torch.cat((sums[..., H : 3 * H], sums[..., :H]), -1)
        kept = sums[..., H:].flatten(0, 1)
        return (
            entered.transpose(0, 1),
            attention.queries.transpose(0, 1) if ctx.needs_input_grad[1] else None,
            back,
            attention.keys(),
            attention.values(),
            None,
            attention.queries.flatten(0, 1).t() @ earlier,
            attention.vector(),
            entered.flatten(0, 1).t() @ contexts.flatten(0, 1),
            kept.t() @ earlier,
            kept.sum(0),
        )
