"""Classifiers and masked language models of ours: padded or alone, without tokens, with labels and evidence."""

from __future__ import annotations

from random import Random

import pytest
import torch

from faithfulness.toys import SIZE, TEXTS, TOKENIZER, bert, cases, classifier, filler, rows
from regard.adapters.encoder import ClassifierAdapter
from regard.errors import SettingError
from regard.models.pooling import PoolingClassifier
from regard.text.examples import Labelled, Translation

MASK, CLS, SEP = (TOKENIZER.special.need(role) for role in ("mask", "cls", "sep"))


@pytest.mark.parametrize("make", [classifier, lambda: classifier(reads=True), bert, lambda: bert("mean"), filler])
@torch.no_grad()
def test_a_padded_batch_equals_its_rows_alone(make) -> None:
    adapter = make()
    given = rows(adapter, *TEXTS)
    together = adapter.log_probs(given)
    torch.testing.assert_close(together.exp().sum(-1), torch.ones(4))
    for at, row in enumerate(given):
        torch.testing.assert_close(together[at], adapter.log_probs([row])[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("make", [lambda: classifier(reads=True), lambda: bert("pooler")])
@torch.no_grad()
def test_removing_a_token_equals_a_text_without_that_word(make) -> None:
    adapter = make()
    words = TEXTS[0].split()
    [row] = rows(adapter, TEXTS[0])
    for at in range(len(words)):
        [shorter] = rows(adapter, " ".join(words[:at] + words[at + 1 :]))
        assert row.without([at + 1]) == shorter
    model = adapter.model
    ids = torch.tensor([[CLS, *TOKENIZER.encode(TEXTS[0]).ids, SEP]])
    expected = model(ids, torch.tensor([ids.size(1)])).log_softmax(-1)
    torch.testing.assert_close(adapter.log_probs([row]), expected)


def test_two_texts_are_read_as_a_pair() -> None:
    for example in (("a dull cat", "it was bad"), Labelled("a dull cat", "c0", "it was bad")):
        adapter = classifier() if isinstance(example, Labelled) else bert()
        [case] = cases(adapter, example)
        assert [token.strip("▁") for token in case.tokens] == [
            *("[CLS]", "a", "dull", "cat", "[SEP]"),
            *("it", "was", "bad", "[SEP]"),
        ]
        assert case.row.segments == (0,) * 5 + (1,) * 4
        assert case.row.removable == (False, True, True, True, False, True, True, True, False)
    with torch.no_grad():
        adapter = bert()
        [one], [turned] = rows(adapter, ("a dull cat", "it was bad")), rows(adapter, ("it was bad", "a dull cat"))
        assert not torch.allclose(adapter.log_probs([one]), adapter.log_probs([turned]))


def test_labels_and_evidence_of_a_text() -> None:
    [case] = cases(classifier(), Labelled(TEXTS[0], "c2", evidence=(3, 5)))
    assert case.expected == 2 and case.evidence == {4, 6}
    assert [case.tokens[at].strip("▁") for at in sorted(case.evidence)] == ["not", "good"]
    [case] = cases(classifier(), Labelled(TEXTS[0], "c2", "it was bad", evidence=(0,)))
    assert case.evidence == {1}
    [plain] = cases(classifier(), TEXTS[0])
    assert plain.expected is None and plain.evidence is None
    [unnamed] = cases(bert(), Labelled(TEXTS[0], "anything"))  # a model whose classes have no names
    assert unnamed.expected is None and bert().label(1) == "class 1" and classifier().label(1) == "c1"
    with pytest.raises(SettingError, match=r"Unknown label 'c9'\. Known: c0, c1, c2"):
        cases(classifier(), Labelled(TEXTS[0], "c9"))


def test_unknown_words_may_be_removed() -> None:
    [case] = cases(classifier(), "the flibbertigibbet film")
    assert case.row.ids[2] == TOKENIZER.special.unknown and case.row.removable == (False, True, True, True, False)


def test_a_model_without_classes_is_refused() -> None:
    one = ClassifierAdapter(PoolingClassifier(SIZE, 1, 4), TOKENIZER, "number")
    with pytest.raises(
        SettingError, match=r"outputs of shape \(1, 1\), expected logits \(B, C\) of two or more classes"
    ):
        one.log_probs(rows(one, TEXTS[0]))
    with pytest.raises(SettingError, match="takes texts, not translations"):
        cases(classifier(), Translation("a cat", "un chat"))


def test_a_random_word_is_masked() -> None:
    adapter = filler()
    seen = set()
    for seed in range(20):
        [case] = adapter.make_cases(TEXTS[0], 0, Random(seed))
        [at] = [at for at, token in enumerate(case.row.ids) if token == MASK]
        assert (
            adapter.readout_position("any", [case.row]) == [at]
            and not case.row.removable[at]
            and case.tokens[at] == "[MASK]"
        )
        ids = [*case.row.ids[:at], case.expected, *case.row.ids[at + 1 :]]
        assert ids == [CLS, *TOKENIZER.encode(TEXTS[0]).ids, SEP]
        seen.add(at)
    assert len(seen) > 3 and not seen & {0, 7}
    assert adapter.make_cases("", 0, Random(0)) == []


@torch.no_grad()
def test_a_mask_in_the_text_is_the_decision() -> None:
    adapter = filler()
    [case] = cases(adapter, "the film was [MASK] good")
    assert case.row.ids[4] == MASK and case.expected is None
    ids = torch.tensor([case.row.ids])
    said = adapter.model(ids, torch.tensor([ids.size(1)]), torch.zeros_like(ids), torch.tensor([4])).logits
    torch.testing.assert_close(adapter.log_probs([case.row]), said.log_softmax(-1))
    shorter = case.row.without([1, 2])  # the mask moves with the text
    assert adapter.readout_position("any", [shorter, case.row]) == [2, 4]
    torch.testing.assert_close(adapter.log_probs([shorter, case.row])[1], adapter.log_probs([case.row])[0])
    assert adapter.label(case.row.ids[1]) == "the"
