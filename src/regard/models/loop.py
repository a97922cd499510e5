"""Bahdanau's loop, all steps of it, with its derivative written out.

    w_t = softmax(v . tanh(Wq h_t-1 + asked_t + keys));   c_t = w_t values;   h_t = GRU(gates_t + Wc c_t, h_t-1)

Nothing undoes this loop, so what a step costs is what training costs. Left to autograd, a step is thirty small calls
forward and as many nodes back, most of it bookkeeping. Here the way back is a second loop over what the first one left
in a few large tensors, and every weight has its gradient from one product over all steps. It serves training alone,
while nobody listens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Weights(NamedTuple):
    """The parameters of the loop: of the score (Wq, v), of the cell (what the context and the state add to gates)."""

    query: Tensor  # (A, H)
    vector: Tensor  # (A,)
    context: Tensor  # (3 H, M)
    state: Tensor  # (3 H, H)
    bias: Tensor  # (3 H,)


def walk(
    gates: Tensor,
    asked: Tensor | None,
    first: Tensor,
    keys: Tensor,
    values: Tensor,
    hidden: Tensor | None,
    weights: Weights,
) -> tuple[Tensor, Tensor]:
    """What the words add to the gates (B, T, 3 H) and to the queries (B, T, A), the state before them (B, H), keys
    (B, S, A), values (B, S, M), and where nobody may look (B, 1, S): the states (B, T, H), the contexts (B, T, M)."""
    states, contexts = _Walk.apply(gates, asked, first, keys, values, hidden, *weights)
    return states, contexts


class _Walk(torch.autograd.Function):
    """Tensors of all steps are (T, B, ...). A loop calls each of them by step, so they are unbound beforehand: indexing
    would cost as much as the sums. What does not hang on the loop is computed for all steps before it or after it."""

    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        asked: Tensor | None,
        first: Tensor,
        keys: Tensor,
        values: Tensor,
        hidden: Tensor | None,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        query, vector, context, state, bias = parameters
        (B, T, _), (S, A), H, M = gates.shape, keys.shape[1:], first.size(-1), values.size(-1)
        new = gates.new_empty
        states, contexts = new(T + 1, B, H), new(T, B, M)  # states[t] is the one before step t
        # tanh(x) = 2 sigmoid(2 x) - 1, as in Additive: met = sigmoid(2 (q + k)), scores = met . 2 v - sum of v
        met, weights, base = new(T, B, S, A), new(T, B, S), (-vector.sum()).expand(B, S)
        base = (base if hidden is None else base.masked_fill(hidden.squeeze(1), -torch.inf)).flatten()
        # a state gives its query and its share of the gates in one product; r, z and n in the order of torch's GRU
        given = new(T, B, A + 3 * H)
        given[..., :A] = 0.0 if asked is None else 2 * asked.transpose(0, 1)
        given[..., A:] = bias
        opened, news = new(T, B, 2 * H), new(T, B, H)
        from_state, over = torch.cat((2 * query, state)).t(), context.t()
        double, twice = 2 * vector, 2 * keys
        states[0] = first
        steps = zip(
            gates.unbind(1),
            given.unbind(0),
            given[..., :A].unsqueeze(2).unbind(0),
            given[..., A : A + 2 * H].unbind(0),
            given[..., A + 2 * H :].unbind(0),
            states.unbind(0),
            states[1:].unbind(0),
            met.unbind(0),
            met.flatten(1, 2).unbind(0),
            weights.unbind(0),
            weights.unsqueeze(2).unbind(0),
            contexts.unbind(0),
            contexts.unsqueeze(2).unbind(0),
            opened.unbind(0),
            opened[..., :H].unbind(0),
            opened[..., H:].unbind(0),
            news.unbind(0),
            strict=False,  # there is one state more
        )
        for x, own, q, own_rz, own_n, h, after, pairs, flat, w, w_row, c, c_row, rz, r, z, n in steps:
            torch.addmm(own, h, from_state, out=own)
            torch.add(q, twice, out=pairs).sigmoid_()
            torch.softmax(torch.addmv(base, flat, double).view(B, S), -1, out=w)
            torch.bmm(w_row, values, out=c_row)
            x = torch.addmm(x, c, over)
            torch.add(x[:, : 2 * H], own_rz, out=rz).sigmoid_()
            torch.addcmul(x[:, 2 * H :], r, own_n, out=n).tanh_()
            torch.lerp(n, h, z, out=after)
        ctx.save_for_backward(values, met, weights, states, contexts, opened, given, news, *parameters)
        return states[1:].transpose(0, 1), contexts.transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_states: Tensor, to_contexts: Tensor) -> tuple[Tensor | None, ...]:
        values, met, weights, states, contexts, opened, given, news, *parameters = ctx.saved_tensors
        query, vector, context, state, _ = parameters
        (T, B, _, A), H = met.shape, states.size(-1)
        before, (r, z) = states[:-1], opened.chunk(2, -1)
        # how far each sum in the gates moves the next state: of n, of z, and of r through n
        slope_n, slope_z = (1 - z) * (1 - news * news), (before - news) * z * (1 - z)
        slope_r = given[..., A + 2 * H :] * r * (1 - r)
        slopes = (met - met * met).mul_(4 * vector)  # of the scores by each query and key, before their own gradient
        # gradients of the sums: [n, r z] of what the word and the context added, [r z, n] of what the state did
        sums, asked = states.new_empty(T, B, 4 * H), states.new_empty(T, B, A)
        seen = to_contexts.transpose(0, 1).clone()  # of the contexts
        scored = torch.empty_like(weights)
        entering, turned = torch.cat((context[2 * H :], context[: 2 * H])), values.mT
        back = states.new_zeros(B, H)  # the gradient that reaches the state after a step from later ones
        steps = zip(
            to_states.unbind(1),
            slope_n.unbind(0),
            slope_r.unbind(0),
            slope_z.unbind(0),
            r.unbind(0),
            z.unbind(0),
            sums[..., :H].unbind(0),
            sums[..., H : 2 * H].unbind(0),
            sums[..., 2 * H : 3 * H].unbind(0),
            sums[..., 3 * H :].unbind(0),
            sums[..., : 3 * H].unbind(0),
            sums[..., H:].unbind(0),
            seen.unbind(0),
            seen.unsqueeze(2).unbind(0),
            weights.unsqueeze(2).unbind(0),
            scored.unsqueeze(2).unbind(0),
            scored.unsqueeze(3).unbind(0),
            slopes.unbind(0),
            asked.unbind(0),
            strict=True,
        )
        for (
            came, by_n, by_r, by_z, reset, update, n, to_r, to_z, own_n, entered, kept, c, c_row, w, s, column, pairs, q
        ) in reversed(list(steps)):  # fmt: skip
            back = back + came
            torch.mul(back, by_n, out=n)
            torch.mul(n, by_r, out=to_r)
            torch.mul(back, by_z, out=to_z)
            torch.mul(n, reset, out=own_n)
            c.addmm_(entered, entering)
            toward = torch.bmm(c_row, turned)
            torch.mul(w, toward - (w * toward).sum(-1, keepdim=True), out=s)
            torch.sum(pairs.mul_(column), 1, out=q)
            back = torch.addmm(back * update, kept, state).addmm_(q, query)
        earlier, entered = before.flatten(0, 1), torch.cat((sums[..., H : 3 * H], sums[..., :H]), -1)
        kept = sums[..., H:].flatten(0, 1)
        return (
            entered.transpose(0, 1),
            asked.transpose(0, 1) if ctx.needs_input_grad[1] else None,
            back,
            slopes.sum(0),
            weights.permute(1, 2, 0) @ seen.transpose(0, 1),
            None,
            asked.flatten(0, 1).t() @ earlier,
            2 * (scored.flatten() @ met.flatten(0, 2)),
            entered.flatten(0, 1).t() @ contexts.flatten(0, 1),
            kept.t() @ earlier,
            kept.sum(0),
        )
