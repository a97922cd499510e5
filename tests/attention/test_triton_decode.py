"""A few queries against a cache, by kernels that cut the keys into parts: against float64, and what it compiles to.

An interpreted kernel that writes where it must not damages its process, so the checks run in one of their own: this
file as a script. Each says there what went wrong, and the test repeats it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attention.interpreter import Checks, disassembled, interpreted

pytest.importorskip("triton", reason="Triton is not installed")

from regard.attention.kernels.spans import KeySpans
from regard.attention.kernels.triton.decode import DECODE_TILINGS, MAX_ROWS, DecodeTiling, decode
from regard.errors import ShapeError

SMALL = DecodeTiling(16, 4, 1)
check = Checks(__file__)


Inputs = tuple[Tensor, Tensor, Tensor]


def drawn(B: int = 2, H: int = 4, HK: int = 2, T: int = 3, S: int = 85, D: int = 40, *, loud: float = 1.0) -> Inputs:
    source = torch.Generator().manual_seed(T + 7 * S + 11 * D + H)
    shapes = ((B, H, T, D), (B, HK, S, D), (B, HK, S, D))
    q, k, v = (torch.randn(shape, generator=source) for shape in shapes)
    return (q * loud).half().float(), k.half().float(), v.half().float()


def plain(q: Tensor, k: Tensor, v: Tensor, reach: KeySpans) -> dict[str, Tensor]:
    """Output, lse and scores in the inputs' dtype, by the definition."""
    group = q.size(1) // k.size(1)
    scores = (q * q.size(-1) ** -0.5) @ k.repeat_interleave(group, 1).mT
    scores = scores.masked_fill(~reach.dense(q.size(2), k.size(2)), -torch.inf)
    looks = (scores > -torch.inf).any(-1, keepdim=True)
    weights = scores.softmax(-1).masked_fill(~looks, 0.0)
    return {"output": weights @ v.repeat_interleave(group, 1), "lse": scores.logsumexp(-1), "scores": scores}


def found(inputs: Inputs, reach: KeySpans, **how: Any) -> dict[str, Tensor]:
    """The same from the kernels."""
    settings: dict[str, Any] = {"tiling": SMALL, "splits": 3, "wants_scores": True} | how
    output, lse, scores = decode(*inputs, reach, inputs[0].size(-1) ** -0.5, **settings)
    return {"output": output, "lse": lse} | ({} if scores is None else {"scores": scores})


def agrees(inputs: Inputs, reach: KeySpans, dtype: torch.dtype = torch.float32, **how: Any) -> None:
    """No further from float64 than twice plain PyTorch in this dtype is, or than some roundings of size 1."""
    low: Inputs = tuple(x.to(dtype) for x in inputs)  # type: ignore[assignment]
    wide: Inputs = tuple(x.double() for x in inputs)  # type: ignore[assignment]
    want, near = plain(*wide, reach), plain(*low, reach)
    got = found(low, reach, **how)
    rounding = 5e-6 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
    for name, mine in got.items():
        exact = want[name]
        assert mine.shape == exact.shape and mine.dtype == (dtype if name == "output" else torch.float32), name
        known = exact.isfinite()
        assert torch.equal(mine[~known].double(), exact[~known]), f"{name}: -inf in other places"
        if known.any():
            off, allowed = (float((x - exact)[known].abs().max()) for x in (mine, near[name]))
            allowed = max(2 * allowed, rounding * max(1.0, float(exact[known].abs().max())))
            assert off <= allowed, f"{name} is off by {off:.1e}, allowed {allowed:.1e}"


def both(inputs: Inputs, reach: KeySpans, **how: Any) -> None:
    agrees(inputs, reach, torch.float32, **how)
    agrees(inputs, reach, torch.float16, **how)


@check
def check_one_query() -> None:
    both(drawn(T=1), KeySpans())
    both(drawn(T=1, H=1, HK=1, B=1), KeySpans(shift_hi=85))
    both(drawn(T=1, S=1), KeySpans())


@check
def check_any_number_of_parts() -> None:
    inputs = drawn(T=1)
    for splits in (1, 2, 4, 6, 100):  # 85 keys are 6 tiles
        both(inputs, KeySpans(), splits=splits)
    both(inputs, KeySpans(), splits=None)
    agrees(drawn(T=1, B=1, H=1, HK=1, S=300, D=16), KeySpans(), splits=None)


@check
def check_the_walks_that_ship() -> None:
    for D in (16, 32, 64, 128, 256):
        agrees(drawn(D=D, S=150), KeySpans(shift_hi=148), tiling=None)
    agrees(drawn(D=64, S=300), KeySpans(shift_hi=298), torch.float16, tiling=None)
    assert set(DECODE_TILINGS) == {2**n for n in range(5, 11)}


@check
def check_causal_and_windows() -> None:
    both(drawn(), KeySpans(shift_hi=83))  # the last of three queries sees the last key
    both(drawn(), KeySpans(shift_hi=40))
    both(drawn(), KeySpans(shift_lo=60, shift_hi=83))
    both(drawn(), KeySpans(shift_lo=33, shift_hi=35))  # three keys in all
    both(drawn(), KeySpans(shift_hi=-1))  # the first two queries see nothing
    both(drawn(), KeySpans(shift_lo=200))  # and here nobody does
    both(drawn(), KeySpans(shift_hi=-9))


