"""Adapters of transformers models: their decisions, and an audit of each from end to end."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch

from faithfulness.toys import QUICK, cases, rows
from parity.test_attention_interface import WIDE, made
from parity.test_record import tokenizer
from regard.adapters import adapter
from regard.adapters.transformers_model import TransformersAdapter
from regard.errors import SettingError
from regard.faithfulness.audit import audit
from regard.inspection.attribution.gradients import intercept_embeddings
from regard.page.view import look
from regard.text.examples import Labelled, Translation

transformers = pytest.importorskip("transformers")

TEXTS = ["the cat sleeps", "a dog sleeps a cat .", "the dog"]
LONGER = ["the cat sleeps . the dog", "a dog sleeps a cat .", "the dog a cat"]
PAIRS = [("the cat sleeps", "a dog ."), ("a dog", "the cat the cat")]


def classifier() -> Any:
    torch.manual_seed(0)
    names = {"id2label": {0: "bad", 1: "good", 2: "so"}, "label2id": {"bad": 0, "good": 1, "so": 2}}
    config = transformers.BertConfig(**WIDE, **names)
    return lively(transformers.BertForSequenceClassification(config))


def lively(model: Any) -> Any:
    """Fresh weights are too small to tell much."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(6)
    return model.eval()


def asked(family: str) -> tuple[TransformersAdapter, list[Any]]:
    if family == "class":
        return adapter(classifier(), tokenizer()), list(TEXTS)
    model = lively(made(family, "sdpa"))
    if family in ("gpt2", "llama"):
        return adapter(model, tokenizer(pair=False)), list(LONGER)
    return adapter(model, tokenizer()), list(PAIRS if family in ("bart", "marian") else TEXTS)


FAMILIES = {
    "class": "class",
    "bert": "hidden word",
    "gpt2": "next word",
    "llama": "next word",
    "bart": "next word of the translation",
    "marian": "next word of the translation",
}
every_family = pytest.mark.parametrize("family", FAMILIES)


@every_family
@torch.no_grad()
def test_a_padded_batch_equals_its_rows_alone(family: str) -> None:
    found, examples = asked(family)
    assert isinstance(found, TransformersAdapter) and found.decision == FAMILIES[family]
    given = rows(found, *examples)
    together = found.log_probs(given)
    assert len({len(row.ids) for row in given}) > 1
    torch.testing.assert_close(together.exp().sum(-1), torch.ones(len(given)))
    for at, row in enumerate(given):
        torch.testing.assert_close(together[at], found.log_probs([row])[0], atol=1e-4, rtol=1e-3)


@every_family
@torch.no_grad()
def test_input_embeddings_are_computed_once(family: str) -> None:
    """Positions and segments are tables too, and what was written goes through the same one as the text."""
    found, examples = asked(family)
    given, passed = rows(found, *examples), []
    with intercept_embeddings(found.model, found.input_ids(given))(lambda point, x: passed.append(x) or x):
        found.log_probs(given)
    assert [x.shape for x in passed] == [(*found.input_ids(given).shape, 32)]


@torch.no_grad()
def test_log_probs_are_those_of_the_model() -> None:
    found, _ = asked("class")
    given = tokenizer()("the cat sleeps", "a dog", return_tensors="pt")
    expected = found.model(**given).logits.log_softmax(-1)
    torch.testing.assert_close(found.log_probs(rows(found, ("the cat sleeps", "a dog"))), expected)
    found, _ = asked("bert")
    [row] = rows(found, "the [MASK] sleeps")
    given = tokenizer()("the [MASK] sleeps", return_tensors="pt")
    torch.testing.assert_close(found.log_probs([row])[0], found.model(**given).logits[0, 2].log_softmax(-1))
    found, _ = asked("bart")
    for case in cases(found, PAIRS[0]):
        ids, written = torch.tensor([case.row.ids]), torch.tensor([case.row.decoder_ids])
        logits = found.model(input_ids=ids, decoder_input_ids=written).logits[0, -1]
        torch.testing.assert_close(found.log_probs([case.row])[0], logits.log_softmax(-1))


def test_removing_a_token_equals_a_text_without_that_word() -> None:
    found, _ = asked("class")
    [row], [shorter] = rows(found, "the cat sleeps"), rows(found, "the sleeps")
    assert row.without([2]) == shorter and row.removable == (False, True, True, True, True, False)


def test_labels_and_evidence_of_a_text() -> None:
    found, _ = asked("class")
    [case] = cases(found, Labelled("the cat sleeps", "good", evidence=(2,)))
    assert case.expected == 1 and case.evidence == {3, 4} and case.tokens[3:5] == ("sleep", "##s")
    assert cases(found, Labelled("the cat", "2"))[0].expected == 2 and found.label(1) == "good"
    with pytest.raises(SettingError, match=r"Unknown label 'fine'\. Known: bad, good, so\. The number"):
        cases(found, Labelled("the cat", "fine"))


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_random_prefix_and_its_next_token(family: str) -> None:
    found, _ = asked(family)
    ids = tokenizer(pair=False)(LONGER[0])["input_ids"]
    for seed in range(5):
        [case] = found.make_cases(LONGER[0], 0, Random(seed))
        cut = len(case.row.ids)
        assert list(case.row.ids) == ids[:cut] and case.expected == ids[cut]
        assert case.row.removable == (True,) * (cut - 1) + (False,)
        assert found.readout_position("any", [case.row]) == [cut - 1]
    assert found.make_cases("the cat", 0, Random(0)) == []


