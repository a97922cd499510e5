"""Order is put in as each formula says, at any length, and cached steps stand where they would have stood."""

import math

import pytest
import torch
from torch import Tensor

from regard.attention import Observe, attend, masks
from regard.attention.positions import Alibi, Learned, Relative, Rotary, Sinusoidal
from regard.errors import RegardError, SettingError, ShapeError


def test_sinusoidal_is_the_two_formulas_of_the_paper() -> None:
    table = Sinusoidal(8).table(torch.tensor([0, 1, 7, 100_000]))
    for row, position in zip(table, (0, 1, 7, 100_000), strict=True):
        for i in range(4):
            angle = position / 10000 ** (2 * i / 8)
            assert row[2 * i].item() == pytest.approx(math.sin(angle), abs=1e-9)
            assert row[2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-9)


def test_a_sinusoidal_shift_is_the_same_rotation_everywhere() -> None:
    """PE(pos + 3) is one fixed linear map of PE(pos): distances are the same everywhere."""
    places = torch.arange(50)
    here, there = Sinusoidal(8).table(places), Sinusoidal(8).table(places + 3)
    turn = torch.linalg.lstsq(here, there).solution
    torch.testing.assert_close(here @ turn, there)


@pytest.mark.parametrize("add", [Sinusoidal(8), Learned(8, 20)], ids=["sinusoidal", "learned"])
def test_a_step_has_the_position_it_has_in_one_pass(add: torch.nn.Module) -> None:
    x = torch.randn(2, 6, 8)
    whole = add(x)
    torch.testing.assert_close(torch.cat([add(x[:, :4]), add(x[:, 4:], offset=4)], 1), whole)
    shifted = add(x, offset=torch.tensor([0, 3]))
    torch.testing.assert_close(shifted[0], whole[0])
    torch.testing.assert_close(shifted[1], add(x[1], offset=3))


def test_a_position_past_the_learned_table_is_refused() -> None:
    table = Learned(8, max_length=5)
    table(torch.randn(1, 5, 8))
    with pytest.raises(ShapeError, match="position 5, expected at most 4, since max_length=5"):
        table(torch.randn(1, 6, 8))
    with pytest.raises(ShapeError, match="position 7"):
        table(torch.randn(2, 2, 8), offset=torch.tensor([0, 6]))


@pytest.mark.parametrize("pairs", ["halves", "interleaved"])
def test_rotary_scores_depend_on_the_distance_alone(pairs: str) -> None:
    turn = Rotary(8, pairs=pairs)
    q, k = torch.randn(8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)

    def score(i: int, j: int) -> Tensor:
        return turn(q.view(1, 8), offset=i)[0] @ turn(k.view(1, 8), offset=j)[0]

    torch.testing.assert_close(score(5, 3), score(1005, 1003))
    assert not torch.allclose(score(5, 3), score(5, 4))
    torch.testing.assert_close(turn(q.view(1, 8), offset=77).norm(), q.norm())


def test_rotary_is_a_complex_product_of_each_pair() -> None:
    x = torch.randn(3, 5, 6, dtype=torch.float64)
    angle = torch.arange(5)[:, None] / 10000 ** (torch.arange(0, 6, 2).double() / 6)
    turn = torch.polar(torch.ones_like(angle), angle)
    interleaved = torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (3, 2))) * turn).flatten(-2)
    torch.testing.assert_close(Rotary(6, pairs="interleaved")(x), interleaved)
    a, b = x.chunk(2, -1)
    halves = torch.complex(a.contiguous(), b.contiguous()) * turn
    torch.testing.assert_close(Rotary(6)(x), torch.cat([halves.real, halves.imag], -1))
    partial = Rotary(4)(x)
    assert torch.equal(partial[..., 4:], x[..., 4:]) and not torch.allclose(partial[..., 1:, :4], x[..., 1:, :4])


