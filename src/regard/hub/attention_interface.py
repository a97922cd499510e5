"""The attention interface for transformers: models with attn_implementation="regard" attend through `attend`.

    regard.hub.enable()
    model = AutoModel.from_pretrained(folder, attn_implementation="regard")
    with regard.capture(model, observe=Observe(top=8, entropy=True)) as heard: model(**inputs)

It supports every model that uses transformers' attention interface: grouped heads, position biases, caches, learned
sinks, soft caps, sparse keys. `output_attentions=True` returns the weights, which fused attention there does not.
A class that computes its own attention keeps doing so (as "eager"), and `capture` hears it there.

Every keyword that a model passes is consumed, known to change no number, or refused: none is swallowed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Hashable
from functools import cache, lru_cache
from inspect import getsource
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from regard.attention import Attended, Normaliser, Observe, Sink, attend, dispatch, mask_of_table
from regard.attention.biases import DenseBias
from regard.attention.masks import Blocks, Dense, Everything, Keys, Mask, Window
from regard.attention.scores import ScaledDot
from regard.errors import BackendError, SettingError, ShapeError
from regard.hub.transformers_version import INSTALL, has_transformers

NAME = "regard"

_NOTHING, _WEIGHTS = Observe(), Observe(weights=True)
_EVERYTHING = Everything()
_FIRST_CAUSAL = Window(None, 0, offset=0)  # causal from the first key on, as torch's is_causal

HARMLESS = {  # keywords that change no number of attention without flash kernels, and why
    "sliding_window": "the mask that comes with it has the window",
    "cu_seq_lens_q": "for kernels of variable length; other attention is called once a sequence, or has a mask",
    "cu_seq_lens_k": "as cu_seq_lens_q",
    "max_length_q": "as cu_seq_lens_q",
    "max_length_k": "as cu_seq_lens_q",
    "cu_seqlens": "as cu_seq_lens_q",
    "max_seqlen": "as cu_seq_lens_q",
    "seq_idx": "numbers of packed sequences, for recurrent layers",
    "position_ids": "already in the queries and keys, and in the mask of packed sequences",
    "position_embeddings": "already in the queries and keys",
    "cache_position": "already in the mask",
    "deterministic": "chooses a backward pass of flash kernels",
    "output_attentions": "consumed: it requests the weights",
    "output_hidden_states": "for the model's output",
    "output_router_logits": "for the model's output",
    "return_dict": "for the model's output",
    "use_cache": "keys and values of earlier calls are already in key and value",
    "past_key_values": "keys and values of earlier calls are already in key and value",
    "num_items_in_batch": "for the loss",
    "labels": "for the loss",
    "return_loss": "for the loss",
    "logits_to_keep": "for the model's output",
    "token_type_ids": "already in the embeddings or the mask",
    "mm_token_type_ids": "already in the embeddings, the positions or the mask",
    "inputs_embeds": "the embeddings, which the model has read",
    "input_ids": "the tokens, which the model has read",
    "pixel_values": "the picture, which the model has read",
    "image_grid_thw": "the layout of pictures, which is in positions and mask",
    "video_grid_thw": "as image_grid_thw",
    "image_sizes": "as image_grid_thw",
    "spatial_shapes": "as image_grid_thw",
    "interpolate_pos_encoding": "already in the embeddings",
    "prefix_length": "already in the mask",
    **dict.fromkeys(
        "max_new_tokens min_new_tokens max_length do_sample num_beams cache_implementation pad_token_id".split(),
        "for generation",
    ),
}


# their own code scales the output by what the sink leaves, and returns weights that sum to one
SCALES_OUTPUT = ("granite_swa", "granitemoe_swa")


def enable() -> None:
    """Register attn_implementation="regard" with transformers; a second call changes nothing."""
    if not has_transformers():
        raise SettingError("transformers is not installed", where="regard.hub.enable", advice=INSTALL)
    from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, attention_mask_of)
    if not hasattr(PreTrainedModel.get_correct_attn_implementation, "before_regard"):
        resolving = _resolving(PreTrainedModel.get_correct_attn_implementation)
        setattr(PreTrainedModel, "get_correct_attn_implementation", resolving)  # noqa: B010


def _resolving(before: Any) -> Any:
    """transformers' check of an attention implementation, where "regard" means another one to a class that computes
    its own attention: such a class would take our masks and attend by code that cannot read them."""

    def get_correct_attn_implementation(self: Any, requested: str | None, *rest: Any, **more: Any) -> str:
        if requested == NAME and not uses_interface(self.__class__):
            return "eager"
        found: str = before(self, requested, *rest, **more)
        return found

    get_correct_attn_implementation.before_regard = before  # type: ignore[attr-defined]
    return get_correct_attn_implementation


@cache
def uses_interface(kind: Hashable) -> bool:
    """Whether a class of transformers models attends through the attention interface, by the source of its module: one
    with attention modules of its own that never ask for an implementation, or with a class for each, does not. Nor does
    a part of a model that says so itself, in a module where other parts use the interface."""
    from transformers import PreTrainedModel

    assert isinstance(kind, type)
    fused = [getattr(kind, f"_supports_{name}", False) for name in ("sdpa", "flash_attn", "flex_attn")]
    if vars(kind).get("_supports_attention_backend") is False and not any(fused):
        return False
    for one in kind.__mro__:
        if one is PreTrainedModel:
            return True
        source = _source_of(one)  # none of a class that was typed into a notebook: its bases decide
        own = re.search(r"^class \w*Attention\w*\((nn\.)?Module\):", source, re.MULTILINE)
        by_class = re.search(r"_CLASSES\[(self\.)?config\._attn_implementation\]", source)
        if issubclass(one, PreTrainedModel) and (by_class or (own and "ALL_ATTENTION_FUNCTIONS" not in source)):
            return False
    return True


def attention_mask_of(*args: Any, config: Any = None, **how: Any) -> Tensor | None:
    """The mask that a model is given: booleans for models that are written for fused attention, for any other a tensor
    that is added to the scores, as eager attention expects. None, which means causal, is for models with sdpa, and for
    as many queries as keys: other calls without a mask are cross-attention."""
    from transformers.masking_utils import eager_mask, sdpa_mask

    fused = None if config is None else _fused_attention(config.__class__)
    if fused == "none":
        mask: Tensor | None = eager_mask(*args, config=config, **how)
        return mask
    if fused == "sdpa" and torch.compiler.is_compiling() and _is_merely_causal(how):
        return None  # where torch 2.13 and older write it out
    mask = sdpa_mask(*args, config=config, **how)
    # modules of a decoder that reads some texts in both directions say is_causal=False: there None would be no mask
    both_ways = getattr(config, "use_bidirectional_attention", False)
    queries, keys = how.get("q_length"), how.get("kv_length")
    if mask is None and (fused == "flash" or both_ways or (queries != keys and queries != 1)):
        mask = sdpa_mask(*args, config=config, **{**how, "allow_is_causal_skip": False})
        if mask is not None and not torch.compiler.is_compiling():
            _CAUSAL[mask] = True
    return mask


def _is_merely_causal(how: dict[str, Any]) -> bool:
    """Whether a model asks for a mask that is causal, with as many queries as keys, and nothing else."""
    from transformers.masking_utils import causal_mask_function

    square = how.get("q_length") is not None and how["q_length"] == how.get("kv_length")
    begins = all(isinstance(how.get(name, 0), int) and how.get(name, 0) == 0 for name in ("q_offset", "kv_offset"))
    usual = how.get("mask_function", causal_mask_function) is causal_mask_function and how.get("local_size") is None
    return square and begins and usual and how.get("attention_mask") is None and how.get("allow_is_causal_skip", True)


_CAUSAL: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""Masks that are known to be causal and nothing else, so that kernels need not read them. Compiled code knows none."""


