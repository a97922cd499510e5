"""Which adapter a model gets."""

from __future__ import annotations

from random import Random

import pytest

from faithfulness.toys import SIZE, TOKENIZER, bert, classifier, filler, language_model, translating
from regard.adapters import adapter
from regard.adapters.causal_lm import CausalLMAdapter
from regard.adapters.encoder import ClassifierAdapter, MaskedLMAdapter
from regard.adapters.translator import TranslatorAdapter
from regard.errors import SettingError
from regard.models.bert import Bert, BertSize


@pytest.mark.parametrize(
    ("model", "kind", "decides"),
    [
        (classifier().model, ClassifierAdapter, "class"),
        (bert().model, ClassifierAdapter, "class"),
        (filler().model, MaskedLMAdapter, "hidden word"),
        (language_model().model, CausalLMAdapter, "next word"),
        (translating().model, TranslatorAdapter, "next word of the translation"),
        (translating("transformer").model, TranslatorAdapter, "next word of the translation"),
    ],
)
def test_each_model_gets_its_adapter(model, kind: type, decides: str) -> None:
    found = adapter(model.train(), TOKENIZER)
    assert isinstance(found, kind) and found.decision == decides and found.model is model
    assert found.name == type(model).__name__ and model.training
    with found.borrow(evaluate=True):
        assert not model.training
    assert model.training


def test_two_tokenizers_for_a_translator() -> None:
    found = adapter(translating().model, (TOKENIZER, TOKENIZER))
    assert isinstance(found, TranslatorAdapter) and found.translator.source is TOKENIZER


def test_models_without_decisions_are_refused() -> None:
    inner = Bert.of(SIZE, BertSize(1, 8, heads=2), max_positions=24)
    with pytest.raises(
        SettingError, match=r"A Bert predicts nothing that can be tested.*Use a model that predicts classes"
    ):
        adapter(inner, TOKENIZER).make_cases("a b c", 0, Random(0))
    with pytest.raises(SettingError, match=r"no tokenizer"):
        adapter(classifier().model)
