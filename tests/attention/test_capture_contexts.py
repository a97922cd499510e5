"""Captures in threads, tasks and any order of leaving: each hears the calls of its own context, each at its place."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attention.cases import seeded
from regard.attention import Captured, Observe, capture
from regard.attention.layers import EncoderBlock, FeedForward, MultiHead

LAYERS, WIDTH = 3, 8


class Tapped(nn.Module):
    """Layers of this library, which report by taps."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderBlock(MultiHead(WIDTH, 2), FeedForward(WIDTH, 16)) for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class SdpaAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.joint = nn.Linear(WIDTH, 3 * WIDTH)

    def average(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.average(*self.joint(x).unsqueeze(1).chunk(3, -1)).squeeze(1)


class EagerAttention(SdpaAttention):
    def average(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT * WIDTH**-0.5).softmax(-1) @ v


def foreign(kind: type[SdpaAttention]) -> nn.Module:
    return nn.Sequential(*(kind() for _ in range(LAYERS)))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "taps": Tapped,
    "sdpa": lambda: foreign(SdpaAttention),
    "eager": lambda: foreign(EagerAttention),
}


def made(kind: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = MODELS[kind]().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)  # far from uniform
    return model


def text(number: int) -> Tensor:
    return torch.randn(1, 3 + number % 5, WIDTH, generator=seeded(number))


def maps(heard: Captured) -> dict[str, list[Tensor]]:
    return {place: [call.weights for call in heard.calls(place) if call.weights is not None] for place in heard}


def alone(model: nn.Module, numbers: list[int]) -> dict[str, list[Tensor]]:
    """What a capture hears that nothing else disturbs."""
    with capture(model) as heard, torch.no_grad():
        for number in numbers:
            model(text(number))
    return maps(heard)


def same(got: dict[str, list[Tensor]], want: dict[str, list[Tensor]]) -> bool:
    return got.keys() == want.keys() and all(
        len(got[place]) == len(want[place]) and all(map(_close, got[place], want[place])) for place in want
    )


def _close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, atol=1e-6)


def is_untouched(model: nn.Module) -> bool:
    hooks = [one for module in model.modules() for one in (*module._forward_hooks, *module._forward_pre_hooks)]
    return not hooks and torch.overrides._len_torch_function_stack() == 0


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("passes", [20, pytest.param(200, marks=pytest.mark.long)])
def test_eight_threads_with_captures_in_any_order(kind: str, passes: int) -> None:
    """Threads share two models; each opens and closes captures at random and checks every map it heard."""
    models = [made(kind), made(kind, 1)]
    known = [[alone(model, [number]) for number in range(40)] for model in models]
    expected_places = list(known[0][0])

    def work(seed: int) -> list[str]:
        rng, faults = random.Random(seed), []
        torch.set_num_threads(1)
        opened: list[tuple[AbstractContextManager[Captured], Captured, int, list[int]]] = []
        with torch.no_grad():
            for _ in range(passes):
                if rng.random() < 0.5 and len(opened) < 3:
                    which = rng.randrange(2)
                    entered = capture(models[which])
                    opened.append((entered, entered.__enter__(), which, []))
                if rng.random() < 0.4 and opened:
                    faults += close(opened.pop(rng.randrange(len(opened))))
                number, which = rng.randrange(40), rng.randrange(2)
                models[which](text(number))
                for _, _, model, heard_numbers in opened:
                    if model == which:
                        heard_numbers.append(number)
            for one in opened:
                faults += close(one)
        return faults

    def close(one: tuple[AbstractContextManager[Captured], Captured, int, list[int]]) -> list[str]:
        entered, heard, which, numbers = one
        entered.__exit__(None, None, None)
        want = {place: [known[which][number][place][0] for number in numbers] for place in expected_places}
        got = {place: found for place, found in maps(heard).items() if found}
        right = same(got, want if numbers else {})
        return [] if right and not heard.unheard else [f"model {which}, texts {numbers}: {heard!r} {heard.unheard}"]

    with ThreadPoolExecutor(8) as pool:
        faults = [fault for found in pool.map(work, range(8)) for fault in found]
    assert not faults, faults[:3]
    assert all(map(is_untouched, models))


