"""The weights that the page computes equal those of the record."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from browser.conftest import Opened
from regard.inspection.attribution.rollout import rollout, rollout_layers

pytestmark = pytest.mark.browser

ROWS = """async ([number, head]) => {
  const { T } = regard.source.info.places[number];
  const rows = [];
  for (let i = 0; i < T; i++) rows.push([...await regard.source.row(number, head, i)]);
  return rows;
}"""
TILE = """async ([number, head, box, rows, cols, measure]) => {
  const found = await regard.source.tile(number, head, box, rows, cols, measure);
  return { values: [...found.values], exact: found.exact };
}"""


@pytest.mark.parametrize(
    "name", ["bert", "translator", "grouped", "additive", "normalised", "gaps", "hostile", "windows"]
)
def test_every_weight_of_every_head(opened: Callable[..., Opened], name: str) -> None:
    page = opened(name)
    for number, place in enumerate(page.record.places):
        for head in place.stored.heads:
            found = np.array(page.do(ROWS, [number, head]))
            np.testing.assert_allclose(found, place.tile(head).numpy(), atol=2e-5, err_msg=f"{place.name}, {head}")


def test_the_mean_over_heads_and_shares_by_length(opened: Callable[..., Opened]) -> None:
    page = opened("bert")
    place = page.record.places[1]
    tiles = torch.stack([place.tile(head) for head in range(4)])
    np.testing.assert_allclose(page.do(ROWS, [1, -1]), tiles.mean(0).numpy(), atol=2e-5)
    shares = tiles[2] * place.value_norms[2]
    shares = shares / shares.sum(-1, keepdim=True)
    found = page.do("async () => [...await regard.source.row(1, 2, 3, 'norms')]")
    np.testing.assert_allclose(found, shares[3].numpy(), atol=1e-3)
    box = {"top": 2, "bottom": 9, "left": 4, "right": 15}
    tile = page.do(TILE, [1, 2, box, 7, 11, "norms"])
    np.testing.assert_allclose(np.reshape(tile["values"], (7, 11)), shares[2:9, 4:15].numpy(), atol=1e-3)


def test_shares_by_gradient(opened: Callable[..., Opened]) -> None:
    page = opened("grouped")
    place = page.record.places[1]
    for head in (0, 3):
        shares = place.tile(head) * place.gradient(head).abs()
        shares = shares / shares.sum(-1, keepdim=True)
        found = page.do(f"async () => [...await regard.source.row(1, {head}, 20, 'gradient')]")
        np.testing.assert_allclose(found, shares[20].numpy(), atol=1e-4)
    box = {"top": 2, "bottom": 20, "left": 4, "right": 15}
    tile = page.do(TILE, [1, 3, box, 18, 11, "gradient"])
    np.testing.assert_allclose(np.reshape(tile["values"], (18, 11)), shares[2:20, 4:15].numpy(), atol=1e-4)


def test_one_shortcut_cycles_through_the_measures(opened: Callable[..., Opened]) -> None:
    page = opened("grouped")
    seen = []
    for _ in range(4):
        seen.append(page.do("() => regard.state.shown.measure"))
        page.page.keyboard.press("m")
    assert seen == ["weights", "norms", "gradient", "weights"]
    assert page.page.locator("option", has_text="gradient").count() == 1


def test_tiles_are_means_over_cells(opened: Callable[..., Opened]) -> None:
    page = opened("long")
    box = {"top": 100, "bottom": 1103, "left": 7, "right": 2222}
    found = page.do(TILE, [0, 1, box, 37, 50, "weights"])
    weights = page.record.places[0].tile(1, slice(100, 1103), slice(7, 2222))
    in_row = torch.nn.functional.one_hot(torch.arange(1003) * 37 // 1003, 37).float()
    in_col = torch.nn.functional.one_hot(torch.arange(2215) * 50 // 2215, 50).float()
    expected = in_row.T @ weights @ in_col / torch.outer(in_row.sum(0), in_col.sum(0))
    assert found["exact"] is True
    np.testing.assert_allclose(np.reshape(found["values"], (37, 50)), expected.numpy(), rtol=1e-3, atol=1e-7)


def test_rows_from_statistics_have_the_largest_weights(opened: Callable[..., Opened]) -> None:
    page = opened("statistics")
    top = page.record.places[0].statistics
    row = page.do("async () => [...await regard.source.row(0, 1, 4)].map((one) => Number.isNaN(one) ? -1 : one)")
    assert sum(one >= 0 for one in row) == 8
    for value, at in zip(top.top_values[1, 4].tolist(), top.top_indices[1, 4].tolist(), strict=True):
        assert row[at] == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "number", "head"),
    [
        *[("bert", 0, 1), ("grouped", 1, 3), ("additive", 0, 0), ("additive", 1, 0)],
        *[("normalised", 0, 1), ("normalised", 1, 2), ("normalised", 2, 3)],
    ],
)
def test_a_pair_adds_up_to_its_weight(opened: Callable[..., Opened], name: str, number: int, head: int) -> None:
    page = opened(name)
    weights = page.record.places[number].tile(head)
    for query, key in [(3, 2), (11, 9), (5, 5)]:
        pair = page.do("([n, h, i, j]) => regard.source.pair(n, h, i, j)", [number, head, query, key])
        assert sum(pair["terms"]) == pytest.approx(pair["score"])
        assert pair["weight"] == pytest.approx(float(weights[query, key]), abs=2e-5)
        if pair["visible"]:
            assert _weight_of(pair, page.record.places[number].stored.alpha) == pytest.approx(pair["weight"], abs=2e-5)


def _weight_of(pair: dict[str, float], alpha: float | None) -> float:
    """The weight that follows from the terms that the page shows."""
    score = pair["capped"] + pair["bias"]
    if alpha is not None:
        return max(0.0, (alpha - 1) * score - pair["lse"]) ** (1 / (alpha - 1))
    return float(np.exp(min(0.0, score - pair["lse"])) * pair["windowWeight"])


def test_the_share_of_a_sink_is_shown(opened: Callable[..., Opened]) -> None:
    page = opened("normalised", "#place=0&head=2&query=6")
    share = float(page.record.places[0].statistics.sink[2, 6])
    assert share > 0.1
    page.wait(f"() => document.body.textContent.includes('the sink took {share:.3f}')")


@pytest.mark.parametrize(("name", "token"), [("bert", 4), ("translator", 3), ("grouped", 17)])
def test_rollout_equals_the_librarys(opened: Callable[..., Opened], name: str, token: int) -> None:
    page = opened(name, f"#view=layers&query={token}")
    page.wait("() => regard.views.layers.stages.length > 0")
    stages = page.do("() => regard.views.layers.numbers().stages")
    layers = rollout_layers(page.record)
    assert [stage["place"] for stage in stages] == [place.name for place in reversed(page.record.places)]
    for count, found in enumerate(stages, 1):  # back through so many of the last layers
        shares = rollout(layers[-count:])[layers[-1].queries]
        assert {int(side) for side in found["masses"]} == set(shares)
        for side, share in shares.items():
            np.testing.assert_allclose(found["masses"][str(side)], share[token].numpy(), atol=1e-5)


def test_words_pool_their_pieces(opened: Callable[..., Opened]) -> None:
    page = opened("bert", "#words=1&place=2&head=1&query=8")
    weights = page.record.places[2].tile(1)
    page.wait("() => regard.views.sentence.rows.size === 1")
    [row] = page.do("() => regard.views.sentence.numbers().rows")
    assert row["token"] == "unbelievable"
    words = page.do("() => regard.views.sentence.numbers().keys")
    mean = weights[8:11].mean(0)
    assert row["weights"][words.index("quietly")] == pytest.approx(float(mean[5] + mean[6]), abs=2e-5)
    assert len(words) == 12
