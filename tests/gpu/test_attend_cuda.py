"""The same average on a GPU: every backend against plain in float64 there, and memory that stays linear."""

import pytest
import torch
from torch import Tensor

from regard.attention import Attended, Observe, attend, biases, masks, positions, scores, windows

pytestmark = pytest.mark.gpu

ALL = Observe(top=5, entropy=True, received=True, thumbnail=(16, 16), weights=True)
FIELDS = ("output", "lse", "entropy", "received", "thumbnail", "weights")

MASKS = {
    "everything": lambda T, S: None,
    "causal": lambda T, S: masks.Causal(),
    "window": lambda T, S: masks.Window(17, 5),
    "padding": lambda T, S: masks.Padding([S, S // 3], [T, T // 2]),
    "causal and padding": lambda T, S: masks.Causal() & masks.Padding([S, S // 2]),
    "documents": lambda T, S: masks.Documents(torch.arange(S) // 37, torch.arange(T) // 37),
    "dense": lambda T, S: masks.Dense(torch.rand(2, 1, T, S, generator=torch.Generator().manual_seed(0)) > 0.3),
}


def inputs(T: int, S: int, dtype: torch.dtype, heads: int = 4, key_heads: int = 2) -> list[Tensor]:
    torch.manual_seed(0)
    shapes = [(2, heads, T, 64), (2, key_heads, S, 64), (2, key_heads, S, 64)]
    return [torch.randn(shape, device="cuda").to(dtype) for shape in shapes]


def worst(got: Attended, truth: Attended, field: str) -> float:
    a, b = getattr(got, field).double(), getattr(truth, field).double()
    return float(torch.where(a == b, 0.0, a - b).abs().max())


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("sizes", [(128, 128), (100, 131), (1, 77)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("backend", ["stream", "sdpa"])
def test_error_is_at_most_twice_plain_pytorchs(
    backend: str, dtype: torch.dtype, sizes: tuple[int, int], name: str
) -> None:
    """Twice the error of the same formula in PyTorch's operations at that dtype, and a few ulp of the largest value."""
    q, k, v = inputs(*sizes, dtype)
    mask = MASKS[name](*sizes)
    truth = attend(q.double(), k.double(), v.double(), mask=mask, observe=ALL, backend="plain")
    usual = attend(q, k, v, mask=mask, observe=ALL, backend="plain")
    got = attend(q, k, v, mask=mask, observe=ALL, backend=backend)
    assert got.backend == backend
    for field in FIELDS:
        floor = torch.finfo(dtype if field == "output" else torch.float32).eps
        scale = float(getattr(truth, field).double().nan_to_num(0, 0, 0).abs().max())
        unit = 4 if field == "output" or backend == "stream" else 40  # statistics follow the fused kernel's lse
        assert worst(got, truth, field) <= 2 * worst(usual, truth, field) + unit * floor * max(scale, 1), field


@pytest.mark.parametrize("backend", ["plain", "stream", "sdpa", "auto"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_observing_changes_no_bit(backend: str, dtype: torch.dtype) -> None:
    q, k, v = inputs(300, 300, dtype)
    alone = attend(q, k, v, mask=masks.Causal(), backend=backend)
    seen = attend(q, k, v, mask=masks.Causal(), backend=backend, observe=ALL)
    assert torch.equal(alone.output, seen.output)
    assert torch.equal(alone.lse, seen.lse)


@pytest.mark.parametrize("backend", ["stream", "sdpa"])
@pytest.mark.parametrize("name", ["everything", "causal", "padding"])
def test_gradients_equal_plains(backend: str, name: str) -> None:
    tensors = [x.requires_grad_() for x in inputs(96, 96, torch.float32)]

    def gradients(which: str) -> tuple[Tensor, ...]:
        got = attend(*tensors, mask=MASKS[name](96, 96), backend=which)
        loss = got.output.square().sum() + got.lse.nan_to_num(0, 0, 0).sum()
        return torch.autograd.grad(loss, tensors)

    for ours, plain in zip(gradients(backend), gradients("plain"), strict=True):
        torch.testing.assert_close(ours, plain, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("backend", ["plain", "stream", "sdpa"])
def test_nan_under_a_mask_never_matters(backend: str) -> None:
    q, k, v = inputs(64, 64, torch.float32)
    mask = masks.Padding([64, 20])
    clean = attend(q, k, v, mask=mask, observe=ALL, backend=backend)
    k, v = k.clone(), v.clone()
    k[1, :, 20:], v[1, :, 20:] = torch.nan, torch.inf
    poisoned = attend(q, k, v, mask=mask, observe=ALL, backend=backend)
    for field in FIELDS:
        assert torch.equal(getattr(clean, field), getattr(poisoned, field)), field


def test_every_score_window_and_bias_runs_there() -> None:
    q, k, v = inputs(50, 60, torch.float32, key_heads=4)
    cases = [
        {"score": scores.Additive(64, 32)},
        {"score": scores.Bilinear(64)},
        {"score": scores.Cosine(0.2)},
        {"score": scores.Match()},
        {"score": windows.Location(64, 100)},
        {"window": windows.LocalM(5)},
        {"window": windows.LocalP(64, 5)},
        {"bias": positions.Alibi(4)},
        {"bias": positions.Relative(4, 8)},
        {"bias": biases.DenseBias(torch.randn(50, 60))},
    ]
    for case in cases:
        case = {name: x.cuda() if isinstance(x, torch.nn.Module) else x for name, x in case.items()}
        plain, stream = (attend(q, k, v, **case, observe=ALL, backend=backend) for backend in ("plain", "stream"))
        for field in FIELDS:
            torch.testing.assert_close(getattr(stream, field), getattr(plain, field), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("backend", ["stream", "sdpa"])
def test_memory_is_linear_at_65536_tokens(backend: str) -> None:
    q, k, v = (torch.randn(1, 1, 65536, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    observe = Observe(top=8, entropy=True, received=True, thumbnail=(256, 256))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    attend(q, k, v, mask=masks.Causal(), observe=observe, backend=backend)
    assert torch.cuda.max_memory_allocated() - before < 400 * 2**20  # the map itself would be 17 GB
