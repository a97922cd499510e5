"""Borrow a model and restore it afterwards: train/eval mode, attention implementation, requires_grad and RNG state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from regard.hub import NAME, enable, uses_interface

CAPTURABLE = (NAME, "sdpa")  # attention implementations of transformers whose weights can be captured


@contextmanager
def borrow_model(model: nn.Module, *, evaluate: bool = False, through_regard: bool = False) -> Iterator[None]:
    """Use a model until the block ends, then restore it, whatever happens inside.

    evaluate        put the model into eval() inside the block
    through_regard  make a transformers model attend through "regard" inside the block, so that its weights can be
                    replaced and differentiated; otherwise only where its own implementation cannot be captured

    Restored: the training mode of every submodule, requires_grad, the attention implementation of every config and
    sub-config, and the state of the global random number generators. Hooks are removed by whoever registers them.
    """
    modes = [(module, module.training) for module in model.modules()]
    requires_grad = [(weight, weight.requires_grad) for weight in model.parameters()]
    devices = sorted({weight.device.index for weight, _ in requires_grad if weight.device.type == "cuda"})
    with torch.random.fork_rng(devices), _capturable_attention(model, through_regard):
        try:
            if evaluate:
                model.eval()
            yield
        finally:
            for module, mode in modes:
                module.training = mode
            for weight, before in requires_grad:
                weight.requires_grad_(before)


@contextmanager
def _capturable_attention(model: Any, through_regard: bool) -> Iterator[None]:
    """Switch a transformers model to "regard", where its classes use the attention interface; "sdpa" can be captured as
    it is, and eager attention of classes that compute their own is captured where they do."""
    own = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if own is None or own == NAME or (own in CAPTURABLE and not through_regard):
        yield
        return
    configs = _configs(model)
    before = [(config, config._attn_implementation) for config in configs]
    computing_own = {id(one.config) for one in model.modules() if _computes_own(one)}
    enable()
    try:
        for config in configs:  # not by the setter, which would pass it on to sub-configs
            if id(config) not in computing_own:
                config._attn_implementation_internal = NAME
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation


def _computes_own(module: nn.Module) -> bool:
    """Whether this is a transformers model of a class that computes its own attention."""
    kind: Any = type(module)
    return hasattr(kind, "_supports_attention_backend") and not uses_interface(kind)


def _configs(model: nn.Module) -> list[Any]:
    """The configs of a transformers model and of its submodels, and their sub-configs, each once."""
    found: dict[int, Any] = {}
    every: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    left = [config for config in every if hasattr(config, "sub_configs")]
    while left:
        config = left.pop()
        if id(config) not in found:
            found[id(config)] = config
            left += [one for name in config.sub_configs if (one := getattr(config, name, None)) is not None]
    return list(found.values())
