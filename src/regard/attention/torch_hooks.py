"""Torch hooks: intercept the attention of any PyTorch model, unchanged: F.scaled_dot_product_attention,
nn.MultiheadAttention, and eager attention, where a model computes its own softmax.

Hooks of the model's modules tell which one runs, and a torch function mode, on while the outermost one runs, sees the
calls. The output is that of the call itself; its attention is computed beside it, from the same queries and keys, and
reported to the listeners of the module that made the call. All of it belongs to the context that intercepts: the same
model in another thread or task goes on as if there were no hooks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from inspect import getsource, signature
from math import prod
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from regard.attention.attend import attend
from regard.attention.biases import DenseBias
from regard.attention.eager_hooks import FOLLOWED, EagerHooks, Frame
from regard.attention.mask_analysis import mask_of_table
from regard.attention.masks import Dense, Everything, Mask, Window
from regard.attention.observe import Attended, Observe
from regard.attention.scores import ScaledDot
from regard.attention.tap import (
    any_listeners,
    dispatch,
    dispatching,
    has_listeners,
    is_dispatching,
    is_in_graph,
    modules_of,
)
from regard.errors import BackendError

ATTENTION_NAME = re.compile(r"(Attention|Attn)(?!\w*Output$)")  # in the names of classes, those of attention modules
INTERFACE = "ALL_ATTENTION_FUNCTIONS"  # in the source of modules that call transformers' attention interface
REGARD = "regard"  # attn_implementation of a transformers model that attends through us
WRAPPERS = (nn.Softmax, nn.Dropout, nn.Identity)  # modules inside attention modules that compute none of it


_running: ContextVar[tuple[Frame, ...]] = ContextVar("regard_running", default=())  # innermost last
_mode: ContextVar[_AttentionMode | None] = ContextVar("regard_mode", default=None)  # on while a module runs
_interceptions: ContextVar[tuple[Interception, ...]] = ContextVar("regard_interceptions", default=())


class Interception:
    """An interception of one model: the attention modules that ran, and the eager attention that was followed."""

    ended = False
    eager: EagerHooks

    def __init__(self, model: nn.Module) -> None:
        self.called: dict[nn.Module, None] = {}
        others = [one for one in _interceptions.get() if not one.ended]
        self.eager = others[0].eager if others else EagerHooks()  # nested ones follow the same weights
        self._lock, self._count = Lock(), 0  # of modules that run, in all threads together
        self._hooks = []
        for module in model.modules():
            self._hooks.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
            self._hooks.append(module.register_forward_hook(self._leave, always_call=True))

    def end(self) -> None:
        """Take the hooks away, as soon as no module runs in any thread: each that was entered must be left."""
        with self._lock:
            self.ended = True
            if not self._count:
                self._remove_hooks()

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        if kwargs is None or self.ended or self not in _interceptions.get():
            return  # torch passes none to a thread that calls the module while another one adds or removes this hook
        with self._lock:
            self._count += 1
        if not _running.get():
            mode = _AttentionMode(self.eager)
            _mode.set(mode)
            mode.__enter__()
        _running.set((*_running.get(), Frame(module, _lengths(args, kwargs), self)))
        if any_listeners() and is_attention(module):
            self.called[module] = None

    def _leave(self, module: nn.Module, *_: Any) -> None:
        frames = _running.get()
        last = next((at for at in reversed(range(len(frames))) if frames[at].entered(module, self)), None)
        if last is None:
            return
        frames = frames[:last] + frames[last + 1 :]
        _running.set(frames)
        if not frames and (mode := _mode.get()) is not None:
            _mode.set(None)
            mode.__exit__(None, None, None)
        with self._lock:
            self._count -= 1
            if self.ended and not self._count:
                self._remove_hooks()

    def incomplete(self) -> list[nn.Module]:
        """The modules of which some eager attention was not heard."""
        return [module for module, count in self.eager.unmatched.items() if count]


@contextmanager
def intercept_attention(model: nn.Module, modules: Iterable[nn.Module] | None = None) -> Iterator[Interception | None]:
    """Report the attention that a module of this model computes by torch, or by a softmax of its own, to the listeners
    of that module. `modules`: its attention modules, where they are known.

    A transformers model that attends through "regard" everywhere reports by itself, so nothing is installed (None).
    Compiled code runs uncompiled meanwhile: see `TapListener.hooked`.
    """
    if reports_itself(model, modules):
        yield None
        return
    seen = Interception(model)
    _interceptions.set((*_interceptions.get(), seen))
    try:
        yield seen
    finally:
        seen.end()
        _interceptions.set(tuple(one for one in _interceptions.get() if one is not seen))


def is_attention(module: nn.Module) -> bool:
    """Whether this is an attention module, by the name of its class."""
    kind: Any = type(module)
    return _names_attention(kind)


@cache
def _names_attention(kind: Hashable) -> bool:
    assert isinstance(kind, type)
    return ATTENTION_NAME.search(kind.__name__) is not None


def attention_modules(model: nn.Module) -> dict[nn.Module, str]:
    """The innermost attention modules of a model, by the names of their classes, with their paths."""
    named = {module: path for module, path in modules_of(model).items() if is_attention(module)}
    outer = {path.rpartition(".")[0] for path in named.values()}
    outer |= {path[:at] for path in outer for at, sign in enumerate(path) if sign == "."}
    return {module: path for module, path in named.items() if path not in outer}


def reports_itself(model: nn.Module, modules: Iterable[nn.Module] | None = None) -> bool:
    """Whether every attention module of a transformers model (these, if they are known) attends through "regard"."""
    own = getattr(model, "config", None)
    if getattr(own, "_attn_implementation", None) != REGARD:
        return False
    innermost = list(attention_modules(model) if modules is None else modules)
    kinds: set[Any] = {type(module) for module in innermost}
    through = all(implementation_of(module, model) == REGARD for module in innermost)
    return bool(kinds) and through and all(map(_calls_interface, kinds))


def implementation_of(module: nn.Module, model: nn.Module) -> Any:
    """The attention implementation of a module, by its own config or the model's."""
    return getattr(getattr(module, "config", getattr(model, "config", None)), "_attn_implementation", None)


