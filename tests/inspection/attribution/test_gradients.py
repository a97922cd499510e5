"""Gradients of attention weights: finite differences, linear targets, and integrals that are complete."""

import pytest
import torch
from tests.inspection.attribution.records import bert, gpt, ids, translator
from tests.models.translators import batch, translator as recurrent
from torch import nn

from regard.attention import Observe, capture
from regard.attention.tap import TapListener, listen, places_of
from regard.errors import DtypeError, PlaceError, SettingError
from regard.inspection.attribution.gradients import attention_gradients, gradient_times_attention, integrated_gradients

close = torch.testing.assert_close
lengths = torch.tensor([6, 4])


def bert_target(model):
    return lambda: model(ids(2, 6), lengths)[:, 1, 3].sum()


def gpt_target(model):
    return lambda: model(ids(2, 6))[:, -1].log_softmax(-1)[:, 3].sum()


def translator_target(model):
    return lambda: model(ids(2, 6), lengths, ids(2, 5, seed=2))[0].log_probs()[:, -1, 3].sum()


CASES = {"bert": (bert, bert_target), "gpt": (gpt, gpt_target), "translator": (translator, translator_target)}
by_case = pytest.mark.parametrize("case", CASES)


def made(case: str):
    model, target = CASES[case]
    one = model()
    return one, target(one)


def answered(model: nn.Module, target, change) -> float:
    """The target while `change(place, weights)` stands for the weights."""
    listener = TapListener(places_of(model), Observe(weights=True), lambda place, got: change(place, got.weights))
    with torch.no_grad(), listen(listener):
        return float(target())


@by_case
def test_gradients_are_finite_differences(case: str) -> None:
    model, target = made(case)
    found = attention_gradients(model, target)
    assert list(found) == list(places_of(model).values())
    for name, (weights, slope) in found.items():
        assert weights.shape == slope.shape and weights.dim() == 4
        if not slope.abs().max():
            continue
        at = torch.unravel_index(slope.abs().argmax(), slope.shape)
        said = []
        for step in (1e-6, -1e-6):

            def moved(place, w, step=step, name=name, at=at):
                w = w.clone()
                if place == name:
                    w[at] += step
                return w

            said.append(answered(model, target, moved))
        close((said[0] - said[1]) / 2e-6, float(slope[at]), rtol=1e-5, atol=1e-8)
    assert all(slope.abs().max() > 1e-6 for _, slope in found.values())


@by_case
def test_weights_are_the_captured_ones_and_parameters_may_be_frozen(case: str) -> None:
    model, target = made(case)
    before = attention_gradients(model, target)
    with torch.no_grad(), capture(model) as heard:
        target()
    for name, (weights, _) in before.items():
        close(weights, heard[name].weights)
    frozen = attention_gradients(model.requires_grad_(False), target)
    for name in before:
        close(frozen[name][1], before[name][1])
    assert all(weight.grad is None for weight in model.parameters())


def test_gradient_times_weight_is_exact_for_a_linear_target() -> None:
    """The logit of a GPT of one layer without norms or bends after it is linear in the weights."""
    model = gpt(1)
    model.decoder[0].feed.outer.weight.data.zero_()
    model.final_norm = nn.Identity()

    def target():
        return model(ids(1, 6))[0, -1, 3]

    product = gradient_times_attention(model, target)["decoder.0.self"]
    whole = float(target().detach())
    for head, key in ((0, 2), (1, 5)):

        def halved(place, w, head=head, key=key):
            w = w.clone()
            w[0, head, -1, key] /= 2
            return w

        close(whole - answered(model, target, halved), float(product[0, head, -1, key]) / 2)


@by_case
@pytest.mark.parametrize("places", ["*", "*.0.self"])
def test_integrated_gradients_are_complete(case: str, places: str) -> None:
    model, target = made(case)
    names = set(places_of(model, places).values())
    nothing = answered(model, target, lambda place, w: 0 * w if place in names else w)
    whole = float(target().detach())
    assert abs(whole - nothing) > 1e-3
    off = []
    for steps in (1, 64):
        found = integrated_gradients(model, target, places, steps)
        assert set(found) == names
        off.append(abs(sum(float(x.sum()) for x in found.values()) - (whole - nothing)))
    assert off[1] <= 1e-4 * abs(whole - nothing) < off[0]


def test_single_queries_are_joined_along_the_queries() -> None:
    model, (source, lengths, words) = recurrent("bahdanau"), batch()
    _, T = words.shape

    def target():
        return model(source, lengths, words)[0].log_probs()[:, -1, 3].sum()

    [(weights, slope)] = attention_gradients(model, target).values()
    assert weights.shape == slope.shape == (3, 1, T, source.size(1))
    close(weights.sum(-1), torch.ones(3, 1, T, dtype=torch.float64))
    [integral] = integrated_gradients(model, target, steps=64).values()
    nothing = answered(model, target, lambda place, w: 0 * w)
    close(float(integral.sum()), float(target().detach()) - nothing, atol=1e-5, rtol=1e-5)


def test_a_target_without_a_gradient_is_refused() -> None:
    model, target = made("gpt")
    with pytest.raises(DtypeError, match="one number"):
        attention_gradients(model, lambda: model(ids(1, 5)))
    with pytest.raises(DtypeError, match="The target has no gradient"):
        attention_gradients(model, lambda: target().detach())
    with pytest.raises(PlaceError, match="No attention and no embedding was intercepted"):
        attention_gradients(model, lambda: torch.zeros(()))
    with pytest.raises(PlaceError, match="No place matches"):
        attention_gradients(model, target, "*.cross")
    with pytest.raises(SettingError, match="steps=0"):
        integrated_gradients(model, target, steps=0)
