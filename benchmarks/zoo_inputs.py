"""Random inputs for any model of transformers, by the parameters of its forward: texts, pictures, sounds, series."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from zoo_models import FIRST_SPECIAL, PATCH, PICTURE, VOCABULARY, WIDTH
from zoo_own_inputs import own_inputs
from zoo_placeholders import texts_with_placeholders

LONG = 12  # tokens of a text


def input_plans(model: Any, config: Any, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Inputs that a model may take: those of its own, if zoo_own_inputs.py has any; texts with a picture or a sound in
    them; and by the parameters of its forward two texts, two pictures or two sounds, alone or together. The first that
    it runs with is the right one."""
    parameters = {
        name: one.default is inspect.Parameter.empty
        for name, one in inspect.signature(model.forward).parameters.items()
        if one.kind is not inspect.Parameter.VAR_KEYWORD
    }
    main = getattr(model, "main_input_name", "input_ids")
    main = main[0] if isinstance(main, list) else main
    if "config" in parameters or not parameters:
        return
    source = InputSource(config, seed)
    for given in own_inputs(config, seed):
        if all(name in parameters for name in given):
            yield given
    yield from texts_with_placeholders(model, source, parameters)
    required = [name for name, needed in parameters.items() if needed]
    decoder = ["decoder_input_ids"] if "decoder_input_ids" in parameters else []
    text = ["input_ids"] if "input_ids" in parameters else []
    beside = [name for name in ("bbox", "pixel_values", "lang_ids") if name in parameters]
    tried: list[list[str]] = []
    for names in (
        [main, *required, *decoder],
        [*text, *required, *decoder],
        [main, *text, *required, *decoder],
        [*text, *beside, *required, *decoder],
        [main, *beside, *required, *decoder],
        [name for name in parameters if name in InputSource.KNOWN and name != "inputs_embeds"],
        [name for name in parameters if name in InputSource.KNOWN],
    ):
        names = list(dict.fromkeys(name for name in names if name in parameters))
        if names in tried or not all(name in InputSource.KNOWN for name in names):
            continue
        tried.append(names)
        for layout in range(len(InputSource.LAYOUTS)):
            yield source.draw(names, layout)


