"""What attention does to an answer: the gradient of a number with respect to the weights, times them, and along them.

found = gradient_times_attention(model, lambda: model(ids, lengths)[0, 3, 7])    # place -> (B, H, T, S)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.attention.observe import Attended, Observe
from regard.attention.tap import Listener, listening, places_of
from regard.errors import ShapeError
from regard.inspection.measures.derivatives import Change, Points, Target, gradients, integrated

STEPS = 32
Places = str | Sequence[str]


def attention_gradients(model: nn.Module, target: Target, places: Places = "*") -> dict[str, tuple[Tensor, Tensor]]:
    """The weights (B, H, T, S) at each place and d target / d weights, with all that later layers make of them.

    `target` runs the model and returns one number. Where a place is called for one query after another, the calls stand
    one below the other.
    """
    found = gradients(weights_at(model, places), target)
    weights = _joined((place, w) for place, w, _ in found)
    slopes = _joined((place, slope) for place, _, slope in found)
    return {place: (weights[place], slopes[place]) for place in weights}


def gradient_times_attention(model: nn.Module, target: Target, places: Places = "*") -> dict[str, Tensor]:
    """weights * d target / d weights at each place, (B, H, T, S): what the target would lose, to first order, without
    that weight."""
    return {place: w * slope for place, (w, slope) in attention_gradients(model, target, places).items()}


def integrated_gradients(
    model: nn.Module, target: Target, places: Places = "*", steps: int = STEPS
) -> dict[str, Tensor]:
    """Integrated gradients of the weights at each place, (B, H, T, S), while those of all places grow from 0 to what
    they are. The sum over all places is target - target with weights of 0 there."""
    return _joined(integrated(weights_at(model, places), target, steps))


def weights_at(model: nn.Module, places: Places = "*") -> Points:
    """The weights at these places of a model of ours, as points through which they pass."""
    taps = places_of(model, places)

    @contextmanager
    def points(change: Change) -> Iterator[None]:
        def hear(place: str, got: Attended) -> Tensor:
            assert got.weights is not None
            return change(place, got.weights)

        with listening(Listener(taps, Observe(weights=True), hear)):
            yield

    return points


def _joined(found: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """By place; of several calls the queries of each come after those of the calls before."""
    calls: dict[str, list[Tensor]] = {}
    for place, x in found:
        calls.setdefault(place, []).append(x)
    for place, some in calls.items():
        sizes = {(*x.shape[:-2], x.size(-1)) for x in some}
        if len(sizes) > 1:
            came = f"weights of {', '.join(str(tuple(x.shape)) for x in some)} at {place}"
            raise ShapeError(came, "the same keys in every call", where="gradients")
    return {place: some[0] if len(some) == 1 else torch.cat(some, -2) for place, some in calls.items()}
