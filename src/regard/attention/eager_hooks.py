"""Eager attention hooks: capture attention of models (of transformers, too) that compute the softmax themselves.

The scores that enter a softmax are followed through casts, dropout and reshapes to the product of their weights with
the values. If the softmax of these scores is what was multiplied there, the product is reported as the attention of the
module that computes it. The whole map is held meanwhile, so memory grows with T x S.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from regard.attention.attend import attend
from regard.attention.biases import DenseBias
from regard.attention.masks import Dense
from regard.attention.observe import Attended, Observe
from regard.attention.scores import Dot
from regard.attention.tap import dispatch, has_listeners, is_in_graph

SOFTMAX = frozenset({"softmax"})
SHAPES = frozenset(  # functions that move numbers about: applied to the scores as to the weights
    "view reshape flatten unflatten squeeze unsqueeze contiguous clone expand permute transpose __getitem__ view_as"
    " swapaxes movedim".split()
)
CASTS = frozenset({"to", "type", "type_as", "float", "half", "bfloat16", "double"})
DROPOUT = frozenset({"dropout"})
CHANGES = frozenset({"mul", "__mul__", "__rmul__", "masked_fill", "nan_to_num"})  # of the weights themselves
PRODUCTS = frozenset({"matmul", "__matmul__", "bmm", "einsum"})
FOLLOWED = SOFTMAX | SHAPES | CASTS | DROPOUT | CHANGES | PRODUCTS
HEAD_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads")  # attributes of attention modules
TOLERANCE = 16  # times the precision of the weights: how far a model's own softmax may be from ours


class Frame(NamedTuple):
    """A module whose forward is running, the lengths of the sequences that it was given, and who noted that it runs."""

    module: nn.Module
    lengths: frozenset[int]
    by: object

    def entered(self, module: nn.Module, by: object) -> bool:
        return self.module is module and self.by is by


@dataclass(frozen=True, eq=False)
class FollowedWeights:
    """Weights on their way from a softmax to their product with the values.

    scores   (..., T, S), the input of the softmax
    weights  (..., T, S), its result, before dropout
    dropout  its share
    owner    the attention module whose forward computed the softmax
    """

    scores: Tensor
    weights: Tensor
    owner: nn.Module | None
    dropout: float = 0.0


@dataclass(frozen=True, eq=False)
class Product:
    """A product of weights and values as (..., T, S) and (..., S, D), and the way back to the layout of its result."""

    followed: FollowedWeights
    values: Tensor
    restore: Callable[[Tensor], Tensor]


class NotReproduced(Exception):
    """The model did not multiply its values by the softmax of its scores, so its attention cannot be reproduced."""


class EagerHooks:
    """Follows weights from each softmax to its product; `unmatched` counts, by attention module, those without one."""

    def __init__(self) -> None:
        self.following = WeakTensorKeyDictionary()
        self.unmatched: dict[nn.Module, int] = {}
        self.matched: set[nn.Module] = set()
        self._lock = Lock()  # of the counts: tasks in several threads may share a capture

    def see(
        self,
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result: Any,
        frame: Frame,
        owner: nn.Module | None,
    ) -> Any:
        """Follow one call of a torch function; its result, or another average where a listener replaces the weights.

        `frame`: the running module that the call is reported for; `owner`: the innermost running attention module.
        """
        if not isinstance(result, Tensor):
            return result
        if name in SOFTMAX:
            self._begin(args, kwargs, result, owner)
        elif name in PRODUCTS:
            return self._end(name, args, result, frame)
        elif args and isinstance(args[0], Tensor) and (found := self.following.get(args[0])) is not None:
            self.following[result] = _follow(found, name, args, kwargs, result)
        return result

    def _begin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Tensor, owner: nn.Module | None) -> None:
        scores = args[0] if args else kwargs.get("input", kwargs.get("self"))
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if not isinstance(scores, Tensor) or result.dim() < 3 or dim not in (-1, result.dim() - 1):
            return
        self._count(owner, +1)
        self.following[result] = FollowedWeights(scores, result, owner)

    def _end(self, name: str, args: tuple[Any, ...], result: Tensor, frame: Frame) -> Any:
        module, lengths = frame.module, frame.lengths
        product = self._product(name, args, result)
        if product is None or (lengths and product.followed.weights.size(-2) not in lengths):
            return result
        if not has_listeners(module):
            return result
        product = _by_heads(product, module)
        try:
            replaced = _report(module, product, result)
        except NotReproduced:
            return result
        self.matched.add(module)
        self._count(product.followed.owner, -1)
        return result if replaced is None else replaced

    def _count(self, owner: nn.Module | None, change: int) -> None:
        if owner is not None:
            with self._lock:
                self.unmatched[owner] = self.unmatched.get(owner, 0) + change

    def _product(self, name: str, args: tuple[Any, ...], result: Tensor) -> Product | None:
        """The weights and values of a product, where its first factor are weights that were followed."""
        if name == "einsum":
            operands = args[1] if len(args) == 2 and isinstance(args[1], list | tuple) else args[1:]
            if len(operands) != 2 or not isinstance(args[0], str):
                return None
            first, second = operands
        elif len(args) == 2 and all(isinstance(one, Tensor) for one in args):
            first, second = args
        else:
            return None
        found = self.following.get(first)
        if found is None or found.scores.shape != found.weights.shape or found.weights.shape != first.shape:
            return None
        if name == "einsum":
            return _einsum_product(args[0], found, second)
        if second.dim() < 2 or second.size(-2) != first.size(-1):
            return None
        return Product(found, second, lambda output: output.reshape(result.shape))


def _follow(
    found: FollowedWeights, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Tensor
) -> FollowedWeights:
    """The same weights after one more function."""
    same = found.weights is args[0]  # no dropout so far: what was computed is what a listener should see

    def again(x: Tensor) -> Tensor:
        moved: Tensor = getattr(torch.Tensor, name)(x, *args[1:], **kwargs)
        return moved

    if name in DROPOUT:
        share = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        training = kwargs.get("training", args[2] if len(args) > 2 else True)
        return replace(found, dropout=float(share)) if training else replace(found, weights=result)
    if name in SHAPES:
        return replace(found, scores=again(found.scores), weights=result if same else again(found.weights))
    return replace(found, weights=result if same else again(found.weights))


def _einsum_product(equation: str, found: FollowedWeights, values: Tensor) -> Product | None:
    """For "bnij,jbnd->ibnd": weights (b, n, i, j), values (b, n, j, d), and the result's layout (i, b, n, d)."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    first, _, second = inputs.partition(",")
    if not arrow or "." in equation or found.weights.dim() != len(first):
        return None
    key, width = first[-1], [letter for letter in second if letter not in first]
    queries = [letter for letter in first if letter not in second]
    lead = [letter for letter in first[:-1] if letter in second]
    if key not in second or key in output or len(width) != 1 or len(queries) != 1:
        return None
    layout = [*lead, queries[0], key]
    order = [first.index(letter) for letter in layout]
    canonical = replace(found, scores=found.scores.permute(order), weights=found.weights.permute(order))
    values = values.permute([second.index(letter) for letter in (*lead, key, width[0])])
    names = [*lead, queries[0], width[0]]
    if sorted(names) != sorted(output):
        return None
    return Product(canonical, values, lambda mean: mean.permute([names.index(letter) for letter in output]))


