"""Models that are not ours, heard where they call torch's own attention, without a change to their code.

F.scaled_dot_product_attention and nn.MultiheadAttention are what such models call. A torch function mode sees the
calls; the output is that of the call itself, and what was attended is computed beside it from the same queries and
keys.
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
from regard.attention.tap import is_heard, report
from regard.errors import BackendError

_telling: ContextVar[bool] = ContextVar("regard_telling", default=False)


@contextmanager
def overheard(model: nn.Module) -> Iterator[None]:
    """Report torch's own attention, wherever a module of this model calls it, to whoever listens to that module.

    A transformers model that attends through "regard" reports by itself, so nothing is installed.
    """
    if _reports(model):
        yield
        return
    if any(hasattr(module, "_orig_mod") for module in model.modules()):
        advice = "Listen to it before torch.compile."
        raise BackendError("a compiled model", "one that is not", where="capture", advice=advice)
    within: list[nn.Module] = []  # the modules whose forward is running, innermost last
    hooks = []
    for module in model.modules():
        hooks.append(module.register_forward_pre_hook(lambda who, _: within.append(who)))
        hooks.append(module.register_forward_hook(lambda *_: _leave(within), always_call=True))
    try:
        with _Ear(within):
            yield
    finally:
        for hook in hooks:
            hook.remove()


def _reports(model: nn.Module) -> bool:
    """Whether a transformers model attends through "regard", and nowhere through a module of torch's own."""
    through = getattr(getattr(model, "config", None), "_attn_implementation", None) == "regard"
    return through and not any(isinstance(module, nn.MultiheadAttention) for module in model.modules())


def _leave(within: list[nn.Module]) -> None:
    within.pop()


class _Ear(TorchFunctionMode):
    """Sees every call of a torch function while it is on, and speaks of attention alone."""

    def __init__(self, within: list[nn.Module]) -> None:
        super().__init__()
        self.within = within

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _HEARD or _telling.get() or not self.within or not is_heard(self.within[-1]):
            return func(*args, **kwargs)
        token = _telling.set(True)  # an ear around this one would tell the same listeners again
        try:
            return _HEARD[func](self.within[-1], func(*args, **kwargs), args, kwargs)
        finally:
            _telling.reset(token)


class _Asked(NamedTuple):
    """What a call compares and averages: q (..., T, D), k and v (..., S, D)."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask
    bias: Tensor | None
    scale: float | None
    dropout: float

    def told(self, who: nn.Module) -> Tensor | None:
        """Let the listeners hear it; the average by other weights, if somebody answered with some."""
        own: list[Tensor] = []

        def compute(observe: Observe) -> Attended:
            added = None if self.bias is None else DenseBias(self.bias)
            with torch.set_grad_enabled(torch.is_grad_enabled() and observe.weights):
                score = ScaledDot(self.scale)
                got = attend(self.q, self.k, self.v, score=score, mask=self.mask, bias=added, observe=observe)
            own.append(got.output)
            return got

        found = report(who, compute, self.v, self.dropout).output
        return None if found is own[0] else found


def _sdpa(who: nn.Module, output: Tensor, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    mask, bias = _told(given.get("attn_mask"))
    if given.get("is_causal"):
        mask = mask & Window(None, 0, offset=0)  # torch's begins top left
    q, k, v = given["query"], given["key"], given["value"]
    changed = _Asked(q, k, v, mask, bias, given.get("scale"), given.get("dropout_p", 0.0)).told(who)
    return output if changed is None else changed


def _multi_head(
    who: nn.Module, output: tuple[Tensor, Tensor | None], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Tensor, Tensor | None]:
    """F.multi_head_attention_forward projects, splits, attends and joins: done again here, for those who listen."""
    bound = signature(F.multi_head_attention_forward).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    for name in ("bias_k", "bias_v", "static_k", "static_v"):
        if given[name] is not None:
            raise BackendError(f"nn.MultiheadAttention with {name}", "one without", where="capture")
    if given["add_zero_attn"]:
        raise BackendError("nn.MultiheadAttention with add_zero_attn", "one without", where="capture")
    alone = given["query"].dim() == 2  # (T, E), without a batch
    streams = [given[name].unsqueeze(1) if alone else given[name] for name in ("query", "key", "value")]
    q, k, v = (_split(x, given["num_heads"]) for x in _projected(streams, given))
    mask, bias = _shown(given, q, k)
    changed = _Asked(q, k, v, mask, bias, None, given["dropout_p"] if given["training"] else 0.0).told(who)
    if changed is None:
        return output
    joined = changed.permute(2, 0, 1, 3).flatten(2)  # (T, B, E)
    said = F.linear(joined, given["out_proj_weight"], given["out_proj_bias"])
    return said.squeeze(1) if alone else said, output[1]


_HEARD: dict[Any, Callable[..., Any]] = {
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
    return [F.linear(x, matrix, own) for x, matrix, own in zip(streams, matrices, biases, strict=True)]


def _split(x: Tensor, heads: int) -> Tensor:
    """(T, B, E) to (B, heads, T, E / heads)."""
    return x.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)


def _shown(given: Mapping[str, Any], q: Tensor, k: Tensor) -> tuple[Mask, Tensor | None]:
    """Its masks say True where a query may not look; floats are added."""
    pairs, padding = given["attn_mask"], given["key_padding_mask"]
    mask: Mask = Everything()
    bias: Tensor | None = None
    if pairs is not None:
        pairs = pairs.unflatten(0, q.shape[:2]) if pairs.dim() == 3 else pairs
        mask, bias = _told(~pairs if pairs.dtype == torch.bool else pairs)
    if padding is not None:
        padding = padding.reshape(-1, 1, 1, k.size(-2))
        more, added = _told(~padding if padding.dtype == torch.bool else padding)
        mask = mask & more
        bias = added if bias is None else bias if added is None else bias + added
    return mask, bias


def _told(given: Tensor | None) -> tuple[Mask, Tensor | None]:
    """torch's one tensor as a mask, which says where to look, or as a bias, which is added."""
    if given is None:
        return Everything(), None
    return (Dense(given), None) if given.dtype == torch.bool else (Everything(), given)
