"""Rows, windows, chunks and repeated calls of any torch module, told apart by numbers alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.adapters import adapter
from regard.errors import SettingError
from regard.inspection.record.collect import collect
from regard.inspection.record.collector import RecordSpec
from regard.inspection.record.record import Record

WIDTH, HEADS = 16, 4


class Attends(nn.Module):
    """Self-attention by torch's function, of queries (..., H, T, D) in the layout of `split`."""

    def __init__(self, layout: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.project, self.layout, self.num_heads = nn.Linear(WIDTH, 3 * WIDTH), layout, HEADS
        nn.init.normal_(self.project.weight, std=0.7)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(-2, -3) for part in self.project(x).chunk(3, -1))
        if self.layout == "flat":  # (B H, T, D), without a dimension of heads
            q, k, v = (part.flatten(0, 1) for part in (q, k, v))
        if self.layout == "windows inside":  # (B, H, windows, T, D)
            q, k, v = (part.unflatten(2, (3, -1)) for part in (q, k, v))
        if self.layout == "chunks":
            parts = zip(*(part.split((2, 3, 1), -2) for part in (q, k, v)), strict=True)
            return torch.cat([F.scaled_dot_product_attention(*part) for part in parts], -2)
        return F.scaled_dot_product_attention(q, k, v)


class Holds(nn.Module):
    """A module with attention inside, called `times` times in a pass."""

    def __init__(self, layout: str, times: int = 1) -> None:
        super().__init__()
        self.attention, self.times = Attends(layout), times

    def forward(self, x: Tensor) -> Tensor:
        for time in range(self.times):
            out = self.attention(x + 0.5 * time)
        return out


def vectors(*shape: int) -> Tensor:
    return torch.randn(*shape, WIDTH, generator=torch.Generator().manual_seed(1))


def weights_of(module: Attends, x: Tensor) -> Tensor:
    """(B, H, T, T), by hand."""
    q, k, _ = (part.unflatten(-1, (HEADS, -1)).transpose(-2, -3) for part in module.project(x).chunk(3, -1))
    return (q @ k.mT / (WIDTH // HEADS) ** 0.5).softmax(-1)


def tiles(record: Record, place: int = 0) -> Tensor:
    return torch.stack([record.places[place].tile(head) for head in range(record.places[place].heads)])


@pytest.mark.parametrize("layout", ["heads", "flat"])
@pytest.mark.parametrize("row", [0, 2])
@torch.no_grad()
def test_a_row_of_a_batch(layout: str, row: int) -> None:
    model, x = Holds(layout), vectors(3, 5)
    record = collect(adapter(model), {"x": x}, row=row)
    torch.testing.assert_close(tiles(record), weights_of(model.attention, x)[row], atol=1e-3, rtol=0)
    assert (record.facts["row"], record.facts["rows"]) == (row, 3)
    taken = "4 maps of one call without a dimension of heads, shown as heads"
    assert record.places[0].note == (taken if layout == "flat" else "")


@torch.no_grad()
def test_windows_beside_the_heads_are_one_map() -> None:
    """Leading dimensions (B, H, windows): which of them are heads, the module tells."""
    model, x = Holds("windows inside"), vectors(2, 6)
    record = collect(adapter(model), {"x": x}, row=1)
    q, k, _ = (part.unflatten(-1, (HEADS, -1)).transpose(-2, -3) for part in model.attention.project(x).chunk(3, -1))
    q, k = (part.unflatten(2, (3, 2)) for part in (q, k))
    blocks = (q @ k.mT / 2).softmax(-1)[1]
    expected = torch.stack([torch.block_diag(*head) for head in blocks])
    torch.testing.assert_close(tiles(record), expected, atol=1e-3, rtol=0)
    assert record.axes[0].tokens == tuple(f"sequence {n}, {at}" for n in range(3) for at in range(2))
    assert record.axes[0].numbered and record.places[0].joined == "windows"


@torch.no_grad()
def test_chunks_are_one_map_and_repeated_calls_are_several() -> None:
    model, x = Holds("chunks"), vectors(1, 6)
    record = collect(adapter(model), {"x": x})
    parts = [weights_of(model.attention, part)[0] for part in x.split((2, 3, 1), 1)]
    expected = torch.stack([torch.block_diag(*heads) for heads in zip(*parts, strict=True)])
    torch.testing.assert_close(tiles(record), expected, atol=1e-3, rtol=0)
    assert record.axes[0].tokens == tuple("012345") and record.places[0].joined == "chunks"
    again = Holds("heads", times=3)
    called = collect(adapter(again), {"x": x})
    assert [place.name for place in called.places] == [f"attention, call {n} of 3" for n in (1, 2, 3)]
    for time in range(3):
        expected = weights_of(again.attention, x + 0.5 * time)[0]
        torch.testing.assert_close(tiles(called, time), expected, atol=1e-3, rtol=0)
    some = collect(
        adapter(again), {"x": x}, spec=RecordSpec(heads={"attention": [1], "attention, call 2 of 3": [0, 2]})
    )
    assert [place.stored.heads for place in some.places if place.stored] == [(1,), (0, 2), (1,)]


@pytest.mark.parametrize("batch_first", [True, False])
@torch.no_grad()
def test_the_batch_of_torch_s_own_modules_is_found(batch_first: bool) -> None:
    """Inputs are (B, T, D) or (T, B, D); the calls tell which."""
    torch.manual_seed(0)
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=batch_first), 2, enable_nested_tensor=False
    ).eval()
    x = vectors(2, 6)
    record = collect(adapter(model), {"src": x if batch_first else x.transpose(0, 1)}, row=1)
    assert record.facts["rows"] == 2 and all((place.T, place.S) == (6, 6) for place in record.places)
    alone = collect(adapter(model), {"src": x[1:] if batch_first else x[1:].transpose(0, 1)})
    for number in range(2):
        torch.testing.assert_close(tiles(record, number), tiles(alone, number), atol=1e-3, rtol=0)
    with pytest.raises(SettingError, match="row 3, expected a row from 0 to 1"):
        collect(adapter(model), {"src": x if batch_first else x.transpose(0, 1)}, row=3)


def test_texts_have_one_row_and_tensors_no_second_text() -> None:
    model = Holds("heads")
    with pytest.raises(SettingError, match="row 1, expected row 0: a text is a batch of one row"):
        collect(adapter(model), "the cat", row=1)
    with pytest.raises(SettingError, match="tensors alone"):
        collect(adapter(model), {"x": vectors(1, 3)}, "a dog")
