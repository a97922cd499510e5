"""`attend` under torch.compile equals the definition in float64: every score, mask, bias and normaliser, any shape."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import Unsupported
from torch._dynamo.testing import CompileCounterWithBackend
from torch.library import opcheck

from attention.cases import near, seeded
from regard.attention import Entmax, Observe, Sink, Sparsemax, attend, mask_analysis, masks, scores
from regard.attention.biases import DenseBias
from regard.attention.inputs import prepare
from regard.attention.kernels import row_blocks, sdpa, stream
from regard.attention.kernels.operator_inputs import as_arguments
from regard.attention.kernels.statistics import request_of
from regard.attention.masks import Mask
from regard.attention.operator_arguments import OperatorArguments
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
    compare(case, 48)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=named)
def test_compiled_equal_the_definition(case: dict[str, str]) -> None:
    """10,080 inputs in all."""
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


STATISTICS = {
    "bare": Observe(),
    "top": Observe(top=2),
    "entropy": Observe(entropy=True),
    "received": Observe(received=True),
    "thumbnail": Observe(thumbnail=(3, 4)),
    "weights": Observe(weights=True),
    "all": ALL,
}
WHOLE = ("scaled dot, blocks", "cliff, keys", "relative, causal", "sink, past", "local-p, padding")


@pytest.mark.parametrize("case", [case for case in CASES if named(case) in WHOLE], ids=named)
def test_all_statistics_are_one_graph(case: dict[str, str]) -> None:
    assert_whole_graph(case, "all", "auto", compiler="eager")


@pytest.mark.parametrize("case", [case for case in CASES if named(case) == "sink, past"], ids=named)
def test_blocks_are_one_graph(case: dict[str, str], small_blocks: None) -> None:
    assert_whole_graph(case, "all", "stream")


@pytest.mark.long
@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("backend", ["auto", "stream"])
@pytest.mark.parametrize("case", CASES, ids=named)
def test_every_statistic_is_one_graph(case: dict[str, str], backend: str, statistic: str, small_blocks: None) -> None:
    if backend == "stream" and case.get("score") in ("callable", "cliff"):
        pytest.skip("refused in words")
    assert_whole_graph(case, statistic, backend)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks of a map of a few queries and keys."""
    for name, numbers in (("BLOCK_NUMBERS", 24), ("MAX_BLOCK_NUMBERS", 48), ("MIN_ROWS", 2)):
        monkeypatch.setattr(row_blocks, name, numbers)