class InputSource:
    """Random inputs by name. A layout says how sounds, pictures and tables lie: models disagree."""

    LAYOUTS = (0, 1, 2, 3)
    KNOWN = frozenset(
        "input_ids decoder_input_ids qformer_input_ids pixel_values pixel_values_videos input_values input_features"
        " bbox grid_thw image_grid_thw hidden_states visual_feats visual_pos inputs_embeds query_embeds past_values"
        " past_time_features past_observed_mask future_time_features future_values past_values_padding freq inputs"
        " pixel_attention_mask spatial_shapes input_features_mask feature_attention_mask audio_mel_mask attention_mask"
        " prompt_pixel_values prompt_masks pixel_position_ids encoder_hidden_states context_hidden_states states"
        " actions rewards returns_to_go timesteps merge_sizes target_sizes image_sizes audio_values flattened_patches"
        " action_embeds image_position_ids conditioning_pixel_values task_inputs features".split()
    )

    def __init__(self, config: Any, seed: int) -> None:
        self.config, self.seed = config, seed

    def find(self, *names: str, default: int) -> int:
        """A whole number of the configuration or one of its sub-configurations."""
        left = [
            self.config,
            *(
                getattr(self.config, name, None)
                for name in (
                    "vision_config",
                    "audio_config",
                    "encoder",
                    "encoder_config",
                    "backbone_config",
                    "text_config",
                )
            ),
        ]
        for config in left:
            for name in names if config is not None else ():
                value = getattr(config, name, None)
                value = value[0] if isinstance(value, list | tuple) and value else value
                if isinstance(value, int) and not isinstance(value, bool):
                    return value
        return default

    def draw(self, names: list[str], layout: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(self.seed)
        return {name: self._draw(name, layout, generator) for name in names}

    def _draw(self, name: str, layout: int, generator: torch.Generator) -> Tensor:
        def noise(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator)

        width = self.find("hidden_size", "d_model", default=WIDTH)
        patch, channels = (
            self.find("patch_size", default=PATCH),
            self.find("num_channels", "in_channels", "in_chans", default=3),
        )
        side = self.find("image_size", default=PICTURE)
        side = side if side >= 8 else PICTURE
        grid = 4  # patches a side, where pictures come cut into patches
        if name.endswith("input_ids"):
            vocabulary = self.find("vocab_size", default=VOCABULARY)
            length = LONG - 3 if name.startswith("decoder") else LONG
            ids = torch.randint(5, max(6, min(vocabulary, FIRST_SPECIAL)), (2, length), generator=generator)
            if hasattr(self.config, "projection_dim"):  # the text's vector is that of its end
                ids[:, -1] = self.find("eos_token_id", default=2)
            return ids
        if name in ("attention_mask", "past_values_padding"):
            return torch.ones(2, LONG, dtype=torch.long) if name == "attention_mask" else torch.zeros(2, 32)
        if name == "pixel_values" and layout == 2:
            return noise(2, 2 * self.find("tubelet_size", default=1), channels, side, side)
        if name == "pixel_values" and layout == 3:  # cut into patches
            temporal = self.find("temporal_patch_size", default=1)
            return (
                noise(2, grid * grid, channels * temporal * patch * patch)
                if hasattr(self.config, "num_patches")
                else noise(2 * grid * grid, channels * temporal * patch * patch)
            )
        if name in ("pixel_values", "conditioning_pixel_values"):
            return noise(2, channels, side, side)
        if name == "pixel_values_videos":
            return noise(2, 2 * self.find("tubelet_size", default=1), channels, side, side)
        if name == "prompt_pixel_values":
            return noise(2, channels, side, side)
        if name == "prompt_masks":
            return noise(2, channels, side, side)
        if name == "pixel_attention_mask":
            return torch.ones(2, grid * grid, dtype=torch.long)
        if name == "spatial_shapes":
            return torch.tensor([[grid, grid]] * 2)
        if name in ("grid_thw", "image_grid_thw"):
            return torch.tensor([[1, grid, grid]] * 2)
        if name == "merge_sizes":
            return torch.tensor([1, 1])
        if name == "target_sizes":
            return torch.tensor([[grid, grid]] * 2)
        if name in ("pixel_position_ids", "image_position_ids"):
            where = torch.arange(grid * grid)
            return torch.stack([where % grid, where // grid], -1).expand(2, -1, -1)
        if name == "hidden_states":
            if layout == 1:
                return noise(2, LONG, width)
            temporal = self.find("temporal_patch_size", default=1)
            return noise(2 * grid * grid, channels * temporal * patch * patch)
        if name in ("input_values", "audio_values"):
            mels, frames = self.find("num_mel_bins", default=16), self.find("max_length", default=64)
            return (noise(2, 1600), noise(2, 1, 1600), noise(2, frames, mels), noise(2, LONG, mels))[layout]
        if name in ("input_features", "features"):
            mels = self.find(
                "num_mel_bins",
                "feature_projection_input_dim",
                "input_feat_per_channel",
                "feature_size",
                "mel_dim",
                "n_mels",
                "input_dim",
                "feature_dim",
                "input_size",
                "audio_channels",
                "hidden_size",
                default=16,
            )
            positions = self.find("max_source_positions", default=64)
            return (noise(2, mels, 2 * positions), noise(2, 64, mels), noise(2, mels, 64), noise(2, 1, 64, mels))[
                layout
            ]
        if name in ("input_features_mask", "feature_attention_mask", "audio_mel_mask"):
            return (
                torch.ones(2, 64, dtype=torch.bool)
                if name != "audio_mel_mask"
                else torch.zeros(2, 64, dtype=torch.bool)
            )
        if name == "bbox":
            corner = torch.randint(0, 20, (2, LONG, 2), generator=generator)
            boxes = torch.cat([corner, corner + 5], -1)
            return (boxes, boxes / 32.0, boxes[..., [0, 1, 2, 1, 2, 3, 0, 3]] / 32.0, boxes)[layout]
        if name in ("visual_feats", "visual_pos"):
            return noise(2, 6, 4 if name == "visual_pos" else self.find("visual_feat_dim", default=2048))
        if name in ("inputs_embeds", "query_embeds", "context_hidden_states", "encoder_hidden_states", "action_embeds"):
            return noise(2, LONG, width)
        if name in ("states", "actions", "rewards", "returns_to_go", "timesteps"):
            wide = {"states": self.find("state_dim", default=17), "actions": self.find("act_dim", default=4)}
            return torch.arange(LONG).expand(2, -1) if name == "timesteps" else noise(2, LONG, wide.get(name, 1))
        if name == "flattened_patches":
            return torch.cat(
                [torch.arange(1, 17).float().expand(2, -1)[..., None]] * 2
                + [noise(2, 16, self.find("patch_embed_hidden_size", default=768))],
                -1,
            )
        if name == "task_inputs":
            return torch.randint(0, 40, (2, 77), generator=generator)
        if name in ("past_values", "past_observed_mask", "future_values", "past_time_features", "future_time_features"):
            return self._series(name, layout, noise)
        if name == "freq":
            return torch.zeros(2, 1, dtype=torch.long)
        if name == "inputs":
            return (
                torch.randint(5, 50, (2, LONG), generator=generator)
                if layout == 0
                else noise(2, LONG, self.find("d_model", default=WIDTH))
            )
        if name == "image_sizes":
            return torch.tensor([[side, side]] * 2)
        raise KeyError(name)

    def _series(self, name: str, layout: int, noise: Any) -> Tensor:
        """Values of a time series: (2, T), (2, T, channels), or with the lags that a probabilistic model looks back."""
        context, ahead = self.find("context_length", default=32), self.find("prediction_length", default=4)
        lags = max(getattr(self.config, "lags_sequence", None) or [0])
        wide = self.find("num_input_channels", "input_size", default=1)
        length = ahead if name.startswith("future") else context + lags
        if name.endswith("time_features"):
            return noise(2, length, self.find("num_time_features", default=0))
        shape = (2, length) if (layout == 0 and wide == 1) else (2, length, wide)
        return torch.ones(shape) if name.endswith("mask") else noise(*shape)
