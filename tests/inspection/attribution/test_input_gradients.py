"""Gradients of embeddings: finite differences, complete integrals, and the right tensors intercepted."""

import pytest
import torch
from tests.inspection.attribution.records import bert, gpt, ids, translator
from torch import Tensor, nn

from faithfulness.toys import PAIRS, TEXTS, bert as asked_bert, classifier, rows, translating
from regard.errors import PlaceError
from regard.inspection.attribution.gradients import (
    compute_gradients,
    gradient_times_input,
    integrated_input_gradients,
    intercept_embeddings,
    intercept_weights,
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
    with torch.no_grad(), intercept_embeddings(model, given)(lambda point, x: change(x)):
        return float(target())


@by_model
def test_gradients_are_finite_differences(make) -> None:
    model, given, target = make()
    points = intercept_embeddings(model, given)
    [(_, x, slope)] = compute_gradients(points, target)
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
def test_integrated_gradients_are_complete(make) -> None:
    model, given, target = make()
    nothing = moved(model, given, target, lambda vectors: 0 * vectors)
    whole = float(target().detach())
    found = [
        float(integrated_input_gradients(intercept_embeddings(model, given), target, steps).sum()) for steps in (1, 64)
    ]
    off = [abs(one - (whole - nothing)) for one in found]
    assert abs(whole - nothing) > 1e-3 and off[1] < 1e-4 * abs(whole - nothing) < off[0]


def test_later_tokens_have_no_gradient() -> None:
    model, given, target = of_gpt()
    [(_, _, slope)] = compute_gradients(intercept_embeddings(model, given), target)
    found = slope.norm(dim=-1)
    assert (found[0, :4] > 0).all() and (found[0, 4:] == 0).all()


def test_nothing_is_left_on_the_model_even_after_an_error() -> None:
    model, given, target = of_gpt()
    before = float(target().detach())
    gradient_times_input(intercept_embeddings(model, given), target)
    with pytest.raises(PlaceError, match="is called with the ids"):
        gradient_times_input(intercept_embeddings(model, given), lambda: torch.ones(()))
    with pytest.raises(PlaceError, match="No attention and no embedding was intercepted"):
        gradient_times_input(intercept_weights(model), lambda: torch.ones(()))
    with pytest.raises(RuntimeError, match="enough"), intercept_embeddings(model, given)(lambda point, x: x):
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
def test_weights_are_intercepted_with_a_head_dimension() -> None:
    for asker, heads in ((classifier(), 1), (asked_bert("cls"), 2)):
        given, passed = rows(asker, *TEXTS), []
        with intercept_weights(asker.model)(lambda place, weights, to=passed: to.append((place, weights)) or weights):
            asker.log_probs(given)
        assert all(weights.shape[:2] == (4, heads) for _, weights in passed)
        torch.testing.assert_close(passed[0][1].sum(-1), torch.ones(passed[0][1].shape[:-1]))


@torch.no_grad()
def test_replaced_weights_are_used_for_the_average() -> None:
    model, ids = Small().eval(), torch.tensor([[1, 2, 3, 4]])
    before = model(ids)
    with intercept_weights(model)(lambda place, weights: weights):
        torch.testing.assert_close(model(ids), before)
    with intercept_weights(model)(lambda place, weights: torch.eye(4).expand_as(weights)):
        alone = model(ids)
    for at in range(4):  # whoever looks at itself alone might as well be alone
        torch.testing.assert_close(alone[:, at], model(ids[:, at : at + 1])[:, 0])
    assert torch.equal(model(ids), before)


@torch.no_grad()
def test_only_the_embeddings_of_the_ids_are_intercepted() -> None:
    """The words that a translator has written pass through a table too."""
    asker = translating("transformer")
    given, passed = rows(asker, *PAIRS), []
    with intercept_embeddings(asker.model, asker.input_ids(given))(lambda point, x: passed.append(x) or x):
        asker.log_probs(given)
    [x] = passed
    assert x.shape == (len(given), asker.input_ids(given).size(1), 8)
    torch.testing.assert_close(x, asker.model.encoder.embedding.tokens(asker.input_ids(given)))


def test_a_model_without_an_embedding_of_the_ids_is_refused() -> None:
    asker = classifier()
    given, others = rows(asker, TEXTS[0]), rows(asker, TEXTS[1])
    refused = pytest.raises(PlaceError, match=r"No nn.Embedding of this PoolingClassifier is called with the ids")
    with refused, intercept_embeddings(asker.model, asker.input_ids(given))(lambda point, x: x):
        asker.log_probs(others)
