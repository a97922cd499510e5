"""The tokens of vision encoders: class token, registers, and the patches in the order in which each family reads them.

A family is in this table only if a test finds, for each of its tokens, the patch that it is made of; the patches of
other encoders have names where their number leaves no doubt, and no grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from torch import nn

from regard.adapters.token_row import TokenRow
from regard.adapters.vision.crops import Crop
from regard.pictures import PatchGrid

CLASS_TOKENS = ("cls_token", "class_token", "class_embedding")  # parameters of encoders of pictures
REGISTER_TOKENS = ("register_tokens", "storage_tokens")

RASTER = frozenset(  # model types that read the patches row by row, after their special tokens
    "vit deit dinov2 dinov2_with_registers dinov3_vit ijepa clip clip_vision_model siglip siglip_vision_model blip"
    " blip_vision_model blip_2_vision_model instructblip_vision_model metaclip_2_vision_model"
    " chinese_clip_vision_model altclip_vision_model idefics3_vision smolvlm_vision"
    " internvl_vision beit data2vec-vision vit_msn mlcd_vision_model".split()
)
BLOCKS = frozenset(  # that read them in blocks of those which are merged later
    "qwen2_vl qwen2_vl_vision qwen2_5_vl qwen2_5_vl_vision qwen3_vl qwen3_vl_vision".split()
)
NAFLEX = frozenset(("siglip2", "siglip2_vision_model"))
TILED = frozenset(("mllama", "mllama_vision_model"))
KNOWN = RASTER | BLOCKS | NAFLEX | TILED

PADDING = "[padding]"


def special_tokens(tower: nn.Module) -> list[str]:
    """The tokens before the patches, as the parameters of an encoder tell."""
    found = {path.rpartition(".")[2]: one for path, one in tower.named_parameters()}
    tokens = ["[CLS]" for name in CLASS_TOKENS if name in found][:1]
    tokens += ["[DIST]"] if "distillation_token" in found else []
    registers = next((found[name] for name in REGISTER_TOKENS if name in found), None)
    return tokens + [f"[register {n + 1}]" for n in range(0 if registers is None else registers.size(-2))]


def encoder_sequences(kind: str, config: Any, tower: nn.Module, crops: Sequence[Crop], length: int) -> list[TokenRow]:
    """The tokens of each sequence that an encoder of this model type reads. `length`: to which it pads, if it does."""
    if kind in BLOCKS:
        window = config.window_size if "window_size" in config.to_dict() and "2_5" in kind else None
        return [_blocks(crops, int(config.spatial_merge_size), window, int(config.patch_size))]
    if kind in TILED:
        return [_tiles(list(some)) for _, some in groupby(crops, lambda crop: crop.unit)]
    before = special_tokens(tower)
    return [raster(one, before, length if kind in NAFLEX else 0) for one in crops]


def raster(crop: Crop, before: Sequence[str] = (), length: int = 0) -> TokenRow:
    """The patches of one crop, row by row."""
    row = TokenRow(picture_name([crop])).add_special(*(named(crop, token) for token in before))
    add_crop(row, crop, np.arange(crop.rows * crop.cols).reshape(crop.rows, crop.cols))
    return row.add_special(*[PADDING] * (length - len(row)))


def add_crop(row: TokenRow, crop: Crop, order: np.ndarray) -> None:
    """Add the patches of a crop, of which `order` (rows, cols) holds the numbers among its own tokens."""
    row.add_patches(PatchGrid(crop.picture, np.where(order >= 0, order + len(row), -1), crop.box), crop.label)


def named(crop: Crop, token: str) -> str:
    """A special token of one crop among several."""
    return f"{crop.label} {token}" if crop.label else token


def picture_name(crops: Sequence[Crop]) -> str:
    """The name of an axis over these crops."""
    if len(crops) == 1:
        return f"a picture of {crops[0].rows} x {crops[0].cols} patches"
    sizes = {(one.rows, one.cols) for one in crops}
    of = " x ".join(map(str, sizes.pop())) + " patches each" if len(sizes) == 1 else "patches of several sizes"
    noun = next((word for word in ("tile", "crop", "frame") if word in crops[-1].label), "picture")
    return f"{len(crops)} {noun}s of {of}"


def join_sequences(rows: Sequence[TokenRow], name: str = "") -> TokenRow:
    """Sequences one after another."""
    if len(rows) == 1:
        return rows[0]
    found = TokenRow(name)
    for row in rows:
        first = len(found)
        found.add_special(*row.tokens)
        found.grids += [
            PatchGrid(one.picture, np.where(one.tokens >= 0, one.tokens + first, -1), one.box) for one in row.grids
        ]
    return found


def window_order(crop: Crop, merge: int, window: int, patch: int) -> np.ndarray:
    """Qwen2.5-VL: the numbers (rows / merge, cols / merge) of the blocks of merged patches, window after window."""
    side = max(1, window // merge // patch)
    rows, cols = crop.rows // merge, crop.cols // merge
    found, count = np.zeros((rows, cols), np.int64), 0
    for top in range(0, rows, side):
        for left in range(0, cols, side):
            block = found[top : top + side, left : left + side]
            block[...] = count + np.arange(block.size).reshape(block.shape)
            count += block.size
    return found


def _blocks(crops: Sequence[Crop], merge: int, window: int | None, patch: int) -> TokenRow:
    """Patches in blocks of merge x merge, of all images and frames in one sequence."""
    row = TokenRow(picture_name(crops))
    for crop in crops:
        blocks = np.arange(crop.rows * crop.cols // merge**2).reshape(crop.rows // merge, crop.cols // merge)
        blocks = blocks if window is None else window_order(crop, merge, window, patch)
        inside = np.arange(merge**2).reshape(merge, merge)
        order = blocks[:, None, :, None] * merge**2 + inside[None, :, None, :]
        add_crop(row, crop, order.reshape(crop.rows, crop.cols))
    return row


def _tiles(crops: Sequence[Crop]) -> TokenRow:
    """Llama Vision: all tiles of an image, each with its class token, and filled up to a multiple of eight."""
    row = TokenRow(picture_name([one for one in crops if one.used] or crops))
    for crop in crops:
        count = 1 + crop.rows * crop.cols
        if crop.used:
            row.add_special(named(crop, "[CLS]"))
            add_crop(row, crop, np.arange(crop.rows * crop.cols).reshape(crop.rows, crop.cols))
        else:
            row.add_special(*[f"[empty {crop.label}]"] * count)
        row.add_special(*[PADDING] * (-count % 8))
    return row
