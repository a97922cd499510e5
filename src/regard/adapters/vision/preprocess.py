"""Pixel tensors of images: by the image processor in the folder of a model, or by one that its configuration describes.

Nothing is downloaded and no code of a folder is run. Without a processor's files, the family's own class is used with
the image and patch sizes of the configuration; families without such a class get the image squashed to a square.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.adapters.vision.crops import HALF, Colours
from regard.adapters.vision.encoders import BLOCKS
from regard.adapters.vision.images import GivenImage
from regard.adapters.vision.layout import vision_config
from regard.bounded_files import expect_readable_folder
from regard.errors import CheckpointError, SettingError
from regard.hub import quiet_transformers, reason_of, refusals

FILES = ("preprocessor_config.json", "processor_config.json")
NESTED = ("mllama", "idefics3", "smolvlm")  # whose processors take a list of images for each text
FAMILY = {"dinov2_with_registers": "dinov2", "siglip_vision_model": "siglip", "clip_vision_model": "clip"}
FAMILY |= {"siglip2_vision_model": "siglip2", "blip_vision_model": "blip", "mllama_vision_model": "mllama"}


class PixelInputs(NamedTuple):
    """The tensors of images by name, how their colours were normalised, and what a reader must know."""

    tensors: dict[str, Tensor]
    colours: Colours
    notes: list[str]


def load_image_processor(folder: Path | None) -> Any:
    """The image processor in a folder; None where there are no files of one."""
    if folder is None or not any((folder / name).exists() for name in FILES):
        return None
    expect_readable_folder(folder, CheckpointError)
    from transformers import AutoImageProcessor

    with quiet_transformers(), refusals(folder, "load the image processor of this folder"):
        return AutoImageProcessor.from_pretrained(folder, backend="pil", local_files_only=True, trust_remote_code=False)


def configured_processor(model: Any) -> tuple[Any, str]:
    """The image processor of a model's family with the sizes of its configuration, and a note; None where transformers
    has none for the family."""
    config, vision = model.config, vision_config(model)
    with quiet_transformers():
        made = _processor_class(config)
        if made is None:
            return None, ""
        how = _sizes(config.model_type, config, vision, made)
        try:
            found = made(**how)
        except Exception as error:  # of any class of transformers
            problem = f"No image processor can be made for this {config.model_type} ({reason_of(error)})"
            raise SettingError(problem, where="look") from error
    name = made.__name__.removesuffix("Pil")
    return found, f"The folder has no image processor: {name} with the sizes of config.json made the pixels"


def pixel_inputs(model: Any, processor: Any, images: Sequence[GivenImage]) -> PixelInputs:
    """The tensors of images and videos for a model. `processor`: of its folder, or None."""
    notes: list[str] = []
    if processor is None:
        processor, note = configured_processor(model)
        notes += [note] if note else []
    videos = [one for one in images if one.video]
    kind = vision_config(model).model_type
    if videos and (kind not in BLOCKS or processor is None):
        problem = f"A {type(model).__name__} is given videos only as tensors"
        raise SettingError(problem, where="look", advice="A video of a Qwen-VL model is a list of frames.")
    if videos and len(videos) < len(images):
        raise SettingError("Images and videos together", "images alone or videos alone", where="look")
    if processor is None:
        return _squashed(model, images)
    if videos:
        return PixelInputs(_video_tensors(processor, vision_config(model), videos), colours_of(processor), notes)
    flat = [one.pixels for one in images]
    nested = model.config.model_type in NESTED
    tensors = _processed(processor, [flat] if nested else flat)
    return PixelInputs(_taken(model, tensors), colours_of(processor), notes)


def colours_of(processor: Any) -> Colours:
    """The mean and standard deviation by which an image processor normalises."""
    mean, std = (getattr(processor, name, None) for name in ("image_mean", "image_std"))
    if not getattr(processor, "do_normalize", True):
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if mean is None or std is None:
        return HALF
    three = [[float(one)] * 3 if isinstance(one, int | float) else [float(x) for x in one] for one in (mean, std)]
    return three[0], three[1]


def default_colours(model: Any) -> Colours:
    """Those of the image processor of a model's family."""
    found = _processor_class(model.config)
    return HALF if found is None else colours_of(found)


def _processor_class(config: Any) -> Any:
    """The class of transformers that works without torchvision; None where there is none."""
    with quiet_transformers():
        from transformers import CONFIG_MAPPING
        from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING

        kind = FAMILY.get(config.model_type, config.model_type)
        if kind == "vision-encoder-decoder":
            kind = FAMILY.get(config.encoder.model_type, config.encoder.model_type)
        try:
            classes: Any = IMAGE_PROCESSOR_MAPPING[CONFIG_MAPPING[kind]]
            return classes.get("pil")
        except (KeyError, AttributeError):
            return None


