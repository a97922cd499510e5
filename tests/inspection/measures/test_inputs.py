"""Gradients of tokens: finite differences, integrals that add up, one entry for each time that tokens are read."""

import pytest
import torch
from tests.inspection.measures.records import bert, gpt, ids, translator
from torch import nn

from regard.errors import PlaceError
from regard.inspection.measures.derivatives import gradients
from regard.inspection.measures.inputs import gradient_times_input, integrated_embeddings, saliency, vectors_of

close = torch.testing.assert_close


def of_bert():
    model = bert()
    return model.encoder.embedded.tokens, lambda: model(ids(1, 6), torch.tensor([6]))[0, 1, 3]


def of_gpt():
    model = gpt()
    return model.embedding, lambda: model(ids(1, 6))[0, 3].log_softmax(-1)[3]


def of_translator():
    model = translator()
    said = ids(1, 5, seed=2)
    return model.embedded.tokens, lambda: model(ids(1, 6), torch.tensor([6]), said)[0].log_probs()[0, -1, 3]


by_model = pytest.mark.parametrize("make", [of_bert, of_gpt, of_translator])


def moved(embedding: nn.Module, target, change) -> float:
    """The target while `change(number of the call, vectors)` stands for the vectors."""
    calls: list[int] = []

    def hook(module, inputs, output):
        calls.append(0)
        return change(len(calls) - 1, output)

    handle = embedding.register_forward_hook(hook)
    with torch.no_grad():
        said = float(target())
    handle.remove()
    return said


@by_model
def test_gradients_are_finite_differences(make) -> None:
    embedding, target = make()
    for number, (_, x, slope) in enumerate(gradients(vectors_of(embedding), target)):
        at = torch.unravel_index(slope.abs().argmax(), slope.shape)
        said = []
        for step in (1e-6, -1e-6):

            def change(call, vectors, step=step, number=number, at=at):
                vectors = vectors.clone()
                if call == number:
                    vectors[at] += step
                return vectors

            said.append(moved(embedding, target, change))
        close((said[0] - said[1]) / 2e-6, float(slope[at]), rtol=1e-5, atol=1e-8)
        close(saliency(embedding, target)[number], slope.square().sum(-1).sqrt())
        close(gradient_times_input(embedding, target)[number], (x * slope).sum(-1))


@by_model
def test_integrals_add_up_to_the_whole_difference(make) -> None:
    embedding, target = make()
    nothing = moved(embedding, target, lambda call, vectors: 0 * vectors)
    whole = float(target().detach())
    off = [
        abs(sum(float(x.sum()) for x in integrated_embeddings(embedding, target, steps)) - (whole - nothing))
        for steps in (1, 64)
    ]
    assert abs(whole - nothing) > 1e-3 and off[1] < 1e-4 * abs(whole - nothing) < off[0]


def test_a_translator_reads_twice() -> None:
    embedding, target = of_translator()
    assert [tuple(x.shape) for x in saliency(embedding, target)] == [(1, 6), (1, 5)]


def test_what_comes_later_does_not_matter() -> None:
    embedding, target = of_gpt()
    [found] = saliency(embedding, target)
    assert (found[0, :4] > 0).all() and (found[0, 4:] == 0).all()


def test_nothing_is_left_on_the_embedding_even_after_an_error() -> None:
    embedding, target = of_gpt()
    before = float(target().detach())
    saliency(embedding, target)
    with pytest.raises(PlaceError, match="passes none"):
        saliency(embedding, lambda: torch.ones(()))
    assert not embedding._forward_hooks and float(target().detach()) == before