def _fused_attention(kind: Hashable) -> str:
    """The fused attention that the models of a class of configs are written for: "sdpa", "flash" or "none"."""
    return _fused_attention_by_source(kind)


# to compilers: a constant, which is found by reading source files
_fused_attention._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _fused_attention_by_source(kind: Hashable) -> str:
    found = [one for one in _model_classes() if one.config_class is kind]
    if any(_ADDED_MASK in _source_of(one) for one in found):
        return "none"
    if not found or any(one._supports_sdpa for one in found):
        return "sdpa"
    return "flash" if any(one._supports_attention_backend and one._supports_flash_attn for one in found) else "none"


_ADDED_MASK = "index_mask + causal_mask"  # in code that adds the mask it is given (GLM's sparse attention up to 5.2)


def _source_of(kind: type) -> str:
    """The source of the module that defines a class; empty where there is no file."""
    module = sys.modules.get(kind.__module__)
    try:
        return "" if module is None else getsource(module)
    except (OSError, TypeError):
        return ""


def _model_classes() -> list[Any]:
    """Every class of transformers models that is imported."""
    from transformers import PreTrainedModel

    found: list[Any] = [PreTrainedModel]
    for one in found:
        found += [child for child in one.__subclasses__() if child not in found]
    return found


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
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    indices: Tensor | None = None,
    block_indices: Tensor | None = None,
    **more: Any,
) -> tuple[Tensor, Tensor | None]:
    """The function that transformers calls: query (B, H, T, D), key and value (B, Hk, S, D); returns (B, T, H, D), and
    the weights on request.

    s_aux: logits of learned sinks (H,); indices (B, T, n) and block_indices (B, Hi, T, n): the keys an indexer chose.
    """
    _refuse_unknown(module, more)
    config = getattr(module, "config", None)
    mask, bias = _mask(module, query, key, attention_mask, is_causal)
    if indices is not None or block_indices is not None:
        mask = mask & _chosen_keys(module, query, indices, block_indices)
    if position_bias is not None:
        bias = position_bias if bias is None else bias + position_bias
    added = None if bias is None else DenseBias(bias[..., : key.size(-2)])
    normalise: Normaliser | None = None if s_aux is None else Sink(s_aux.to(query.device))
    scale = _scale_of(module, query) if scaling is None else scaling
    is_shared = not torch.compiler.is_compiling() and not isinstance(scale, Tensor)  # a tensor's number may change
    score = _scaled_dot(scale, softcap) if is_shared else ScaledDot(scale, softcap)

    def compute(observe: Observe) -> Attended:
        how: Any = {"mask": mask, "bias": added, "normalise": normalise, "dropout": dropout}
        return attend(query, key, value, score=score, observe=observe, **how)

    got = dispatch(module, compute, value, dropout, _WEIGHTS if _wants_weights(more) else _NOTHING)
    weights = got.weights
    if weights is not None:
        if got.sink is not None and getattr(config, "model_type", "") in SCALES_OUTPUT:
            weights = weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
        weights = weights.to(query.dtype)
    return got.output.transpose(1, 2).contiguous(), weights