def _sizes(kind: str, config: Any, vision: Any, made: Any) -> dict[str, Any]:
    """The sizes of an image processor, by the configuration of the model."""
    patch = getattr(vision, "patch_size", None)
    if vision.model_type in BLOCKS:
        deep = int(getattr(vision, "temporal_patch_size", 1))
        return {"patch_size": patch, "merge_size": int(vision.spatial_merge_size), "temporal_patch_size": deep}
    if vision.model_type.startswith("siglip2"):
        return {"patch_size": patch, "max_num_patches": int(vision.num_patches)}
    size = getattr(vision, "image_size", None)
    sides = (size, size) if isinstance(size, int) else tuple(size or ())
    if len(sides) != 2:
        return {}
    square = {"height": int(sides[0]), "width": int(sides[1])}
    if kind == "mllama":
        return {"size": square, "max_image_tiles": int(vision.max_num_tiles)}
    if kind in ("idefics3", "smolvlm"):
        longest = {"longest_edge": int(sides[0])}
        return {"size": {"longest_edge": 2 * int(sides[0])}, "max_image_size": longest}
    how: dict[str, Any] = {"size": square}
    if "shortest_edge" in dict(getattr(made, "size", None) or {}):
        how["size"] = {"shortest_edge": int(min(sides))}
    if getattr(made, "crop_size", None) is not None:
        how["crop_size"] = square
    if kind == "llava_next":
        how["image_grid_pinpoints"] = config.image_grid_pinpoints
    return how


def _processed(processor: Any, images: Any) -> dict[str, Tensor]:
    """What an image processor makes of images."""
    try:
        with quiet_transformers():
            found = processor(images=images, return_tensors="pt")
    except Exception as error:  # processors raise errors of many kinds
        problem = f"The {type(processor).__name__} cannot read these images ({reason_of(error)})"
        raise SettingError(problem, where="look") from error
    return {name: one for name, one in found.items() if isinstance(one, Tensor)}


def _taken(model: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that a model takes."""
    taken = inspect.signature(model.forward).parameters
    return {name: one.to(model.device) for name, one in tensors.items() if name in taken}


def _squashed(model: Any, images: Sequence[GivenImage]) -> PixelInputs:
    """Images squashed to squares of the size in the configuration."""
    from PIL import Image

    vision = vision_config(model)
    size = getattr(vision, "image_size", None)
    sides = (size, size) if isinstance(size, int) else tuple(size or ())
    if len(sides) != 2 or "pixel_values" not in inspect.signature(model.forward).parameters:
        problem = f"regard does not know how a {type(model).__name__} reads images"
        raise SettingError(problem, where="look", advice="Pass the tensors that its image processor makes.")
    found = [
        np.asarray(Image.fromarray(one.pixels).resize((sides[1], sides[0]), Image.Resampling.BICUBIC)) for one in images
    ]
    pixels = (torch.from_numpy(np.stack(found)).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.5
    note = f"No image processor is known: images are squashed to {sides[0]} x {sides[1]}, colours from -1 to 1"
    return PixelInputs({"pixel_values": pixels.to(model.device)}, HALF, [note])


def _video_tensors(processor: Any, config: Any, videos: Sequence[GivenImage]) -> dict[str, Tensor]:
    """Frames of videos as Qwen-VL reads them: each patch is one of several frames after another; a last frame that has
    no other beside it is repeated."""
    deep, side = int(config.temporal_patch_size), int(config.patch_size)
    pixels, grids = [], []
    for one in videos:
        frames = [*one.frames, *[one.frames[-1]] * (-len(one.frames) % deep)]
        found = _processed(processor, frames)
        [(_, rows, cols)] = {tuple(grid) for grid in found["image_grid_thw"].tolist()}
        each = found["pixel_values"].reshape(len(frames) // deep, deep, rows * cols, -1, deep, side * side)
        at = torch.arange(deep)
        own = each[:, at, :, :, at]  # (deep, groups, patches, channels, side^2): frame n of a group in place n
        pixels.append(own.permute(1, 2, 3, 0, 4).reshape(-1, each.size(3) * deep * side * side))
        grids.append([len(frames) // deep, rows, cols])
    return {"pixel_values_videos": torch.cat(pixels), "video_grid_thw": torch.tensor(grids)}
