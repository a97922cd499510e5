"""The vocabulary asked at one place alone says there what it says when it is asked everywhere."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.trust.asking.lastly import only_at, picked, speaking
from trust.toys import PAIRS, TEXTS, classifier, language_model, rows, translating


def test_a_module_is_handed_the_chosen_vectors() -> None:
    model, x = nn.Linear(3, 4), torch.randn(2, 5, 3)
    index = torch.tensor([4, 1])
    with only_at(model, index):
        found = model(x)
    assert found.shape == (2, 1, 4)
    torch.testing.assert_close(picked(found, index), picked(model(x), index))
    torch.testing.assert_close(picked(model(x), index)[1], model(x)[1, 1])
    with pytest.raises(RuntimeError, match="enough"), only_at(model, index):
        raise RuntimeError("enough")
    assert model(x).shape == (2, 5, 4)
    with only_at(None, index):
        assert model(x).shape == (2, 5, 4)


@torch.no_grad()
def test_a_language_model_says_the_same() -> None:
    asker = language_model()
    given = rows(asker, *TEXTS)
    ids = asker.ids(given)
    whole = asker.model(ids).log_softmax(-1)
    expected = torch.stack([whole[at, len(row.ids) - 1] for at, row in enumerate(given)])
    torch.testing.assert_close(asker.say(given), expected)


@pytest.mark.parametrize("kind", ["bahdanau", "transformer", "pointer"])
@torch.no_grad()
def test_a_translator_says_the_same(kind: str) -> None:
    asker = translating(kind)
    for row in rows(asker, *PAIRS):
        source, written = torch.tensor([row.ids]), torch.tensor([row.written])
        whole = asker.model(source, torch.tensor([len(row.ids)]), written)[0].log_probs()
        torch.testing.assert_close(asker.say([row])[0, : whole.size(-1)], whole[0, -1])


def test_what_copies_is_asked_everywhere() -> None:
    assert speaking(translating("pointer").model) is None
    assert speaking(classifier().model) is None
    assert speaking(translating("transformer").model) is not None and speaking(language_model().model) is not None
