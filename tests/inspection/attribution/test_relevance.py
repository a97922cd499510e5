"""Laws of relevance propagation: by hand, layer by layer, and against the gradients it is made of."""

from __future__ import annotations

import pytest
import torch

from regard.errors import SettingError, ShapeError
from regard.inspection import RelevanceLayer, relevance

close = torch.testing.assert_close


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_two_layers_by_hand() -> None:
    first = torch.tensor([[[1.0, -3.0], [0.5, 0.5]], [[0.0, 1.0], [-1.0, 0.5]]])  # two heads
    second = torch.tensor([[[0.0, 1.0], [0.5, 0.0]]])
    # A1' = [[.5, .5], [.25, .5]], R1 = [[1.5, .5], [.25, 1.5]]; A2' = [[0, 1], [.5, 0]], R2 = R1 + A2' R1
    found = relevance([RelevanceLayer(first), RelevanceLayer(second)])[0][0]
    close(found, torch.tensor([[1.75, 2.0], [1.0, 1.75]]))


def test_what_lowers_the_target_counts_for_nothing() -> None:
    found = relevance([RelevanceLayer(-drawn(2, 4, 4).abs())])[0][0]
    close(found, torch.eye(4, dtype=torch.float64))


def test_a_batch_equals_its_rows() -> None:
    layers = [drawn(3, 2, 5, 5, seed=seed) for seed in range(3)]
    whole = relevance([RelevanceLayer(one) for one in layers])[0][0]
    for row in range(3):
        close(whole[row], relevance([RelevanceLayer(one[row]) for one in layers])[0][0])


def test_cross_attention_by_the_formula() -> None:
    """Equation 10, for a decoder (stream 0) of 3 tokens over a source (stream 1) of 4."""
    source, own, cross = drawn(2, 4, 4, seed=1), drawn(2, 3, 3, seed=2), drawn(2, 3, 4, seed=3)
    layers = [RelevanceLayer(source, 1, 1), RelevanceLayer(own, 0, 0), RelevanceLayer(cross, 0, 1)]
    found = relevance(layers)
    assert set(found[0]) == {0, 1} and set(found[1]) == {1}

    def rows_to_one(raised: torch.Tensor) -> torch.Tensor:
        return raised / raised.sum(-1, keepdim=True) + torch.eye(len(raised), dtype=raised.dtype)

    mine, theirs = (x.clamp(min=0).mean(0) for x in (own, source))
    close(found[0][1], rows_to_one(mine).T @ cross.clamp(min=0).mean(0) @ rows_to_one(theirs))
    close(found[0][0], torch.eye(3, dtype=torch.float64) + mine)


def test_complaints() -> None:
    with pytest.raises(SettingError, match="no layers"):
        relevance([])
    with pytest.raises(ShapeError, match="4 tokens of stream 0"):
        relevance([RelevanceLayer(drawn(1, 4, 4)), RelevanceLayer(drawn(1, 5, 5))])
    with pytest.raises(ShapeError, match="heads"):
        relevance([RelevanceLayer(drawn(4, 4))])
