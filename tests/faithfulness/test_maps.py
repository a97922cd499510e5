"""Attribution maps: by hand, by finite differences, and by completeness."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from faithfulness.toys import PAIRS, TEXTS, bert, classifier, filler, language_model, rows, translating
from regard.adapters.base import ModelAdapter
from regard.adapters.case import InputRow
from regard.attention import Observe, capture
from regard.errors import PlaceError
from regard.faithfulness.maps import (
    attention_maps,
    gradient_times_input_map,
    integrated_gradients_map,
    method_maps,
    norm_map,
    relevance_map,
    rollout_map,
    trace_decisions,
)
from regard.inspection.attribution.gradients import intercept_embeddings, intercept_weights

ADAPTERS = {
    "question": lambda: classifier(reads=True),
    "from [CLS]": lambda: bert("cls"),
    "from the mean": lambda: bert("mean"),
    "filler": filler,
    "language model": language_model,
    "bahdanau": translating,
    "pointer": lambda: translating("pointer"),
    "transformer": lambda: translating("transformer"),
}
every_adapter = pytest.mark.parametrize("name", ADAPTERS)


def asked(name: str) -> tuple[ModelAdapter, list[InputRow]]:
    adapter = ADAPTERS[name]()
    return adapter, rows(adapter, *(PAIRS if name in ("bahdanau", "pointer", "transformer") else TEXTS))


def said_of(adapter: ModelAdapter, given: list[InputRow], wanted: Tensor) -> Tensor:
    """p (B,) of these classes."""
    return adapter.log_probs(given).exp().gather(1, wanted.unsqueeze(1)).squeeze(1)


@every_adapter
def test_traced_weights_equal_captured_weights(name: str) -> None:
    adapter, given = asked(name)
    trace = trace_decisions(adapter, given)
    with torch.no_grad(), capture(adapter.model) as heard:
        said = adapter.log_probs(given)
    torch.testing.assert_close(trace.log_probs, said)
    assert torch.equal(trace.predicted, said.argmax(-1)) and (trace.predicted != trace.second).all()
    torch.testing.assert_close(trace.p, said.exp().max(-1).values)
    for one in trace.attention:
        whole = torch.cat([call.weights for call in heard.calls(one.place)], -2)
        whole = whole if whole.dim() == 4 else whole.unsqueeze(1)
        torch.testing.assert_close(one.weights, whole)
        assert one.gradients.shape == one.weights.shape
    assert [place for place, _ in trace.mean_weights] == [place for place in heard.places if heard.calls(place)]


@every_adapter
def test_every_map_has_a_number_for_each_token_and_none_for_padding(name: str) -> None:
    adapter, given = asked(name)
    trace = trace_decisions(adapter, given)
    padding = torch.arange(max(len(row.ids) for row in given)) >= trace.lengths.unsqueeze(1)
    for which, found in (attention_maps(trace) | method_maps(adapter, trace)).items():
        assert found.shape == padding.shape and found.isfinite().all(), which
        assert not found[padding].abs().gt(1e-6).any(), which
        assert found[~padding].abs().max() > 0, which
    for which, found in attention_maps(trace).items():
        assert ((found.sum(-1) - 1).abs() < 1e-4).all(), which


@every_adapter
def test_a_padded_text_has_the_maps_that_it_has_alone(name: str) -> None:
    adapter, given = asked(name)
    together = trace_decisions(adapter, given)
    one = min(range(len(given)), key=lambda at: len(given[at].ids))
    alone = trace_decisions(adapter, [given[one]])
    size = len(given[one].ids)
    maps = attention_maps(alone) | method_maps(adapter, alone)
    for which, found in (attention_maps(together) | method_maps(adapter, together)).items():
        torch.testing.assert_close(found[one, :size], maps[which][0, :size], atol=2e-4, rtol=2e-3, msg=which)


def test_heads_and_their_mean() -> None:
    adapter, given = asked("from [CLS]")
    trace = trace_decisions(adapter, given)
    found = attention_maps(trace)
    place = "features.bert.encoder.blocks.1.self"
    assert list(found)[-3:] == [f"{place}/0", f"{place}/1", place]
    torch.testing.assert_close(found[f"{place}/1"], trace.attention[1].weights[:, 1, 0])
    torch.testing.assert_close(found[place], (found[f"{place}/0"] + found[f"{place}/1"]) / 2)
    mean = trace_decisions(*asked("from the mean")).attention[1]
    length = len(given[1].ids)
    expected = mean.weights[1, :, :length].mean(1)
    torch.testing.assert_close(mean.at_readout(mean.weights, trace.lengths)[1], expected)


def test_rollout_uses_all_places_whichever_are_chosen() -> None:
    adapter, given = asked("from [CLS]")
    trace = trace_decisions(adapter, given, "*.1.self")
    assert [one.place for one in trace.attention] == ["features.bert.encoder.blocks.1.self"]
    torch.testing.assert_close(rollout_map(adapter, trace), rollout_map(adapter, trace_decisions(adapter, given)))
    with pytest.raises(PlaceError, match=r"Unknown place 'nowhere'. Known: features\.bert"):
        trace_decisions(adapter, given, "nowhere")


@pytest.mark.parametrize("name", ["question", "from [CLS]", "language model", "bahdanau"])
def test_gradients_equal_finite_differences(name: str) -> None:
    """Against a small change of one weight."""
    adapter, given = asked(name)
    given = given[:1]
    trace = trace_decisions(adapter, given)
    seen = trace.attention[-1]
    query = 0 if seen.readout is None else seen.readout[0]
    for key in (0, 2):
        ends = []
        for step in (1e-2, -1e-2):
            asked_before = 0

            def change(place: str, weights: Tensor, step: float = step, key: int = key) -> Tensor:
                nonlocal asked_before
                first, asked_before = asked_before, asked_before + weights.size(2)
                if not first <= query < first + weights.size(2):
                    return weights
                new = weights.clone()
                new[0, 0, query - first, key] += step
                return new

            with torch.no_grad(), intercept_weights(adapter.model, seen.place)(change):
                ends.append(float(said_of(adapter, given, trace.predicted)))
        assert seen.gradients[0, 0, query, key].item() == pytest.approx((ends[0] - ends[1]) / 2e-2, rel=2e-2, abs=2e-4)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("name", ["question", "from the mean", "transformer"])
def test_gradient_times_input_equals_finite_differences(name: str, fixed: bool) -> None:
    """x . dp/dx against p with x 1% longer and shorter; fixed: with constant attention weights."""
    adapter, given = asked(name)
    given = given[:1]
    wanted = adapter.log_probs(given).argmax(-1)
    weights: dict[str, list[Tensor]] = {}

    def kept(place: str, seen: Tensor) -> Tensor:
        weights.setdefault(place, []).append(seen.detach())
        return seen

    with torch.no_grad(), intercept_weights(adapter.model)(kept):
        adapter.log_probs(given)
    found = gradient_times_input_map(adapter, given, wanted, fixed)

    def stretched(token: int, by: float) -> float:
        def longer(point: str, x: Tensor) -> Tensor:
            scale = torch.ones(x.size(1))
            scale[token] += by
            return x * scale.unsqueeze(-1)

        left = {place: list(calls) for place, calls in weights.items()}
        held = intercept_weights(adapter.model)(lambda place, seen: left[place].pop(0) if fixed else seen)
        with torch.no_grad(), intercept_embeddings(adapter.model, adapter.input_ids(given))(longer), held:
            return float(said_of(adapter, given, wanted))

    for token in range(len(given[0].ids)):
        slope = (stretched(token, 1e-2) - stretched(token, -1e-2)) / 2e-2
        assert found[0, token].item() == pytest.approx(slope, rel=2e-2, abs=5e-4)


@every_adapter
def test_integrated_gradients_are_complete(name: str) -> None:
    """They sum to p minus p with zero embeddings."""
    adapter, given = asked(name)
    wanted = adapter.log_probs(given).argmax(-1)
    found = integrated_gradients_map(adapter, given, wanted, steps=64).sum(-1)
    with torch.no_grad():
        whole = said_of(adapter, given, wanted)
        with intercept_embeddings(adapter.model, adapter.input_ids(given))(lambda point, x: torch.zeros_like(x)):
            nothing = said_of(adapter, given, wanted)
    torch.testing.assert_close(found, whole - nothing, atol=5e-3, rtol=0)


def test_gradient_times_input_with_fixed_weights_by_hand() -> None:
    """logits = W sum w_t x_t + b, w fixed: x . dp/dx = p (W_y - sum p_c W_c) . w_t x_t."""
    adapter = classifier()
    given = rows(adapter, TEXTS[0])
    trace = trace_decisions(adapter, given)
    model, p = adapter.model, trace.log_probs[0].exp()
    chosen = int(trace.predicted)
    direction = model.classes.weight[chosen] - p @ model.classes.weight
    states = model.embedding(torch.tensor(given[0].ids))
    expected = p[chosen] * trace.attention[0].weights.flatten() * (states @ direction)
    torch.testing.assert_close(
        gradient_times_input_map(adapter, given, trace.predicted, fixed=True)[0], expected.detach()
    )
    both = method_maps(adapter, trace)["gradient x attention"][0]
    torch.testing.assert_close(both, expected.detach())  # of such a model the two are the same


def test_norms_by_hand() -> None:
    """sum over heads of w_t || v_t W_O ||, of the query that decides."""
    adapter, given = asked("from [CLS]")
    trace = trace_decisions(adapter, given)
    seen = trace.attention[-1]
    with torch.no_grad(), capture(adapter.model, seen.place, Observe(values=True)) as heard:
        adapter.log_probs(given)
    out, values = adapter.model.get_submodule(seen.place).out.weight, heard[seen.place].values
    found = norm_map(adapter, trace, seen)
    for at, row in enumerate(given):
        for key in range(len(row.ids)):
            parts = [
                seen.weights[at, head, 0, key] * (out[:, 4 * head : 4 * head + 4] @ values[at, head, key]).norm()
                for head in range(2)
            ]
            torch.testing.assert_close(found[at, key], sum(parts).detach())


def test_norms_without_an_output_projection() -> None:
    adapter = classifier()
    given = rows(adapter, *TEXTS)
    trace = trace_decisions(adapter, given)
    [seen] = trace.attention
    expected = seen.weights[:, 0, 0] * adapter.model.embedding(adapter.input_ids(given)).norm(dim=-1)
    torch.testing.assert_close(norm_map(adapter, trace, seen), expected.detach())


@every_adapter
def test_relevance_is_finite_never_negative_and_of_the_text_alone(name: str) -> None:
    adapter, given = asked(name)
    trace = trace_decisions(adapter, given)
    found = relevance_map(adapter, trace, trace.attention)
    assert found.isfinite().all() and (found >= -1e-12).all() and (found.sum(1) > 0).any()
    for row, length in zip(found, trace.lengths.tolist(), strict=True):
        assert row[length:].abs().max() == 0 if length < len(row) else True


def test_relevance_of_one_layer_is_the_positive_part_of_gradient_times_attention() -> None:
    adapter = classifier()
    trace = trace_decisions(adapter, rows(adapter, *TEXTS))
    [one] = trace.attention
    expected = one.at_readout((one.weights * one.gradients).clamp(min=0), trace.lengths).mean(1)
    torch.testing.assert_close(relevance_map(adapter, trace, trace.attention), expected)


def test_for_the_second_class_gradients_change_and_attention_does_not() -> None:
    adapter, given = asked("from [CLS]")
    trace = trace_decisions(adapter, given)
    first, second = method_maps(adapter, trace), method_maps(adapter, trace, second=True)
    for name in ("attention", "norm-based attention", "rollout"):
        assert torch.equal(first[name], second[name])
    for name in ("relevance", "gradient x attention", "gradient x input", "integrated gradients"):
        assert not torch.allclose(first[name], second[name], atol=1e-3)
    torch.testing.assert_close(
        second["integrated gradients"], integrated_gradients_map(adapter, trace.rows, trace.second)
    )
