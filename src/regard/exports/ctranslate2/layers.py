"""Blocks of ours as layers of CTranslate2's: the same matrices under other names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from ctranslate2.specs.common_spec import Activation  # type: ignore[import-untyped]
from torch import Tensor, nn

from regard.attention.layers import DecoderBlock, FeedForward, Fused, MultiHead, Separate
from regard.attention.positions import Rotary
from regard.models import Gated

Block = Any  # an EncoderBlock or a DecoderBlock, or a part of one
Make = Callable[..., Any]  # of CTranslate2's layer specifications
ACROSS = 16  # how wide the parts of a layer are that does nothing; a multiple of 16 suits every kernel


def layer(block: Block, make: Make) -> Any:
    """A block with all its weights."""
    project, rotary = block.self.project, block.self.rotary
    spec = make(
        ffn_glu=isinstance(block.feed, Gated),
        rms_norm=isinstance(block.after_self.norm, nn.RMSNorm),
        num_heads_kv=project.key_heads,
        head_dim=project.width,
        **({} if rotary is None else turned(rotary)),
    )
    attention(spec.self_attention, block.self, block.after_self.norm)
    if isinstance(block, DecoderBlock):
        attention(spec.attention, block.cross, block.after_cross.norm)
    feed(spec.ffn, block.feed, block.after_feed.norm)
    return spec


def turned(rotary: Rotary) -> dict[str, Any]:
    return {
        "rotary_dim": rotary.dim,
        "rotary_interleave": rotary.pairs == "neighbours",
        "rotary_base": rotary.base,
    }


def attention(spec: Any, heads: MultiHead, before: nn.Module) -> None:
    """Queries, keys and values are one matrix where heads look at themselves; keys and values are one across."""
    project = heads.project
    if isinstance(project, Fused):
        parts = [[project.joint], [heads.out]]
    else:
        assert isinstance(project, Separate)
        parts = [[project.query], [project.key, project.value], [heads.out]]
    norm(spec.layer_norm, before)
    for one, matrices in zip(spec.linear, parts, strict=True):
        linear(one, *matrices)


def feed(spec: Any, work: FeedForward | Gated, before: nn.Module) -> None:
    norm(spec.layer_norm, before)
    if isinstance(work, Gated):
        linear(spec.linear_0, work.gate)
        linear(spec.linear_0_noact, work.inner)
    else:
        linear(spec.linear_0, work.inner)
    linear(spec.linear_1, work.outer)


def norm(spec: Any, module: nn.Module) -> None:
    assert isinstance(module, nn.LayerNorm | nn.RMSNorm)
    spec.gamma = array(module.weight)
    if isinstance(module, nn.LayerNorm):
        spec.beta = array(module.bias)


def epsilon(module: nn.Module) -> float:
    """What a norm adds to the variance."""
    assert isinstance(module, nn.LayerNorm | nn.RMSNorm)
    return torch.finfo(torch.float32).eps if module.eps is None else module.eps


def activation(block: Block) -> Activation:
    bend = block.feed.activation
    if isinstance(bend, nn.GELU):
        return Activation.GELUTanh if bend.approximate == "tanh" else Activation.GELU
    return Activation.SWISH if isinstance(bend, nn.SiLU) else Activation.RELU


def linear(spec: Any, *modules: nn.Linear) -> None:
    """One matrix, or several on top of each other."""
    spec.weight = array(*(module.weight for module in modules))
    if modules[0].bias is not None:
        spec.bias = array(*(module.bias for module in modules))


def array(*tensors: Tensor) -> np.ndarray:
    """A copy: CTranslate2 quantises in place."""
    return torch.cat([tensor.detach().float().cpu() for tensor in tensors]).numpy().copy()


def identity(make: Make, width: int, heads: int) -> Any:
    """A layer that gives back what it gets, x + 0, without rotary positions.

    CTranslate2 adds positions to words unless its first layer turns them. So sinusoids and rotary positions go
    together where a layer comes first that neither turns nor changes anything.
    """
    spec = make(head_dim=ACROSS, rms_norm=True, pre_post_layer_norm=True)
    inside = heads * ACROSS
    shapes = {spec.self_attention: [(3 * inside, width), (width, inside)]}
    if hasattr(spec, "attention"):
        shapes[spec.attention] = [(inside, width), (2 * inside, width), (width, inside)]
    for part, sizes in shapes.items():
        for one, size in zip(part.linear, sizes, strict=True):
            one.weight = np.zeros(size, np.float32)
    spec.ffn.linear_0.weight = np.zeros((ACROSS, width), np.float32)
    spec.ffn.linear_1.weight = np.zeros((width, ACROSS), np.float32)
    for name, part in vars(spec).items():
        if name.endswith("layer_norm"):
            part.gamma = np.zeros(width, np.float32)
    return spec
