"""Gradients, gradient x input and integrated gradients (baseline: zeros), by attention weights or input embeddings.

found = gradient_times_attention(model, lambda: model(ids, lengths)[0, 3, 7])    # place -> (B, H, T, S)

What is differentiated by is an `Intercept`: a with-block in which intermediate tensors (`intercept_weights`: attention
weights, `intercept_embeddings`: embeddings) pass through a function that may replace them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import Attended, Observe
from regard.errors import DtypeError, PlaceError, SettingError, ShapeError
from regard.inspection.interventions import replace_weights

Replacement = Callable[[str, Tensor], Tensor]
"""Returns the tensor to use in place of one at a named point."""

Intercept = Callable[[Replacement], AbstractContextManager[None]]
"""Passes every tensor at some points through a Replacement until the block ends."""

Target = Callable[[], Tensor]
"""Runs the model and returns one number, such as a logit or a loss; the same each time, so the model is in eval()."""

Intercepted = list[tuple[str, Tensor]]
Places = str | Sequence[str]
INTEGRATION_STEPS = 32  # of integrated gradients: points on the path, each two passes; an audit takes fewer


def attention_gradients(model: nn.Module, target: Target, places: Places = "*") -> dict[str, tuple[Tensor, Tensor]]:
    """The weights (B, H, T, S) at each place and d target / d weights, through all later layers.

    `target` runs the model and returns one number. Where a place is called for one query after another, the calls are
    joined along the queries.
    """
    found = compute_gradients(intercept_weights(model, places), target)
    weights = _join_calls((place, w) for place, w, _ in found)
    grads = _join_calls((place, grad) for place, _, grad in found)
    return {place: (weights[place], grads[place]) for place in weights}


def gradient_times_attention(model: nn.Module, target: Target, places: Places = "*") -> dict[str, Tensor]:
    """weights * d target / d weights at each place, (B, H, T, S): to first order, the change of the target without that
    weight."""
    return {place: w * grad for place, (w, grad) in attention_gradients(model, target, places).items()}


def integrated_gradients(
    model: nn.Module, target: Target, places: Places = "*", steps: int = INTEGRATION_STEPS
) -> dict[str, Tensor]:
    """Integrated gradients of the weights at each place, (B, H, T, S), on the path of all places from zero weights to
    their own. The sum over all places is target - target with weights of 0 there."""
    return _join_calls(integrate_along_path(intercept_weights(model, places), target, steps))


def gradient_times_input(intercept: Intercept, target: Target) -> Tensor:
    """Gradient x input of the embedding x of every token, x . d target / dx, (B, T), summed over all calls."""
    return torch.stack([(x * grad).sum(-1) for _, x, grad in compute_gradients(intercept, target)]).sum(0)


def integrated_input_gradients(intercept: Intercept, target: Target, steps: int = INTEGRATION_STEPS) -> Tensor:
    """Integrated gradients of the embeddings of the tokens, (B, T), on the path from zero. The sum is target - target
    with embeddings of 0."""
    return torch.stack([x.sum(-1) for _, x in integrate_along_path(intercept, target, steps)]).sum(0)


def intercept_weights(model: nn.Module, places: Places = "*") -> Intercept:
    """The attention weights at these places of any model: they pass as (B, H, T, S), and the replacement is used for
    the average."""

    @contextmanager
    def intercept(replacement: Replacement) -> Iterator[None]:
        def on_attention(place: str, got: Attended) -> Tensor:
            assert got.weights is not None
            headless = got.weights.dim() == 3  # (B, T, S)
            new = replacement(place, got.weights.unsqueeze(1) if headless else got.weights)
            return new.squeeze(1) if headless else new

        with replace_weights(model, places, Observe(weights=True), on_attention):
            yield

    return intercept


def intercept_embeddings(model: nn.Module, ids: Tensor) -> Intercept:
    """The vectors (B, S, D) that an nn.Embedding of the model returns for these ids (B, S)."""

    @contextmanager
    def intercept(replacement: Replacement) -> Iterator[None]:
        calls = 0

        def hook(module: nn.Module, inputs: tuple[object, ...], output: Tensor) -> Tensor | None:
            nonlocal calls
            given = inputs[0] if inputs else None  # Marian's table of positions is called with a shape
            if not isinstance(given, Tensor) or given.shape != ids.shape or not torch.equal(given, ids):
                return None
            calls += 1
            return replacement("vectors", output)

        tables = [one for one in model.modules() if isinstance(one, nn.Embedding)]
        hooks = [table.register_forward_hook(hook) for table in tables]
        try:
            yield
        finally:
            for one in hooks:
                one.remove()
        if not calls:
            problem = f"No nn.Embedding of this {type(model).__name__} is called with the ids"
            raise PlaceError(problem, where="gradients", advice="Input gradients need one for the input tokens.")

    return intercept


def compute_gradients(intercept: Intercept, target: Target) -> list[tuple[str, Tensor, Tensor]]:
    """Every intercepted tensor, in order: its point, its value, and d target / d it through all that follows.

    A tensor that the target does not depend on has a gradient of zero.
    """
    found: Intercepted = []

    def watch(point: str, x: Tensor) -> Tensor:
        x = x if x.requires_grad else x.detach().requires_grad_()
        found.append((point, x))
        return x

    with torch.enable_grad(), intercept(watch):
        value = _expect_number(target())
    grads = _grads(value, found)
    return [(point, x.detach(), grad) for (point, x), grad in zip(found, grads, strict=True)]


def integrate_along_path(intercept: Intercept, target: Target, steps: int) -> list[tuple[str, Tensor]]:
    """Integrated gradients (Sundararajan et al. 2017) of every intercepted tensor x: x times the mean of d target / dx
    on the straight path of all of them together from 0 to x.

    They add up to target(x) - target(0), the more exactly the more `steps` there are (Gauss-Legendre quadrature).
    """
    if steps < 1:
        raise SettingError(f"steps={steps}", "at least 1", where="integrated gradients")
    whole: Intercepted = []

    def store(point: str, x: Tensor) -> Tensor:
        whole.append((point, x.detach()))
        return x

    with torch.no_grad(), intercept(store):
        _expect_number(target())
    sums = [torch.zeros_like(x) for _, x in whole]
    for share, part in _quadrature(steps):
        found: Intercepted = []

        def scale(point: str, x: Tensor, share: float = share, found: Intercepted = found) -> Tensor:
            number = len(found)
            if number >= len(whole) or whole[number][0] != point or whole[number][1].shape != x.shape:
                raise ShapeError(
                    f"{tuple(x.shape)} at {point} in call {number}",
                    "the calls of the first run",
                    where="integrated gradients",
                    advice="The target must compute the same each time.",
                )
            found.append((point, (share * whole[number][1]).requires_grad_()))
            return found[-1][1]

        with torch.enable_grad(), intercept(scale):
            value = _expect_number(target())
        if len(found) != len(whole):
            expected = f"the {len(whole)} of the first run"
            raise ShapeError(f"{len(found)} calls", expected, where="integrated gradients")
        for total, grad in zip(sums, _grads(value, found), strict=True):
            total += part * grad
    return [(point, x * total) for (point, x), total in zip(whole, sums, strict=True)]


def _join_calls(found: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """By place; several calls are concatenated along the queries."""
    calls: dict[str, list[Tensor]] = {}
    for place, x in found:
        calls.setdefault(place, []).append(x)
    for place, some in calls.items():
        sizes = {(*x.shape[:-2], x.size(-1)) for x in some}
        if len(sizes) > 1:
            came = f"weights of {', '.join(str(tuple(x.shape)) for x in some)} at {place}"
            raise ShapeError(came, "the same keys in every call", where="gradients")
    return {place: some[0] if len(some) == 1 else torch.cat(some, -2) for place, some in calls.items()}


def _quadrature(steps: int) -> list[tuple[float, float]]:
    """The nodes of Gauss-Legendre quadrature on [0, 1], and the weight of each in a mean."""
    at, weight = np.polynomial.legendre.leggauss(steps)
    return [(float(one), float(share)) for one, share in zip((at + 1) / 2, weight / 2, strict=True)]


def _expect_number(value: Tensor) -> Tensor:
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.is_floating_point():
        came = f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise DtypeError(f"a target of {came}", "one number, as a tensor", where="gradients")
    return value.sum()


def _grads(value: Tensor, found: Intercepted) -> tuple[Tensor, ...]:
    if not found:
        problem = "No attention and no embedding was intercepted while the target was computed"
        raise PlaceError(problem, where="gradients", advice="The target must run the model.")
    if not value.requires_grad:
        raise DtypeError(
            "The target has no gradient",
            where="gradients",
            advice="Compute it from the model's output, not detached and not under no_grad.",
        )
    return torch.autograd.grad(value, [x for _, x in found], allow_unused=True, materialize_grads=True)
