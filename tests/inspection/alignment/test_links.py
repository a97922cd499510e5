"""Links read off a map: words from pieces, the largest weight and those beside it, and measures typed out."""

import pytest
import torch

from regard.errors import CorpusError
from regard.inspection.alignment.evaluate import Gold, evaluate_links, read_gold
from regard.inspection.alignment.links import balanced, links_of, pharaoh


def test_every_target_word_is_linked_to_its_largest_and_every_source_word_from_the_threshold_on() -> None:
    matrix = torch.tensor([[0.5, 0.35, 0.15], [0.2, 0.2, 0.6], [0.25, 0.24, 0.26]])
    assert links_of(matrix) == ((0, 0), (1, 0), (2, 1), (2, 2))
    assert links_of(matrix, threshold=0.4) == ((0, 0), (2, 1), (2, 2))
    assert pharaoh(links_of(matrix, threshold=1.0)) == "0-0 2-1 2-2"
    assert links_of(torch.zeros(0, 3)) == ()


def test_in_competition_a_noun_goes_to_its_own_word_and_the_article_is_left_for_the_article() -> None:
    la, colline = [0.4, 0.6], [0.02, 0.98]
    matrix = torch.tensor([la, colline])
    assert links_of(matrix) == ((0, 0), (1, 0), (1, 1))
    assert links_of(balanced(matrix)) == ((0, 0), (1, 1))
    torch.testing.assert_close(balanced(matrix).sum(1), torch.ones(2))


def test_balance_leaves_alone_what_is_fair_and_survives_a_word_that_nobody_looked_at() -> None:
    torch.testing.assert_close(balanced(torch.eye(4)), torch.eye(4), atol=1e-5, rtol=0)
    unseen = balanced(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    assert unseen.isfinite().all() and {j for _, j in links_of(unseen)} == {0, 1}


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
def test_what_is_no_link_is_refused_with_its_place(line: str) -> None:
    with pytest.raises(CorpusError, match=r"gold\.txt:3"):
        read_gold(line, "gold.txt:3", first=1)
