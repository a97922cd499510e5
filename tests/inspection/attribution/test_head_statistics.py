"""A head in a few numbers, beside the same numbers from the whole map; and no whole map on the way."""

import pytest
import torch
from tests.inspection.attribution.records import place
from tests.inspection.attribution.watching import largest

from regard.attention.masks import Causal, Padding, Past, Window
from regard.errors import RecordError
from regard.inspection.attribution.head_statistics import ROWS, every_head, head_statistics


@pytest.mark.parametrize("mask", [None, Causal(), Past(), Window(5, 5), Padding([ROWS + 9], queries=[ROWS + 5])])
def test_numbers_are_those_of_the_whole_map(mask) -> None:
    T = ROWS + 20
    seen = place(T=T, mask=mask)
    index = torch.arange(T)
    away = index - index[:, None]
    for head in range(2):
        weights = seen.tile(head).double()
        got = head_statistics(seen, head)
        looking = weights.sum(-1) > 0
        w = weights[looking]
        assert got.looking == looking.sum()
        assert got.entropy == pytest.approx(float(torch.special.entr(w).sum(-1).mean()), abs=1e-3)
        assert got.distance == pytest.approx(float((weights * away.abs()).sum() / weights.sum()), rel=1e-6)
        assert got.first == pytest.approx(float(w[:, 0].mean()), abs=1e-6)
        for value, offset in ((got.itself, 0), (got.previous, -1), (got.next, 1)):
            assert value == pytest.approx(float((weights * (away == offset)).sum() / looking.sum()), abs=1e-6)
        torch.testing.assert_close(got.received.double(), weights.sum(0), atol=1e-3, rtol=0)


def test_a_strict_past_has_no_present_and_no_future() -> None:
    for one in every_head(place(mask=Past())):
        assert one.looking == 5 and one.itself == one.next == 0 and one.previous > 0


def test_who_looks_nowhere_has_zeros() -> None:
    got = head_statistics(place(mask=Padding([0])), 0)
    assert (got.looking, got.entropy, got.distance, got.first, got.itself) == (0, 0, 0, 0, 0)


def test_a_map_between_two_texts_compares_numbers_of_tokens() -> None:
    seen = place(T=3, S=5)
    weights = seen.tile(1).double()
    assert head_statistics(seen, 1).itself == pytest.approx(float(weights.diagonal().mean()), abs=1e-6)


def test_a_place_without_maps_is_refused_with_its_reason() -> None:
    from dataclasses import replace

    with pytest.raises(RecordError, match="too many"):
        every_head(replace(place(), kept=None, why="They were too many."))


def test_the_map_is_never_held() -> None:
    T = 6 * ROWS
    seen = place(T=T, mask=Causal())
    with largest() as found:
        head_statistics(seen, 0)
    assert found.numbers <= ROWS * T
