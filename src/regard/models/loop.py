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
        states, contexts = new(T + 1, B, H), new(T, B, 1, M)  # states[t] is the one before step t
        met, weights = new(T, B, S, A), new(T, B, 1, S)  # (1 + tanh(Wq h + keys)) / 2, and the weights it leads to
        opened, offered, news = new(T, B, 2 * H), new(T, B, H), new(T, B, H)  # [r z], what r lets through, n
        toward, over, through = query.t(), context.t(), state.t()
        shut = None if hidden is None else hidden.squeeze(1)
        double, total = 2 * vector, vector.sum()
        steps, words = gates.unbind(1), None if asked is None else asked.unbind(1)
        states[0] = first
        for t in range(T):
            h, pairs = states[t], met[t]
            q = h @ toward if words is None else torch.addmm(words[t], h, toward)
            torch.add(q.unsqueeze(1), keys, out=pairs).mul_(2).sigmoid_()
            scores = pairs @ double - total
            if shut is not None:
                scores.masked_fill_(shut, -torch.inf)
            torch.softmax(scores, -1, out=weights[t].squeeze(1))
            torch.bmm(weights[t], values, out=contexts[t])
            x = torch.addmm(steps[t], contexts[t].squeeze(1), over)
            s = torch.addmm(bias, h, through)
            torch.add(x[:, : 2 * H], s[:, : 2 * H], out=opened[t]).sigmoid_()
            offered[t] = s[:, 2 * H :]
            torch.addcmul(x[:, 2 * H :], opened[t, :, :H], s[:, 2 * H :], out=news[t]).tanh_()
            torch.lerp(news[t], h, opened[t, :, H:], out=states[t + 1])
        ctx.save_for_backward(keys, values, met, weights, states, contexts, opened, offered, news, *parameters)
        return states[1:].transpose(0, 1), contexts.squeeze(2).transpose(0, 1)

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, to_states: Tensor, to_contexts: Tensor) -> tuple[Tensor | None, ...]:
        keys, values, met, weights, states, contexts, opened, offered, news, *parameters = ctx.saved_tensors
        query, vector, context, state, _ = parameters
        (T, B, S, A), H = met.shape, states.size(-1)
        back = states.new_zeros(B, H)  # the gradient that reaches the state after step t from later steps
        entered, kept = states.new_empty(T, B, 3 * H), states.new_empty(T, B, 3 * H)  # of the two sums in the gates
        seen = to_contexts.transpose(0, 1).clone()  # of the contexts, (T, B, M)
        asked = states.new_empty(T, B, A)  # of the queries
        of_vector = torch.zeros_like(vector)
        fourfold, turned, slope = 4 * vector, values.mT, torch.empty_like(keys)
        of_keys = torch.zeros_like(keys)
        came = to_states.unbind(1)
        for t in range(T - 1, -1, -1):
            h, n, update = states[t], news[t], opened[t, :, H:]
            back = back + came[t]
            through = torch.mul(back, 1 - update)
            through.mul_(torch.addcmul(_ONE.to(n), n, n, value=-1))  # of the sum inside n's tanh
            torch.mul(through, opened[t, :, :H], out=kept[t, :, 2 * H :])
            entered[t, :, 2 * H :] = through
            both = entered[t, :, : 2 * H]
            torch.mul(through, offered[t], out=both[:, :H])
            torch.mul(back, h - n, out=both[:, H:])
            both.mul_(torch.addcmul(opened[t], opened[t], opened[t], value=-1))
            kept[t, :, : 2 * H] = both
            back = torch.addmm(back * update, kept[t], state)
            seen[t].addmm_(entered[t], context)
            toward = torch.bmm(seen[t].unsqueeze(1), turned)
            w = weights[t]
            scores = w * (toward - (w * toward).sum(-1, keepdim=True))  # (B, 1, S)
            pairs = met[t]
            of_vector.addmv_(pairs.view(-1, A).t(), scores.view(-1), alpha=2)
            torch.addcmul(pairs, pairs, pairs, value=-1, out=slope).mul_(fourfold).mul_(scores.mT)
            of_keys.add_(slope)
            torch.sum(slope, 1, out=asked[t])
            back = torch.addmm(back, asked[t], query)
        before, flat = states[:-1].flatten(0, 1), kept.flatten(0, 1)
        of_values = weights.squeeze(2).permute(1, 2, 0) @ seen.transpose(0, 1)
        return (
            entered.transpose(0, 1),
            asked.transpose(0, 1) if ctx.needs_input_grad[1] else None,
            back,
            of_keys,
            of_values,
            None,
            asked.flatten(0, 1).t() @ before,
            of_vector,
            entered.flatten(0, 1).t() @ contexts.flatten(0, 2),
            flat.t() @ before,
            flat.sum(0),
        )


_ONE = torch.ones(())
