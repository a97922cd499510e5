"""Tiny random models of every architecture that transformers registers: one rule that shrinks any configuration, with
overrides where an architecture needs them.

Nothing is downloaded: configurations are the library's defaults, made small; weights are random, and large enough that
attention is far from uniform.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from zoo_overrides import OVERRIDES

VOCABULARY = 99
WIDTH, HEADS, FEEDFORWARD, LAYERS = 32, 4, 48, 2
PICTURE, PATCH = 32, 8

SIZES: dict[str, int] = {
    **dict.fromkeys(
        "hidden_size d_model n_embd embed_dim embedding_size emb_dim word_embed_proj_dim projection_dim dim"
        " text_hidden_size encoder_hidden_size out_hidden_size projector_hidden_size decoder_hidden_size"
        " output_dim fusion_hidden_size fpn_hidden_size encoder_hidden_dim hidden_dim proj_dim text_embed_dim"
        " text_proj_dim query_dim d_latents decoder_embed_dim mlp_hidden_size share_hidden_size"
        " hidden_size_global cross_hidden_size embedding_dim output_proj_dim projection_size bottleneck_dim"
        " output_hidden_size vision_output_dim pooler_output_size prompt_hidden_size mask_feature_size"
        " feature_size_out hidden_feature_size vision_hidden_size audio_hidden_size connector_hidden_size"
        " d_inner_proj lm_hidden_size".split(),
        WIDTH,
    ),
    **dict.fromkeys(
        "num_attention_heads num_heads n_head n_heads encoder_attention_heads decoder_attention_heads"
        " attention_heads num_self_attention_heads num_cross_attention_heads decoder_num_attention_heads"
        " encoder_num_attention_heads resampler_n_heads num_decoder_attention_heads"
        " num_encoder_attention_heads vision_num_attention_heads num_attn_heads nhead aggregator_num_heads"
        " head_num".split(),
        HEADS,
    ),
    **dict.fromkeys("num_key_value_heads n_head_kv num_kv_heads encoder_num_key_value_heads kv_n_heads".split(), 2),
    **dict.fromkeys("head_dim d_kv attention_head_dim dim_head v_head_dim qk_nope_head_dim kv_channels".split(), 8),
    **dict.fromkeys("global_head_dim attention_head_size swa_head_dim".split(), 8),
    **dict.fromkeys("qk_rope_head_dim rotary_dim".split(), 4),
    **dict.fromkeys("q_lora_rank kv_lora_rank o_lora_rank".split(), 16),
    "qk_head_dim": 12,
    **dict.fromkeys(
        "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers depth num_decoder_layers"
        " num_encoder_layers resampler_depth decoder_num_hidden_layers num_cross_layers num_encoder_blocks"
        " decoder_depth encoder_depth num_self_attends_per_block l_layers x_layers r_layers".split(),
        LAYERS,
    ),
    **dict.fromkeys(
        "intermediate_size encoder_ffn_dim decoder_ffn_dim d_ff ffn_dim mlp_dim n_inner dim_feedforward"
        " d_inner ffn_hidden_size feed_forward_proj_dim decoder_intermediate_size d_model_ffn"
        " intermediate_size_mlp linear_units dim_ff encoder_intermediate_dim"
        " moe_shared_expert_intermediate_size shared_intermediate_size dense_intermediate_size"
        " mlp_intermediate_size".split(),
        FEEDFORWARD,
    ),
    **dict.fromkeys("moe_intermediate_size shared_expert_intermediate_size expert_dim".split(), 16),
    **dict.fromkeys(
        "num_experts num_local_experts n_routed_experts moe_num_experts num_local_experts_per_layer".split(), 4
    ),
    **dict.fromkeys("num_experts_per_tok moe_topk moe_k top_k_experts experts_per_token".split(), 2),
    **dict.fromkeys("n_group topk_group n_shared_experts num_shared_experts moe_num_shared_experts".split(), 1),
    "first_k_dense_replace": 1,
    **dict.fromkeys("index_topk".split(), 4),
    "index_n_heads": 4,
    "index_head_dim": 8,
    **dict.fromkeys(
        "vocab_size entity_vocab_size char_vocab_size text_vocab_size src_vocab_size tgt_vocab_size".split(), VOCABULARY
    ),
    **dict.fromkeys("max_position_embeddings n_positions max_source_positions max_target_positions n_ctx".split(), 64),
    "max_2d_position_embeddings": 64,
    "image_size": PICTURE,
    "patch_size": PATCH,
    "sliding_window": 5,
    "num_queries": 6,
    "num_frames": 2,
    "rope_theta": 10000,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": VOCABULARY,
    "num_kv_shared_layers": 0,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "mamba_d_state": 8,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_ssm": 64,
    "mamba_n_groups": 1,
    "state_size": 8,
    "codebook_size": 32,
    "codebook_dim": 16,
    "num_nextn_predict_layers": 0,
    "query_pre_attn_scalar": 8,
    "num_labels": 2,
    "conv_kernel_size": 3,
}
TOKENS = {
    "pad_token_id": 0,
    "bos_token_id": 1,
    "cls_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "sep_token_id": 3,
    "mask_token_id": 4,
}
SPECIAL = re.compile(
    r"(image|video|audio|vision|img|boi|eoi|boa|eoa|boc|eov|bov|speech|user|sys|row|col|tile|frame)\w*_(token_id|token_index|token)$|_(start|end|pad)_token_id$"
)
FIRST_SPECIAL = 80  # ids of placeholder tokens; texts are drawn from below


def shrunk(default: Mapping[str, Any], overrides: Mapping[str, Any], taken: Iterator[int]) -> dict[str, Any]:
    """The settings of a configuration that are made small, sub-configurations included."""
    found: dict[str, Any] = {}
    layers = LAYERS
    kinds = default.get("layer_types") or default.get("layers_block_type")
    if isinstance(kinds, list):
        layers = max(LAYERS, len(dict.fromkeys(kinds)))
    count = next((default[name] for name in LAYER_COUNTS if isinstance(default.get(name), int)), -1)
    for name, value in default.items():
        small: Any = None
        if isinstance(value, dict) and "model_type" in value and overrides.get(name, value) is not None:
            small = _shrunk_part(value, overrides.get(name, {}), taken)
        elif name in overrides:
            small = overrides[name]
        elif name in ("rope_parameters", "rope_scaling") and isinstance(value, dict):
            small = _shrunk_rope(value, default, overrides)
        elif name in ("layer_types", "layers_block_type") and isinstance(kinds, list):
            small = (list(dict.fromkeys(kinds)) * LAYERS)[: max(layers, 1)]
        elif isinstance(value, bool) or value is None:
            continue
        elif isinstance(value, list) and len(value) == count > layers:
            small = value[-layers:]
        elif name in LAYER_COUNTS and isinstance(value, int):
            small = min(layers, value)
        elif name in ("num_key_value_heads", "n_head_kv", "num_kv_heads"):
            latent = default.get("kv_lora_rank")
            small = HEADS if latent or value == default.get("num_attention_heads", value) else 2 if value > 1 else 1
        elif isinstance(value, int) and SPECIAL.search(name) and value > FIRST_SPECIAL:
            small = next(taken)
        elif name == "head_dim" and default.get("kv_lora_rank"):
            small = SIZES["qk_rope_head_dim"]
        elif name in TOKENS and isinstance(value, int):
            small = TOKENS[name]
        elif name in SIZES and isinstance(value, int) and value > 0:
            small = min(SIZES[name], value)
        elif name in ("image_size", "patch_size") and isinstance(value, list | tuple):
            small = [min(one, SIZES[name]) for one in value]
        else:
            continue
        found[name] = small
    return found | {name: value for name, value in overrides.items() if name not in default}


def _shrunk_part(default: Mapping[str, Any], overrides: Mapping[str, Any], taken: Iterator[int]) -> dict[str, Any]:
    """A sub-configuration: what its own model type needs, and over that what the whole model needs of it. One that
    names another model type takes the place of the default."""
    kind = default["model_type"]
    if overrides.get("model_type", kind) != kind:
        return dict(overrides)
    return shrunk(default, {**OVERRIDES.get(kind, {}), **overrides}, taken) | {"model_type": kind}


LAYER_COUNTS = tuple(name for name, size in SIZES.items() if size == LAYERS and ("layer" in name or "depth" in name))


def _shrunk_rope(value: Mapping[str, Any], default: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Sections of multi-axis rotary embeddings share the small width of a head."""
    small = {
        name: _shrunk_rope(one, default, overrides) if isinstance(one, dict) else one for name, one in value.items()
    }
    if "mrope_section" in small:
        heads = WIDTH // HEADS if default.get("head_dim") is None else SIZES["head_dim"]
        rotated = (
            int(
                overrides.get("head_dim", heads)
                * small.get("partial_rotary_factor", default.get("partial_rotary_factor") or 1.0)
            )
            // 2
        )
        small["mrope_section"] = [rotated - 2 * (rotated // 3), rotated // 3, rotated // 3]
    return small


def small_config(kind: str) -> Any:
    """The configuration of a model type, made small."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    made = CONFIG_MAPPING[kind]
    overrides = OVERRIDES.get(kind, {})
    try:
        default = made().to_dict()
    except (TypeError, ValueError, AttributeError):  # no default of its own: the overrides say everything
        default = {}
    for name in ("model_type", "transformers_version", "architectures", "dtype"):
        default.pop(name, None)
    return made(**shrunk(default, overrides, iter(range(FIRST_SPECIAL, VOCABULARY))))


def config_of(kind: str, model_class: Any) -> Any:
    """The small configuration that a class of a model type takes: the whole one, or the part that is of its type."""
    whole, wanted = small_config(kind), getattr(model_class, "config_class", None)
    if wanted is None or isinstance(whole, wanted):
        return whole
    parts = [getattr(whole, name, None) for name in getattr(whole, "sub_configs_defaults", None) or whole.sub_configs]
    return next((part for part in parts if isinstance(part, wanted)), whole)


def model_classes(kind: str) -> list[Any]:
    """The classes of a model type: the base model and those that write or fill in text, or else the first of any."""
    from transformers.models.auto import modeling_auto as auto

    names: list[str] = []
    heads = "CAUSAL_LM SEQ_TO_SEQ_CAUSAL_LM IMAGE_TEXT_TO_TEXT SPEECH_SEQ_2_SEQ MASKED_LM".split()
    for mapping in [
        auto.MODEL_MAPPING_NAMES,
        *(getattr(auto, f"MODEL_FOR_{head}_MAPPING_NAMES") for head in heads),
    ]:
        found = mapping.get(kind)
        found = found[0] if isinstance(found, list | tuple) else found
        if found and found not in names:
            names.append(found)
    if not names:
        for name in sorted(vars(auto)):
            is_model = name.startswith("MODEL_") and name.endswith("_MAPPING_NAMES")
            found = getattr(auto, name).get(kind) if is_model else None
            found = found[0] if isinstance(found, list | tuple) else found
            if found:
                names.append(found)
                break
    return [one for name in names if (one := _class_of(kind, name)) is not None]


def _class_of(kind: str, name: str) -> Any:
    """A class of transformers models by its name; None where this installation lacks what it needs."""
    import transformers

    try:
        found = getattr(transformers, name)
    except AttributeError:
        return None
    return None if getattr(found, "is_dummy", False) else found


def made_lively(model: nn.Module, seed: int = 0) -> None:
    """Random weights so large that attention is far from uniform, with biases, sinks and scales other than 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if not weight.is_floating_point():
                continue
            noise = torch.randn(weight.shape, generator=generator, dtype=torch.float32)
            if weight.dim() > 1:
                fan = math.prod(weight.shape[1:])
                weight.copy_(noise * (0.5 if "embed" in name else 1.5 / math.sqrt(fan)))
            elif "sink" in name:
                weight.copy_(noise)
            elif weight.numel() > 1 and name.endswith("bias"):
                weight.copy_(0.1 * noise)
