"""Interventions change what they must and nothing else; a model's own weights change no bit of "plain"."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from tests.test_docs import blocks
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from models.translators import translator
from regard.attention import Observe, attend, capture, tap
from regard.attention.layers import FusedQKV, MultiHead, SeparateQKV
from regard.attention.masks import Causal, Padding
from regard.attention.positions import Rotary
from regard.errors import DtypeError, PlaceError, SettingError, ShapeError
from regard.inspection.interventions import intervene, is_intervened, reset_query_counts
from regard.models.bert import Bert, BertSize as BertSize
from regard.models.blocks import LLAMA
from regard.models.decoders import Bahdanau
from regard.models.gpt import GPT
from regard.models.pooling import PoolingClassifier
from regard.models.transformer import TransformerSize, build_transformer

IDS, LENGTHS = torch.tensor([[3, 5, 7, 2, 9, 4], [8, 6, 2, 0, 0, 0]]), torch.tensor([6, 3])
TARGET = torch.tensor([[1, 4, 6, 3], [1, 9, 2, 5]])
Model = tuple[nn.Module, tuple[Tensor, ...]]


def same(weights: Tensor) -> Tensor:
    return weights


def ours() -> dict[str, Callable[[], Model]]:
    return {
        "transformer": lambda: (build_transformer(11, TransformerSize(2, 16, 2, 24)), (IDS, LENGTHS, TARGET)),
        "grouped": lambda: (GPT(11, 16, 2, 4, Rotary(4), block=replace(LLAMA, key_heads=2)), (IDS,)),
        "bert": lambda: (Bert.of(11, BertSize(2, 16, 2), max_positions=8), (IDS, LENGTHS)),
        "pooling": lambda: (PoolingClassifier(11, 2, 8), (IDS, LENGTHS)),
        "bahdanau": lambda: (translator("bahdanau").float(), (IDS, LENGTHS, TARGET)),
        "local-p, fed": lambda: (translator("local-p, fed").float(), (IDS, LENGTHS, TARGET)),
    }


def made(name: str) -> Model:
    torch.manual_seed(0)
    model, inputs = ours()[name]()
    return model.eval(), inputs


def said(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """What a model says, as one tensor."""
    found = model(*inputs)
    return found[0].log_probs() if isinstance(found, tuple) else found


@pytest.fixture
def plainly(monkeypatch: pytest.MonkeyPatch) -> Callable[[nn.Module, tuple[Tensor, ...]], Tensor]:
    """What a model says when every place computes by the definition."""

    def run(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        with monkeypatch.context() as patched:
            patched.setattr(tap, "attend", partial(attend, backend="plain"))
            patched.setattr(Bahdanau, "_has_loop", lambda *_: False)  # its steps go one by one
            return said(model, inputs)

    return run


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("name", ours())
def test_a_models_own_weights_change_no_bit_of_plain(name: str, gradient: bool, plainly: Any) -> None:
    model, inputs = made(name)
    with torch.set_grad_enabled(gradient):
        expected = plainly(model, inputs)
        with intervene(model, weights=same):
            assert torch.equal(said(model, inputs), expected)


@pytest.mark.parametrize("name", ours())
@torch.no_grad()
def test_captured_weights_change_no_bit_of_plain(name: str, plainly: Any) -> None:
    """They are captured while the model runs as it likes: the first place hears plain's, the others once these are."""
    model, inputs = made(name)
    places, expected = list(tap.places_of(model).values()), plainly(model, inputs)
    with ExitStack() as stack:
        for place in places:
            with capture(model, place) as heard:
                said(model, inputs)
            weights = torch.cat([call.weights for call in heard.calls(place)], -2)
            stack.enter_context(intervene(model, place, weights=weights))
        assert torch.equal(said(model, inputs), expected)


@pytest.mark.parametrize("name", ours())
@torch.no_grad()
def test_nothing_changes_outside_the_block(name: str) -> None:
    model, inputs = made(name)
    before, modules = said(model, inputs), {id(one): set(vars(one)) for one in model.modules()}
    with intervene(model, weights="zero"):
        assert not torch.allclose(said(model, inputs), before)
    assert torch.equal(said(model, inputs), before)
    assert {id(one): set(vars(one)) for one in model.modules()} == modules