def test_alibi_slopes_are_the_papers() -> None:
    torch.testing.assert_close(Alibi(8).slopes, torch.tensor([2.0**-h for h in range(1, 9)], dtype=torch.float64))
    twelve = [2.0**-h for h in range(1, 9)] + [2.0 ** (-h / 2) for h in (1, 3, 5, 7)]
    torch.testing.assert_close(Alibi(12).slopes, torch.tensor(twelve, dtype=torch.float64))


@pytest.mark.parametrize("backend", ["plain", "stream", "sdpa"])
@pytest.mark.parametrize("kind", ["alibi", "relative"])
def test_biases_by_distance_against_a_double_loop(backend: str, kind: str) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 4, 8, dtype=torch.float64), torch.randn(2, 3, 6, 8, dtype=torch.float64)
    bias = Alibi(3) if kind == "alibi" else Relative(3, max_distance=2).double()
    if isinstance(bias, Relative):
        torch.nn.init.normal_(bias.table)
        bias.requires_grad_(False)
    scores = q @ k.mT / math.sqrt(8)
    for h in range(3):
        for i in range(4):
            for j in range(6):
                distance = j - (i + 2)  # cached keys lie left: query i stands at i + S - T
                if isinstance(bias, Relative):
                    scores[:, h, i, j] += bias.table[h, max(-2, min(2, distance)) + 2]
                else:
                    scores[:, h, i, j] -= bias.slopes[h] * abs(distance)
    got = attend(q, k, bias=bias, observe=Observe(weights=True), backend=backend)
    torch.testing.assert_close(got.weights, scores.softmax(-1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(got.output, scores.softmax(-1) @ k, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", [lambda o: Alibi(3, offset=o), lambda o: Relative(3, 2, offset=o)])
@pytest.mark.parametrize("backend", ["plain", "stream"])
def test_an_offset_for_each_row_equals_rows_alone(make, backend: str) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 6, 8)
    both = make(torch.tensor([0, 5]))
    if isinstance(both, Relative):
        torch.nn.init.normal_(both.table)
    together = attend(q, k, bias=both, backend=backend).output
    for row, offset in enumerate((0, 5)):
        alone = make(offset)
        if isinstance(alone, Relative):
            alone.table = both.table
        torch.testing.assert_close(together[row], attend(q[row : row + 1], k[row : row + 1], bias=alone).output[0])


@pytest.mark.parametrize("backend", ["plain", "stream"])
def test_relative_and_rotary_have_true_gradients(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.attention.kernels.row_blocks.BLOCK_NUMBERS", 20)
    monkeypatch.setattr("regard.attention.kernels.row_blocks.MAX_BLOCK_NUMBERS", 20)
    torch.manual_seed(0)
    q, k = (torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    relative, turn = Relative(2, max_distance=2).double(), Rotary(4)

    def run(q: Tensor, k: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        relative.__dict__["_parameters"]["table"] = table  # the very tensor that gradcheck moves
        got = attend(turn(q), turn(k), bias=relative, mask=masks.Causal(), backend=backend)
        return got.output, got.lse

    table = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(run, (q, k, table))


def test_bad_positions_are_refused() -> None:
    with pytest.raises(SettingError, match="dim=7, expected an even width"):
        Sinusoidal(7)
    with pytest.raises(SettingError, match="pairs='both'"):
        Rotary(8, pairs="both")
    with pytest.raises(ShapeError, match="width 4, expected a width of at least 8"):
        Rotary(8)(torch.randn(2, 4))
    with pytest.raises(ShapeError, match="3 heads, expected 4 heads"):
        attend(torch.randn(1, 3, 2, 8), torch.randn(1, 3, 2, 8), bias=Alibi(4))
    with pytest.raises(ShapeError, match=r"offsets \(3,\)"):
        Sinusoidal(8)(torch.randn(2, 4, 8), offset=torch.tensor([1, 2, 3]))
    with pytest.raises(RegardError, match="3 offsets"):
        attend(torch.randn(2, 3, 2, 8), torch.randn(2, 3, 2, 8), bias=Alibi(3, offset=torch.tensor([1, 2, 3])))
