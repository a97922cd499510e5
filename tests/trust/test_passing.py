"""Weights and vectors that pass through a function: all of them, and only while the block runs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from regard.errors import PlaceError
from regard.trust.passing import vectors_through, weights_through
from trust.toys import PAIRS, TEXTS, bert, classifier, rows, translating


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
    for asker, heads in ((classifier(), 1), (bert("cls"), 2)):
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
    with vectors_through(asker, given)(lambda point, x: passed.append(x) or x):
        asker.log_probs(given)
    [x] = passed
    assert x.shape == (len(given), asker.input_ids(given).size(1), 8)
    torch.testing.assert_close(x, asker.model.encoder.embedded.tokens(asker.input_ids(given)))


def test_hooks_are_gone_after_a_failure() -> None:
    asker = classifier()
    given = rows(asker, TEXTS[0])
    with pytest.raises(RuntimeError, match="enough"), vectors_through(asker, given)(lambda point, x: x):
        raise RuntimeError("enough")
    assert not any(one._forward_hooks for one in asker.model.modules())


def test_a_model_that_reads_in_another_way_is_refused_in_words() -> None:
    asker = classifier()
    given, others = rows(asker, TEXTS[0]), rows(asker, TEXTS[1])
    refused = pytest.raises(
        PlaceError, match=r"PoolingClassifier that reads its tokens in some other way.*nn.Embedding"
    )
    with refused, vectors_through(asker, given)(lambda point, x: x):
        asker.log_probs(others)