@pytest.mark.parametrize("backend", ["sdpa", "stream"])
def test_observed_weights_equal_plain_with_any_backend(backend: str) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
    mask, weights = Causal() & Padding(torch.tensor([9, 6])), Observe(weights=True)
    found, plain = (attend(q, k, v, mask=mask, observe=weights, backend=one).weights for one in (backend, "plain"))
    assert torch.equal(found, plain)


@torch.no_grad()
def test_an_intervention_keeps_its_precision_under_autocast() -> None:
    torch.manual_seed(0)
    tapped, q, k, v = tap.Tap(), torch.randn(3, 8), torch.randn(5, 8), torch.randn(5, 8)
    with torch.autocast("cpu", torch.bfloat16), intervene(tapped, weights=same):
        assert torch.equal(tapped(q, k, v).output, attend(q, k, v, backend="plain").output)


def heads_of(project: Any) -> tuple[MultiHead, Tensor]:
    torch.manual_seed(1)
    return MultiHead(12, project), torch.randn(2, 5, 12)


@pytest.mark.parametrize("project", [3, FusedQKV(12, 3), SeparateQKV(12, 3, key_heads=1)])
@torch.no_grad()
def test_a_zeroed_head_has_no_output(project: Any) -> None:
    heads, x = heads_of(project)
    with capture(heads, observe=Observe(weights=True)) as heard:
        heads(x)
    output = heads.tap(*heads.project.all(x)).output  # (B, H, T, 4)
    output[:, 1] = 0
    with intervene(heads, "", heads=1, weights="zero"):
        torch.testing.assert_close(heads(x), heads.out(output.transpose(1, 2).flatten(2)))
    with intervene(heads, weights="zero"):
        torch.testing.assert_close(heads(x), heads.out.bias.expand(2, 5, 12))
    assert heard[""].weights.shape == (2, 3, 5, 5)


@torch.no_grad()
def test_uniform_is_the_mean_over_visible_keys() -> None:
    heads, x = heads_of(3)
    mask = Causal() & Padding(torch.tensor([5, 3]))
    values = heads.project.all(x)[2]  # (B, H, S, 4)
    with intervene(heads, heads=[0, 2], weights="uniform"), capture(heads) as heard:
        heads(x, mask=mask)
    weights, output = heard[""].weights, heard[""].output
    for b, length in enumerate((5, 3)):
        for t in range(5):
            seen = min(t + 1, length)
            expected = torch.zeros(5).index_fill(0, torch.arange(seen), 1 / seen)
            for head in (0, 2):
                torch.testing.assert_close(weights[b, head, t], expected)
                torch.testing.assert_close(output[b, head, t], values[b, head, :seen].mean(0))
    alone = attend(*heads.project.all(x), mask=mask, observe=Observe(weights=True), backend="plain")
    assert torch.equal(weights[:, 1], alone.weights[:, 1])


@torch.no_grad()
def test_a_visible_key_with_weight_zero_counts_for_uniform() -> None:
    """A key far behind has a weight of 0 to the bit, and is not hidden; one behind a huge negative bias is."""
    tapped, q = tap.Tap(), torch.tensor([[1.0]])
    k = torch.tensor([[200.0], [0.0], [0.0]])
    hides = regard.biases.DenseBias(torch.tensor([[0.0, 0.0, torch.finfo(torch.float32).min]]))
    with intervene(tapped, weights="uniform"), capture(tapped) as heard:
        tapped(q, k, bias=hides)
    assert heard[""].weights.tolist() == [[0.5, 0.5, 0.0]]


@torch.no_grad()
def test_only_the_selected_rows_change() -> None:
    heads, x = heads_of(3)
    before = heads(x)
    with intervene(heads, heads=[1], rows=[0, 3], weights="zero"):
        after = heads(x)
    moved = (before - after).abs().amax((0, 2)) > 1e-6
    assert moved.tolist() == [True, False, False, True, False]
    with intervene(heads, rows=7, weights="zero"):
        assert torch.equal(heads(x), before), "a row that never comes changes nothing"


