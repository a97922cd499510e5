"""Maps: what attention and the methods beside it say of each token, by hand, by differences, and by adding up."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from faithfulness.toys import PAIRS, TEXTS, bert, classifier, filler, language_model, rows, translating
from regard.adapters.base import ModelAdapter
from regard.adapters.case import Row
from regard.attention import Observe, capture
from regard.errors import PlaceError
from regard.faithfulness.maps import (
    attention_maps,
    input_gradient,
    integrated_map,
    look,
    method_maps,
    norm_map,
    rollout_map,
)
from regard.inspection.attribution.gradients import vectors_through, weights_through

ASKERS = {
    "question": lambda: classifier(reads=True),
    "from [CLS]": lambda: bert("cls"),
    "from the mean": lambda: bert("mean"),
    "filler": filler,
    "language model": language_model,
    "bahdanau": translating,
    "pointer": lambda: translating("pointer"),
    "transformer": lambda: translating("transformer"),
}
every_asker = pytest.mark.parametrize("name", ASKERS)


def asked(name: str) -> tuple[ModelAdapter, list[Row]]:
    asker = ASKERS[name]()
    return asker, rows(asker, *(PAIRS if name in ("bahdanau", "pointer", "transformer") else TEXTS))


def said_of(asker: ModelAdapter, given: list[Row], wanted: Tensor) -> Tensor:
    """p (B,) of the wanted."""
    return asker.log_probs(given).exp().gather(1, wanted.unsqueeze(1)).squeeze(1)


@every_asker
def test_what_is_seen_is_what_the_model_attends_to(name: str) -> None:
    asker, given = asked(name)
    looked = look(asker, given)
    with torch.no_grad(), capture(asker.model) as heard:
        said = asker.log_probs(given)
    torch.testing.assert_close(looked.said, said)
    assert torch.equal(looked.chosen, said.argmax(-1)) and (looked.chosen != looked.second).all()
    torch.testing.assert_close(looked.p, said.exp().max(-1).values)
    for seen in looked.seen:
        whole = torch.cat([call.weights for call in heard.calls(seen.place)], -2)
        whole = whole if whole.dim() == 4 else whole.unsqueeze(1)
        torch.testing.assert_close(seen.weights, whole)
        assert seen.slopes.shape == seen.weights.shape
    assert [place for place, _ in looked.every] == [place for place in heard.places if heard.calls(place)]


@every_asker
def test_every_map_has_a_number_for_each_token_and_none_for_padding(name: str) -> None:
    asker, given = asked(name)
    looked = look(asker, given)
    padding = torch.arange(max(len(row.ids) for row in given)) >= looked.lengths.unsqueeze(1)
    for which, found in (attention_maps(looked) | method_maps(asker, looked)).items():
        assert found.shape == padding.shape and found.isfinite().all(), which
        assert not found[padding].abs().gt(1e-6).any(), which
        assert found[~padding].abs().max() > 0, which
    for which, found in attention_maps(looked).items():
        assert ((found.sum(-1) - 1).abs() < 1e-4).all(), which


@every_asker
def test_a_padded_text_has_the_maps_that_it_has_alone(name: str) -> None:
    asker, given = asked(name)
    together = look(asker, given)
    one = min(range(len(given)), key=lambda at: len(given[at].ids))
    alone = look(asker, [given[one]])
    size = len(given[one].ids)
    maps = attention_maps(alone) | method_maps(asker, alone)
    for which, found in (attention_maps(together) | method_maps(asker, together)).items():
        torch.testing.assert_close(found[one, :size], maps[which][0, :size], atol=2e-4, rtol=2e-3, msg=which)


def test_heads_and_their_mean() -> None:
    asker, given = asked("from [CLS]")
    looked = look(asker, given)
    found = attention_maps(looked)
    place = "reading.bert.encoder.blocks.1.self"
    assert list(found)[-3:] == [f"{place}/0", f"{place}/1", place]
    torch.testing.assert_close(found[f"{place}/1"], looked.seen[1].weights[:, 1, 0])
    torch.testing.assert_close(found[place], (found[f"{place}/0"] + found[f"{place}/1"]) / 2)
    mean = look(*asked("from the mean")).seen[1]
    length = len(given[1].ids)
    expected = mean.weights[1, :, :length].mean(1)
    torch.testing.assert_close(mean.rows(mean.weights, looked.lengths)[1], expected)


def test_places_are_chosen_and_the_others_still_count_for_the_rollout() -> None:
    asker, given = asked("from [CLS]")
    looked = look(asker, given, "*.1.self")
    assert [seen.place for seen in looked.seen] == ["reading.bert.encoder.blocks.1.self"]
    torch.testing.assert_close(rollout_map(asker, looked), rollout_map(asker, look(asker, given)))
    with pytest.raises(PlaceError, match=r"got places nowhere, which match none, expected some of reading\.bert"):
        look(asker, given, "nowhere")


@pytest.mark.parametrize("name", ["question", "from [CLS]", "language model", "bahdanau"])
def test_slopes_are_those_of_the_decision(name: str) -> None:
    """Against changing one weight a little, all that follows from it included."""
    asker, given = asked(name)
    given = given[:1]
    looked = look(asker, given)
    seen = looked.seen[-1]
    query = 0 if seen.decider is None else seen.decider[0]
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

            with torch.no_grad(), weights_through(asker.model, seen.place)(change):
                ends.append(float(said_of(asker, given, looked.chosen)))
        assert seen.slopes[0, 0, query, key].item() == pytest.approx((ends[0] - ends[1]) / 2e-2, rel=2e-2, abs=2e-4)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("name", ["question", "from the mean", "transformer"])
def test_the_gradient_of_a_word_is_what_stretching_its_vector_does(name: str, fixed: bool) -> None:
    """x . dp/dx against p with x 1% longer and shorter; fixed: while the weights are held where they were."""
    asker, given = asked(name)
    given = given[:1]
    wanted = asker.log_probs(given).argmax(-1)
    weights: dict[str, list[Tensor]] = {}

    def kept(place: str, seen: Tensor) -> Tensor:
        weights.setdefault(place, []).append(seen.detach())
        return seen

    with torch.no_grad(), weights_through(asker.model)(kept):
        asker.log_probs(given)
    found = input_gradient(asker, given, wanted, fixed)

    def stretched(token: int, by: float) -> float:
        def longer(point: str, x: Tensor) -> Tensor:
            scale = torch.ones(x.size(1))
            scale[token] += by
            return x * scale.unsqueeze(-1)

        left = {place: list(calls) for place, calls in weights.items()}
        held = weights_through(asker.model)(lambda place, seen: left[place].pop(0) if fixed else seen)
        with torch.no_grad(), vectors_through(asker.model, asker.input_ids(given))(longer), held:
            return float(said_of(asker, given, wanted))

    for token in range(len(given[0].ids)):
        slope = (stretched(token, 1e-2) - stretched(token, -1e-2)) / 2e-2
        assert found[0, token].item() == pytest.approx(slope, rel=2e-2, abs=5e-4)


@every_asker
def test_integrated_gradients_add_up(name: str) -> None:
    """To p less p of a text whose words are nothing."""
    asker, given = asked(name)
    wanted = asker.log_probs(given).argmax(-1)
    found = integrated_map(asker, given, wanted, steps=64).sum(-1)
    with torch.no_grad():
        whole = said_of(asker, given, wanted)
        with vectors_through(asker.model, asker.input_ids(given))(lambda point, x: torch.zeros_like(x)):
            nothing = said_of(asker, given, wanted)
    torch.testing.assert_close(found, whole - nothing, atol=5e-3, rtol=0)


def test_gradient_times_input_of_a_fixed_average_is_worked_out_by_hand() -> None:
    """logits = W sum w_t x_t + b, w fixed: x . dp/dx = p (W_y - sum p_c W_c) . w_t x_t."""
    asker = classifier()
    given = rows(asker, TEXTS[0])
    looked = look(asker, given)
    model, p = asker.model, looked.said[0].exp()
    chosen = int(looked.chosen)
    direction = model.classes.weight[chosen] - p @ model.classes.weight
    states = model.embedding(torch.tensor(given[0].ids))
    expected = p[chosen] * looked.seen[0].weights.flatten() * (states @ direction)
    torch.testing.assert_close(input_gradient(asker, given, looked.chosen, fixed=True)[0], expected.detach())
    both = method_maps(asker, looked)["gradient x attention"][0]
    torch.testing.assert_close(both, expected.detach())  # of such a model the two are the same


def test_norms_by_hand() -> None:
    """sum over heads of w_t || v_t W_O ||, of the query that decides."""
    asker, given = asked("from [CLS]")
    looked = look(asker, given)
    seen = looked.seen[-1]
    with torch.no_grad(), capture(asker.model, seen.place, Observe(values=True)) as heard:
        asker.log_probs(given)
    out, values = asker.model.get_submodule(seen.place).out.weight, heard[seen.place].values
    found = norm_map(asker, looked, seen)
    for at, row in enumerate(given):
        for key in range(len(row.ids)):
            parts = [
                seen.weights[at, head, 0, key] * (out[:, 4 * head : 4 * head + 4] @ values[at, head, key]).norm()
                for head in range(2)
            ]
            torch.testing.assert_close(found[at, key], sum(parts).detach())


def test_norms_where_nothing_joins_the_heads() -> None:
    asker = classifier()
    given = rows(asker, *TEXTS)
    looked = look(asker, given)
    [seen] = looked.seen
    expected = seen.weights[:, 0, 0] * asker.model.embedding(asker.input_ids(given)).norm(dim=-1)
    torch.testing.assert_close(norm_map(asker, looked, seen), expected.detach())


def test_asked_about_the_second_class_gradients_change_and_attention_does_not() -> None:
    asker, given = asked("from [CLS]")
    looked = look(asker, given)
    first, second = method_maps(asker, looked), method_maps(asker, looked, second=True)
    for name in ("attention", "norm-based attention", "rollout"):
        assert torch.equal(first[name], second[name])
    for name in ("gradient x attention", "gradient x input", "integrated gradients"):
        assert not torch.allclose(first[name], second[name], atol=1e-3)
    torch.testing.assert_close(second["integrated gradients"], integrated_map(asker, looked.rows, looked.second))
