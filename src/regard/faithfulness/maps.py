"""Attribution maps of a decision: one number for each token, from attention and from the methods it is compared with.

A map is (B, S), larger where a token supports the decision more; gradients may be below 0, where a token opposes it.
Attention gives a map for every head and one for every place (the mean of its heads); each other method gives one:
norm-based attention, attention rollout, relevance, gradient x attention, gradient x input, integrated gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from regard.adapters import InputRow, ModelAdapter
from regard.attention import Observe, capture
from regard.errors import PlaceError, unknown
from regard.inspection import (
    RelevanceLayer,
    RolloutLayer,
    compute_gradients,
    gradient_times_input,
    integrated_input_gradients,
    intercept_embeddings,
    intercept_weights,
    relevance,
    rollout,
    transformed_norms,
)

# of integrated gradients; half of the 32 of regard.inspection, since an audit integrates twice for every decision
AUDIT_INTEGRATION_STEPS = 16
TEXT_STREAM, OTHER_STREAM = range(2)  # of the rollout: the text, and what attends to it


@dataclass(frozen=True, eq=False)
class AttentionAt:
    """The attention at a place whose keys are the text: weights (B, H, T, S), the gradient of p with respect to each
    weight, and the readout query of each text, None where there is no single one."""

    place: str
    weights: Tensor
    gradients: Tensor
    readout: list[int] | None

    @property
    def heads(self) -> int:
        return self.weights.size(1)

    def at_readout(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x (B, H, T, S) of the readout query, or the mean over all real queries: (B, H, S)."""
        if self.readout is not None:
            return x[range(len(self.readout)), :, self.readout]
        real = torch.arange(x.size(2)) < lengths.unsqueeze(1)  # (B, T)
        return (x * real[:, None, :, None]).sum(2) / lengths[:, None, None]


@dataclass(frozen=True, eq=False)
class DecisionTrace:
    """The decisions of a model on some texts: ln p (B, C), the first and the second class, and the attention with its
    gradients, for p of the first and of the second class."""

    rows: Sequence[InputRow]
    log_probs: Tensor
    predicted: Tensor
    second: Tensor
    attention: list[AttentionAt]
    attention_for_second: list[AttentionAt]
    mean_weights: list[tuple[str, Tensor]]  # (B, T, S) of every place, in order, also of those whose keys are no text

    @property
    def lengths(self) -> Tensor:
        return torch.tensor([len(row.ids) for row in self.rows])

    @property
    def p(self) -> Tensor:
        """p (B,) of the predicted class."""
        return self.log_probs.exp().gather(1, self.predicted.unsqueeze(1)).squeeze(1)


def trace_decisions(
    adapter: ModelAdapter, rows: Sequence[InputRow], places: str | Sequence[str] = "*"
) -> DecisionTrace:
    """Run the model, and differentiate p of the predicted class, and of the second one."""
    with torch.no_grad():
        log_probs = adapter.log_probs(rows)
    best = log_probs.topk(2, -1).indices
    first, mean_weights = _attention_and_gradients(adapter, rows, best[:, 0], places)
    second, _ = _attention_and_gradients(adapter, rows, best[:, 1], places)
    if not first:
        known = [place for place, _ in mean_weights if adapter.has_text_keys(place)]
        if not known:
            raise PlaceError("This model has no attention to the text", where="audit")
        pattern = places if isinstance(places, str) else ", ".join(places)
        raise unknown(pattern, known, kind="place", where="audit", error=PlaceError)
    return DecisionTrace(rows, log_probs, best[:, 0], best[:, 1], first, second, mean_weights)


def _attention_and_gradients(
    adapter: ModelAdapter, rows: Sequence[InputRow], classes: Tensor, places: str | Sequence[str]
) -> tuple[list[AttentionAt], list[tuple[str, Tensor]]]:
    calls: dict[str, list[tuple[Tensor, Tensor]]] = {}
    intercepted = intercept_weights(adapter.model)
    for place, weights, gradient in compute_gradients(intercepted, lambda: _class_probs(adapter, rows, classes).sum()):
        calls.setdefault(place, []).append((weights, gradient))
    for place, some in calls.items():
        _expect_one_map(place, [weights for weights, _ in some])
    joined = {
        place: (torch.cat([weights for weights, _ in some], 2), torch.cat([gradient for _, gradient in some], 2))
        for place, some in calls.items()
    }
    chosen = set(_match_places(list(joined), places))
    attention = [
        AttentionAt(place, weights, gradients, adapter.readout_position(place, rows))
        for place, (weights, gradients) in joined.items()
        if place in chosen and adapter.has_text_keys(place)
    ]
    return attention, [(place, weights.mean(1)) for place, (weights, _) in joined.items()]


def _expect_one_map(place: str, weights: Sequence[Tensor]) -> None:
    """Refuse a module that attends to the whole text several times, as one that layers share; the calls of a decoder,
    which are a query each after the first, are one map."""
    if any(one.size(2) > 1 for one in weights[1:]):
        problem = (
            f"{place} attends {len(weights)} times in a pass: its layers share it, and an audit tests one map a place"
        )
        raise PlaceError(problem, where="audit", advice="regard.look shows the map of each call.")


def _match_places(places: Sequence[str], patterns: str | Sequence[str]) -> list[str]:
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    return [place for place in places if any(fnmatchcase(place, pattern) for pattern in patterns)]


def _class_probs(adapter: ModelAdapter, rows: Sequence[InputRow], classes: Tensor) -> Tensor:
    """p (B,) of these classes."""
    return adapter.log_probs(rows).exp().gather(1, classes.unsqueeze(1)).squeeze(1)


