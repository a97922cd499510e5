"""Gradients of token vectors: finite differences, integrals that add up, and points that pass what is asked for."""

import pytest
import torch
from tests.inspection.attribution.records import bert, gpt, ids, translator
from torch import Tensor, nn

from faithfulness.toys import PAIRS, TEXTS, bert as asked_bert, classifier, rows, translating
from regard.errors import PlaceError
from regard.inspection.attribution.gradients import (
    gradient_times_input,
    gradients,
    integrated_inputs,
    vectors_through,
    weights_through,
)

close = torch.testing.assert_close


def of_bert():
    model = bert()
    return model, ids(1, 6), lambda: model(ids(1, 6), torch.tensor([6]))[0, 1, 3]


def of_gpt():
    model = gpt()
    return model, ids(1, 6), lambda: model(ids(1, 6))[0, 3].log_softmax(-1)[3]


def of_translator():
    model = translator()
    said = ids(1, 5, seed=2)
    return model, ids(1, 6), lambda: model(ids(1, 6), torch.tensor([6]), said)[0].log_probs()[0, -1, 3]


def of_its_target():
    model = translator()
    said = ids(1, 5, seed=2)
    return model, said, lambda: model(ids(1, 6), torch.tensor([6]), said)[0].log_probs()[0, -1, 3]


by_model = pytest.mark.parametrize("make", [of_bert, of_gpt, of_translator, of_its_target])


def moved(model: nn.Module, given: Tensor, target, change) -> float:
    """The target while `change(vectors)` stands for the vectors of these tokens."""
    with torch.no_grad(), vectors_through(model, given)(lambda point, x: change(x)):
        return float(target())


@by_model
def test_gradients_are_finite_differences(make) -> None:
    model, given, target = make()
    points = vectors_through(model, given)
    [(_, x, slope)] = gradients(points, target)
    assert x.shape[:2] == given.shape
    at = torch.unravel_index(slope.abs().argmax(), slope.shape)
    said = []
    for step in (1e-6, -1e-6):

        def change(vectors, step=step):
            vectors = vectors.clone()
            vectors[at] += step
            return vectors

        said.append(moved(model, given, target, change))
    close((said[0] - said[1]) / 2e-6, float(slope[at]), rtol=1e-5, atol=1e-8)
    close(gradient_times_input(points, target), (x * slope).sum(-1))


@by_model
def test_integrals_add_up_to_the_whole_difference(make) -> None:
    model, given, target = make()
    nothing = moved(model, given, target, lambda vectors: 0 * vectors)
    whole = float(target().detach())
    found = [float(integrated_inputs(vectors_through(model, given), target, steps).sum()) for steps in (1, 64)]
    off = [abs(one - (whole - nothing)) for one in found]
    assert abs(whole - nothing) > 1e-3 and off[1] < 1e-4 * abs(whole - nothing) < off[0]


def test_what_comes_later_does_not_matter() -> None:
    model, given, target = of_gpt()
    [(_, _, slope)] = gradients(vectors_through(model, given), target)
    found = slope.norm(dim=-1)
    assert (found[0, :4] > 0).all() and (found[0, 4:] == 0).all()


def test_nothing_is_left_on_the_model_even_after_an_error() -> None:
    model, given, target = of_gpt()
    before = float(target().detach())
    gradient_times_input(vectors_through(model, given), target)
    with pytest.raises(PlaceError, match="reads its tokens"):
        gradient_times_input(vectors_through(model, given), lambda: torch.ones(()))
    with pytest.raises(PlaceError, match="passes none"):
        gradient_times_input(weights_through(model), lambda: torch.ones(()))
    with pytest.raises(RuntimeError, match="enough"), vectors_through(model, given)(lambda point, x: x):
        raise RuntimeError("enough")
    assert not any(one._forward_hooks for one in model.modules()) and float(target().detach()) == before


class Small(nn.Module):
    """Somebody's model, through torch's own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        return self.layer(self.words(ids))


@torch.no_grad()
def test_weights_pass_with_heads_whether_a_place_has_them_or_not() -> None:
    for asker, heads in ((classifier(), 1), (asked_bert("cls"), 2)):
        given, passed = rows(asker, *TEXTS), []
        with weights_through(asker.model)(lambda place, weights, to=passed: to.append((place, weights)) or weights):
            asker.log_probs(given)
        assert all(weights.shape[:2] == (4, heads) for _, weights in passed)
        torch.testing.assert_close(passed[0][1].sum(-1), torch.ones(passed[0][1].shape[:-1]))


@torch.no_grad()
def test_what_comes_back_is_what_is_averaged_by() -> None:
    model, ids = Small().eval(), torch.tensor([[1, 2, 3, 4]])
    before = model(ids)
    with weights_through(model)(lambda place, weights: weights):
        torch.testing.assert_close(model(ids), before)
    with weights_through(model)(lambda place, weights: torch.eye(4).expand_as(weights)):
        alone = model(ids)
    for at in range(4):  # whoever looks at itself alone might as well be alone
        torch.testing.assert_close(alone[:, at], model(ids[:, at : at + 1])[:, 0])
    assert torch.equal(model(ids), before)


@torch.no_grad()
def test_vectors_are_those_of_the_text_and_of_nothing_else() -> None:
    """The words that a translator has written pass through a table too."""
    asker = translating("transformer")
    given, passed = rows(asker, *PAIRS), []
    with vectors_through(asker.model, asker.input_ids(given))(lambda point, x: passed.append(x) or x):
        asker.log_probs(given)
    [x] = passed
    assert x.shape == (len(given), asker.input_ids(given).size(1), 8)
    torch.testing.assert_close(x, asker.model.encoder.embedded.tokens(asker.input_ids(given)))


def test_a_model_that_reads_in_another_way_is_refused_in_words() -> None:
    asker = classifier()
    given, others = rows(asker, TEXTS[0]), rows(asker, TEXTS[1])
    refused = pytest.raises(
        PlaceError, match=r"PoolingClassifier that reads its tokens in some other way.*nn.Embedding"
    )
    with refused, vectors_through(asker.model, asker.input_ids(given))(lambda point, x: x):
        asker.log_probs(others)
