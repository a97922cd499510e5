"""Head statistics equal those of the whole map, which is never in memory."""

import pytest
import torch
from tests.inspection.attribution.largest_tensor import largest
from tests.inspection.attribution.records import place

from regard.attention.masks import Causal, Padding, Past, Window
from regard.errors import RecordError
from regard.inspection.attribution.head_statistics import BLOCK_ROWS, all_head_statistics, head_statistics


@pytest.mark.parametrize(
    "mask", [None, Causal(), Past(), Window(5, 5), Padding([BLOCK_ROWS + 9], queries=[BLOCK_ROWS + 5])]
)
def test_statistics_equal_those_of_the_whole_map(mask) -> None:
    T = BLOCK_ROWS + 20
    seen = place(T=T, mask=mask)
    index = torch.arange(T)
    away = index - index[:, None]
    for head in range(2):
        weights = seen.tile(head).double()
        got = head_statistics(seen, head)
        looking = weights.sum(-1) > 0
        w = weights[looking]
        assert got.active_queries == looking.sum()
        assert got.entropy == pytest.approx(float(torch.special.entr(w).sum(-1).mean()), abs=1e-3)
        assert got.distance == pytest.approx(float((weights * away.abs()).sum() / weights.sum()), rel=1e-6)
        assert got.first == pytest.approx(float(w[:, 0].mean()), abs=1e-6)
        for value, offset in ((got.same, 0), (got.previous, -1), (got.next, 1)):
            assert value == pytest.approx(float((weights * (away == offset)).sum() / looking.sum()), abs=1e-6)
        torch.testing.assert_close(got.received.double(), weights.sum(0), atol=1e-3, rtol=0)


def test_a_strict_past_has_no_present_and_no_future() -> None:
    for one in all_head_statistics(place(mask=Past())):
        assert one.active_queries == 5 and one.same == one.next == 0 and one.previous > 0


def test_queries_without_keys_have_zeros() -> None:
    got = head_statistics(place(mask=Padding([0])), 0)
    assert (got.active_queries, got.entropy, got.distance, got.first, got.same) == (0, 0, 0, 0, 0)


def test_a_map_between_two_texts_compares_numbers_of_tokens() -> None:
    seen = place(T=3, S=5)
    weights = seen.tile(1).double()
    assert head_statistics(seen, 1).same == pytest.approx(float(weights.diagonal().mean()), abs=1e-6)


def test_a_place_without_maps_is_refused_with_its_reason() -> None:
    from dataclasses import replace

    with pytest.raises(RecordError, match="too many"):
        all_head_statistics(replace(place(), stored=None, why="They were too many."))


def test_the_whole_map_is_never_in_memory() -> None:
    T = 6 * BLOCK_ROWS
    seen = place(T=T, mask=Causal())
    with largest() as found:
        head_statistics(seen, 0)
    assert found.numbers <= BLOCK_ROWS * T