@check
def check_told_ends() -> None:
    lengths = torch.tensor([0, 71], dtype=torch.int32)[:, None, None].expand(2, 1, 3)
    both(drawn(), KeySpans(lo=0 * lengths, hi=lengths))
    both(drawn(), KeySpans(shift_hi=83, lo=0 * lengths + 50, hi=lengths))
    both(drawn(), KeySpans(lo=0 * lengths + 50, hi=0 * lengths + 30))
    source = torch.Generator().manual_seed(1)
    lo = torch.randint(0, 85, (1, 4, 3), generator=source, dtype=torch.int32)
    both(drawn(), KeySpans(lo=lo, hi=lo + torch.tensor([5, -1, 40], dtype=torch.int32)))


@check
def check_documents() -> None:
    asked = torch.arange(85, dtype=torch.int32)[None] // 30
    both(drawn(), KeySpans(query_docs=torch.tensor([[0, 2, 9]], dtype=torch.int32), key_docs=asked))
    asking = torch.tensor([[0, 2, 1], [1, 1, 2]], dtype=torch.int32)
    both(drawn(), KeySpans(shift_hi=60, query_docs=asking, key_docs=torch.cat([asked, asked.flip(1)])))


@check
def check_rows_of_every_number() -> None:
    both(drawn(B=1, H=6, HK=2, T=5), KeySpans(shift_hi=81))  # 15
    both(drawn(B=1, H=8, HK=1, T=3), KeySpans(shift_hi=83))  # 24
    both(drawn(B=1, H=4, HK=1, T=16), KeySpans(shift_hi=70))  # 64


@check
def check_huge_and_equal_scores() -> None:
    agrees(drawn(loud=1e3), KeySpans(shift_hi=83))
    agrees(drawn(loud=1e4), KeySpans())
    q, k, v = drawn()
    both((q, k[:, :, :1].expand_as(k).contiguous(), v), KeySpans())


@check
def check_a_cache_in_another_order_and_one_longer_than_it_is_filled() -> None:
    q, k, v = drawn()
    want = found((q, k, v), KeySpans(shift_hi=83))
    room = [torch.full((2, 200, 2, 40), torch.nan) for _ in range(2)]
    for cache_, x in zip(room, (k, v), strict=True):
        cache_[:, :85] = x.transpose(1, 2)
    apart = [x[:, :85].transpose(1, 2) for x in room]
    got = found((q.mT.contiguous().mT, apart[0], apart[1]), KeySpans(shift_hi=83))
    for name, x in want.items():
        assert torch.equal(x, got[name]), name


@check
def check_scores_only_where_wanted_and_the_rest_the_same() -> None:
    for reach in (KeySpans(shift_hi=83), KeySpans(shift_lo=20)):
        want, got = (found(drawn(), reach, wants_scores=wants) for wants in (True, False))
        assert set(got) == {"output", "lse"}
        assert all(torch.equal(x, want[name]) for name, x in got.items())


@check
def check_whatever_lay_in_the_outputs_is_overwritten() -> None:
    empty = torch.empty
    torch.empty = lambda *args, **options: empty(*args, **options).fill_(torch.nan)
    told = torch.full((2, 1, 3), 40, dtype=torch.int32)
    try:
        for reach in (
            KeySpans(),
            KeySpans(shift_lo=20, shift_hi=60),
            KeySpans(lo=told, hi=told + 9),
            KeySpans(shift_lo=99),
        ):
            agrees(drawn(), reach)
    finally:
        torch.empty = empty


@interpreted
@pytest.mark.parametrize("part", range(2))
def test_in_the_interpreter(part: int) -> None:
    check.repeat(part, parts=2)


def test_too_many_rows_are_refused_in_words() -> None:
    with pytest.raises(ShapeError, match=f"33 queries of 2 heads that share keys, expected at most {MAX_ROWS} rows"):
        decode(*drawn(T=33), KeySpans(), 1.0, False)


@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("D", [64, 128, 256])
def test_compiles_for_hopper_without_spills_and_fetches_ahead(D: int, scores: bool) -> None:
    import triton
    from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]
    from triton.compiler import ASTSource  # type: ignore[import-untyped]

    from regard.attention.kernels.triton.decode import attend_part

    tiling = DECODE_TILINGS[2 * D]
    constants: dict[str, Any] = {"D": D, "BD": D, "BM": 16, "BN": tiling.keys, "ENDS": False, "DOCUMENTS": False}
    constants |= {"CAPPED": False}
    constants |= dict.fromkeys(("LO", "HI", "QDOC", "KDOC"), None) | ({} if scores else {"SCORES": None})
    types = dict.fromkeys(("Q", "K", "V"), "*bf16") | dict.fromkeys(("SCORES", "PEAKS", "TOTALS", "SUMS"), "*fp32")
    types |= {"c": "fp32", "g": "fp32", "scale": "fp32"}
    names = attend_part.arg_names
    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in names}
    aligned = [name for name in names if signature[name].startswith("*") or name.startswith("stride")]
    source = ASTSource(
        attend_part, signature, constants, attrs={(names.index(n),): [["tt.divisibility", 16]] for n in aligned}
    )
    options = {"num_warps": tiling.warps, "num_stages": tiling.stages}
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    sass = disassembled(built.asm["cubin"])
    assert "HMMA" in sass, "the tensor cores multiply"
    assert "LDGSTS.E.BYPASS.128" in sass, "keys are fetched ahead, 16 bytes at a time"
    assert "LDL" not in sass and "STL" not in sass, "registers spilled"
    assert 2 * built.metadata.shared <= 227 * 1024, "two programs find room on a multiprocessor"


if __name__ == "__main__":
    check.run()
