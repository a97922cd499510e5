"""What is said to explain a decision: one number for each token, by attention and by methods that it is set beside.

A map is (B, S), larger where a token is said to speak more for the decision; gradients may be below 0, where it speaks
against it. Attention gives a map for every head and one for every place (the mean of its heads); other methods one
each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from regard.adapters import ModelAdapter, Row
from regard.attention import Observe, capture
from regard.errors import PlaceError
from regard.inspection import (
    RolloutLayer,
    gradient_times_input,
    gradients,
    integrated_inputs,
    rollout,
    sent_norms,
    vectors_through,
    weights_through,
)

STEPS = 16  # of integrated gradients
TEXT, OTHER = range(2)  # streams: the text, and what attends to it


@dataclass(frozen=True, eq=False)
class Seen:
    """What was attended at a place that looks at the text: weights (B, H, T, S), how fast the decision changes with
    each of them, and the query that decides, if one does."""

    place: str
    weights: Tensor
    slopes: Tensor
    decider: list[int] | None

    @property
    def heads(self) -> int:
        return self.weights.size(1)

    def rows(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x (B, H, T, S) of the query that decides, or the mean over all real ones: (B, H, S)."""
        if self.decider is not None:
            return x[range(len(self.decider)), :, self.decider]
        real = torch.arange(x.size(2)) < lengths.unsqueeze(1)  # (B, T)
        return (x * real[:, None, :, None]).sum(2) / lengths[:, None, None]


@dataclass(frozen=True, eq=False)
class Looked:
    """Texts that a model has decided on: ln p (B, C), the classes it chose and would have chosen second, and where it
    looked for the first and for the second."""

    rows: Sequence[Row]
    said: Tensor
    chosen: Tensor
    second: Tensor
    seen: list[Seen]
    seen_for_second: list[Seen]
    every: list[tuple[str, Tensor]]  # mean weights (B, T, S) of every place, in order, also of those that see no text

    @property
    def lengths(self) -> Tensor:
        return torch.tensor([len(row.ids) for row in self.rows])

    @property
    def p(self) -> Tensor:
        """p (B,) of what was chosen."""
        return self.said.exp().gather(1, self.chosen.unsqueeze(1)).squeeze(1)


def look(asker: ModelAdapter, rows: Sequence[Row], places: str | Sequence[str] = "*") -> Looked:
    """One run of the model, and the way back from what it decided, and from what it would have decided else."""
    with torch.no_grad():
        said = asker.log_probs(rows)
    best = said.topk(2, -1).indices
    first, every = _seen(asker, rows, best[:, 0], places)
    second, _ = _seen(asker, rows, best[:, 1], places)
    if not first:
        there = ", ".join(place for place, _ in every if asker.attends_to_text(place))
        if not there:
            raise PlaceError("no place that looks at the text", "a model with attention to it", where="audit")
        asked = places if isinstance(places, str) else ", ".join(places)
        raise PlaceError(f"places {asked}, which match none", f"some of {there}", where="audit")
    return Looked(rows, said, best[:, 0], best[:, 1], first, second, every)


def _seen(
    asker: ModelAdapter, rows: Sequence[Row], wanted: Tensor, places: str | Sequence[str]
) -> tuple[list[Seen], list[tuple[str, Tensor]]]:
    found: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for place, weights, slope in gradients(weights_through(asker.model), lambda: _p(asker, rows, wanted).sum()):
        found.setdefault(place, []).append((weights, slope))
    joined = {
        place: (torch.cat([w for w, _ in calls], 2), torch.cat([slope for _, slope in calls], 2))
        for place, calls in found.items()
    }
    chosen = set(_matching(list(joined), places))
    seen = [
        Seen(place, weights, slopes, asker.readout_position(place, rows))
        for place, (weights, slopes) in joined.items()
        if place in chosen and asker.attends_to_text(place)
    ]
    return seen, [(place, weights.mean(1)) for place, (weights, _) in joined.items()]


def _matching(places: Sequence[str], patterns: str | Sequence[str]) -> list[str]:
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    return [place for place in places if any(fnmatchcase(place, pattern) for pattern in wanted)]