def _by_heads(product: Product, module: nn.Module) -> Product:
    """(B H, T, S), as many models flatten it, by heads: (B, H, T, S)."""
    found = product.followed
    count = next((n for name in HEAD_COUNTS if isinstance(n := getattr(module, name, None), int)), 0)
    if found.weights.dim() != 3 or not count or found.weights.size(0) % count or product.values.dim() != 3:
        return product
    scores, weights, values = (
        x.unflatten(0, (-1, count)) if x.size(0) == found.weights.size(0) else x.unsqueeze(1)
        for x in (found.scores, found.weights, product.values)
    )
    return replace(
        product,
        followed=replace(found, scores=scores, weights=weights),
        values=values,
        restore=lambda output: product.restore(output.flatten(0, 1)),
    )


def _report(module: nn.Module, product: Product, result: Tensor) -> Tensor | None:
    """Report a product to the listeners; the average that the model goes on with, if it is another one."""
    found, values = product.followed, product.values
    lead, (T, S) = found.scores.shape[:-2], found.scores.shape[-2:]
    ours: list[Tensor] = []

    def compute(observe: Observe) -> Attended:
        # a score is the bias of a dot product of zeros: all statistics and records follow from that
        q, k = (torch.zeros(*lead, n, 1, device=found.scores.device) for n in (T, S))
        differentiable = torch.is_grad_enabled() and (observe.weights or is_in_graph(module))
        with torch.set_grad_enabled(differentiable):
            got = attend(
                q.to(values.dtype),
                k.to(values.dtype),
                values,
                score=Dot(),
                mask=Dense(found.weights.detach() > 0),
                bias=DenseBias(found.scores if found.scores.is_floating_point() else found.scores.float()),
                observe=observe | Observe(weights=True),
                backend="plain",
            )
        assert got.weights is not None
        precision = TOLERANCE * torch.finfo(found.weights.dtype).eps
        if not torch.allclose(
            got.weights.detach(), found.weights.detach().to(got.weights.dtype), atol=precision, rtol=0
        ):
            raise NotReproduced
        ours.append(got.output)
        return got

    output = dispatch(module, compute, values, found.dropout).output
    unchanged = output is ours[0] and (found.dropout > 0 or not is_in_graph(module))
    return None if unchanged else product.restore(output).to(result.dtype)