def assert_whole_graph(case: dict[str, str], statistic: str, backend: str, compiler: str = "aot_eager") -> None:
    """fullgraph, and the very numbers of uncompiled code: outputs, statistics, gradients."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    score = SCORES[case.get("score", "scaled dot")]()
    window = WINDOWS[case["window"]]() if "window" in case else None
    sink = torch.tensor([0.5, -1.0], requires_grad=True)
    relative = Relative(H, 3)
    torch.nn.init.normal_(relative.table)

    def run(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, table: Tensor) -> list[Tensor]:
        bias, normalise = case.get("bias", "none"), case.get("normalise", "softmax")
        got = attend(
            q, k, v, score=score, mask=MASKS[case.get("mask", "none")](lengths, table),
            bias=relative if bias == "relative" else BIASES[bias](table), window=window,
            normalise=Sink(sink) if normalise == "sink" else NORMALISERS[normalise](),
            observe=STATISTICS[statistic], backend=backend,
        )  # fmt: skip
        tops = [] if got.top is None else [got.top.values, got.top.indices]
        others = [got.entropy, got.received, got.thumbnail, got.sink, got.weights]
        return [got.output, got.lse, *tops, *[one for one in others if one is not None]]

    modules = [one for one in (score, window, relative) if isinstance(one, torch.nn.Module)]
    learned = [sink, *(parameter for module in modules for parameter in module.parameters())]
    compiled = torch.compile(run, backend=compiler, dynamic=True, fullgraph=True)
    for number in range(2):
        q, k, v, lengths, table = inputs(number + 1, case.get("score", ""), False)
        found = []
        for function in (compiled, run):
            vectors = [x.clone().requires_grad_() for x in (q, k, v)]
            outputs = function(*vectors, lengths, table)
            total = outputs[0].square().sum() + outputs[1].masked_fill(outputs[1] == -torch.inf, 0.0).sin().sum()
            gradients = torch.autograd.grad(total, [*vectors, *learned], allow_unused=True)
            found.append([*outputs, *(torch.zeros(()) if one is None or not one.any() else one for one in gradients)])
        for got, want in zip(*found, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_code_of_a_users_own_in_blocks_is_refused_in_words() -> None:
    """Without fullgraph, the graph breaks there."""
    torch._dynamo.reset()
    q = torch.randn(2, 5, WIDTH)

    def run(q: Tensor) -> Tensor:
        return attend(q, q, score=near, backend="stream").output

    with pytest.raises(Unsupported, match="'stream' calls this score or normaliser, which is Python code of its own"):
        torch.compile(run, backend="eager", fullgraph=True)(q)
    torch.testing.assert_close(torch.compile(run, backend="eager")(q), run(q))


@pytest.mark.parametrize("name", ["statistics", "stream", "stream with dropout", "live"])
def test_operators_are_as_torch_expects_them(name: str) -> None:
    """Their schemas, meta kernels and gradients."""
    q, k = torch.randn(2, 4, 6, 8, requires_grad=True), torch.randn(2, 2, 7, 8, requires_grad=True)
    mask: Mask = masks.Causal() & masks.Padding(torch.tensor([3, 7]))
    if name == "live":
        mask = masks.Dense(torch.rand(2, 1, 6, 7) < 0.5) | mask
        packed = OperatorArguments([2, 4, 6, 7], [torch.zeros(1, dtype=torch.long)])
        opcheck(mask_analysis._live_operator, (*packed.all(), packed.text(mask), [2, 1]))
        return
    prepared, v = prepare(q, k, None, None, mask, Alibi(4), None)
    packed, form = as_arguments(prepared)
    if name == "statistics":
        request = packed.text(request_of(ALL))
        tensors, *numbers = packed.all()
        opcheck(sdpa._second_pass_operator, ([x.detach() for x in tensors], *numbers, form, request))
        return
    values, request = packed.text(v), packed.text(request_of(ALL))
    how: tuple[Any, ...] = (0.5, torch.tensor(3)) if "dropout" in name else (0.0, None)
    opcheck(stream._operator, (*packed.all(), values, form, request, *how))
    tensors, *numbers = packed.all()
    grads = torch.randn(2, 4, 6, 8), torch.randn(2, 4, 6)
    opcheck(stream._gradients, (*grads, [0, 1], [x.detach() for x in tensors], *numbers, values, form, *how))


@pytest.mark.parametrize("mask", ["causal", "documents"])
def test_a_graph_with_statistics_serves_other_sizes(mask: str) -> None:
    """Other lengths, batches and numbers of keys."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")

    def run(q: Tensor, k: Tensor, lengths: Tensor, table: Tensor) -> list[Tensor]:
        got = attend(q, k, mask=MASKS[mask](lengths, table), observe=Observe(top=2, received=True, thumbnail=(2, 2)))
        assert got.top is not None and got.received is not None and got.thumbnail is not None
        return [got.output, got.top.values, got.received, got.thumbnail]

    compiled = torch.compile(run, backend=counter, dynamic=True, fullgraph=True)
    for step in range(6):
        T, S, rows = 5 + step, 14 + 70 * step, 3 + step  # no two of the first sizes are equal: torch would keep them so
        q, k = torch.randn(rows, H, T, WIDTH), torch.randn(rows, H, S, WIDTH)
        lengths, table = torch.randint(1, S, (rows,)), torch.rand(rows, 1, T, S) < 0.6
        for got, want in zip(compiled(q, k, lengths, table), run(q, k, lengths, table), strict=True):
            torch.testing.assert_close(got, want)
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
                "thumbnail": got.thumbnail, "weights": got.weights, "sink": got.sink,
                "top": None if got.top is None else got.top.values}  # fmt: skip

    number = zlib.crc32(repr(sorted(case.items())).encode())
    backend = "inductor" if number % 12 == 0 else "aot_eager"
    compiled = torch.compile(run, backend=backend, dynamic=True, fullgraph=True)
    poison = mask_name == "padding"
    drawn = [inputs(number + step, case.get("score", ""), poison) for step in range(inputs_each)]
    # lengths of 2 to 9 meet every case of a window of 4; a longer text meets the usual one
    with torch._dynamo.config.patch(recompile_limit=24):
        found = [compiled(*one) for one in drawn]
    exact = {"score": doubled(score), "window": doubled(window), "backend": "plain"}
    for one, got in zip(drawn, found, strict=True):
        want = run(*(x.double() if x.is_floating_point() else x for x in one), **exact)
        for name, theirs in want.items():
            if theirs is not None:
                torch.testing.assert_close(
                    got[name].double(), theirs, rtol=1e-4, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
                )
