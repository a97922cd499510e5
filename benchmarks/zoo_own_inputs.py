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


Make = Callable[[Draw], dict[str, Any]]


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


def _fed(name: str, *shape: int) -> Make:
    """Noise of one shape for one parameter."""
    return lambda draw: {name: draw.noise(*shape)}


def _listened(rows: int, columns: int, frames: int) -> Make:
    """Sounds with the mask of their frames, which are either the rows or the columns."""
    return lambda draw: {
        "input_features": draw.noise(rows, columns),
        "input_features_mask": torch.ones(2, frames, dtype=torch.bool),
    }


def _packed(*patch: int) -> Make:
    """The patches of two pictures in one row."""
    return lambda draw: {"pixel_values": draw.noise(16, *patch).flatten(0, 1), "grid_thw": ONE_GRID}


def _strip(draw: Draw) -> dict[str, Any]:
    """The patches of two pictures side by side."""
    patches = draw.noise(3, PATCH, 16 * PATCH)
    return {"pixel_values": torch.cat([patches[0], patches[1]], -1)[None], "target_sizes": torch.tensor([[4, 4]] * 2)}


def _pointed(side: int) -> Make:
    """Pictures with two points each."""
    return lambda draw: {"pixel_values": draw.noise(3, side, side), "input_points": side // 2 + draw.noise(1, 2, 2)}


def _codes(draw: Draw) -> dict[str, Any]:
    """Tokens of every codebook."""
    return {"input_ids": draw.words().repeat_interleave(draw.config.num_codebooks, 0) % 30}


def _canvas(draw: Draw) -> dict[str, Any]:
    return {
        "input_ids": draw.words(),
        "decoder_input_ids": draw.words(9),
        "decoder_attention_mask": torch.ones(2, TOKENS + 9, dtype=torch.long),
    }


def _robot(draw: Draw) -> dict[str, Any]:
    return {
        "input_ids": draw.words(),
        "pixel_values": draw.noise(1, 3, SIDE, SIDE),
        "pixel_attention_mask": torch.ones(2, 1, dtype=torch.bool),
        "attention_mask": torch.ones(2, TOKENS, dtype=torch.long),
        "state": draw.noise(32),
        "noise": draw.noise(50, 32),
        "timestep": torch.tensor([0.5, 0.25]),
    }


def _video_questions(draw: Draw) -> dict[str, Any]:
    words, frames = draw.words(), 2
    seen = torch.full((2, frames * draw.config.num_query_tokens), draw.config.video_token_id)
    return {
        "input_ids": torch.cat([words[:, :6], seen, words[:, 6:]], 1),
        "qformer_input_ids": draw.words(),
        "pixel_values": draw.noise(frames, 3, SIDE, SIDE),
    }


OWN: dict[str, Make] = {
    "clap": lambda draw: {"input_ids": draw.words(), "input_features": draw.noise(1, 256, 16)},
    "cosmos3_edge_vision": _packed(3 * PATCH * PATCH),
    "depth_pro": _fed("pixel_values", 3, 128, 128),
    "diffusion_gemma": _canvas,
    "efficientloftr": _fed("pixel_values", 2, 3, 64, 64),
    "fun_asr_nano_encoder": _listened(24, 560, 24),
    "gemma3n_audio": lambda draw: {
        "audio_mel": draw.noise(64, 128),
        "audio_mel_mask": torch.zeros(2, 64, dtype=torch.bool),
    },
    "gemma4_vision": lambda draw: {"pixel_values": draw.noise(16, 3 * PATCH * PATCH), "pixel_position_ids": GRID},
    "granite_speech5_ctc": _fed("input_features", 64, 80),
    "granite_speech5_encoder": _fed("input_features", 64, 80),
    "idefics": lambda draw: {
        "input_ids": draw.words(),
        "pixel_values": draw.noise(1, 3, SIDE, SIDE),
        "image_attention_mask": torch.ones(2, TOKENS, 1, dtype=torch.long),
    },
    "instructblipvideo": _video_questions,
    "kimi_k25_vision": _packed(3, PATCH, PATCH),
    "kosmos-2": _kosmos,
    "layoutlmv3": lambda draw: {
        "input_ids": draw.words(),
        "bbox": _boxes(draw),
        "pixel_values": draw.noise(3, SIDE, SIDE),
    },
    "mimi_decoder": _fed("latents", 32, 6),
    "minicpm_ocr_vision": _strip,
    "minicpmv4_7_vision": _strip,
    "muse_glimmer_assistant": lambda draw: {
        "noise_embeds": draw.noise(4, 32),
        "context_hidden_states": draw.noise(TOKENS, 64),
    },
    "muse_glimmer_vision": _packed(6 * PATCH * PATCH),
    "muse_spark_vision": _packed(6 * PATCH * PATCH),
    "musicgen_decoder": _codes,
    "musicgen_melody_decoder": _codes,
    "oneformer": lambda draw: {
        "pixel_values": draw.noise(3, 64, 64),
        "task_inputs": torch.randint(0, 40, (2, 77), generator=draw.generator).float(),
    },
    "pi0": _robot,
    "pocket_tts_audio_tokenizer_decoder": _fed("latents", 32, 6),
    **dict.fromkeys(
        "pp_ocrv5_mobile_rec pp_ocrv5_server_rec pp_ocrv6_small_rec pp_ocrv6_tiny_rec".split(),
        _fed("pixel_values", 3, 96, 160),
    ),
    "qwen3_asr_encoder": _listened(128, 200, 200),
    "sam": _pointed(SIDE),
    "sam2": _pointed(64),
    "sam_hq": _pointed(SIDE),
    "seggpt": lambda draw: {
        name: draw.noise(3, SIDE, SIDE) for name in ("pixel_values", "prompt_pixel_values", "prompt_masks")
    },
    "siglip2": lambda draw: {"input_ids": draw.words()} | _patches(draw),
    "speech-encoder-decoder": lambda draw: {"input_values": draw.noise(1600), "decoder_input_ids": draw.words(9)},
    "speecht5": lambda draw: {"input_values": draw.noise(12, 32), "decoder_input_values": draw.noise(9, 32)},
    "superglue": _fed("pixel_values", 2, 3, 64, 64),
    # its positions fit one example
    "tvp": lambda draw: {"input_ids": draw.words()[:1], "pixel_values": draw.noise(2, 3, 64, 64)[:1]},
    "vibevoice_acoustic_tokenizer_decoder": _fed("hidden_states", 32, 20),
    "vibevoice_acoustic_tokenizer_encoder": _fed("hidden_states", 1, 1600),
    "vitmatte": _fed("pixel_values", 4, 64, 64),
    "voxtral_realtime": lambda draw: {"input_ids": draw.words(), "input_features": draw.noise(16, 96)},
}


def own_inputs(config: Any, seed: int) -> Iterator[dict[str, Any]]:
    """What OWN has for a configuration's model type."""
    make = OWN.get(getattr(config, "model_type", ""))
    if make is not None:
        yield make(Draw(config, seed))
