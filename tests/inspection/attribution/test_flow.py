"""Laws of attention flow: the minimum cut by brute force; at least rollout; bounded by the capacities at both ends."""

from itertools import product

import pytest
import torch
from tests.inspection.attribution.records import ids, place, record, translated

from regard.attention.masks import Causal
from regard.errors import RecordError, SettingError
from regard.inspection.attribution.flow import flow as flow_to
from regard.inspection.attribution.rollout import RolloutLayer, rollout, rollout_layers

close = torch.testing.assert_close


def flow(layers: list[torch.Tensor], token: int, residual: float = 0.5) -> torch.Tensor:
    """Flow in one text that looks at itself; layers (T, T) or (H, T, T)."""
    return flow_to(whole(layers), token, residual)[0]


def whole(layers: list[torch.Tensor]) -> list[RolloutLayer]:
    return [RolloutLayer(one.mean(0) if one.dim() == 3 else one) for one in layers]


def mixing(layer: torch.Tensor) -> torch.Tensor:
    return rollout(whole([layer]))[0][0]


def random_layers(count: int, T: int, seed: int, heads: int = 2) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return [(3 * torch.randn(heads, T, T, generator=rng, dtype=torch.float64)).softmax(-1) for _ in range(count)]


def smallest_cut(layers: list[torch.Tensor], token: int, sink: int) -> float:
    """Every way to part the nodes into those with the source and those with the sink."""
    T, mixed = layers[0].size(-1), [mixing(layer) for layer in layers]
    inner = [(depth, i) for depth in range(1, len(layers)) for i in range(T)]  # depth 0: the inputs
    best = float("inf")
    for chosen in product((False, True), repeat=len(inner)):
        near = {(len(layers), token), *(node for node, one in zip(inner, chosen, strict=True) if one)}
        cut = 0.0
        for depth, i in near:
            # an input other than the sink leads nowhere, so the cheapest is to keep it with the source
            ends = [j for j in range(T) if ((depth - 1, j) not in near if depth > 1 else j == sink)]
            cut += float(mixed[depth - 1][i, ends].sum())
        best = min(best, cut)
    return best


@pytest.mark.parametrize(("count", "T"), [(1, 4), (2, 4), (3, 3), (4, 2), (4, 3)])
def test_the_maximum_flow_is_the_minimum_cut(count: int, T: int) -> None:
    layers = random_layers(count, T, seed=count * 10 + T)
    for token in range(T):
        cuts = [smallest_cut(layers, token, sink) for sink in range(T)]
        close(flow(layers, token), torch.tensor(cuts, dtype=torch.float64))


@pytest.mark.parametrize("seed", range(3))
def test_flow_lies_between_rollout_and_the_capacities_at_both_ends(seed: int) -> None:
    layers = random_layers(4, 9, seed)
    rolled, arriving = rollout(whole(layers))[0][0], mixing(layers[0]).sum(0)
    for token in (0, 4, 8):
        got = flow(layers, token)
        assert (got >= rolled[token] - 1e-9).all()
        assert (got <= arriving.clamp(max=1.0) + 1e-9).all()
    assert float((flow(layers, 4) - rolled[4]).max()) > 0.1  # and it is not rollout


def test_augmenting_paths_reroute_flow() -> None:
    """Token 0 of the top can reach the sink through 0 and 1; the first way taken blocks the second unless undone."""
    top = torch.tensor([[0.5, 0.5], [0.0, 1.0]])
    low = torch.tensor([[0.4, 0.6], [1.0, 0.0]])
    close(flow([low, top], 0, residual=0.0), torch.tensor([0.9, 0.5], dtype=torch.float64))


def test_tokens_in_another_order_have_the_same_flows() -> None:
    layers, order = random_layers(3, 6, seed=5), torch.tensor([3, 0, 5, 1, 4, 2])
    moved = [layer[:, order][:, :, order] for layer in layers]
    close(flow(moved, 2), flow(layers, int(order[2]))[order])


def test_nothing_comes_from_the_future() -> None:
    places = [place(T=8, mask=Causal(), seed=seed) for seed in range(2)]
    got = flow_to(rollout_layers(record(*places)), 4)[0]
    assert (got[:5] > 0).all() and (got[5:] == 0).all()
    layers = [torch.stack([one.tile(head) for head in range(2)]).double() for one in places]
    close(got, flow(layers, 4))


def test_a_translators_token_draws_on_both_texts() -> None:
    layers = rollout_layers(translated(ids(1, 6), ids(1, 4)))
    for token in range(4):
        got, rolled = flow_to(layers, token), {origin: part[token] for origin, part in rollout(layers)[1].items()}
        assert set(got) == {0, 1}
        for stream in got:
            assert (got[stream] >= rolled[stream] - 1e-9).all() and float(got[stream].max()) <= 1 + 1e-9
        assert (got[1][token + 1 :] == 0).all()
        assert float(got[1].max()) <= 0.5 + 1e-3  # the last look across leaves half of it to the target


def test_long_texts_and_unknown_tokens_are_refused() -> None:
    with pytest.raises(SettingError, match="at most 64"):
        flow([torch.eye(65)], 0)
    with pytest.raises(SettingError, match="rollout"):
        flow_to(rollout_layers(record(place(T=9))), 0, max_tokens=8)
    with pytest.raises(RecordError, match="token 3"):
        flow([torch.eye(3)], 3)
    with pytest.raises(SettingError, match="There are no layers"):
        flow([], 0)
