"""`attend` under torch.compile equals the definition in float64: every score, mask, bias and normaliser, any shape."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from attention.cases import near, seeded
from regard.attention import Entmax, Observe, Sink, Sparsemax, attend, masks, scores
from regard.attention.biases import DenseBias
from regard.attention.masks import Mask
from regard.attention.positions import Alibi, Relative
from regard.attention.windows import LocalM, LocalP, Location

B, H, WIDTH, LONGEST = 2, 2, 4, 9
ALL = Observe(top=2, entropy=True, received=True, thumbnail=(2, 2), weights=True)


def cliff(q: Tensor, k: Tensor) -> Tensor:
    found = near(q, k)
    return found.masked_fill(found < -9, -torch.inf)


SCORES: dict[str, Callable[[], Any]] = {
    "scaled dot": lambda: None,
    "capped": lambda: scores.ScaledDot(cap=1.5),
    "dot": scores.Dot,
    "cosine": lambda: scores.Cosine(0.5),
    "bilinear": lambda: scores.Bilinear(WIDTH, WIDTH),
    "additive": lambda: scores.Additive(WIDTH, 3),
    "location": lambda: Location(WIDTH, LONGEST),
    "match": scores.Match,
    "callable": lambda: near,
    "cliff": lambda: cliff,
}
MASKS: dict[str, Callable[[Tensor, Tensor], Mask | None]] = {  # of lengths (B,) and a table (B, 1, T, S)
    "none": lambda lengths, table: None,
    "causal": lambda lengths, table: masks.Causal(),
    "past": lambda lengths, table: masks.Past(offset=0),
    "window": lambda lengths, table: masks.Window(2, 1),
    "padding": lambda lengths, table: masks.Padding(lengths),
    "causal, padding left": lambda lengths, table: masks.Causal() & masks.Padding(lengths, side="left"),
    "documents": lambda lengths, table: masks.Documents(
        torch.arange(table.size(-1)) // 3, torch.arange(table.size(-2)) // 3
    ),
    "table": lambda lengths, table: masks.Dense(table),
    "not the table": lambda lengths, table: masks.Not(masks.Dense(table)) | masks.Causal(),
    "keys": lambda lengths, table: masks.Keys(table.size(-1) - lengths.reshape(B, 1, 1, 1) - 1),
    "blocks": lambda lengths, table: masks.Blocks((lengths.reshape(B, 1, 1, 1) - 1) // 2, 2),
}
BIASES: dict[str, Callable[[Tensor], Any]] = {
    "none": lambda table: None,
    "alibi": lambda table: Alibi(H),
    "relative": lambda table: RELATIVE,
    "dense": lambda table: DenseBias(table.to(torch.float32) * 2 - 1),
    "hiding": lambda table: DenseBias(torch.zeros(table.shape).masked_fill(~table, -torch.inf)),
}
NORMALISERS: dict[str, Callable[[], Any]] = {
    "softmax": lambda: None,
    "sink": lambda: Sink(torch.tensor([0.5, -1.0])),
    "sparsemax": Sparsemax,
    "entmax": lambda: Entmax(1.5),
}
WINDOWS: dict[str, Callable[[], Any]] = {"local-m": lambda: LocalM(2), "local-p": lambda: LocalP(WIDTH, 2)}
RELATIVE = Relative(H, 3).requires_grad_(False)

CASES: list[dict[str, str]] = [
    *({"score": score} for score in SCORES),
    *({"score": score, "mask": mask} for score in ("scaled dot", "cliff", "additive") for mask in list(MASKS)[1:]),
    *({"bias": bias, "mask": "causal"} for bias in list(BIASES)[1:]),
    *({"normalise": normaliser, "mask": mask} for normaliser in list(NORMALISERS)[1:] for mask in ("none", "past")),
    *({"window": window, "mask": mask} for window in WINDOWS for mask in ("none", "padding", "table")),
]


def inputs(number: int, score: str, poison: bool) -> list[Tensor]:
    """q, k, v, lengths and a table of any shape; poisoned: padded values are no numbers."""
    source, rng = seeded(number), random.Random(number)
    T, S = rng.randint(2, LONGEST), rng.randint(2, LONGEST)
    q, k, v = (torch.randn(B, H, n, WIDTH, generator=source) for n in (T, S, S))
    if score == "match":
        q, k = (x.sign() * torch.tensor([1.0, 1, 0, 0]) for x in (q, k))
    lengths = torch.randint(1, S + 1, (B,), generator=source)
    if poison:
        v = v.masked_fill((torch.arange(S) >= lengths.reshape(B, 1, 1)).unsqueeze(-1), torch.nan)
    return [q, k, v, lengths, torch.rand(B, 1, T, S, generator=source) < 0.6]


def doubled(x: Any) -> Any:
    return x.double() if isinstance(x, torch.nn.Module) else x


def named(case: dict[str, str]) -> str:
    return ", ".join(case.values())


FEW = ("match", "cliff, padding", "additive, documents", "hiding, causal", "sink, past", "local-p, table")


@pytest.mark.parametrize("case", [case for case in CASES if named(case) in FEW], ids=named)
def test_some_compiled_equal_the_definition(case: dict[str, str]) -> None:
    compare(case, 84)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=named)
def test_compiled_equal_the_definition(case: dict[str, str]) -> None:
    """10,260 inputs in all."""
    compare(case, 180)


def test_a_graph_serves_other_sizes() -> None:
    """No number of a map stands in it."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(
        lambda q: attend(q, q, score=scores.ScaledDot(cap=3.0)).output, backend=counter, dynamic=True
    )
    for length in range(5, 15):
        q = torch.randn(2, length, 3)
        torch.testing.assert_close(compiled(q), attend(q, q, score=scores.ScaledDot(cap=3.0)).output)
    assert counter.frame_count == 1


def compare(case: dict[str, str], inputs_each: int) -> None:
    """One function for each case, with sizes that its graph does not know; aot_eager, and inductor for some."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    score = SCORES[case.get("score", "scaled dot")]()
    window = WINDOWS[case["window"]]() if "window" in case else None
    mask_name = case.get("mask", "none")

    def run(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, table: Tensor, **exact: Any) -> dict[str, Any]:
        got = attend(
            q, k, v,
            score=exact.get("score", score), mask=MASKS[mask_name](lengths, table),
            bias=BIASES[case.get("bias", "none")](table), window=exact.get("window", window),
            normalise=NORMALISERS[case.get("normalise", "softmax")](), observe=ALL,
            backend=exact.get("backend", "auto"),
        )  # fmt: skip
        return {"output": got.output, "lse": got.lse, "entropy": got.entropy, "received": got.received,
                "thumbnail": got.thumbnail, "weights": got.weights, "sink": got.sink}  # fmt: skip

    number = zlib.crc32(repr(sorted(case.items())).encode())
    backend = "inductor" if number % 12 == 0 else "aot_eager"
    compiled = torch.compile(run, backend=backend, dynamic=True)
    poison = mask_name == "padding"
    drawn = [inputs(number + step, case.get("score", ""), poison) for step in range(inputs_each)]
    found = [compiled(*one) for one in drawn]
    exact = {"score": doubled(score), "window": doubled(window), "backend": "plain"}
    for one, got in zip(drawn, found, strict=True):
        want = run(*(x.double() if x.is_floating_point() else x for x in one), **exact)
        for name, theirs in want.items():
            if theirs is not None:
                torch.testing.assert_close(
                    got[name].double(), theirs, rtol=1e-4, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
                )
