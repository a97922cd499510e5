"""Masks as runs of keys: the same booleans as the masks themselves, and bounds of blocks that leave nothing out."""

from __future__ import annotations

import pytest
import torch

from regard.attention import masks
from regard.attention.grid import Grid
from regard.attention.kernels.spans import KeySpans, needs_bits, unsupported_reason
from regard.attention.masks import Mask

T, S, B, H = 150, 333, 2, 3
SOURCE = torch.Generator().manual_seed(0)
MASKS = {
    "everything": masks.Everything(),
    "causal": masks.Causal(),
    "past": masks.Past(offset=0),
    "window": masks.Window(20, 7),
    "window that moves": masks.Window(20, 7, torch.tensor([3, 90])),
    "padding": masks.Padding([S, 70], [T, 33]),
    "padding on the left": masks.Padding([S, 70], side="left"),
    "all of them": masks.Causal() & masks.Padding([300, 170]) & masks.Window(100, None),
    "documents": masks.Documents(torch.arange(S) // 50, torch.arange(T) // 50),
    "keys": masks.Keys(torch.randint(-1, S, (B, 1, T, 40), generator=SOURCE)) & masks.Causal(),
    "keys of every head": masks.Keys(torch.randint(0, S, (H, T, 9), generator=SOURCE)),
    "the same keys": masks.Keys(torch.randint(0, S, (B, 1, 1, 9), generator=SOURCE)),
    "blocks": masks.Blocks(torch.randint(0, 12, (B, H, T, 3), generator=SOURCE), 30) & masks.Padding([S, 70]),
    "blocks that are no tiles": masks.Blocks(torch.randint(-1, 2, (B, H, T, 1), generator=SOURCE), 200),
    "blocks of two sizes": masks.Blocks(torch.randint(0, 5, (T, 3), generator=SOURCE), 64)
    & masks.Blocks(torch.randint(0, 21, (T, 9), generator=SOURCE), 16),
    "a table": masks.Dense(torch.rand(B, 1, T, S, generator=SOURCE) < 0.3) & masks.Window(60, 0),
    "a column": masks.Dense(torch.rand(B, H, T, 1, generator=SOURCE) < 0.3),
    "a union": masks.Causal() | masks.Padding([40, 70]),
    "a complement": ~masks.Causal(),
    "two documents": masks.Documents(torch.arange(S) // 50) & masks.Documents(torch.arange(S) % 3),
    "documents of each row": masks.Documents(torch.stack((torch.arange(S) // 50, torch.arange(S) % 3))),
}


def grid() -> Grid:
    return Grid((B, H), T, S, torch.device("cpu"))


@pytest.mark.parametrize("name", MASKS)
def test_spans_say_what_the_mask_says(name: str) -> None:
    spans = KeySpans.of(MASKS[name], grid())
    dense = MASKS[name].dense(T, S, (B, H))
    assert torch.equal(spans.dense(T, S).expand(B, H, T, S), dense)
    assert (unsupported_reason(MASKS[name]) is None) == (not needs_bits(MASKS[name])) == (spans.bits is None)


@pytest.mark.parametrize("name", [name for name in MASKS if needs_bits(MASKS[name])])
@pytest.mark.parametrize(("rows", "keys"), [(16, 16), (64, 32), (32, 128)])
@pytest.mark.parametrize("by_keys", [False, True])
def test_lists_of_tiles_leave_none_out(name: str, rows: int, keys: int, by_keys: bool) -> None:
    spans = KeySpans.of(MASKS[name], grid())
    order, count = spans.tile_lists(rows, keys, T, S, by_keys=by_keys)
    listed = torch.zeros(order.shape, dtype=torch.bool).scatter(
        -1, order.long(), torch.arange(order.size(-1)) < count.unsqueeze(-1)
    )
    listed = listed.mT if by_keys else listed
    everywhere = listed.repeat_interleave(rows, -2)[..., :T, :].repeat_interleave(keys, -1)[..., :S]
    dense = MASKS[name].dense(T, S, (B, H))
    assert not (dense & ~everywhere).any()
    if name == "a complement" or (rows == 16 and "blocks" in name):
        assert not listed.all()  # some are skipped
    shown = torch.where(torch.arange(order.size(-1)) < count.unsqueeze(-1), order, 10**6)
    assert (shown.diff(dim=-1) >= 0).all()  # first to last


@pytest.mark.parametrize("lead", [(), (2,), (2, 1, 3)], ids=str)
def test_any_leading_dimensions(lead: tuple[int, ...]) -> None:
    mask = masks.Causal() & masks.Padding([S, 70]) if lead else masks.Causal()
    spans = KeySpans.of(mask, Grid(lead, T, S, torch.device("cpu")))
    flat = mask.dense(T, S, lead).reshape(-1, lead[-1] if len(lead) > 1 else 1, T, S)
    assert torch.equal(spans.dense(T, S).expand(flat.shape), flat)


@pytest.mark.parametrize(
    ("mask", "why"),
    [
        (masks.Dense(torch.ones(T, S, dtype=torch.bool)), "Dense is none of them"),
        (~masks.Causal(), "Not is none of them"),
        (masks.Documents(torch.arange(S)) & masks.Documents(torch.arange(S)), "not several"),
    ],
)
def test_what_is_no_run_of_keys_is_said_in_words(mask: Mask, why: str) -> None:
    said = unsupported_reason(mask)
    assert said is not None and why in said


@pytest.mark.parametrize("name", ["padding", "padding on the left", "window that moves", "all of them"])
def test_bounds_of_blocks_of_queries(name: str) -> None:
    spans = KeySpans.of(MASKS[name], grid())
    bounds = spans.query_block_bounds(S, 64, B, H)
    assert bounds is not None and bounds.shape == (B * H, 3, 4)
    seen_by_head = KeySpans(lo=spans.lo, hi=spans.hi).dense(T, S).expand(B, H, T, S).flatten(0, 1)
    for head, block in [(head, block) for head in range(B * H) for block in range(3)]:
        first, last, all_from, all_to = bounds[head, block].tolist()
        seen = seen_by_head[head, block * 64 : block * 64 + 64]
        assert not seen[:, :first].any() and not seen[:, last:].any(), "a key outside is seen"
        assert seen[:, all_from:all_to].all(), "a key inside is hidden"


@pytest.mark.parametrize("name", ["padding", "padding on the left", "window that moves", "all of them"])
def test_bounds_of_blocks_of_keys(name: str) -> None:
    spans = KeySpans.of(MASKS[name], grid())
    bounds = spans.key_block_bounds(S, 128, B, H)
    assert bounds is not None and bounds.shape == (B * H, 3, 4)
    seen_by_head = KeySpans(lo=spans.lo, hi=spans.hi).dense(T, S).expand(B, H, T, S).flatten(0, 1)
    for head, block in [(head, block) for head in range(B * H) for block in range(3)]:
        first, last, all_from, all_to = (64 * tile for tile in bounds[head, block].tolist())
        seen = seen_by_head[head, :, block * 128 : block * 128 + 128]
        assert not seen[:first].any() and not seen[last:].any(), "a query outside looks"
        assert seen[all_from:all_to].all() or block * 128 + 128 > S, "a query inside does not"
