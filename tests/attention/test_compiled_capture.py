"""Compiled models are heard as uncompiled ones, by graphs that compute what is requested, compiled once for it."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import Unsupported
from torch._dynamo.testing import CompileCounterWithBackend

from attention.cases import seeded
from regard.attention import Captured, Observe, TapListener, capture, listen, places_of
from regard.attention.compiled_capture import request_of
from regard.attention.layers import EncoderBlock, FeedForward, MultiHead
from regard.attention.masks import Causal
from regard.errors import SettingError

LAYERS, WIDTH = 2, 8
REQUEST = Observe(top=8, entropy=True)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderBlock(MultiHead(WIDTH, 2), FeedForward(WIDTH, 16)) for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, mask=Causal())
        return x


class SdpaLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.joint = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.joint(x).unsqueeze(1).chunk(3, -1)
        return x + nn.functional.scaled_dot_product_attention(q, k, v).squeeze(1)


class MultiheadLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return x + added


def made(seed: int = 0) -> Layers:
    torch.manual_seed(seed)
    return Layers().eval()


def text(length: int, rows: int = 2) -> Tensor:
    return torch.randn(rows, length, WIDTH, generator=seeded(length))


def wrapped(model: nn.Module, **how: Any) -> tuple[nn.Module, Callable[..., Any]]:
    """The module that is captured, and what is called."""
    compiled: Any = torch.compile(model, **how)
    return compiled, compiled


def in_place(model: nn.Module, **how: Any) -> tuple[nn.Module, Callable[..., Any]]:
    model.compile(**how)
    return model, model


def by_layer(model: nn.Module, **how: Any) -> tuple[nn.Module, Callable[..., Any]]:
    """As large models are compiled: their layers share graphs."""
    for layer in model.get_submodule("layers").children():
        layer.compile(**how)
    return model, model


def replaced_layer(model: nn.Module, **how: Any) -> tuple[nn.Module, Callable[..., Any]]:
    layers: Any = model.get_submodule("layers")
    layers[1] = torch.compile(layers[1], **how)
    return model, model


def in_a_function(model: nn.Module, **how: Any) -> tuple[nn.Module, Callable[..., Any]]:
    return model, torch.compile(lambda x: model(x), **how)


COMPILED = {one.__name__: one for one in (wrapped, in_place, by_layer, replaced_layer, in_a_function)}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compile_model(model: nn.Module, way: str = "wrapped", backend: str = "eager") -> Any:
    counter = CompileCounterWithBackend(backend)
    return *COMPILED[way](model, backend=counter, fullgraph=True, dynamic=True), counter


def assert_same(got: Captured, want: Captured) -> None:
    assert list(got) == list(want)
    for place in want:
        assert len(got.calls(place)) == len(want.calls(place)), place
        for one, other in zip(got.calls(place), want.calls(place), strict=True):
            assert one.backend == other.backend
            for name in ("output", "lse", "entropy", "received", "thumbnail", "weights", "values", "sink"):
                a, b = getattr(one, name), getattr(other, name)
                assert (a is None) == (b is None), name
                if a is not None:
                    torch.testing.assert_close(a, b, msg=f"{place} {name}")
            assert (one.top is None) == (other.top is None)
            if one.top is not None:
                torch.testing.assert_close(one.top.values, other.top.values)
                assert torch.equal(one.top.indices, other.top.indices)


def heard_by(model: nn.Module, called: Callable[..., Any], observe: Observe, *texts: Tensor) -> Captured:
    with capture(model, observe=observe) as heard, torch.no_grad():
        for one in texts:
            called(one)
    return heard


@pytest.mark.parametrize(("way", "backend"), [*((way, "eager") for way in COMPILED), ("wrapped", "aot_eager")])
def test_compiled_code_is_heard_as_uncompiled_and_compiled_once(way: str, backend: str) -> None:
    plain, model = made(), made()
    captured, called, counter = compile_model(model, way, backend)
    with torch.no_grad():
        alone = called(text(12))
        graphs = counter.frame_count
        with capture(captured, observe=REQUEST) as heard:
            assert torch.equal(called(text(12)), alone)
        assert_same(heard, heard_by(plain, plain, REQUEST, text(12)))
        with_capture = counter.frame_count
        assert graphs < with_capture
        for length in (12, 9, 17):  # the same request again, other lengths
            found = heard_by(captured, called, REQUEST, text(length), text(length + 1))
            assert_same(found, heard_by(plain, plain, REQUEST, text(length), text(length + 1)))
            assert torch.equal(called(text(12)), alone)  # the first graph serves again
        assert counter.frame_count == with_capture


@pytest.mark.long
def test_inductor() -> None:
    plain, model = made(), made()
    compiled, _, counter = compile_model(model, backend="inductor")
    graphs = []
    with torch.no_grad():
        alone = compiled(text(12))
        for length in (12, 9):
            found = heard_by(compiled, compiled, REQUEST, text(length))
            assert_same(found, heard_by(plain, plain, REQUEST, text(length)))
            graphs.append(counter.frame_count)
        torch.testing.assert_close(compiled(text(12)), alone)
    assert counter.frame_count == graphs[0]


@pytest.mark.parametrize(
    "observe",
    [
        Observe(weights=True, values=True),
        Observe(received=True),
        pytest.param(Observe(thumbnail=(3, 4)), marks=pytest.mark.long),
        Observe(top=2, entropy=True, received=True, thumbnail=(4, 4), weights=True, values=True),
    ],
    ids=repr,
)
def test_every_statistic(observe: Observe) -> None:
    plain, model = made(), made()
    compiled, _, _ = compile_model(model)
    assert_same(
        heard_by(compiled, compiled, observe, text(9), text(3)), heard_by(plain, plain, observe, text(9), text(3))
    )


def test_a_graph_computes_only_what_is_requested_of_its_places() -> None:
    graphs: list[Any] = []

    def keep(graph: torch.fx.GraphModule, _: list[Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    model = made()
    model.compile(backend=keep, fullgraph=True)
    with torch.no_grad():
        model(text(6))
        with capture(model, "layers.1.*", observe=Observe(top=2)) as heard:
            model(text(6))
    assert list(heard) == ["layers.1.self"]
    reports = [
        [node for node in graph.graph.nodes if any(name in str(node.target) for name in ("report_", "statistics"))]
        for graph in graphs
    ]
    assert [len(one) for one in reports] == [0, 2]
    assert not any(request_of(module) for module in model.modules())  # no trace is left


def test_gradients_change_by_no_bit() -> None:
    model = made().train()
    compiled, _, counter = compile_model(model, backend="aot_eager")

    def gradients() -> list[Tensor]:
        return list(torch.autograd.grad(compiled(text(6)).square().sum(), list(model.parameters())))

    alone = gradients()
    graphs = counter.frame_count
    with capture(compiled, observe=Observe(weights=True)) as heard:
        while_heard = gradients()
    assert all(map(torch.equal, alone, while_heard)) and counter.frame_count > graphs
    weights = heard["layers.0.self"].weights
    assert weights is not None and not weights.requires_grad


def test_overlapping_captures_hear_their_own_requests_and_end_in_any_order() -> None:
    plain, model = made(), made()
    compiled, _, _ = compile_model(model)
    with torch.no_grad():
        first, second = capture(compiled, observe=Observe(entropy=True)), capture(compiled, "layers.1.*", REQUEST)
        hears_entropy, hears_top = first.__enter__(), second.__enter__()
        compiled(text(5))
        first.__exit__(None, None, None)
        compiled(text(6))
        second.__exit__(None, None, None)
        compiled(text(7))
    assert_same(hears_entropy, heard_by(plain, plain, Observe(entropy=True), text(5)))
    with capture(plain, "layers.1.*", REQUEST) as want, torch.no_grad():
        plain(text(5))
        plain(text(6))
    assert_same(hears_top, want)


def test_threads_hear_their_own_calls() -> None:
    """Two capture the same compiled model, one only runs it."""
    plain, model = made(), made()
    compiled, _, _ = compile_model(model)
    heard_by(compiled, compiled, REQUEST, text(5))  # compiled beforehand
    started = threading.Barrier(3)

    def listening(first: int) -> Captured:
        with capture(compiled, observe=REQUEST) as heard, torch.no_grad():
            started.wait(60)
            for length in range(first, first + 10):
                compiled(text(length))
        return heard

    def running() -> None:
        started.wait(60)
        with torch.no_grad():
            for length in range(3, 30):
                compiled(text(length))

    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(listening, first) for first in (5, 9)]
        pool.submit(running).result()
        for first, one in zip((5, 9), found, strict=True):
            lengths = range(first, first + 10)
            assert_same(one.result(), heard_by(plain, plain, REQUEST, *(text(length) for length in lengths)))


def test_a_thread_without_a_capture_is_not_heard() -> None:
    model = made()
    compiled, _, _ = compile_model(model)
    with capture(compiled, observe=REQUEST) as heard:
        thread = threading.Thread(target=compiled, args=(text(4),))
        thread.start()
        thread.join()
        compiled(text(5))
    assert [call.output.size(-2) for call in heard.calls("layers.0.self")] == [5]


def test_a_capture_of_one_model_compiles_nothing_of_another() -> None:
    model, other = made(), made(1)
    compiled, _, counter = compile_model(other)
    with torch.no_grad():
        compiled(text(5))
        with capture(model) as heard:
            model(text(4))
            compiled(text(5))
    assert counter.frame_count == 1 and len(heard.calls("layers.0.self")) == 1


@pytest.mark.parametrize("kind", [SdpaLayer, MultiheadLayer])
@pytest.mark.parametrize("way", ["wrapped", "in_place", "in_a_function"])
def test_models_heard_by_hooks_run_uncompiled_inside_the_block(kind: type[nn.Module], way: str) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(kind(), kind()).eval()
    model = nn.Sequential(kind(), kind()).eval()
    model.load_state_dict(plain.state_dict())
    captured, called, counter = compile_model(model, way)
    with torch.no_grad():
        called(text(5))
        assert_same(heard_by(captured, called, REQUEST, text(5)), heard_by(plain, plain, REQUEST, text(5)))
        called(text(5))
    assert counter.frame_count == 1


def test_a_listener_that_replaces_weights_runs_the_model_uncompiled() -> None:
    plain, model = made(), made()
    compiled, _, counter = compile_model(model)

    def uniform(_: str, got: Any) -> Tensor:
        return torch.full((*got.lse.shape, got.lse.size(-1)), 1 / got.lse.size(-1))

    with torch.no_grad():
        before = compiled(text(5))
        found = []
        for one in (plain, compiled):
            with listen(TapListener(places_of(one, "layers.0.*"), Observe(), uniform)):
                found.append(one(text(5)))
        torch.testing.assert_close(*found)
        assert not torch.allclose(found[0], before)
        assert torch.equal(compiled(text(5)), before) and counter.frame_count == 1


def test_inputs_of_a_record_come_from_uncompiled_code() -> None:
    model = made()
    compiled, _, counter = compile_model(model)
    with torch.no_grad():
        compiled(text(5))
        with capture(compiled, observe=Observe(prepared=True)) as heard:
            compiled(text(5))
    assert heard["layers.0.self"].prepared is not None and counter.frame_count == 1


def test_code_that_is_first_compiled_for_a_listener_that_replaces_weights_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a process that did not import the compiler before."""
    from regard.attention import tap

    model = made()
    monkeypatch.setattr(tap, "sys", type("sys", (), {"modules": {}}))
    with listen(TapListener(places_of(model), Observe(), lambda *_: None)):
        with pytest.raises(Unsupported, match="Compile the model before the block"):
            torch.compile(model, backend="eager", fullgraph=True)(text(5))
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.testing.assert_close(torch.compile(model, backend="eager")(text(5)), made()(text(5)))


def test_thumbnails_of_two_sizes_are_refused_in_words() -> None:
    model = made()
    compiled, _, _ = compile_model(model)
    compiled(text(5))
    two_sizes = [capture(compiled, observe=Observe(thumbnail=size)) for size in ((2, 2), (3, 3))]
    with two_sizes[0], two_sizes[1], pytest.raises(SettingError, match="thumbnails of"):
        compiled(text(5))
