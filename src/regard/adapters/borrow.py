"""A borrowed model is given back as it was: mode, attention implementation, gradients and random state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from regard.hub import NAME, enable

AUDIBLE = (NAME, "sdpa")  # attention implementations of transformers whose weights can be captured


@contextmanager
def borrowed(model: nn.Module, *, evaluate: bool = False, through_regard: bool = False) -> Iterator[None]:
    """Use a model until the block ends; whatever happens inside, it is as it was afterwards.

    evaluate        the model is in eval() meanwhile
    through_regard  a transformers model attends through "regard" meanwhile, so that its weights can be replaced and
                    differentiated; without, only where its own attention implementation cannot be captured

    Given back: the training mode of every submodule, requires_grad, the attention implementation of every config and
    sub-config, and the state of the global random number generators. Hooks are removed by whoever registers them.
    """
    modes = [(module, module.training) for module in model.modules()]
    learns = [(weight, weight.requires_grad) for weight in model.parameters()]
    devices = sorted({weight.device.index for weight, _ in learns if weight.device.type == "cuda"})
    with torch.random.fork_rng(devices), _audible(model, through_regard):
        try:
            if evaluate:
                model.eval()
            yield
        finally:
            for module, mode in modes:
                module.training = mode
            for weight, before in learns:
                weight.requires_grad_(before)


@contextmanager
def _audible(model: Any, through_regard: bool) -> Iterator[None]:
    """Let a transformers model attend in a way that can be captured."""
    own = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if own is None or own == NAME or (own in AUDIBLE and not through_regard):
        yield
        return
    before = [(config, config._attn_implementation) for config in _configs(model)]
    enable()
    try:
        model.set_attn_implementation(NAME)
        yield
    finally:
        for config, implementation in before:  # not by the setter, which would pass it on to sub-configs
            config._attn_implementation_internal = implementation


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