@pytest.mark.parametrize("name", ["transformer", "bahdanau", "local-p, fed"])
@pytest.mark.parametrize("weights", ["zero", "uniform", same])
@torch.no_grad()
def test_rows_are_counted_over_the_steps_of_a_decoder(name: str, weights: Any) -> None:
    model: Any = made(name)[0].double()
    inputs = (IDS[:1], LENGTHS[:1], TARGET[:1])
    with intervene(
        model, ["decoder*", "*cross"] if name == "transformer" else "decoder*", rows=[1, 2], weights=weights
    ):
        whole = said(model, inputs)
        reset_query_counts()
        state, steps = model.start(*inputs[:2]), []
        for token in TARGET[0]:
            logs, _, state = model.step(state, token.unsqueeze(0))
            steps.append(logs)
    torch.testing.assert_close(torch.stack(steps, 1), whole)
    moved = (whole - said(model, inputs)).abs().amax((0, 2)) > 1e-9
    assert moved.tolist()[:2] == [False, weights is not same]


@torch.no_grad()
def test_a_tensor_has_a_row_for_each_step_and_later_keys() -> None:
    model: Any = made("transformer")[0].double()
    weights = torch.rand(1, 2, 4, 4, dtype=torch.float64).tril()
    with intervene(model, "decoder.1.self", weights=weights):
        whole = said(model, (IDS[:1], LENGTHS[:1], TARGET[:1]))
        state, steps = model.start(IDS[:1], LENGTHS[:1]), []
        reset_query_counts()
        for token in TARGET[0]:
            logs, _, state = model.step(state, token.unsqueeze(0))
            steps.append(logs)
        torch.testing.assert_close(torch.stack(steps, 1), whole)
        with pytest.raises(ShapeError, match="for query 4"):
            model.step(state, TARGET[0, :1])


@torch.no_grad()
def test_nested_blocks_compose_the_outer_one_first() -> None:
    heads, x = heads_of(3)
    with (
        intervene(heads, weights="uniform"),
        intervene(heads, heads=2, weights=lambda weights: weights * 2),
        capture(heads) as heard,
    ):
        heads(x)
    assert torch.equal(heard[""].weights[:, :2], torch.full((2, 2, 5, 5), 1 / 5))
    torch.testing.assert_close(heard[""].weights[:, 2], torch.full((2, 5, 5), 2 / 5))


def test_a_function_may_be_differentiated() -> None:
    heads, x = heads_of(3)
    gate = torch.ones(3, 1, 1, requires_grad=True)
    with intervene(heads, weights=lambda weights: weights * gate):
        heads(x).sum().backward()
    output = heads.tap(*heads.project.all(x)).output.detach().transpose(1, 2)  # (B, T, H, 4)
    expected = (output.flatten(2) * heads.out.weight.sum(0)).unflatten(-1, (3, 4)).sum((0, 1, 3))
    torch.testing.assert_close(gate.grad.flatten(), expected.detach())


