"""Tiny vision and vision-language models of transformers with random weights, one a family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

WIDE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
PICTURE = {"image_size": 32, "patch_size": 8, "num_channels": 3}
CLIP_VISION = {**PICTURE, **WIDE, "model_type": "clip_vision_model"}
SIGLIP_VISION = {**PICTURE, **WIDE, "model_type": "siglip_vision_model"}
TEXT = {**WIDE, "vocab_size": 60, "num_key_value_heads": 1, "max_position_embeddings": 512}
TEXT |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
LLAMA = {**TEXT, "model_type": "llama"}
CLIP_TEXT = {**WIDE, "vocab_size": 60, "max_position_embeddings": 20, "bos_token_id": 1, "eos_token_id": 2}
BLOCKS = {"depth": 2, "num_heads": 2, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}
ROPE = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
QWEN = {**TEXT, "rope_parameters": ROPE}
QWEN_IDS = {"image_token_id": 50, "video_token_id": 51, "vision_start_token_id": 52, "vision_end_token_id": 53}
MLLAMA_TEXT = {**TEXT, "cross_attention_layers": [1], "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
ANYRES = [[32, 32], [32, 64], [64, 32], [64, 64]]


class Family(NamedTuple):
    """A model of a family, and the size (height, width) of an image that its processor leaves as it is."""

    kind: str
    config: Mapping[str, Any]
    size: tuple[int, int] = (32, 32)
    class_name: str = ""


FAMILIES = {
    "vit": Family("ViT", {**PICTURE, **WIDE}),
    "deit": Family("DeiT", {**PICTURE, **WIDE}),
    "dinov2": Family("Dinov2", {**PICTURE, **WIDE}),
    "dinov2 registers": Family("Dinov2WithRegisters", {**PICTURE, **WIDE, "num_register_tokens": 2}),
    "dinov3": Family("DINOv3ViT", {**PICTURE, **WIDE, "num_register_tokens": 2}),
    "ijepa": Family("IJepa", {**PICTURE, **WIDE}),
    "beit": Family("Beit", {**PICTURE, **WIDE, "use_absolute_position_embeddings": True}),
    "data2vec": Family("Data2VecVision", {**PICTURE, **WIDE}),
    "vit msn": Family("ViTMSN", {**PICTURE, **WIDE}),
    "mlcd": Family("MLCDVision", {**PICTURE, **WIDE}),
    "blip-2": Family("Blip2Vision", {**PICTURE, **WIDE}),
    "instructblip": Family("InstructBlipVision", {**PICTURE, **WIDE}),
    "metaclip 2": Family("MetaClip2Vision", {**PICTURE, **WIDE}),
    "chinese clip": Family("ChineseCLIPVision", {**PICTURE, **WIDE}),
    "altclip": Family("AltCLIPVision", {**PICTURE, **WIDE}),
    "clip": Family("CLIP", {"text_config": CLIP_TEXT, "vision_config": {**PICTURE, **WIDE}, "projection_dim": 8}),
    "siglip": Family("Siglip", {"text_config": CLIP_TEXT, "vision_config": {**PICTURE, **WIDE}}),
    "siglip2": Family(
        "Siglip2", {"text_config": CLIP_TEXT, "vision_config": {**WIDE, "patch_size": 8, "num_patches": 16}}, (24, 40)
    ),
    "blip": Family(
        "Blip",
        {"text_config": {**CLIP_TEXT, "encoder_hidden_size": 16}, "vision_config": {**PICTURE, **WIDE}},
        class_name="BlipForConditionalGeneration",
    ),
    "llava": Family(
        "Llava",
        {"text_config": LLAMA, "vision_config": CLIP_VISION, "image_token_id": 50, "vision_feature_layer": -1},
        class_name="LlavaForConditionalGeneration",
    ),
    "llava with siglip": Family(
        "Llava",
        {
            "text_config": LLAMA,
            "vision_config": SIGLIP_VISION,
            "image_token_id": 50,
            "vision_feature_select_strategy": "full",
            "vision_feature_layer": -1,
        },
        class_name="LlavaForConditionalGeneration",
    ),
    "llava next": Family(
        "LlavaNext",
        {
            "text_config": LLAMA,
            "vision_config": CLIP_VISION,
            "image_token_id": 50,
            "image_grid_pinpoints": ANYRES,
            "vision_feature_layer": -1,
        },
        (64, 32),
        "LlavaNextForConditionalGeneration",
    ),
    "paligemma": Family(
        "PaliGemma",
        {
            "text_config": {**TEXT, "model_type": "gemma", "head_dim": 8},
            "vision_config": {**SIGLIP_VISION, "projection_dim": 16},
            "image_token_id": 50,
            "projection_dim": 16,
        },
        class_name="PaliGemmaForConditionalGeneration",
    ),
    "gemma3": Family(
        "Gemma3",
        {
            "text_config": {**TEXT, "head_dim": 8},
            "vision_config": SIGLIP_VISION,
            "image_token_id": 50,
            "boi_token_index": 52,
            "eoi_token_index": 53,
            "mm_tokens_per_image": 4,
        },
        class_name="Gemma3ForConditionalGeneration",
    ),
    "idefics3": Family(
        "Idefics3",
        {"text_config": LLAMA, "vision_config": {**PICTURE, **WIDE}, "image_token_id": 50, "scale_factor": 2},
        (64, 64),
        "Idefics3ForConditionalGeneration",
    ),
    "smolvlm": Family(
        "SmolVLM",
        {"text_config": LLAMA, "vision_config": {**PICTURE, **WIDE}, "image_token_id": 50, "scale_factor": 2},
        (64, 64),
        "SmolVLMForConditionalGeneration",
    ),
    "internvl": Family(
        "InternVL",
        {
            "text_config": {**TEXT, "model_type": "llama"},
            "vision_config": {**WIDE, "image_size": [32, 32], "patch_size": [8, 8]},
            "image_token_id": 50,
        },
        class_name="InternVLForConditionalGeneration",
    ),
    "qwen2 vl": Family(
        "Qwen2VL",
        {"text_config": QWEN, "vision_config": {**BLOCKS, "embed_dim": 16, "hidden_size": 16}, **QWEN_IDS},
        (84, 112),
        "Qwen2VLForConditionalGeneration",
    ),
    "qwen2.5 vl": Family(
        "Qwen2_5_VL",
        {
            "text_config": QWEN,
            "vision_config": {
                **BLOCKS,
                "hidden_size": 16,
                "out_hidden_size": 16,
                "intermediate_size": 24,
                "window_size": 56,
                "fullatt_block_indexes": [1],
            },
            **QWEN_IDS,
        },
        (84, 140),
        "Qwen2_5_VLForConditionalGeneration",
    ),
    "qwen3 vl": Family(
        "Qwen3VL",
        {
            "text_config": {**QWEN, "head_dim": 8},
            "vision_config": {
                **BLOCKS,
                "hidden_size": 16,
                "out_hidden_size": 16,
                "intermediate_size": 24,
                "num_position_embeddings": 16,
                "deepstack_visual_indexes": [0],
            },
            **QWEN_IDS,
        },
        (84, 112),
        "Qwen3VLForConditionalGeneration",
    ),
    "mllama": Family(
        "Mllama",
        {
            "text_config": MLLAMA_TEXT,
            "vision_config": {
                "image_size": 32,
                "patch_size": 8,
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_hidden_layers": 2,
                "num_global_layers": 1,
                "attention_heads": 2,
                "vision_output_dim": 32,
                "intermediate_layers_indices": [1],
            },
            "image_token_id": 55,
            "image_token_index": 55,
        },
        (32, 64),
        "MllamaForConditionalGeneration",
    ),
}


def build(name: str, seed: int = 0) -> Any:
    """A model with weights so large that a patch can be told from another."""
    import transformers

    family = FAMILIES[name]
    torch.manual_seed(seed)
    config = getattr(transformers, f"{family.kind}Config")(**family.config)
    model = getattr(transformers, family.class_name or f"{family.kind}Model")._from_config(config).eval()
    with torch.no_grad():
        for path, weight in model.named_parameters():
            weight.normal_(std=0.3) if weight.dim() > 1 else weight.add_(0.1 * torch.randn_like(weight))
            if path.endswith("image_newline"):
                weight.normal_()
            if "gate" in path and weight.dim() <= 1:
                weight.fill_(0.5)
    return model


OUTPUTS = ("out_proj", "o_proj", "proj", "projection", "dense", "projection_layer")


def silence_encoder(model: Any) -> None:
    """Make the encoder of pictures read each token alone: its attention adds nothing to a token."""
    from regard.adapters.vision.layout import vision_tower

    tower = vision_tower(model)
    assert tower is not None
    with torch.no_grad():
        for path, module in tower.named_modules():
            parts = path.split(".")
            inside = any("attn" in part or "attention" in part for part in parts[:-1])
            if isinstance(module, nn.Linear) and inside and parts[-1] in OUTPUTS:
                module.weight.zero_()
                if module.bias is not None:
                    module.bias.zero_()