@lru_cache(maxsize=256)
def _scaled_dot(scale: float | None, cap: float | None) -> ScaledDot:
    """A score without parameters, which all calls with these settings share."""
    return ScaledDot(scale, cap)


def _scale_of(module: Any, query: Tensor) -> float | None:
    """The factor of the scores of a module that passes none; None: 1 / sqrt(D). GPT-2 of transformers 5.2 leaves its
    settings to the code of eager attention."""
    scale = 1.0 if getattr(module, "scale_attn_weights", True) is False else None
    if getattr(module, "scale_attn_by_inverse_layer_idx", False):
        scale = (query.size(-1) ** -0.5 if scale is None else scale) / (module.layer_idx + 1)
    return scale


def _mask(
    module: nn.Module, query: Tensor, key: Tensor, given: Tensor | None, is_causal: bool | None
) -> tuple[Mask, Tensor | None]:
    """The given mask as a mask and a bias. Without one, a causal module with as many queries as keys has a causal mask,
    if its model is written for that; a single query after its cache sees everything, and so does a query of
    cross-attention, though its module may say is_causal (Kosmos-2's do)."""
    if given is None:
        config = getattr(module, "config", None)
        implied = config is None or _fused_attention(config.__class__) == "sdpa"
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        square = 1 < query.size(-2) == key.size(-2)
        return (_FIRST_CAUSAL if implied and causal and square else _EVERYTHING), None
    if not torch.compiler.is_compiling() and given in _CAUSAL and given.size(-1) >= key.size(-2):
        return (_FIRST_CAUSAL if query.size(-2) > 1 else _EVERYTHING), None
    if (
        1 < given.size(-1) < key.size(-2)
    ):  # one for all keys broadcasts, as in eager (RecurrentGemma, while it generates)
        raise ShapeError(f"a mask of {given.size(-1)} keys", f"{key.size(-2)}", where=_describe(module))
    if given.dtype == torch.bool:
        return mask_of_table(given, key), None
    given = given[..., : key.size(-2)]
    if not given.is_floating_point():
        return Dense(given.bool()), None
    # eager attention hides a key by the lowest number of the dtype
    return Dense(given > torch.finfo(given.dtype).min / 2), given


def _chosen_keys(module: nn.Module, query: Tensor, indices: Tensor | None, block_indices: Tensor | None) -> Mask:
    """The keys that a sparse attention's indexer chose."""
    mask: Mask = Everything()
    if indices is not None:
        mask = mask & Keys(indices.unsqueeze(1) if indices.dim() == 3 else indices)
    if block_indices is not None:
        size = getattr(getattr(module, "indexer", None), "block_size", None)
        if size is None:
            raise BackendError("The size of the blocks of block_indices is not known", where=_describe(module))
        heads = query.size(1) // block_indices.size(1)
        mask = mask & Blocks(block_indices.repeat_interleave(heads, 1), size)
    return mask


def _wants_weights(more: dict[str, Any]) -> bool:
    """Whether the model was called with output_attentions=True, which transformers passes along or keeps."""
    if more.get("output_attentions"):
        return True
    # an import statement in every call takes longer than the look; what is not loaded collects nothing
    capturing: Any = sys.modules.get("transformers.utils.output_capturing")
    collected = None if capturing is None else capturing._active_collector.get()
    return collected is not None and any("attentions" in name for name in collected)


def _refuse_unknown(module: nn.Module, more: dict[str, Any]) -> None:
    """Refuse keywords whose meaning is not known: what they ask for would silently be left out."""
    for name, value in more.items():
        if value is not None and name not in HARMLESS:
            raise BackendError(
                f"The model passes the keyword {name!r} to its attention, whose meaning is not known here",
                where=_describe(module),
                advice='Use attn_implementation="eager": capture hears that too.',
            )


def _describe(module: nn.Module) -> str:
    """Where an error was: the model's kind, the class of the module, its layer."""
    layer = getattr(module, "layer_idx", None)
    model = getattr(getattr(module, "config", None), "model_type", "")
    return f'attn_implementation="{NAME}", {model} {type(module).__name__}' + ("" if layer is None else f" {layer}")
