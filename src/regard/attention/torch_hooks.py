"""Torch hooks: intercept F.scaled_dot_product_attention and nn.MultiheadAttention of any PyTorch model, unchanged.

A torch function mode sees the calls. The output is that of the call itself; its attention is computed beside it, from
the same queries and keys, and reported to the listeners of the module that made the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from regard.attention.attend import attend
from regard.attention.biases import DenseBias
from regard.attention.masks import Dense, Everything, Mask, Window
from regard.attention.observe import Attended, Observe
from regard.attention.scores import ScaledDot
from regard.attention.tap import dispatch, has_listeners
from regard.errors import BackendError

_reentrant: ContextVar[bool] = ContextVar("regard_reentrant", default=False)


@contextmanager
def intercept_sdpa(model: nn.Module) -> Iterator[None]:
    """Report torch's own attention, wherever a module of this model calls it, to the listeners of that module.

    A transformers model that attends through "regard" reports by itself, so nothing is installed.
    """
    if _reports_itself(model):
        yield
        return
    if any(hasattr(module, "_orig_mod") for module in model.modules()):
        raise BackendError(
            "A compiled model cannot be intercepted",
            where="capture",
            advice="Capture the model itself, before torch.compile.",
        )
    running: list[nn.Module] = []  # the modules whose forward is running, innermost last
    hooks = []
    for module in model.modules():
        hooks.append(module.register_forward_pre_hook(lambda module, _: running.append(module)))
        hooks.append(module.register_forward_hook(lambda *_: _leave(running), always_call=True))
    try:
        with _SdpaMode(running):
            yield
    finally:
        for hook in hooks:
            hook.remove()


def _reports_itself(model: nn.Module) -> bool:
    """Whether a transformers model attends through "regard", and nowhere through a module of torch's own."""
    through = getattr(getattr(model, "config", None), "_attn_implementation", None) == "regard"
    return through and not any(isinstance(module, nn.MultiheadAttention) for module in model.modules())


def _leave(running: list[nn.Module]) -> None:
    running.pop()


class _SdpaMode(TorchFunctionMode):
    """Sees every call of a torch function while it is on, and handles those of attention."""

    def __init__(self, running: list[nn.Module]) -> None:
        super().__init__()
        self.running = running

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _HANDLERS or _reentrant.get() or not self.running or not has_listeners(self.running[-1]):
            return func(*args, **kwargs)
        token = _reentrant.set(True)  # an outer mode would report to the same listeners again
        try:
            return _HANDLERS[func](self.running[-1], func(*args, **kwargs), args, kwargs)
        finally:
            _reentrant.reset(token)


class _SdpaCall(NamedTuple):
    """The inputs of a call: q (..., T, D), k and v (..., S, D)."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask
    bias: Tensor | None
    scale: float | None
    dropout: float

    def report(self, module: nn.Module) -> Tensor | None:
        """Report the call to the listeners; the average by other weights, if one of them replaced the weights."""
        outputs: list[Tensor] = []

        def compute(observe: Observe) -> Attended:
            bias = None if self.bias is None else DenseBias(self.bias)
            with torch.set_grad_enabled(torch.is_grad_enabled() and observe.weights):
                score = ScaledDot(self.scale)
                got = attend(self.q, self.k, self.v, score=score, mask=self.mask, bias=bias, observe=observe)
            outputs.append(got.output)
            return got

        output = dispatch(module, compute, self.v, self.dropout).output
        return None if output is outputs[0] else output


def _sdpa(module: nn.Module, output: Tensor, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    mask, bias = _as_mask_or_bias(given.get("attn_mask"))
    if given.get("is_causal"):
        mask = mask & Window(None, 0, offset=0)  # torch's begins top left
    q, k, v = given["query"], given["key"], given["value"]
    replaced = _SdpaCall(q, k, v, mask, bias, given.get("scale"), given.get("dropout_p", 0.0)).report(module)
    return output if replaced is None else replaced


def _multi_head(
    module: nn.Module, output: tuple[Tensor, Tensor | None], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Tensor, Tensor | None]:
    """F.multi_head_attention_forward projects, splits, attends and joins: done again here, for the listeners."""
    bound = signature(F.multi_head_attention_forward).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    for name in ("bias_k", "bias_v", "static_k", "static_v"):
        if given[name] is not None:
            raise _unsupported(name)
    if given["add_zero_attn"]:
        raise _unsupported("add_zero_attn")
    unbatched = given["query"].dim() == 2  # (T, E)
    streams = [given[name].unsqueeze(1) if unbatched else given[name] for name in ("query", "key", "value")]
    q, k, v = (_split(x, given["num_heads"]) for x in _projected(streams, given))
    mask, bias = _masks_of(given, q, k)
    replaced = _SdpaCall(q, k, v, mask, bias, None, given["dropout_p"] if given["training"] else 0.0).report(module)
    if replaced is None:
        return output
    joined = replaced.permute(2, 0, 1, 3).flatten(2)  # (T, B, E)
    projected = F.linear(joined, given["out_proj_weight"], given["out_proj_bias"])
    return projected.squeeze(1) if unbatched else projected, output[1]


def _unsupported(option: str) -> BackendError:
    return BackendError(
        f"nn.MultiheadAttention with {option} cannot be captured",
        where="capture",
        advice="Choose other places, or build the module without that option.",
    )


_HANDLERS: dict[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: _sdpa,
    F.multi_head_attention_forward: _multi_head,
}


def _projected(streams: list[Tensor], given: Mapping[str, Any]) -> list[Tensor]:
    if given["use_separate_proj_weight"]:
        matrices = [given[f"{name}_proj_weight"] for name in "qkv"]
    else:
        matrices = given["in_proj_weight"].chunk(3)
    bias = given["in_proj_bias"]
    biases = [None] * 3 if bias is None else bias.chunk(3)
    return [F.linear(x, matrix, part) for x, matrix, part in zip(streams, matrices, biases, strict=True)]


def _split(x: Tensor, heads: int) -> Tensor:
    """(T, B, E) to (B, heads, T, E / heads)."""
    return x.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)


def _masks_of(given: Mapping[str, Any], q: Tensor, k: Tensor) -> tuple[Mask, Tensor | None]:
    """The masks of nn.MultiheadAttention as ours: its booleans are True where a key is hidden; floats are added."""
    pairs, padding = given["attn_mask"], given["key_padding_mask"]
    mask: Mask = Everything()
    bias: Tensor | None = None
    if pairs is not None:
        pairs = pairs.unflatten(0, q.shape[:2]) if pairs.dim() == 3 else pairs
        mask, bias = _as_mask_or_bias(~pairs if pairs.dtype == torch.bool else pairs)
    if padding is not None:
        padding = padding.reshape(-1, 1, 1, k.size(-2))
        more, added = _as_mask_or_bias(~padding if padding.dtype == torch.bool else padding)
        mask = mask & more
        bias = added if bias is None else bias if added is None else bias + added
    return mask, bias


def _as_mask_or_bias(given: Tensor | None) -> tuple[Mask, Tensor | None]:
    """torch's attn_mask: booleans are a mask, True where a query may look; floats are a bias."""
    if given is None:
        return Everything(), None
    return (Dense(given), None) if given.dtype == torch.bool else (Everything(), given)