def test_a_random_word_is_masked() -> None:
    found, _ = asked("bert")
    ids = tokenizer()("the cat sleeps")["input_ids"]
    for seed in range(5):
        [case] = found.make_cases("the cat sleeps", 0, Random(seed))
        [at] = found.readout_position("any", [case.row])
        assert case.row.ids[at] == 4 and case.tokens[at] == "[MASK]" and not case.row.removable[at]
        assert case.expected == ids[at]


def test_a_translation_continues_its_prefix() -> None:
    found, _ = asked("bart")
    said = tokenizer()("a dog .")["input_ids"]
    for case in cases(found, Translation(*PAIRS[0])):
        step = len(case.row.decoder_ids) - 1
        assert case.row.decoder_ids == (1, *said[:step]) and case.expected == said[step]
        assert found.readout_position("model.decoder.layers.1.encoder_attn", [case.row]) == [step]
    told = {place: (found.has_text_keys(place), found.has_text_queries(place)) for place in PLACES}
    assert told == PLACES
    own = cases(found, "the cat sleeps")
    assert all(case.row.decoder_ids[0] == 1 for case in own)


PLACES = {
    "model.encoder.layers.0.self_attn": (True, True),
    "model.decoder.layers.0.self_attn": (False, False),
    "model.decoder.layers.0.encoder_attn": (True, False),
}


def test_the_readout_token_of_a_classifier() -> None:
    found, _ = asked("class")
    [row] = rows(found, "the cat")
    assert found.readout_position("bert.encoder.layer.1.attention.self", [row]) == [0]


@pytest.mark.parametrize(
    ("family", "places", "layers"),
    [
        ("class", "*", 2),
        ("bert", "*.1.attention.self", 1),
        ("gpt2", "*.1.attn", 1),
        ("llama", "*.1.self_attn", 1),
        ("bart", ["*.encoder.layers.1.self_attn", "*.1.encoder_attn"], 2),
        ("marian", "*.1.encoder_attn", 1),
    ],
)
def test_it_is_audited(family: str, places: str | list[str], layers: int) -> None:
    found, examples = asked(family)
    settings = replace(QUICK, places=places, batch_size=8)
    report = audit(found.model, examples[:2], tokenizer=found.tokenizer, settings=settings)
    assert report.facts["decision"] == FAMILIES[family] and report.facts["decisions"] >= 2
    known = [one.map for one in report.verdicts if one.kind == "layer"]
    assert len(known) == layers and sum(one.kind == "head" for one in report.verdicts) == 4 * layers
    for name in known:
        numbers = report.estimates(name)
        assert numbers["permuted"].value > 0 and 0 <= numbers["adversarial_jsd"].value <= 0.6932


@pytest.mark.parametrize(
    ("problem", "shares"),
    [
        ("single_label_classification", lambda logits: logits.softmax(-1)),
        ("multi_label_classification", lambda logits: logits.sigmoid()),
        ("regression", None),
        (None, lambda logits: logits.softmax(-1)),
    ],
)
@torch.no_grad()
def test_classes_are_told_as_the_model_was_trained(problem: str | None, shares: Any) -> None:
    model = classifier()
    model.config.problem_type = problem
    facts = look(model, TEXTS[0], tokenizer=tokenizer()).record.facts
    logits = model(**tokenizer()(TEXTS[0], return_tensors="pt")).logits[0]
    if shares is None:
        assert "classes" not in facts  # three numbers, and no probabilities
    else:
        assert [name for name, _ in facts["classes"]] == ["bad", "good", "so"]
        assert [share for _, share in facts["classes"]] == pytest.approx(shares(logits).tolist(), abs=1e-4)


def test_the_gradient_of_a_regression_is_that_of_its_number() -> None:
    model = lively(transformers.BertForSequenceClassification(transformers.BertConfig(**WIDE, num_labels=1)))
    record = look(model, TEXTS[0], tokenizer=tokenizer(), gradient=True).record
    assert "classes" not in record.facts
    assert any(place.gradient(0).abs().max() > 1e-6 for place in record.places)


def test_models_without_decisions_are_refused() -> None:
    bare = transformers.BertModel(transformers.BertConfig(**WIDE))
    with pytest.raises(SettingError, match=r"A BertModel has no head, so it predicts nothing.*Load it for"):
        audit(bare, TEXTS, tokenizer=tokenizer(), settings=QUICK)
    with pytest.raises(SettingError, match="no tokenizer"):
        audit(classifier(), TEXTS, settings=QUICK)
    found, _ = asked("class")
    with pytest.raises(SettingError, match=r"a text of 1002 tokens, expected at most 512"):
        cases(found, "cat " * 1000)
