"""Inputs of single architectures, where the rule of zoo_inputs.py cannot know what belongs together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

TOKENS, SIDE, PATCH = 12, 32, 8
ONE_GRID = torch.tensor([[1, 4, 4]] * 2)  # frames, rows and columns of patches of two pictures
GRID = torch.stack([torch.arange(16) % 4, torch.arange(16) // 4], -1).expand(2, -1, -1)


class Draw:
    """Random texts and numbers for two examples."""

    def __init__(self, config: Any, seed: int) -> None:
        self.config, self.generator = config, torch.Generator().manual_seed(seed)

    def noise(self, *shape: int) -> Tensor:
        return torch.randn((2, *shape), generator=self.generator)

    def words(self, length: int = TOKENS) -> Tensor:
        return torch.randint(5, 80, (2, length), generator=self.generator)


def _boxes(draw: Draw) -> Tensor:
    corner = torch.randint(0, 20, (2, TOKENS, 2), generator=draw.generator)
    return torch.cat([corner, corner + 5], -1)


def _kosmos(draw: Draw) -> dict[str, Any]:
    where = torch.zeros(2, TOKENS, dtype=torch.long)
    where[:, 1 : 1 + draw.config.latent_query_num] = 1
    return {
        "input_ids": draw.words(),
        "pixel_values": draw.noise(3, SIDE, SIDE),
        "image_embeds_position_mask": where,
    }


def _patches(draw: Draw) -> dict[str, Any]:
    """Pictures of 4 by 4 patches, already cut."""
    return {
        "pixel_values": draw.noise(16, 3 * PATCH * PATCH),
        "pixel_attention_mask": torch.ones(2, 16, dtype=torch.long),
        "spatial_shapes": torch.tensor([[4, 4]] * 2),
    }


def _video_questions(draw: Draw) -> dict[str, Any]:
    words, frames = draw.words(), 2
    seen = torch.full((2, frames * draw.config.num_query_tokens), draw.config.video_token_id)
    return {
        "input_ids": torch.cat([words[:, :6], seen, words[:, 6:]], 1),
        "qformer_input_ids": draw.words(),
        "pixel_values": draw.noise(frames, 3, SIDE, SIDE),
    }


OWN: dict[str, list[Callable[[Draw], dict[str, Any]]]] = {
    "layoutlmv3": [
        lambda draw: {"input_ids": draw.words(), "bbox": _boxes(draw), "pixel_values": draw.noise(3, SIDE, SIDE)}
    ],
    "clap": [lambda draw: {"input_ids": draw.words(), "input_features": draw.noise(1, 256, 16)}],
    "kosmos-2": [_kosmos],
    "idefics": [
        lambda draw: {
            "input_ids": draw.words(),
            "pixel_values": draw.noise(1, 3, SIDE, SIDE),
            "image_attention_mask": torch.ones(2, TOKENS, 1, dtype=torch.long),
        }
    ],
    "siglip2": [lambda draw: {"input_ids": draw.words()} | _patches(draw)],
    "instructblipvideo": [_video_questions],
    "sam": [lambda draw: {"pixel_values": draw.noise(3, SIDE, SIDE), "input_points": 16 + draw.noise(1, 2, 2)}],
    "speecht5": [lambda draw: {"input_values": draw.noise(12, 32), "decoder_input_values": draw.noise(9, 32)}],
    "speech-encoder-decoder": [lambda draw: {"input_values": draw.noise(1600), "decoder_input_ids": draw.words(9)}],
}
OWN["sam_hq"] = OWN["sam"]
OWN["sam2"] = [lambda draw: {"pixel_values": draw.noise(3, 64, 64), "input_points": 32 + draw.noise(1, 2, 2)}]
for kind in ("musicgen_decoder", "musicgen_melody_decoder"):
    OWN[kind] = [lambda draw: {"input_ids": draw.words().repeat_interleave(draw.config.num_codebooks, 0) % 30}]
OWN["mimi_decoder"] = [lambda draw: {"latents": draw.noise(32, 6)}]
OWN["seggpt"] = [
    lambda draw: {name: draw.noise(3, SIDE, SIDE) for name in ("pixel_values", "prompt_pixel_values", "prompt_masks")}
]
OWN["efficientloftr"] = [lambda draw: {"pixel_values": draw.noise(2, 3, 64, 64)}]
OWN["diffusion_gemma"] = [
    lambda draw: {
        "input_ids": draw.words(),
        "decoder_input_ids": draw.words(9),
        "decoder_attention_mask": torch.ones(2, TOKENS + 9, dtype=torch.long),
    }
]
OWN["tvp"] = [
    lambda draw: {"input_ids": draw.words()[:1], "pixel_values": draw.noise(2, 3, 64, 64)[:1]}
]  # one at a time
OWN["gemma4_vision"] = [lambda draw: {"pixel_values": draw.noise(16, 3 * PATCH * PATCH), "pixel_position_ids": GRID}]
OWN["pe_audio_encoder"] = [lambda draw: {"input_values": draw.noise(1, 7680)}]
OWN["pe_audio"] = [lambda draw: {"input_ids": draw.words(), "input_values": draw.noise(1, 7680)}]
OWN["voxtral_realtime"] = [lambda draw: {"input_ids": draw.words(), "input_features": draw.noise(16, 96)}]
OWN["fun_asr_nano_encoder"] = [
    lambda draw: {"input_features": draw.noise(24, 560), "input_features_mask": torch.ones(2, 24, dtype=torch.bool)}
]
for kind in ("granite_speech5_encoder", "granite_speech5_ctc"):
    OWN[kind] = [lambda draw: {"input_features": draw.noise(64, 80)}]
OWN["qwen3_asr_encoder"] = [
    lambda draw: {"input_features": draw.noise(128, 200), "input_features_mask": torch.ones(2, 200, dtype=torch.bool)}
]
for kind in ("minicpm_ocr_vision", "minicpmv4_7_vision"):
    OWN[kind] = [
        lambda draw: {
            "pixel_values": draw.noise(3, PATCH, 16 * PATCH).transpose(0, 2).flatten(2).transpose(0, 1)[None],
            "target_sizes": torch.tensor([[4, 4]] * 2),
        }
    ]
for kind, shape in {
    "cosmos3_edge_vision": (3 * PATCH * PATCH,),
    "muse_glimmer_vision": (6 * PATCH * PATCH,),
    "muse_spark_vision": (6 * PATCH * PATCH,),
    "kimi_k25_vision": (3, PATCH, PATCH),
}.items():
    OWN[kind] = [lambda draw, shape=shape: {"pixel_values": draw.noise(16, *shape).flatten(0, 1), "grid_thw": ONE_GRID}]
OWN["pi0"] = [
    lambda draw: {
        "input_ids": draw.words(),
        "pixel_values": draw.noise(1, 3, SIDE, SIDE),
        "pixel_attention_mask": torch.ones(2, 1, dtype=torch.bool),
        "attention_mask": torch.ones(2, TOKENS, dtype=torch.long),
        "state": draw.noise(32),
        "noise": draw.noise(50, 32),
        "timestep": torch.tensor([0.5, 0.25]),
    }
]
for kind in ("xcodec2", "neucodec"):
    OWN[kind] = [lambda draw: {"input_values": draw.noise(1, 3200), "input_features": draw.noise(10, 16)}]
OWN["vitmatte"] = [lambda draw: {"pixel_values": draw.noise(4, 64, 64)}]
OWN["depth_pro"] = [lambda draw: {"pixel_values": draw.noise(3, 128, 128)}]
OWN["superglue"] = [lambda draw: {"pixel_values": draw.noise(2, 3, 64, 64)}]
for kind in ("pp_ocrv5_mobile_rec", "pp_ocrv5_server_rec", "pp_ocrv6_small_rec", "pp_ocrv6_tiny_rec"):
    OWN[kind] = [lambda draw: {"pixel_values": draw.noise(3, 96, 160)}]
OWN["oneformer"] = [
    lambda draw: {
        "pixel_values": draw.noise(3, 64, 64),
        "task_inputs": torch.randint(0, 40, (2, 77), generator=draw.generator).float(),
    }
]
OWN["vibevoice_acoustic_tokenizer_encoder"] = [lambda draw: {"hidden_states": draw.noise(1, 1600)}]
OWN["vibevoice_acoustic_tokenizer_decoder"] = [lambda draw: {"hidden_states": draw.noise(32, 20)}]
OWN["muse_glimmer_assistant"] = [
    lambda draw: {"noise_embeds": draw.noise(4, 32), "context_hidden_states": draw.noise(TOKENS, 64)}
]
OWN["gemma3n_audio"] = [
    lambda draw: {"audio_mel": draw.noise(64, 128), "audio_mel_mask": torch.zeros(2, 64, dtype=torch.bool)}
]
OWN["clvp"] = [lambda draw: {"input_ids": draw.words(), "input_features": draw.noise(80, 40)}]


def own_inputs(config: Any, seed: int) -> Iterator[dict[str, Any]]:
    """What OWN has for a configuration's model type."""
    for make in OWN.get(getattr(config, "model_type", ""), []):
        yield make(Draw(config, seed))
