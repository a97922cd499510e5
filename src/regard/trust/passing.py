"""A with-block in which the attention weights of a model, ours or any other, pass through a function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.adapters.base import ModelAdapter
from regard.adapters.case import Row
from regard.attention.observe import Attended, Observe
from regard.errors import PlaceError
from regard.inspection.intervene import answered
from regard.inspection.measures.derivatives import Change, Points


def weights_through(model: nn.Module, places: str | Sequence[str] = "*") -> Points:
    """The weights at these places as points: they pass as (B, H, T, S), and what comes back is what is averaged by."""

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


def vectors_through(asker: ModelAdapter, rows: Sequence[Row]) -> Points:
    """The vectors (B, S, D) that the tokens of these rows are read as, as points."""
    ids = asker.input_ids(rows)

    @contextmanager
    def points(change: Change) -> Iterator[None]:
        passed = 0

        def replaced(module: nn.Module, inputs: tuple[object, ...], output: Tensor) -> Tensor | None:
            nonlocal passed
            given = inputs[0] if inputs else None  # Marian's table of positions is asked with a shape
            if not isinstance(given, Tensor) or given.shape != ids.shape or not torch.equal(given, ids):
                return None
            passed += 1
            return change("vectors", output)

        tables = [one for one in asker.model.modules() if isinstance(one, nn.Embedding)]
        hooks = [table.register_forward_hook(replaced) for table in tables]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        if not passed:
            came = f"a {type(asker.model).__name__} that reads its tokens in some other way"
            raise PlaceError(came, "one with an nn.Embedding of them", where="audit")

    return points
