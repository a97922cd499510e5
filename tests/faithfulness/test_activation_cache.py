"""The activation cache: cached runs equal whole runs, and do not repeat what comes before the place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from regard.faithfulness.counterfactual import ActivationCache


class Place(nn.Module):
    """The place of an intervention: adds a number, and calls `reached` first."""

    def __init__(self) -> None:
        super().__init__()
        self.added, self.reached = 0.0, lambda: None

    def forward(self, x: Tensor) -> Tensor:
        self.reached()
        return x + self.added


class Block(nn.Module):
    """Two layers, optionally with a place between them."""

    def __init__(self, place: nn.Module | None = None) -> None:
        super().__init__()
        self.first, self.place, self.second = nn.Linear(4, 4), place, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.second(x if self.place is None else self.place(x)).tanh()


class Model(nn.Module):
    """An embedding used before and after three blocks; the second one has the place, and is called `times` times."""

    def __init__(self, times: int = 1) -> None:
        super().__init__()
        self.table, self.place, self.times = nn.Embedding(5, 4), Place(), times
        self.below, self.middle, self.above = Block(), Block(self.place), Block()

    def forward(self, ids: Tensor) -> Tensor:
        x = self.below(self.table(ids)) + self.below(self.table(ids.flip(-1)))
        for _ in range(self.times):
            x = self.middle(x)
        return self.above(x) @ self.table(ids).mT


IDS = torch.tensor([[1, 4, 2]])


def counting(model: nn.Module) -> Counter[str]:
    """Counts the forward calls of each module."""
    found: Counter[str] = Counter()

    def counted(name: str, forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def run(*given: Tensor) -> Tensor:
            found[name] += 1
            return forward(*given)

        return run

    for name, module in model.named_modules():
        kind = type(module)
        module.__class__ = type(kind.__name__, (kind,), {"forward": _unbound(counted(name, module.forward))})
    return found


def _unbound(run: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda self, *given: run(*given)


@pytest.fixture(params=[1, 3])
def model(request: pytest.FixtureRequest) -> Model:
    torch.manual_seed(0)
    return Model(request.param)


@torch.no_grad()
def test_cached_runs_equal_whole_runs(model: Model) -> None:
    cache = ActivationCache(model)
    model.place.reached = cache.reach_place
    for added in (0.0, 0.0, 0.7, -2.0, 0.7):
        model.place.added = added
        expected = model(IDS)
        with cache.run():
            found = model(IDS)
        assert torch.equal(found, expected)


@torch.no_grad()
def test_modules_before_the_place_are_not_run_again(model: Model) -> None:
    cache, ran = ActivationCache(model), counting(model)
    model.place.reached = cache.reach_place
    with cache.run():
        model(IDS)
    whole = dict(ran)
    assert whole["below"] == whole["below.first"] == 2 and whole["table"] == 3
    ran.clear()
    with cache.run():
        model(IDS)
    below = {"below", "below.first", "below.second"}
    assert not below & ran.keys()
    # before the place, its own block and the first layer of that; after it, everything as often as ever
    assert ran["table"] == 1 and ran["middle.first"] == model.times - 1
    for name in ("middle", "place", "middle.second", "above", "above.first"):
        assert ran[name] == whole[name], name


@torch.no_grad()
def test_without_a_place_everything_is_cached(model: Model) -> None:
    """All modules of a run that never reaches a place are cached."""
    cache, ran = ActivationCache(model), counting(model)
    with cache.run():
        expected = model(IDS)
    ran.clear()
    with cache.run():
        assert torch.equal(model(IDS), expected)
    assert set(ran) == {""}


@torch.no_grad()
def test_the_model_is_left_as_it_was(model: Model) -> None:
    cache = ActivationCache(model)
    model.place.reached = cache.reach_place
    before = model(IDS)

    def fail() -> None:
        cache.reach_place()
        raise RuntimeError("enough")

    for _ in range(2):
        model.place.reached = fail
        with pytest.raises(RuntimeError, match="enough"), cache.run():
            model(IDS)
        assert not any("forward" in vars(one) for one in model.modules())
        model.place.reached = cache.reach_place
        assert torch.equal(model(IDS), before)
        for _ in range(2):
            with cache.run():
                assert torch.equal(model(IDS), before)


@torch.no_grad()
def test_a_patched_forward_stays(model: Model) -> None:
    def own(x: Tensor) -> Tensor:
        return 2 * x

    model.above.forward = own  # type: ignore[method-assign]
    cache = ActivationCache(model)
    model.place.reached = cache.reach_place
    expected = model(IDS)
    for _ in range(2):
        with cache.run():
            assert torch.equal(model(IDS), expected)
    assert model.above.forward is own


def test_gradients_reach_the_place(model: Model) -> None:
    cache = ActivationCache(model)
    model.place.reached = cache.reach_place
    with torch.no_grad(), cache.run():
        model(IDS)
    gradients = []
    for running in (True, False):
        model.place.added = torch.tensor(0.3, requires_grad=True)  # type: ignore[assignment]
        if running:
            with cache.run():
                model(IDS).sum().backward()
        else:
            model(IDS).sum().backward()
        gradients.append(model.place.added.grad)  # type: ignore[attr-defined]
    torch.testing.assert_close(*gradients)
