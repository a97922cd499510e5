"""The tokens of pictures in a language model: those that stand in its text, and those that it looks at from there.

Every function gives the tokens in the order of the text, or None where they are no patches: queries that a Q-Former or
a resampler learned look at the whole picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from regard.adapters.token_row import TokenRow
from regard.adapters.vision.crops import Crop, Crops
from regard.adapters.vision.encoders import join_sequences, picture_name, raster
from regard.pictures import PatchGrid

LLAVA = frozenset(("llava", "vipllava"))
MERGED = frozenset(("qwen2_vl", "qwen2_5_vl", "qwen3_vl"))
CROSS = frozenset(("mllama", "blip", "blip-2", "instructblip", "vision-encoder-decoder"))


def image_rows(config: Any, crops: Crops, specials: Sequence[str], sizes: Sequence[tuple[int, int]]) -> list[TokenRow]:
    """The tokens in the text, of each image, video or sub-image; none where the family is not known.

    `specials`: the tokens before the patches in the encoder. `sizes`: (height, width) of the original images, which
    LLaVA-NeXT needs.
    """
    kind, used = config.model_type, [one for one in crops.crops if one.used]
    if kind in MERGED:
        merge = int(config.vision_config.spatial_merge_size)
        apart = crops.video and kind == "qwen3_vl"  # it reads the time before each frame
        units = [[one] for one in used] if apart else [list(some) for _, some in groupby(used, lambda crop: crop.unit)]
        return [join_sequences([_merged(one, merge) for one in unit], picture_name(unit)) for unit in units]
    if kind in LLAVA:
        return [raster(one, _kept(config, specials)) for one in used]
    if kind == "paligemma":
        return [raster(one) for one in used]
    if kind == "gemma3":
        return _pooled(used, int(config.mm_tokens_per_image))
    if kind in ("idefics3", "smolvlm"):
        return [] if specials else [_merged(one, int(config.scale_factor)) for one in used]
    if kind == "internvl":
        return [_merged(one, round(1 / config.downsample_ratio)) for one in used]
    if kind == "llava_next" and config.vision_feature_select_strategy == "default":
        return _anyres(crops, sizes)
    return []


def cross_row(kind: str, sequences: Sequence[TokenRow], crops: Crops) -> TokenRow | None:
    """The keys of cross-attention to an encoder with these sequences; None where the family is not known."""
    if kind not in CROSS:
        return None
    if kind == "mllama":
        return join_sequences(
            [_unpadded_tile(one) for one in crops.crops],
            f"{picture_name(crops.crops)}, without padding",
        )
    return sequences[0] if len(sequences) == 1 else None


def text_row(tokens: Sequence[TokenRow | None], pieces: Sequence[str], at: np.ndarray, name: str = "text") -> TokenRow:
    """The tokens `pieces` of a text, of which those `at` these positions are the tokens of images, in order."""
    images = join_sequences([one for one in tokens if one is not None], "images")
    inside = dict(zip(at.tolist(), images.tokens, strict=True))
    row = TokenRow(name)
    for number, piece in enumerate(pieces):
        _ = row.add_special(inside[number]) if number in inside else row.add_words([piece])
    for grid in images.grids:
        row.grids.append(PatchGrid(grid.picture, np.where(grid.tokens >= 0, at[grid.tokens], -1), grid.box))
    return row


def _kept(config: Any, specials: Sequence[str]) -> list[str]:
    """The special tokens of the encoder that LLaVA keeps: `default` cuts off the first token, whatever it is."""
    return list(specials) if config.vision_feature_select_strategy == "full" else list(specials[1:])


def _merged(crop: Crop, merge: int) -> TokenRow:
    """One token for merge x merge patches, row by row."""
    return raster(crop._replace(rows=crop.rows // merge, cols=crop.cols // merge))


def _pooled(crops: Sequence[Crop], count: int) -> list[TokenRow]:
    """Gemma 3: the mean of squares of patches, so many of a picture."""
    side = int(count**0.5)
    return [raster(one._replace(rows=side, cols=side)) for one in crops]


def _unpadded_tile(crop: Crop) -> TokenRow:
    if not crop.used:
        return TokenRow("empty tile").add_special(*[f"[empty {crop.label}]"] * (1 + crop.rows * crop.cols))
    return raster(crop, ["[CLS]"])


def _anyres(crops: Crops, sizes: Sequence[tuple[int, int]]) -> list[TokenRow]:
    """LLaVA-NeXT: the overview, and the patches of all tiles row by row, without padding, with an end for each row."""
    rows = []
    for unit, some in groupby(crops.crops, lambda crop: crop.unit):
        overview, *tiles = some
        row = raster(overview)
        if not tiles:
            rows.append(row.add_special("[newline]"))
            continue
        down, across = crops.tiles[unit]
        high, wide = down * overview.rows, across * overview.cols
        top, left = unpadded(sizes[unit], high, wide)
        rows_left, cols_left = high - 2 * top, wide - 2 * left
        box = (left / wide, top / high, 1 - left / wide, 1 - top / high)
        label = overview.label.replace("overview", "tiles")
        first = len(row)
        order = first + np.arange(rows_left)[:, None] * (cols_left + 1) + np.arange(cols_left)
        row.grids.append(PatchGrid(tiles[0].picture, order, box))
        for line in range(rows_left):
            row.add_special(*(f"{label}, patch {line},{col}" for col in range(cols_left)), "[newline]")
        rows.append(row)
    return rows


def unpadded(size: tuple[int, int], high: int, wide: int) -> tuple[int, int]:
    """The rows above and below, and the columns left and right, that are padding in a grid of an image of this size:
    as `unpad_image` of LLaVA-NeXT cuts them off."""
    height, width = size
    if width / height > wide / high:
        return (high - int(round(height * (wide / width), 7))) // 2, 0
    return 0, (wide - int(round(width * (high / height), 7))) // 2
