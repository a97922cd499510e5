"""Which token of a vision model is which patch: in its encoder, in its text, and for a decoder that looks at it.

It follows from the tensors that the model is given, whoever made them. What does not follow for certain is left out,
and a note says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from regard.adapters.token_row import TokenRow
from regard.adapters.vision.crops import (
    HALF,
    Colours,
    Crops,
    anyres_crops,
    mllama_crops,
    naflex_crops,
    packed_crops,
    patch_sides,
    separate_crops,
)
from regard.adapters.vision.encoders import (
    BLOCKS,
    KNOWN,
    NAFLEX,
    RASTER,
    TILED,
    encoder_sequences,
    join_sequences,
    picture_name,
    special_tokens,
)
from regard.adapters.vision.text_tokens import cross_row, image_rows, text_row
from regard.pictures import Picture

PIXELS = ("pixel_values", "pixel_values_videos")
IMAGE_IDS = ("image_token_id", "image_token_index", "video_token_id", "video_token_index")


@dataclass(frozen=True, eq=False)
class VisionLayout:
    """The pictures and patches in the inputs of a model, for one row of a batch of `rows`.

    `colours`: how the pixels were normalised; `titles`: of the images. `notes`: what is not known, in sentences.
    """

    model: Any
    inputs: Mapping[str, Tensor]
    row: int = 0
    rows: int = 1
    colours: Colours = HALF
    titles: Sequence[str] = ()
    notes: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The model type of the encoder of pictures."""
        return str(getattr(self.config, "model_type", ""))

    @cached_property
    def config(self) -> Any:
        """The configuration of the encoder of pictures."""
        return vision_config(self.model)

    @cached_property
    def crops(self) -> Crops | None:
        """What the encoder reads; None where that is not known."""
        found = [one for name in PIXELS if (one := self._crops_of(name)) is not None]
        if len(found) == 2:  # images and then videos, each in a call of its own
            return None
        return found[0] if found else None

    @property
    def pictures(self) -> tuple[Picture, ...]:
        return () if self.crops is None else self.crops.pictures

    def sequences(self, tower: nn.Module, kind: str) -> list[TokenRow]:
        """The tokens of the sequences that an encoder reads; none where they are not known."""
        if self.crops is None or kind != self.kind or kind not in KNOWN:
            return []
        if id(tower) not in self._found:
            length = self.inputs["pixel_values"].size(1) if kind in NAFLEX else 0
            self._found[id(tower)] = encoder_sequences(kind, self.config, tower, self.crops.crops, length)
        return self._found[id(tower)]

    def all_sequences(self, tower: nn.Module, kind: str, sizes: Sequence[int], join: str) -> TokenRow | None:
        """The tokens of a place of the encoder whose calls have sequences of these lengths, joined in this way."""
        rows = self.sequences(tower, kind)
        lengths = [len(row) for row in rows]
        whole = join == "chunks" and len(rows) == 1 and sum(sizes) == lengths[0]
        if not rows or not (whole or lengths == list(sizes)):
            return None
        if "joined" not in self._joined or self._joined["of"] is not rows:
            crops = [one for one in (self.crops.crops if self.crops else ()) if one.used]
            self._joined.update({"of": rows, "joined": join_sequences(rows, picture_name(crops))})
        found: TokenRow = self._joined["joined"]
        return found

    def keys_of_cross_attention(self, count: int) -> TokenRow | None:
        """The keys of cross-attention to the encoder, if there are as many."""
        crops, tower = self.crops, vision_tower(self.model)
        if crops is None or tower is None:
            return None
        kind = str(self.model.config.model_type)
        if "cross" not in self._joined:
            self._joined["cross"] = cross_row(kind, self.sequences(tower, self.kind), crops)
        row: TokenRow | None = self._joined["cross"]
        return row if row is not None and len(row) == count else None

    def has_images_in(self, ids: Tensor) -> bool:
        """Whether a text has places for images."""
        return bool(len(self.image_positions(ids)))

    def image_positions(self, ids: Tensor) -> Tensor:
        """The positions of the tokens of images in the ids (T,) of a text."""
        marks = [token for name in IMAGE_IDS if isinstance(token := getattr(self.model.config, name, None), int)]
        if not marks or self.model.config.model_type == "mllama":  # there one token stands for a whole image
            return ids.new_zeros(0)
        return torch.isin(ids, ids.new_tensor(marks)).nonzero().squeeze(-1)

    @cached_property
    def image_tokens(self) -> list[TokenRow]:
        """The tokens of each image in the text; none where they are not known."""
        tower = vision_tower(self.model)
        if self.crops is None or tower is None or self.kind not in KNOWN:
            return []
        sizes = [tuple(size) for size in self.inputs["image_sizes"].tolist()] if "image_sizes" in self.inputs else []
        return image_rows(self.model.config, self.crops, special_tokens(tower), sizes)

    def text(self, ids: Tensor, pieces: Sequence[str]) -> TokenRow:
        """The tokens of a text (T,), with the patches that stand in it."""
        at = self.image_positions(ids)
        count = sum(map(len, self.image_tokens))
        if not len(at) or self.rows > 1 or count != len(at):
            if len(at):
                self.note(f"The {len(at)} tokens of pictures in the text have no grid: {self._why(count)}")
            return TokenRow("text").add_words(pieces)
        return text_row(self.image_tokens, pieces, at.cpu().numpy())

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def _why(self, count: int) -> str:
        kind = self.model.config.model_type
        if self.rows > 1:
            return "they belong to several texts"
        if not count:
            return f"the order of those of the model type {kind} is not known for certain"
        return f"there should be {count} of the model type {kind}"

    @cached_property
    def _found(self) -> dict[int, list[TokenRow]]:
        return {}

    @cached_property
    def _joined(self) -> dict[str, Any]:
        return {}

    def _crops_of(self, name: str) -> Crops | None:
        pixels, kind = self.inputs.get(name), self.kind
        if not isinstance(pixels, Tensor) or kind not in KNOWN:
            return None
        if kind in BLOCKS:
            grid = self.inputs.get("image_grid_thw" if name == PIXELS[0] else "video_grid_thw")
            video = name == PIXELS[1]
            if grid is None or self.rows > 1 or int(grid.prod(-1).sum()) != len(pixels):
                return None
            return packed_crops(pixels, grid, self.config, self.colours, () if video else self.titles, video)
        if name == PIXELS[1]:
            return None
        return self._images(pixels)

    def _images(self, pixels: Tensor) -> Crops | None:
        """Images of encoders that take them one by one."""
        colours, titles, sides = self.colours, self.titles, patch_sides(self.config)
        if sides is None:
            return None
        if self.kind in NAFLEX:
            shapes = self.inputs.get("spatial_shapes")
            if shapes is None or pixels.dim() != 3:
                return None
            one = slice(self.row, self.row + 1) if self.rows == len(pixels) else slice(None)
            return naflex_crops(pixels[one], shapes[one], sides[0], colours, titles)
        if self.kind in TILED:
            return mllama_crops(self.inputs, self.config, colours, titles) if pixels.dim() == 6 else None
        whole = self.model.config
        if getattr(whole, "model_type", "") == "llava_next":
            return self._anyres(pixels, whole, sides[0])
        if self.kind not in RASTER or (self.rows > 1 and len(pixels) != self.rows):
            return None
        own = pixels[self.row : self.row + 1] if self.rows > 1 else pixels
        if own.dim() == 5:  # of Idefics3 and its kin, which cut an image and skip crops of zeros
            own = own.flatten(0, 1)
            own = own[own.flatten(1).any(1)]
            several = len(own) > max(1, len(titles))
            return separate_crops(own, sides, colours, () if several else titles, "crop") if len(own) else None
        return separate_crops(own, sides, colours, titles) if own.dim() == 4 and len(own) else None

    def _anyres(self, pixels: Tensor, config: Any, side: int) -> Crops | None:
        from transformers.models.llava_next.modeling_llava_next import get_anyres_image_grid_shape

        sizes = self.inputs.get("image_sizes")
        if sizes is None or pixels.dim() != 5 or self.rows > 1 or len(sizes) != len(pixels):
            return None
        where = (config.image_grid_pinpoints, config.vision_config.image_size)
        grids = [get_anyres_image_grid_shape(one, *where) for one in sizes.tolist()]
        tiles = [one[: 1 + down * across] for one, (down, across) in zip(pixels, grids, strict=True)]
        return anyres_crops(tiles, grids, side, self.colours, self.titles)


def vision_config(model: Any) -> Any:
    """The configuration of the encoder of pictures in a model of transformers: its own, where it is nothing else."""
    config = getattr(model, "config", None)
    inner = getattr(config, "vision_config", None)
    if inner is None and getattr(config, "model_type", "") == "vision-encoder-decoder":
        inner = config.encoder if config is not None else None
    return config if inner is None else inner


def vision_tower(model: Any) -> nn.Module | None:
    """The encoder of pictures: the outermost module with a configuration of its model type."""
    wanted = getattr(vision_config(model), "model_type", None)
    configs = ((one, getattr(one, "config", None)) for one in model.modules())
    return next((one for one, config in configs if config is not None and config.model_type == wanted), None)
