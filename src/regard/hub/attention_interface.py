"""The attention interface for transformers: models with attn_implementation="regard" attend through `attend`.

    regard.hub.enable()
    model = AutoModel.from_pretrained(folder, attn_implementation="regard")
    with regard.capture(model, observe=Observe(top=8, entropy=True)) as heard: model(**inputs)

It supports every model that uses transformers' attention interface: grouped heads, position biases, caches.
`output_attentions=True` returns the weights, which fused attention there does not.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from regard.attention import Attended, Observe, attend, dispatch
from regard.attention.biases import DenseBias
from regard.attention.masks import Dense, Everything, Mask, Window
from regard.attention.scores import ScaledDot
from regard.errors import BackendError, SettingError

NAME = "regard"


def enable() -> None:
    """Register attn_implementation="regard" with transformers; a second call changes nothing."""
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
    except ImportError as error:
        raise SettingError(
            "transformers 4.57 or later is not installed",
            where="regard.hub.enable",
            advice="Run pip install 'regard[hub]'.",
        ) from error
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **more: Any,
) -> tuple[Tensor, Tensor | None]:
    """The function that transformers calls: query (B, H, T, D), key and value (B, Hk, S, D); returns (B, T, H, D), and
    the weights on request."""
    _expect_known(more)
    mask, bias = _mask(module, query, key, attention_mask, is_causal), None
    if attention_mask is not None and attention_mask.is_floating_point():
        bias = attention_mask if position_bias is None else attention_mask + position_bias
    elif position_bias is not None:
        bias = position_bias
    added = None if bias is None else DenseBias(bias[..., : key.size(-2)])

    def compute(observe: Observe) -> Attended:
        return attend(
            query, key, value, score=ScaledDot(scaling), mask=mask, bias=added, dropout=dropout, observe=observe
        )

    got = dispatch(module, compute, value, dropout, Observe(weights=_wants_weights(more)))
    weights = None if got.weights is None else got.weights.to(query.dtype)
    return got.output.transpose(1, 2).contiguous(), weights


def _mask(module: nn.Module, query: Tensor, key: Tensor, given: Tensor | None, is_causal: bool | None) -> Mask:
    """The given mask; without one, a causal module with several queries has a causal mask, and a single query after its
    cache sees everything."""
    if given is not None and not given.is_floating_point():
        return Dense(given[..., : key.size(-2)].bool())
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if given is None and causal and query.size(-2) > 1:
        return Window(None, 0, offset=0)
    return Everything()


def _wants_weights(more: dict[str, Any]) -> bool:
    """Whether the model was called with output_attentions=True, which transformers passes along or keeps."""
    if more.get("output_attentions"):
        return True
    from transformers.utils import output_capturing

    collected = output_capturing._active_collector.get()
    return bool(collected) and any("attentions" in name for name in collected)


def _expect_known(more: dict[str, Any]) -> None:
    for name, what in (("softcap", "a cap on the scores"), ("s_aux", "an attention sink"), ("cache", "a paged cache")):
        if more.get(name) is not None:
            raise BackendError(f"{what.capitalize()} ({name}) is not supported", where='attn_implementation="regard"')
