"""Links from a map: argmax, threshold and Sinkhorn normalisation, and AER by hand."""

import pytest
import torch

from regard.errors import CorpusError
from regard.inspection.alignment.evaluate import Gold, evaluate_links, read_gold
from regard.inspection.alignment.links import extract_links, sinkhorn, to_pharaoh


def test_links_by_argmax_and_threshold() -> None:
    matrix = torch.tensor([[0.5, 0.35, 0.15], [0.2, 0.2, 0.6], [0.25, 0.24, 0.26]])
    assert extract_links(matrix) == ((0, 0), (1, 0), (2, 1), (2, 2))
    assert extract_links(matrix, threshold=0.4) == ((0, 0), (2, 1), (2, 2))
    assert to_pharaoh(extract_links(matrix, threshold=1.0)) == "0-0 2-1 2-2"
    assert extract_links(torch.zeros(0, 3)) == ()


def test_sinkhorn_resolves_competition_between_words() -> None:
    la, colline = [0.4, 0.6], [0.02, 0.98]
    matrix = torch.tensor([la, colline])
    assert extract_links(matrix) == ((0, 0), (1, 0), (1, 1))
    assert extract_links(sinkhorn(matrix)) == ((0, 0), (1, 1))
    torch.testing.assert_close(sinkhorn(matrix).sum(1), torch.ones(2))


def test_sinkhorn_keeps_doubly_stochastic_maps_and_handles_empty_columns() -> None:
    torch.testing.assert_close(sinkhorn(torch.eye(4)), torch.eye(4), atol=1e-5, rtol=0)
    unseen = sinkhorn(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    assert unseen.isfinite().all() and {j for _, j in extract_links(unseen)} == {0, 1}


def test_the_error_rate_is_its_formula() -> None:
    gold = read_gold("0-0 1-2 1p1", "here")
    assert gold == Gold.of({(0, 0), (1, 2)}, {(1, 1)})
    got = evaluate_links([((0, 0), (1, 1), (2, 2))], [gold])
    assert (got.precision, got.recall) == (2 / 3, 1 / 2)
    assert got.aer == pytest.approx(1 - (1 + 2) / (3 + 2))
    perfect = evaluate_links([((0, 0), (1, 2))], [gold])
    assert (perfect.precision, perfect.recall, perfect.aer) == (1, 1, 0)


def test_words_may_count_from_one() -> None:
    assert read_gold("1-1 2?3", "here", first=1) == Gold.of({(0, 0)}, {(1, 2)})


@pytest.mark.parametrize("line", ["0-a", "0", "1-0", "0_1"])
def test_malformed_links_are_refused_with_their_line(line: str) -> None:
    with pytest.raises(CorpusError, match=r"gold\.txt:3"):
        read_gold(line, "gold.txt:3", first=1)
