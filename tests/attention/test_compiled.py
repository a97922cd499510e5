"""When layers take kernels of our own: code compiled for a GPU, in half precision, that learns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from regard.attention import residual as gate
from regard.attention.residual import is_compiled_half_cuda


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were one that is compiled for."""
    monkeypatch.setattr(gate, "triton_unsupported_reason", lambda x: None)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)


def there(dtype: torch.dtype) -> Any:
    return SimpleNamespace(device=torch.device("cuda", 0), dtype=dtype)


@pytest.mark.usefixtures("on_a_gpu")
def test_half_precision_is_that_of_autocast_where_it_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_compiled_half_cuda(there(torch.float32))
    assert is_compiled_half_cuda(there(torch.bfloat16)) and is_compiled_half_cuda(there(torch.float16))
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: True)  # torch leaves it off where there is no GPU
    for inside, half in ((torch.bfloat16, True), (torch.float32, False)):
        monkeypatch.setattr(torch, "get_autocast_dtype", lambda device, inside=inside: inside)
        assert is_compiled_half_cuda(there(torch.float32)) == is_compiled_half_cuda(there(torch.float16)) == half


@pytest.mark.usefixtures("on_a_gpu")
def test_no_kernel_without_gradients() -> None:
    with torch.no_grad():
        assert not is_compiled_half_cuda(there(torch.bfloat16))


def test_a_cpu_takes_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3).bfloat16()
    assert not is_compiled_half_cuda(x)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.setattr(gate, "triton_unsupported_reason", lambda x: None)
    assert not is_compiled_half_cuda(x)


def test_what_is_not_compiled_takes_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "triton_unsupported_reason", lambda x: None)
    assert not is_compiled_half_cuda(there(torch.bfloat16))


def test_a_gpu_without_triton_takes_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.setattr(gate, "triton_unsupported_reason", lambda x: "it needs the package triton")
    assert not is_compiled_half_cuda(there(torch.bfloat16))