@cache
def _calls_interface(kind: Hashable) -> bool:
    """Whether the forward of a class of modules calls transformers' attention interface, by its source."""
    assert isinstance(kind, type)
    defining = next(one for one in kind.__mro__ if "forward" in vars(one))
    try:
        return INTERFACE in getsource(defining)
    except (OSError, TypeError):  # a class without a file: hooks will see its calls
        return False


def _lengths(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> frozenset[int]:
    """The possible lengths of the sequences among the inputs: (B, T, D), (T, B, D), (B, D, T), (B, H, W, D)."""
    shapes = [tuple(one.shape) for one in (*args, *kwargs.values()) if isinstance(one, Tensor) and one.dim() >= 2]
    pictures = {prod(shape[-3:-1]) for shape in shapes if len(shape) > 3}
    return frozenset(
        {size for shape in shapes for size in shape[-2:]} | {s[0] for s in shapes if len(s) == 3} | pictures
    )


class _AttentionMode(TorchFunctionMode):
    """Sees every call of a torch function while it is on, and handles those of attention."""

    def __init__(self, eager: EagerHooks) -> None:
        super().__init__()
        self.eager = eager

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if (func not in _HANDLERS and name not in FOLLOWED) or is_dispatching() or not any_listeners():
            return func(*args, **kwargs)
        with dispatching():  # an outer mode would report to the same listeners again
            return self._handle(func, name, func(*args, **kwargs), args, kwargs)

    def _handle(self, func: Callable[..., Any], name: str, result: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        running = [frame for frame in _running.get() if not isinstance(frame.module, WRAPPERS)]
        if not running:
            return result
        inner = running[-1]
        if func in _HANDLERS:
            return _HANDLERS[func](inner.module, result, args, kwargs) if has_listeners(inner.module) else result
        owner = next((frame for frame in reversed(running) if is_attention(frame.module)), None)
        frame = inner if owner is None or not has_listeners(owner.module) else owner
        return self.eager.see(name, args, kwargs, result, frame, None if owner is None else owner.module)


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
            differentiable = torch.is_grad_enabled() and (observe.weights or is_in_graph(module))
            with torch.set_grad_enabled(differentiable):
                score = ScaledDot(self.scale)
                got = attend(self.q, self.k, self.v, score=score, mask=self.mask, bias=bias, observe=observe)
            outputs.append(got.output)
            return got

        output = dispatch(module, compute, self.v, self.dropout).output
        unchanged = output is outputs[0] and (self.dropout > 0 or not is_in_graph(module))
        return None if unchanged else output


def _sdpa(module: nn.Module, output: Tensor, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    q, k, v, table = given["query"], given["key"], given["value"], given.get("attn_mask")
    mask, bias = _as_mask_or_bias(table)
    if table is not None and table.dtype == torch.bool and table.size(-1) == k.size(-2):
        mask = mask_of_table(table, k)
    if given.get("is_causal"):
        mask = mask & Window(None, 0, offset=0)  # torch's begins top left
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