def attention_maps(trace: DecisionTrace) -> dict[str, Tensor]:
    """ "PLACE/HEAD" and "PLACE", the mean of its heads: (B, S)."""
    found = {}
    for one in trace.attention:
        rows = one.at_readout(one.weights, trace.lengths)
        for head in range(one.heads):
            found[f"{one.place}/{head}"] = rows[:, head]
        found[one.place] = rows.mean(1)
    return found


def method_maps(adapter: ModelAdapter, trace: DecisionTrace, second: bool = False) -> dict[str, Tensor]:
    """The methods that attention is compared with, for the predicted class or for the second one: (B, S)."""
    classes = trace.second if second else trace.predicted
    attention = trace.attention_for_second if second else trace.attention
    last, lengths = attention[-1], trace.lengths
    return {
        "attention": last.at_readout(last.weights, lengths).mean(1),
        "norm-based attention": norm_map(adapter, trace, last),
        "rollout": rollout_map(adapter, trace),
        "relevance": relevance_map(adapter, trace, attention),
        "gradient x attention": torch.stack([(one.weights * one.gradients).sum((1, 2)) for one in attention]).sum(0),
        "gradient x input": gradient_times_input_map(adapter, trace.rows, classes),
        "integrated gradients": integrated_gradients_map(adapter, trace.rows, classes),
    }


def gradient_times_input_map(
    adapter: ModelAdapter, rows: Sequence[InputRow], classes: Tensor, fixed: bool = False
) -> Tensor:
    """x . dp/dx of every token's embedding x, (B, S). `fixed`: attention weights are held constant, as in Jain &
    Wallace 2019."""
    intercepted = intercept_embeddings(adapter.model, adapter.input_ids(rows))

    def target() -> Tensor:
        if not fixed:
            return _class_probs(adapter, rows, classes).sum()
        with intercept_weights(adapter.model)(lambda place, weights: weights.detach()):
            return _class_probs(adapter, rows, classes).sum()

    return gradient_times_input(intercepted, target)


def integrated_gradients_map(
    adapter: ModelAdapter, rows: Sequence[InputRow], classes: Tensor, steps: int = AUDIT_INTEGRATION_STEPS
) -> Tensor:
    """Integrated gradients of every token's embedding, from zero, (B, S)."""
    intercepted = intercept_embeddings(adapter.model, adapter.input_ids(rows))
    return integrated_input_gradients(intercepted, lambda: _class_probs(adapter, rows, classes).sum(), steps)


def rollout_map(adapter: ModelAdapter, trace: DecisionTrace) -> Tensor:
    """Attention rollout from the readout query to each token of the text, summing to 1: (B, S). Where there is no
    single readout query, the mean over all real ones."""
    layers = [
        RolloutLayer(
            weights,
            TEXT_STREAM if adapter.has_text_queries(place) else OTHER_STREAM,
            TEXT_STREAM if adapter.has_text_keys(place) else OTHER_STREAM,
        )
        for place, weights in trace.mean_weights
    ]
    streams = rollout(layers)
    shares = streams.get(OTHER_STREAM, streams[TEXT_STREAM])[TEXT_STREAM]
    last = [place for place, _ in trace.mean_weights if adapter.has_text_keys(place)][-1]
    readout = adapter.readout_position(last, trace.rows)
    if readout is None:
        real = torch.arange(shares.size(1)) < trace.lengths.unsqueeze(1)
        found = (shares * real.unsqueeze(-1)).sum(1)
    else:
        found = shares[range(len(readout)), readout]
    total = found.sum(-1, keepdim=True)
    return found / total.masked_fill(total == 0, 1.0)


def relevance_map(adapter: ModelAdapter, trace: DecisionTrace, attention: Sequence[AttentionAt]) -> Tensor:
    """Relevance (Chefer et al. 2021) of each token of the text to the readout query, (B, S); where there is no single
    one, to all real queries together. What a token has by being itself, 1, is left out."""
    layers = []
    for one in attention:
        queries = TEXT_STREAM if adapter.has_text_queries(one.place) else OTHER_STREAM
        layers.append(RelevanceLayer(one.weights * one.gradients, queries, TEXT_STREAM))
    streams = relevance(layers)
    if OTHER_STREAM in streams:
        shares = streams[OTHER_STREAM][TEXT_STREAM]
    else:
        shares = streams[TEXT_STREAM][TEXT_STREAM]
        shares = shares - torch.eye(shares.size(-1), dtype=shares.dtype)
    if (readout := attention[-1].readout) is not None:
        return shares[range(len(readout)), readout]
    real = torch.arange(shares.size(1)) < trace.lengths.unsqueeze(1)
    return (shares * real.unsqueeze(-1)).sum(1)


def norm_map(adapter: ModelAdapter, trace: DecisionTrace, attention: AttentionAt) -> Tensor:
    """Weight times the norm of the transformed value of each key, summed over heads (Kobayashi et al. 2020), (B, S)."""
    with torch.no_grad(), capture(adapter.model, attention.place, Observe(values=True)) as captured:
        adapter.log_probs(trace.rows)
    calls = captured.calls(attention.place)
    values = max((call.values for call in calls if call.values is not None), key=lambda v: v.size(-2))
    by_head = values if values.dim() == 4 else values.unsqueeze(1)  # (B, Hk, S, D)
    norms = torch.stack(
        [transformed_norms(adapter.model, attention.place, one.float(), attention.heads) for one in by_head]
    )
    return (attention.at_readout(attention.weights, trace.lengths) * norms).sum(1)