def _p(asker: ModelAdapter, rows: Sequence[Row], wanted: Tensor) -> Tensor:
    """p (B,) of these classes."""
    return asker.log_probs(rows).exp().gather(1, wanted.unsqueeze(1)).squeeze(1)


def attention_maps(looked: Looked) -> dict[str, Tensor]:
    """ "PLACE/HEAD" and "PLACE", the mean of its heads: (B, S)."""
    found = {}
    for seen in looked.seen:
        rows = seen.rows(seen.weights, looked.lengths)
        for head in range(seen.heads):
            found[f"{seen.place}/{head}"] = rows[:, head]
        found[seen.place] = rows.mean(1)
    return found


def method_maps(asker: ModelAdapter, looked: Looked, second: bool = False) -> dict[str, Tensor]:
    """The methods that attention is set beside, for the class that was chosen or for the second one: (B, S)."""
    wanted = looked.second if second else looked.chosen
    seen = looked.seen_for_second if second else looked.seen
    last, lengths = seen[-1], looked.lengths
    return {
        "attention": last.rows(last.weights, lengths).mean(1),
        "norm-based attention": norm_map(asker, looked, last),
        "rollout": rollout_map(asker, looked),
        "gradient x attention": torch.stack([(one.weights * one.slopes).sum((1, 2)) for one in seen]).sum(0),
        "gradient x input": input_gradient(asker, looked.rows, wanted),
        "integrated gradients": integrated_map(asker, looked.rows, wanted),
    }


def input_gradient(asker: ModelAdapter, rows: Sequence[Row], wanted: Tensor, fixed: bool = False) -> Tensor:
    """x . dp/dx of every token's vector x, (B, S). `fixed`: the attention weights stay what they are while the
    vectors change, as Jain & Wallace 2019 have it."""
    points = vectors_through(asker.model, asker.input_ids(rows))

    def target() -> Tensor:
        if not fixed:
            return _p(asker, rows, wanted).sum()
        with weights_through(asker.model)(lambda place, weights: weights.detach()):
            return _p(asker, rows, wanted).sum()

    return gradient_times_input(points, target)


def integrated_map(asker: ModelAdapter, rows: Sequence[Row], wanted: Tensor, steps: int = STEPS) -> Tensor:
    """Integrated gradients of every token's vector, from nothing, (B, S)."""
    points = vectors_through(asker.model, asker.input_ids(rows))
    return integrated_inputs(points, lambda: _p(asker, rows, wanted).sum(), steps)


def rollout_map(asker: ModelAdapter, looked: Looked) -> Tensor:
    """Attention rollout to each token of the text, where the decision is read, summing to 1: (B, S). Where no single
    query decides, the mean over all real ones."""
    layers = [
        RolloutLayer(
            weights, TEXT if asker.attends_from_text(place) else OTHER, TEXT if asker.attends_to_text(place) else OTHER
        )
        for place, weights in looked.every
    ]
    streams = rollout(layers)
    whole = streams.get(OTHER, streams[TEXT])[TEXT]
    last = [place for place, _ in looked.every if asker.attends_to_text(place)][-1]
    decider = asker.readout_position(last, looked.rows)
    if decider is None:
        real = torch.arange(whole.size(1)) < looked.lengths.unsqueeze(1)
        found = (whole * real.unsqueeze(-1)).sum(1)
    else:
        found = whole[range(len(decider)), decider]
    total = found.sum(-1, keepdim=True)
    return found / total.masked_fill(total == 0, 1.0)


def norm_map(asker: ModelAdapter, looked: Looked, seen: Seen) -> Tensor:
    """Weights times the length of the vector that each key sends, as it leaves its head (Kobayashi 2020), (B, S)."""
    with torch.no_grad(), capture(asker.model, seen.place, Observe(values=True)) as heard:
        asker.log_probs(looked.rows)
    values = max((call.values for call in heard.calls(seen.place) if call.values is not None), key=lambda v: v.size(-2))
    by_head = values if values.dim() == 4 else values.unsqueeze(1)  # (B, Hk, S, D)
    norms = torch.stack([sent_norms(asker.model, seen.place, one.float(), seen.heads) for one in by_head])
    return (seen.rows(seen.weights, looked.lengths) * norms).sum(1)
