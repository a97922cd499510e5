"""What the encoder of a vision model reads, from the tensors that it is given: crops of pictures, with their patches.

The pictures are made from the pixel tensors themselves, so each patch covers exactly its box of the stored picture:
resized, squashed, cropped and padded as the model saw it. Tiles of one image are put together again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.pictures import Picture

Box = tuple[float, float, float, float]
"""A part of a picture: left, top, right, bottom, as shares of its sides."""

WHOLE: Box = (0.0, 0.0, 1.0, 1.0)
Colours = tuple[Sequence[float], Sequence[float]]
"""The mean and the standard deviation of each channel, by which an image processor normalised the pixels."""

HALF: Colours = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


class Crop(NamedTuple):
    """A part of a picture that an encoder reads as rows x cols patches. `unit`: the number of the image or video that
    it belongs to; `label`: what it is called among others; `used`: False where it only fills up a batch."""

    picture: int
    rows: int
    cols: int
    box: Box = WHOLE
    unit: int = 0
    label: str = ""
    used: bool = True


@dataclass(frozen=True, eq=False)
class Crops:
    """All that an encoder reads, in the order of its sequences. `tiles`: of each image that was cut, the rows and cols
    of its tiles; `video`: whether the crops are frames."""

    crops: tuple[Crop, ...]
    pictures: tuple[Picture, ...]
    tiles: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    video: bool = False

    def with_pictures_from(self, first: int) -> Crops:
        """The same, after so many other pictures."""
        moved = tuple(one._replace(picture=one.picture + first) for one in self.crops)
        return Crops(moved, self.pictures, self.tiles, self.video)


def patch_sides(config: Any) -> tuple[int, int] | None:
    """The height and width of a patch, by the configuration of an encoder."""
    size = getattr(config, "patch_size", None)
    sides = (size, size) if isinstance(size, int) else tuple(size or ())
    strided = getattr(config, "patch_stride", None) not in (None, size)
    return None if len(sides) != 2 or strided else (int(sides[0]), int(sides[1]))


def separate_crops(
    pixels: Tensor, sides: tuple[int, int], colours: Colours, titles: Sequence[str] = (), noun: str = "picture"
) -> Crops:
    """Images (N, 3, H, W), each read as a whole; what is left over at the right and below has no patch."""
    pictures, crops = [], []
    (down, across), (height, width) = sides, pixels.shape[-2:]
    rows, cols = height // down, width // across
    box = (0.0, 0.0, cols * across / width, rows * down / height)
    for number, one in enumerate(pixels):
        label = f"{noun} {number + 1}" if len(pixels) > 1 else ""
        pictures.append(Picture.of(to_uint8(one, colours), _title(number, 1, titles) or label))
        crops.append(Crop(number, rows, cols, box, number, label))
    return Crops(tuple(crops), tuple(pictures))


def anyres_crops(
    pixels: Sequence[Tensor], grids: Sequence[tuple[int, int]], side: int, colours: Colours, titles: Sequence[str]
) -> Crops:
    """LLaVA-NeXT: of each image the whole one, small, and then its tiles (1 + rows x cols, 3, H, W)."""
    pictures, crops = list[Picture](), list[Crop]()
    for unit, (tiles, (down, across)) in enumerate(zip(pixels, grids, strict=True)):
        rows, cols = tiles.size(-2) // side, tiles.size(-1) // side
        of, title = f"picture {unit + 1}, " if len(grids) > 1 else "", _title(unit, len(grids), titles)
        crops.append(Crop(len(pictures), rows, cols, WHOLE, unit, f"{of}overview"))
        pictures.append(Picture.of(to_uint8(tiles[0], colours), f"{title or 'picture'}, overview"))
        if len(tiles) == 1:
            continue
        for number in range(down * across):
            label = f"{of}tile {number + 1}"
            crops.append(Crop(len(pictures), rows, cols, tile_box(number, down, across), unit, label))
        pictures.append(Picture.of(to_uint8(join_tiles(tiles[1:], down, across), colours), title))
    return Crops(tuple(crops), tuple(pictures), dict(enumerate(grids)))


def mllama_crops(inputs: Mapping[str, Tensor], config: Any, colours: Colours, titles: Sequence[str]) -> Crops | None:
    """Llama Vision: pixels (1, images, tiles, 3, H, W), whose arrangement `aspect_ratio_ids` name."""
    pixels, ids = inputs["pixel_values"], inputs.get("aspect_ratio_ids")
    if ids is None or pixels.size(0) != 1:
        return None
    pictures, crops, tiles = list[Picture](), list[Crop](), dict[int, tuple[int, int]]()
    rows, cols = (side // config.patch_size for side in pixels.shape[-2:])
    for unit, number in enumerate(ids[0].tolist()):
        down, across = config.supported_aspect_ratios[number - 1] if number else (0, 0)
        of = f"picture {unit + 1}, " if ids.size(1) > 1 else ""
        for tile in range(pixels.size(2)):
            used = tile < down * across
            box = tile_box(tile, down, across) if used else WHOLE
            crops.append(Crop(len(pictures), rows, cols, box, unit, f"{of}tile {tile + 1}", used))
        if not number:
            continue
        whole = join_tiles(pixels[0, unit, : down * across], down, across)
        pictures.append(Picture.of(to_uint8(whole, colours), _title(unit, ids.size(1), titles)))
        tiles[unit] = (down, across)
    return Crops(tuple(crops), tuple(pictures), tiles)


def packed_crops(
    patches: Tensor, grid: Tensor, config: Any, colours: Colours, titles: Sequence[str] = (), video: bool = False
) -> Crops:
    """Qwen-VL: patches (N, 3 x frames x p x p) of all images, or of all frames, in blocks of merged patches."""
    side, merge = int(config.patch_size), int(getattr(config, "spatial_merge_size", 1))
    deep = int(getattr(config, "temporal_patch_size", 1))
    pictures, crops, at = list[Picture](), list[Crop](), 0
    for unit, (frames, rows, cols) in enumerate(grid.tolist()):
        for frame in range(frames):
            some = patches[at : at + rows * cols]
            at += rows * cols
            blocks = some.reshape(rows // merge, cols // merge, merge, merge, -1, deep, side, side)[..., 0, :, :]
            whole = blocks.permute(4, 0, 2, 5, 1, 3, 6).reshape(-1, rows * side, cols * side)
            title, label = _title(unit, len(grid), titles), f"picture {unit + 1}" if len(grid) > 1 else ""
            if video:
                first, last = frame * deep + 1, (frame + 1) * deep
                title = f"frame {first}" if deep == 1 else f"frames {first} and {last}"
                title = label = f"video {unit + 1}, {title}" if len(grid) > 1 else title
            crops.append(Crop(len(pictures), rows, cols, WHOLE, unit, label))
            pictures.append(Picture.of(to_uint8(whole, colours), title))
    return Crops(tuple(crops), tuple(pictures), video=video)


def naflex_crops(patches: Tensor, shapes: Tensor, side: int, colours: Colours, titles: Sequence[str] = ()) -> Crops:
    """SigLIP 2: patches (B, N, p x p x 3), row by row, of images of several shapes; the rest of N is padding."""
    pictures, crops = [], []
    for number, (rows, cols) in enumerate(shapes.tolist()):
        some = patches[number, : rows * cols].reshape(rows, cols, side, side, -1)
        whole = some.permute(4, 0, 2, 1, 3).reshape(-1, rows * side, cols * side)
        pictures.append(Picture.of(to_uint8(whole, colours), _title(number, len(shapes), titles)))
        crops.append(Crop(number, rows, cols, WHOLE, number, f"picture {number + 1}" if len(shapes) > 1 else ""))
    return Crops(tuple(crops), tuple(pictures))


def to_uint8(pixels: Tensor, colours: Colours) -> np.ndarray:
    """Normalised pixels (3 or 1, H, W) as an image, uint8 (H, W, 3)."""
    mean, std = (torch.tensor(tuple(one), dtype=torch.float32).reshape(-1, 1, 1) for one in colours)
    values = pixels.detach().float().cpu()
    restored = ((values * std[: len(values)] + mean[: len(values)]) * 255).nan_to_num().round().clamp(0, 255)
    return np.ascontiguousarray(restored.to(torch.uint8).expand(3, -1, -1).permute(1, 2, 0).numpy())


def join_tiles(tiles: Tensor, down: int, across: int) -> Tensor:
    """Tiles (down x across, 3, H, W), row by row, as one image (3, down x H, across x W)."""
    _, channels, height, width = tiles.shape
    rows = tiles.reshape(down, across, channels, height, width).permute(2, 0, 3, 1, 4)
    return rows.reshape(channels, down * height, across * width)


def tile_box(number: int, down: int, across: int) -> Box:
    """The part of the whole that a tile covers."""
    row, col = divmod(number, across)
    return col / across, row / down, (col + 1) / across, (row + 1) / down


def _title(number: int, count: int, titles: Sequence[str]) -> str:
    if number < len(titles) and titles[number]:
        return titles[number]
    return f"picture {number + 1}" if count > 1 else ""
