"""Gradients and integrated gradients of a number that a model computes, by attention weights or by input embeddings.

found = gradient_times_attention(model, lambda: model(ids, lengths)[0, 3, 7])    # place -> (B, H, T, S)

What is differentiated by is given by `Points`: a with-block in which tensors along the way (`weights_through`: weights,
`vectors_through`: the vectors of tokens) pass through a function that may put others in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import Attended, Observe
from regard.errors import DtypeError, PlaceError, SettingError, ShapeError
from regard.inspection.interventions import answered

Change = Callable[[str, Tensor], Tensor]
"""What takes the place of a tensor that passes at a named point."""

Points = Callable[[Change], AbstractContextManager[None]]
"""Lets every tensor at some points pass through a Change until the block ends."""

Target = Callable[[], Tensor]
"""Runs the model and returns one number, such as a logit or a loss; the same each time, so the model is in eval()."""

Passed = list[tuple[str, Tensor]]
Places = str | Sequence[str]
STEPS = 32


def attention_gradients(model: nn.Module, target: Target, places: Places = "*") -> dict[str, tuple[Tensor, Tensor]]:
    """The weights (B, H, T, S) at each place and d target / d weights, with all that later layers make of them.

    `target` runs the model and returns one number. Where a place is called for one query after another, the calls are
    joined along the queries.
    """
    found = gradients(weights_through(model, places), target)
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
    return _joined(integrated(weights_through(model, places), target, steps))


def gradient_times_input(points: Points, target: Target) -> Tensor:
    """x . d target / dx of the vector x of every token, (B, T), summed over all times that the tokens are read."""
    return torch.stack([(x * slope).sum(-1) for _, x, slope in gradients(points, target)]).sum(0)


def integrated_inputs(points: Points, target: Target, steps: int = STEPS) -> Tensor:
    """Integrated gradients of the vectors of the tokens, (B, T), while they grow from 0 to what they are. The sum is
    target - target with vectors of 0."""
    return torch.stack([x.sum(-1) for _, x in integrated(points, target, steps)]).sum(0)


def weights_through(model: nn.Module, places: Places = "*") -> Points:
    """The weights at these places of any model as points: they pass as (B, H, T, S), and what comes back is what is
    averaged by."""

    @contextmanager
    def points(change: Change) -> Iterator[None]:
        def hear(place: str, got: Attended) -> Tensor:
            assert got.weights is not None
            alone = got.weights.dim() == 3  # (B, T, S), without heads
            new = change(place, got.weights.unsqueeze(1) if alone else got.weights)
            return new.squeeze(1) if alone else new

        with answered(model, places, Observe(weights=True), hear):
            yield

    return points


def vectors_through(model: nn.Module, ids: Tensor) -> Points:
    """The vectors (B, S, D) that an nn.Embedding of the model gives for these ids (B, S), as points."""

    @contextmanager
    def points(change: Change) -> Iterator[None]:
        passed = 0

        def replaced(module: nn.Module, inputs: tuple[object, ...], output: Tensor) -> Tensor | None:
            nonlocal passed
            given = inputs[0] if inputs else None  # Marian's table of positions is called with a shape
            if not isinstance(given, Tensor) or given.shape != ids.shape or not torch.equal(given, ids):
                return None
            passed += 1
            return change("vectors", output)

        tables = [one for one in model.modules() if isinstance(one, nn.Embedding)]
        hooks = [table.register_forward_hook(replaced) for table in tables]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        if not passed:
            came = f"a {type(model).__name__} that reads its tokens in some other way"
            raise PlaceError(came, "one with an nn.Embedding of them", where="gradients")

    return points


def gradients(points: Points, target: Target) -> list[tuple[str, Tensor, Tensor]]:
    """Every tensor that passed, in order: its point, its value, and d target / d it, all that follows from it included.

    What the target does not depend on has a gradient of zero.
    """
    passed: Passed = []

    def watched(point: str, x: Tensor) -> Tensor:
        x = x if x.requires_grad else x.detach().requires_grad_()
        passed.append((point, x))
        return x

    with torch.enable_grad(), points(watched):
        said = _number(target())
    slopes = _slopes(said, passed)
    return [(point, x.detach(), slope) for (point, x), slope in zip(passed, slopes, strict=True)]


def integrated(points: Points, target: Target, steps: int) -> list[tuple[str, Tensor]]:
    """Integrated gradients (Sundararajan et al. 2017) of every tensor x that passes: x times the mean of d target / dx
    while all of them together grow from 0 to what they are, and nothing else bears on them.

    They add up to target(x) - target(0), the better the more `steps` there are (Gauss and Legendre's places).
    """
    if steps < 1:
        raise SettingError(f"steps={steps}", "at least 1", where="integrated gradients")
    whole: Passed = []

    def kept(point: str, x: Tensor) -> Tensor:
        whole.append((point, x.detach()))
        return x

    with torch.no_grad(), points(kept):
        _number(target())
    sums = [torch.zeros_like(x) for _, x in whole]
    for share, part in _places(steps):
        passed: Passed = []

        def scaled(point: str, x: Tensor, share: float = share, passed: Passed = passed) -> Tensor:
            number = len(passed)
            if number >= len(whole) or whole[number][0] != point or whole[number][1].shape != x.shape:
                raise ShapeError(
                    f"{tuple(x.shape)} at {point} in call {number}", "the calls of the first run", where="integrated"
                )
            passed.append((point, (share * whole[number][1]).requires_grad_()))
            return passed[-1][1]

        with torch.enable_grad(), points(scaled):
            said = _number(target())
        if len(passed) != len(whole):
            raise ShapeError(f"{len(passed)} calls", f"the {len(whole)} of the first run", where="integrated")
        for total, slope in zip(sums, _slopes(said, passed), strict=True):
            total += part * slope
    return [(point, x * total) for (point, x), total in zip(whole, sums, strict=True)]


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


def _places(steps: int) -> list[tuple[float, float]]:
    """Places between 0 and 1 and what each of them weighs in a mean."""
    at, weight = np.polynomial.legendre.leggauss(steps)
    return [(float(one), float(share)) for one, share in zip((at + 1) / 2, weight / 2, strict=True)]


def _number(said: Tensor) -> Tensor:
    if not isinstance(said, Tensor) or said.numel() != 1 or not said.is_floating_point():
        came = f"{said.dtype} of shape {tuple(said.shape)}" if isinstance(said, Tensor) else type(said).__name__
        raise DtypeError(f"a target of {came}", "one number, as a tensor", where="gradients")
    return said.sum()


def _slopes(said: Tensor, passed: Passed) -> tuple[Tensor, ...]:
    if not passed:
        raise PlaceError("a target that passes none of these points", "one that runs the model", where="gradients")
    if not said.requires_grad:
        raise DtypeError(
            "a target without a gradient",
            "one that is computed from the model's output",
            where="gradients",
            advice="It must not be detached, nor run under no_grad.",
        )
    return torch.autograd.grad(said, [x for _, x in passed], allow_unused=True, materialize_grads=True)
