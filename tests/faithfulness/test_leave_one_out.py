"""Leave-one-out against deleting words by hand, and Kendall's tau over removable tokens."""

from __future__ import annotations

import pytest
import torch

from faithfulness.toys import Known, classifier, row, rows
from regard.faithfulness.token_erasure import PredictionCache, kendall_agreements, leave_one_out
from regard.inspection.distances import tvd


def test_leave_one_out_equals_deleting_the_word() -> None:
    adapter = classifier()
    texts = "the film was not very good", "a dull cat"
    given = rows(adapter, *texts)
    said = adapter.log_probs(given).exp()
    found = leave_one_out(PredictionCache(adapter), given, said)
    assert found.shape == (2, len(given[0].ids))
    for number, text in enumerate(texts):
        words = text.split()
        for at in range(len(words)):
            [shorter] = rows(adapter, " ".join(words[:at] + words[at + 1 :]))
            expected = tvd(adapter.log_probs([shorter])[0].exp(), said[number])
            assert found[number, at + 1].item() == pytest.approx(expected.item(), abs=1e-6)
        assert found[number, 0] == 0 and not found[number, len(words) + 1 :].any()  # [CLS], [SEP], padding


def test_each_shorter_text_is_run_once() -> None:
    adapter = Known(lambda tokens: (0.5 + 0.01 * len(tokens), 0.5 - 0.01 * len(tokens)))
    answers, given = PredictionCache(adapter), [row(5, 6, 7), row(5, 6, 8)]
    found = leave_one_out(answers, given, adapter.log_probs(given).exp())
    assert found.flatten().tolist() == pytest.approx([0.01] * 6)
    assert adapter.asked == 2 + 5  # of the six shorter texts, {5, 6} comes twice


def test_tau_is_over_absolute_values_of_removable_tokens() -> None:
    free = [False, True, True, True, False]
    maps = {"same": torch.tensor([9.0, 1.0, -2.0, 3.0, 9.0]), "turned": torch.tensor([0.0, -3.0, 2.0, 1.0, 7.0])}
    references = {"order": torch.tensor([-5.0, 1.0, 2.0, -3.0, 8.0]), "flat": torch.ones(5)}
    found = kendall_agreements(maps, references, free)
    assert found.shape == (2, 2)
    assert found[:, 0].tolist() == [1.0, -1.0] and found[:, 1].isnan().all()
