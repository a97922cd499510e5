"""Transformer blocks as CTranslate2 layer specifications: the same matrices under other names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from ctranslate2.specs.common_spec import Activation  # type: ignore[import-untyped]
from torch import Tensor, nn

from regard.attention.layers import DecoderBlock, FeedForward, FusedQKV, MultiHead, SeparateQKV
from regard.attention.positions import Rotary
from regard.errors import CheckpointError
from regard.models import SwiGLU

Block = Any  # an EncoderBlock or a DecoderBlock, or a part of one
SpecClass = Callable[..., Any]  # makes one of CTranslate2's layer specifications
IDENTITY_WIDTH = 16  # head width of an identity layer; a multiple of 16 suits every kernel


def block_spec(block: Block, make: SpecClass) -> Any:
    """The specification of a block, with all its weights."""
    project, rotary = block.self.project, block.self.rotary
    spec = make(
        ffn_glu=isinstance(block.feed, SwiGLU),
        rms_norm=isinstance(block.after_self.norm, nn.RMSNorm),
        num_heads_kv=project.key_heads,
        head_dim=project.width,
        **({} if rotary is None else rotary_options(rotary)),
    )
    set_attention(spec.self_attention, block.self, block.after_self.norm)
    if isinstance(block, DecoderBlock):
        set_attention(spec.attention, block.cross, block.after_cross.norm)
    set_feedforward(spec.ffn, block.feed, block.after_feed.norm)
    return spec


def rotary_options(rotary: Rotary) -> dict[str, Any]:
    return {
        "rotary_dim": rotary.dim,
        "rotary_interleave": rotary.pairs == "interleaved",
        "rotary_base": rotary.base,
    }


def set_attention(spec: Any, heads: MultiHead, before: nn.Module) -> None:
    """Self-attention has one matrix for queries, keys and values; cross-attention one for keys and values."""
    project = heads.project
    if not heads.is_plain:
        raise CheckpointError(
            "CTranslate2 attends by a softmax of scaled dot products alone, without sinks, caps and sparse weights",
            where="regard export",
            advice="Export to ONNX, which has them.",
        )
    if isinstance(project, FusedQKV):
        parts = [[project.joint], [heads.out]]
    else:
        assert isinstance(project, SeparateQKV)
        parts = [[project.query], [project.key, project.value], [heads.out]]
    set_norm(spec.layer_norm, before)
    for one, matrices in zip(spec.linear, parts, strict=True):
        set_linear(one, *matrices)


def set_feedforward(spec: Any, feedforward: FeedForward | SwiGLU, before: nn.Module) -> None:
    set_norm(spec.layer_norm, before)
    if isinstance(feedforward, SwiGLU):
        set_linear(spec.linear_0, feedforward.gate)
        set_linear(spec.linear_0_noact, feedforward.inner)
    else:
        set_linear(spec.linear_0, feedforward.inner)
    set_linear(spec.linear_1, feedforward.outer)


def set_norm(spec: Any, module: nn.Module) -> None:
    assert isinstance(module, nn.LayerNorm | nn.RMSNorm)
    spec.gamma = to_array(module.weight)
    if isinstance(module, nn.LayerNorm):
        spec.beta = to_array(module.bias)


def norm_eps(module: nn.Module) -> float:
    """The eps of a norm."""
    assert isinstance(module, nn.LayerNorm | nn.RMSNorm)
    return torch.finfo(torch.float32).eps if module.eps is None else module.eps


def activation_kind(block: Block) -> Activation:
    module = block.feed.activation
    if isinstance(module, nn.GELU):
        return Activation.GELUTanh if module.approximate == "tanh" else Activation.GELU
    return Activation.SWISH if isinstance(module, nn.SiLU) else Activation.RELU


def set_linear(spec: Any, *modules: nn.Linear) -> None:
    """One linear layer, or several concatenated."""
    spec.weight = to_array(*(module.weight for module in modules))
    if modules[0].bias is not None:
        spec.bias = to_array(*(module.bias for module in modules))


def to_array(*tensors: Tensor) -> np.ndarray:
    """A copy: CTranslate2 quantises in place."""
    return torch.cat([tensor.detach().float().cpu() for tensor in tensors]).numpy().copy()


def identity_layer(make: SpecClass, width: int, heads: int) -> Any:
    """A layer that returns its input, x + 0, without rotary positions.

    CTranslate2 adds positions to embeddings only if its first layer has no rotary positions. Sinusoids and rotary
    positions therefore work together if an identity layer without rotary positions comes first.
    """
    spec = make(head_dim=IDENTITY_WIDTH, rms_norm=True, pre_post_layer_norm=True)
    inside = heads * IDENTITY_WIDTH
    shapes = {spec.self_attention: [(3 * inside, width), (width, inside)]}
    if hasattr(spec, "attention"):
        shapes[spec.attention] = [(inside, width), (2 * inside, width), (width, inside)]
    for part, sizes in shapes.items():
        for one, size in zip(part.linear, sizes, strict=True):
            one.weight = np.zeros(size, np.float32)
    spec.ffn.linear_0.weight = np.zeros((IDENTITY_WIDTH, width), np.float32)
    spec.ffn.linear_1.weight = np.zeros((width, IDENTITY_WIDTH), np.float32)
    for name, part in vars(spec).items():
        if name.endswith("layer_norm"):
            part.gamma = np.zeros(width, np.float32)
    return spec