@pytest.mark.parametrize("kind", MODELS)
def test_two_tasks_of_which_the_first_leaves_first(kind: str) -> None:
    models = [made(kind, seed) for seed in range(2)]

    async def work(which: int, began: asyncio.Event, other: asyncio.Event, left: asyncio.Event) -> Any:
        with capture(models[which]) as heard:
            models[which](text(1))
            began.set()
            await other.wait()
            if which == 1:
                await left.wait()
            models[which](text(2))
        left.set()
        return maps(heard)

    async def both() -> Any:
        first, second, left = asyncio.Event(), asyncio.Event(), asyncio.Event()
        return await asyncio.gather(work(0, first, second, left), work(1, second, first, left))

    with torch.no_grad():
        found = asyncio.run(both())
    for model, got in zip(models, found, strict=True):
        assert same(got, alone(model, [1, 2]))
        assert is_untouched(model)


@pytest.mark.parametrize("kind", MODELS)
def test_work_that_is_handed_to_a_thread_is_heard_until_the_block_ends(kind: str) -> None:
    """A thread that asyncio starts inherits the context; one that it outlives hears no more, and keeps no hook."""
    model = made(kind)
    inside, may_go_on = threading.Event(), threading.Event()

    def slow_pass() -> bool:
        def wait(*_: Any) -> None:
            inside.set()
            may_go_on.wait(10)

        hook = next(iter(model.children())).register_forward_hook(wait)
        model(text(3))
        hook.remove()
        model(text(4))
        return is_untouched(model)

    async def work() -> Any:
        with capture(model) as heard:
            await asyncio.to_thread(model, text(1))
            late = asyncio.create_task(asyncio.to_thread(slow_pass))
            await asyncio.to_thread(inside.wait, 10)
            before = {place: len(heard.calls(place)) for place in heard}
        may_go_on.set()
        assert await late
        return heard, before

    with torch.no_grad():
        heard, before = asyncio.run(work())
        assert {place: len(heard.calls(place)) for place in heard} == before
        assert same({place: found[:1] for place, found in maps(heard).items()}, alone(model, [1]))
    assert is_untouched(model)


@pytest.mark.parametrize("kind", MODELS)
def test_a_thread_of_its_own_is_not_heard(kind: str) -> None:
    model = made(kind)
    with capture(model) as heard, torch.no_grad():
        thread = threading.Thread(target=model, args=(text(2),))
        thread.start()
        thread.join()
        model(text(1))
    assert same(maps(heard), alone(model, [1])) and not heard.unheard


def test_compiled_code_is_compiled_again_after_overlapping_captures_that_no_graph_can_serve() -> None:
    import torch._dynamo

    counted = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        counted.append(graph)
        return graph.forward

    model = made("taps")
    first, second = capture(model, observe=Observe(prepared=True)), capture(model, observe=Observe(prepared=True))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    with torch.no_grad():
        model(text(1))
    torch.compile(lambda x: x * 2, backend=backend)(torch.ones(2))
    assert not counted  # there is a capture still
    second.__exit__(None, None, None)
    torch.compile(lambda x: x * 3, backend=backend)(torch.ones(2))
    assert len(counted) == 1 and "torch._dynamo" in sys.modules


def test_errors_in_a_model_leave_nothing_behind() -> None:
    model = made("sdpa")

    def fail(*_: Any) -> None:
        raise ValueError("as intended")

    hook = model[1].register_forward_pre_hook(fail)
    with pytest.raises(ValueError, match="as intended"), capture(model):
        model(text(1))
    hook.remove()
    assert is_untouched(model)
    with torch.no_grad():
        assert len(alone(model, [2])) == LAYERS
