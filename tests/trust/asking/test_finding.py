"""Which asker a model gets."""

from __future__ import annotations

import pytest

from regard.errors import SettingError
from regard.models.bert import Bert, Size
from regard.trust.asking.continuing import Continuing
from regard.trust.asking.finding import asker
from regard.trust.asking.texts import Classifying, Filling
from regard.trust.asking.translating import Translating
from trust.toys import SIZE, TOKENIZER, bert, classifier, filler, language_model, translating


@pytest.mark.parametrize(
    ("model", "kind", "decides"),
    [
        (classifier().model, Classifying, "class"),
        (bert().model, Classifying, "class"),
        (filler().model, Filling, "hidden word"),
        (language_model().model, Continuing, "next word"),
        (translating().model, Translating, "next word of the translation"),
        (translating("transformer").model, Translating, "next word of the translation"),
    ],
)
def test_each_model_is_asked_what_it_decides(model, kind: type, decides: str) -> None:
    found = asker(model.train(), TOKENIZER)
    assert isinstance(found, kind) and found.kind == decides and found.model is model
    assert found.name == type(model).__name__ and not model.training


def test_two_tokenizers_for_a_translator() -> None:
    found = asker(translating().model, (TOKENIZER, TOKENIZER))
    assert isinstance(found, Translating) and found.translator.source is TOKENIZER


def test_what_cannot_be_asked_is_refused() -> None:
    inner = Bert.of(SIZE, Size(1, 8, heads=2), positions=24)
    with pytest.raises(SettingError, match=r"a Bert, which decides nothing.*expected a model that says classes"):
        asker(inner, TOKENIZER)
    with pytest.raises(SettingError, match=r"no tokenizer"):
        asker(classifier().model)
