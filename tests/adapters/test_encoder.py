"""Classifiers and fillers of ours asked: padded or alone, without words, with what is known of them."""

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
def test_a_padded_batch_says_what_each_row_says_alone(make) -> None:
    asker = make()
    given = rows(asker, *TEXTS)
    together = asker.log_probs(given)
    torch.testing.assert_close(together.exp().sum(-1), torch.ones(4))
    for at, row in enumerate(given):
        torch.testing.assert_close(together[at], asker.log_probs([row])[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("make", [lambda: classifier(reads=True), lambda: bert("pooler")])
@torch.no_grad()
def test_a_token_taken_away_is_a_text_without_that_word(make) -> None:
    asker = make()
    words = TEXTS[0].split()
    [row] = rows(asker, TEXTS[0])
    for at in range(len(words)):
        [shorter] = rows(asker, " ".join(words[:at] + words[at + 1 :]))
        assert row.without([at + 1]) == shorter
    model = asker.model
    ids = torch.tensor([[CLS, *TOKENIZER.encode(TEXTS[0]).ids, SEP]])
    expected = model(ids, torch.tensor([ids.size(1)])).log_softmax(-1)
    torch.testing.assert_close(asker.log_probs([row]), expected)


def test_two_texts_are_read_as_a_pair() -> None:
    for example in (("a dull cat", "it was bad"), Labelled("a dull cat", "c0", "it was bad")):
        asker = classifier() if isinstance(example, Labelled) else bert()
        [case] = cases(asker, example)
        assert [token.strip("▁") for token in case.tokens] == [
            *("[CLS]", "a", "dull", "cat", "[SEP]"),
            *("it", "was", "bad", "[SEP]"),
        ]
        assert case.row.segments == (0,) * 5 + (1,) * 4
        assert case.row.free == (False, True, True, True, False, True, True, True, False)
    with torch.no_grad():
        asker = bert()
        [one], [turned] = rows(asker, ("a dull cat", "it was bad")), rows(asker, ("it was bad", "a dull cat"))
        assert not torch.allclose(asker.log_probs([one]), asker.log_probs([turned]))


def test_what_is_known_of_a_text() -> None:
    [case] = cases(classifier(), Labelled(TEXTS[0], "c2", evidence=(3, 5)))
    assert case.expected == 2 and case.evidence == {4, 6}
    assert [case.tokens[at].strip("▁") for at in sorted(case.evidence)] == ["not", "good"]
    [case] = cases(classifier(), Labelled(TEXTS[0], "c2", "it was bad", evidence=(0,)))
    assert case.evidence == {1}
    [plain] = cases(classifier(), TEXTS[0])
    assert plain.expected is None and plain.evidence is None
    [unnamed] = cases(bert(), Labelled(TEXTS[0], "anything"))  # a model whose classes have no names
    assert unnamed.expected is None and bert().label(1) == "class 1" and classifier().label(1) == "c1"
    with pytest.raises(SettingError, match=r"the label 'c9', expected one of c0, c1, c2"):
        cases(classifier(), Labelled(TEXTS[0], "c9"))


def test_words_that_nobody_knows_are_words_all_the_same() -> None:
    [case] = cases(classifier(), "the flibbertigibbet film")
    assert case.row.ids[2] == TOKENIZER.special.unknown and case.row.free == (False, True, True, True, False)


def test_a_model_that_says_no_class_is_refused() -> None:
    one = ClassifierAdapter(PoolingClassifier(SIZE, 1, 4), TOKENIZER, "number")
    with pytest.raises(SettingError, match=r"numbers of shape \(1, 1\), expected one that says a class"):
        one.log_probs(rows(one, TEXTS[0]))
    with pytest.raises(SettingError, match="sentences with translations"):
        cases(classifier(), Translation("a cat", "un chat"))


def test_a_word_is_hidden_and_asked_for() -> None:
    asker = filler()
    seen = set()
    for seed in range(20):
        [case] = asker.cases(TEXTS[0], 0, Random(seed))
        [at] = [at for at, token in enumerate(case.row.ids) if token == MASK]
        assert (
            asker.readout_position("any", [case.row]) == [at] and not case.row.free[at] and case.tokens[at] == "[MASK]"
        )
        ids = [*case.row.ids[:at], case.expected, *case.row.ids[at + 1 :]]
        assert ids == [CLS, *TOKENIZER.encode(TEXTS[0]).ids, SEP]
        seen.add(at)
    assert len(seen) > 3 and not seen & {0, 7}
    assert asker.cases("", 0, Random(0)) == []


@torch.no_grad()
def test_a_mask_that_is_there_is_asked_about() -> None:
    asker = filler()
    [case] = cases(asker, "the film was [MASK] good")
    assert case.row.ids[4] == MASK and case.expected is None
    ids = torch.tensor([case.row.ids])
    said = asker.model(ids, torch.tensor([ids.size(1)]), torch.zeros_like(ids), torch.tensor([4])).words
    torch.testing.assert_close(asker.log_probs([case.row]), said.log_softmax(-1))
    shorter = case.row.without([1, 2])  # the mask moves with the text
    assert asker.readout_position("any", [shorter, case.row]) == [2, 4]
    torch.testing.assert_close(asker.log_probs([shorter, case.row])[1], asker.log_probs([case.row])[0])
    assert asker.label(case.row.ids[1]) == "the"