class Foreign(nn.Module):
    """Somebody else's model: torch's attention by both of its doors."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.MultiheadAttention(12, 3, batch_first=True)
        self.second = nn.ModuleDict({"inner": Causally()})

    def forward(self, x: Tensor) -> Tensor:
        return self.second["inner"](x + self.first(x, x, x)[0])


class Causally(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        q = x.unflatten(-1, (3, 4)).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).flatten(2)


@torch.no_grad()
def test_other_models() -> None:
    torch.manual_seed(0)
    model, x = Foreign().eval(), torch.randn(2, 5, 12)
    before = model(x)
    with intervene(model, weights=same), capture(model) as heard:
        found = model(x)
    assert heard.places == ["first", "second.inner"]
    torch.testing.assert_close(found, before)
    middle = x + model.first(x, x, x)[0]
    q = middle.unflatten(-1, (3, 4)).transpose(1, 2)
    plain = attend(q, q, q, mask=Causal(), backend="plain").output.transpose(1, 2).flatten(2)
    with intervene(model, "second.inner", weights=same):
        assert torch.equal(model(x), plain)
    with intervene(model, "second.inner", heads=1, weights="zero"), intervene(model, "first", weights="uniform"):
        after = model(x)
    assert bool((after[..., 4:8] == 0).all()) and bool((after[..., :4] != 0).any())


@torch.no_grad()
def test_nested_listeners_of_other_models_get_each_call_once() -> None:
    model, x, calls = Foreign().eval(), torch.randn(2, 5, 12), []

    def counted(weights: Tensor) -> Tensor:
        calls.append(tuple(weights.shape))
        return weights

    with capture(model) as one, intervene(model, "second.inner", weights=counted), capture(model) as other:
        model(x)
    assert calls == [(2, 3, 5, 5)]
    assert len(one.calls("first")) == len(other.calls("first")) == len(other.calls("second.inner")) == 1
    assert tap.is_dispatching() is False


def test_a_place_without_attention_is_an_error() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    with pytest.raises(PlaceError, match="No attention was computed at"), intervene(model, weights="zero"):
        model(torch.zeros(1, 3))


@torch.no_grad()
def test_interventions_are_known_while_active() -> None:
    heads, x = heads_of(3)
    assert not is_intervened(heads.tap)
    with intervene(heads, weights="zero"):
        assert is_intervened(heads.tap)
        heads(x)
    assert not is_intervened(heads.tap)


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        (
            {"places": "encoder.blocks.9.self"},
            PlaceError,
            r"intervene: No place matches 'encoder.blocks.9.self'.*encoder.blocks.0.self",
        ),
        ({"heads": [2]}, PlaceError, "head 2 at encoder.blocks.0.self, expected one from 0 to 1"),
        ({"heads": [-1]}, SettingError, "counted from 0"),
        ({"heads": [1, 1]}, SettingError, "distinct numbers"),
        ({"rows": "all"}, SettingError, "rows='all'"),
        ({"weights": "unifrom"}, SettingError, "Did you mean 'uniform'"),
        ({"weights": 3}, DtypeError, "weights of type int"),
        ({"weights": torch.ones(2, 3, dtype=torch.long)}, DtypeError, "floating-point"),
        ({"weights": torch.tensor([0.5, -0.5])}, SettingError, "negative"),
        ({"weights": torch.tensor([0.5, torch.nan])}, SettingError, "NaN"),
        ({"weights": torch.tensor([0.5, torch.inf])}, SettingError, "infinite"),
        ({"weights": lambda weights: weights - 1}, SettingError, "negative"),
        ({"weights": lambda weights: None}, DtypeError, "NoneType from a function"),
        (
            {"weights": lambda weights: weights[..., :3]},
            ShapeError,
            r"\(2, 2, 6, 3\), expected a shape that broadcasts",
        ),
        (
            {"weights": torch.ones(2, 6, 7)},
            ShapeError,
            r"\(2, 6, 7\), expected a shape that broadcasts to \(2, 2, 6, 6\)",
        ),
        ({"weights": torch.ones(2, 3, 6, 6)}, ShapeError, r"\(2, 3, 6, 6\)"),
    ],
)
def test_invalid_interventions_are_refused(asked: dict[str, Any], error: type[Exception], words: str) -> None:
    model, inputs = made("transformer")
    with (
        pytest.raises(error, match=words),
        intervene(model, **{"places": "encoder.blocks.0.self", "weights": "zero", **asked}),
    ):
        model(*inputs)


def test_the_docs_on_intervening() -> None:
    names: dict[str, Any] = {}
    exec(blocks("docs/intervening.md", "Other weights"), names)
    whole = names["whole"]
    assert all(not torch.allclose(names[name], whole) for name in ("silent", "flat", "turned"))
    moved = (names["turned"] - whole).abs().amax((0, 2)) > 1e-4
    assert moved.tolist()[:4] == [False, False, False, True]
