"""Kendall's tau against counting pairs, with ties; and leaving out against deleting by hand."""

from __future__ import annotations

from itertools import combinations
from math import isnan, nan, sqrt

import pytest
import torch

from regard.inspection.measures.agreement import kendall
from regard.trust.agreement import agreements, left_out, taus
from regard.trust.answers import Answers
from regard.trust.distances import tvd
from trust.toys import Known, classifier, row, rows


def counted(a: list[float], b: list[float]) -> float:
    """Tau-b, pair by pair."""
    agree = tied_a = tied_b = 0
    pairs = list(combinations(range(len(a)), 2))
    for i, j in pairs:
        x, y = a[i] - a[j], b[i] - b[j]
        agree += (x * y > 0) - (x * y < 0)
        tied_a, tied_b = tied_a + (x == 0), tied_b + (y == 0)
    size = sqrt((len(pairs) - tied_a) * (len(pairs) - tied_b))
    return agree / size if size else nan


def test_by_hand() -> None:
    maps = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [1.0, 3.0, 2.0], [1.0, 1.0, 2.0]])
    other = torch.tensor([10.0, 20.0, 30.0])
    assert taus(maps, other).tolist() == pytest.approx([1.0, -1.0, 1 / 3, 2 / sqrt(2 * 3)])


@pytest.mark.parametrize("values", [3, 50])
def test_every_pair_is_counted_ties_and_all(values: int) -> None:
    chance = torch.Generator().manual_seed(values)
    for length in (2, 3, 7, 20):
        maps = torch.randint(values, (6, length), generator=chance).double()
        other = torch.randint(values, (length,), generator=chance).double()
        found = taus(maps, other).tolist()
        for one, tau in zip(maps, found, strict=True):
            assert tau == pytest.approx(counted(one.tolist(), other.tolist()), nan_ok=True)
            assert tau == pytest.approx(kendall(one, other), nan_ok=True)


def test_what_does_not_vary_has_no_order() -> None:
    flat, order = torch.zeros(4), torch.arange(4.0)
    assert taus(torch.stack((flat, order)), flat).isnan().all()
    assert isnan(taus(flat.unsqueeze(0), order).item())


def test_leaving_out_is_deleting() -> None:
    asker = classifier()
    texts = "the film was not very good", "a dull cat"
    given = rows(asker, *texts)
    said = asker.log_probs(given).exp()
    found = left_out(Answers(asker), given, said)
    assert found.shape == (2, len(given[0].ids))
    for number, text in enumerate(texts):
        words = text.split()
        for at in range(len(words)):
            [shorter] = rows(asker, " ".join(words[:at] + words[at + 1 :]))
            expected = tvd(asker.log_probs([shorter])[0].exp(), said[number])
            assert found[number, at + 1].item() == pytest.approx(expected.item(), abs=1e-6)
        assert found[number, 0] == 0 and not found[number, len(words) + 1 :].any()  # [CLS], [SEP], padding


def test_each_shorter_text_is_asked_once() -> None:
    asker = Known(lambda tokens: (0.5 + 0.01 * len(tokens), 0.5 - 0.01 * len(tokens)))
    answers, given = Answers(asker), [row(5, 6, 7), row(5, 6, 8)]
    found = left_out(answers, given, asker.log_probs(given).exp())
    assert found.flatten().tolist() == pytest.approx([0.01] * 6)
    assert asker.asked == 2 + 5  # of the six shorter texts, {5, 6} comes twice


def test_orders_are_by_size_and_over_free_tokens_alone() -> None:
    free = [False, True, True, True, False]
    maps = {"same": torch.tensor([9.0, 1.0, -2.0, 3.0, 9.0]), "turned": torch.tensor([0.0, -3.0, 2.0, 1.0, 7.0])}
    references = {"order": torch.tensor([-5.0, 1.0, 2.0, -3.0, 8.0]), "flat": torch.ones(5)}
    found = agreements(maps, references, free)
    assert found.shape == (2, 2)
    assert found[:, 0].tolist() == [1.0, -1.0] and found[:, 1].isnan().all()
