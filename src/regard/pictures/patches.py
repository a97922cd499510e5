"""Patches: which token of a model is which part of a picture, and pictures as a record keeps them.

A vision model cuts a picture into patches and reads them as tokens. A PatchGrid says for every patch its token, in any
order: rasters, the two-by-two blocks of Qwen2-VL, tiles of several resolutions, frames of a video.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from regard.errors import CorpusError, ShapeError

Box = tuple[float, float, float, float]
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True, eq=False)
class PatchGrid:
    """The tokens of the patches of one picture.

    picture  the number of the picture (or video frame) among those of the input
    tokens   (rows, cols): the token of each patch on its axis, from the upper left; -1: a patch without a token
    box      the part of the picture that the patches cover: left, top, right, bottom, as shares of its sides
    """

    picture: int
    tokens: np.ndarray
    box: Box = WHOLE

    def __post_init__(self) -> None:
        tokens = np.asarray(self.tokens)
        if tokens.ndim != 2 or not tokens.size or tokens.dtype.kind not in "iu" or tokens.min() < -1:
            raise ShapeError(
                f"tokens {tokens.dtype} {tokens.shape}", "(rows, cols) of token numbers", where="PatchGrid"
            )
        left, top, right, bottom = self.box
        if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
            raise ShapeError(f"a box of {self.box}", "left < right and top < bottom within 0 to 1", where="PatchGrid")
        object.__setattr__(self, "tokens", tokens.astype(np.int64))
        object.__setattr__(self, "box", tuple(float(side) for side in self.box))

    @classmethod
    def raster(cls, rows: int, cols: int, first: int = 0, picture: int = 0, box: Box = WHOLE) -> PatchGrid:
        """Patches row by row, the first of them token number `first`."""
        return cls(picture, first + np.arange(rows * cols).reshape(rows, cols), box)

    @property
    def rows(self) -> int:
        return int(self.tokens.shape[0])

    @property
    def cols(self) -> int:
        return int(self.tokens.shape[1])

    def values(self, of_tokens: np.ndarray) -> np.ndarray:
        """Numbers of all tokens (..., N) as those of the patches (..., rows, cols); 0 where a patch has no token."""
        found = np.asarray(of_tokens)[..., np.maximum(self.tokens, 0)]
        return np.where(self.tokens >= 0, found, 0)

    def mass(self, region: np.ndarray) -> np.ndarray:
        """How much of each patch a region of the picture, booleans (H, W), fills: (rows, cols), 0 to 1."""
        height, width = region.shape
        left, top, right, bottom = self.box
        sums = np.zeros((height + 1, width + 1))
        sums[1:, 1:] = region.astype(np.float64).cumsum(0).cumsum(1)
        down = np.linspace(top * height, bottom * height, self.rows + 1)
        across = np.linspace(left * width, right * width, self.cols + 1)
        whole = _between(_between(sums, down, 0), across, 1)
        area = np.diff(down)[:, None] * np.diff(across)
        return np.clip(np.diff(np.diff(whole, axis=0), axis=1) / area, 0.0, 1.0)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: a raster is told by its first token."""
        first = int(self.tokens[0, 0])
        about: dict[str, Any] = {"picture": self.picture, "rows": self.rows, "cols": self.cols, "box": list(self.box)}
        if np.array_equal(self.tokens.ravel(), np.arange(first, first + self.tokens.size)):
            return about | {"first": first}
        return about | {"tokens": self.tokens.ravel().tolist()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PatchGrid:
        rows, cols, box = data["rows"], data["cols"], tuple(data["box"])
        if data.get("first") is not None:
            return cls.raster(rows, cols, data["first"], data["picture"], box)
        return cls(data["picture"], np.array(data["tokens"]).reshape(rows, cols), box)


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture as a record keeps it: PNG or JPEG, at most MAX_SIDE pixels a side; `width` and `height` as stored."""

    MAX_SIDE: ClassVar[int] = 768  # larger ones are shrunk

    content: bytes
    width: int
    height: int
    title: str = ""

    @classmethod
    def of(cls, pixels: np.ndarray, title: str = "") -> Picture:
        """A picture of pixels, uint8 (H, W, 3), shrunk where it is large: PNG, or JPEG where that is far smaller."""
        from PIL import Image  # text is looked at without it

        image = Image.fromarray(np.ascontiguousarray(pixels), "RGB")
        if max(image.size) > cls.MAX_SIDE:
            share = cls.MAX_SIDE / max(image.size)
            size = (max(1, round(image.width * share)), max(1, round(image.height * share)))
            image = image.resize(size, Image.Resampling.LANCZOS)
        png, jpeg = io.BytesIO(), io.BytesIO()
        image.save(png, "PNG", optimize=False)
        content = png.getvalue()
        if len(content) > 64 << 10:
            image.save(jpeg, "JPEG", quality=90)
            content = min(content, jpeg.getvalue(), key=lambda one: len(one) * (3 if one is content else 1))
        return cls(content, image.width, image.height, title)

    @cached_property
    def media_type(self) -> str:
        return "image/png" if self.content.startswith(b"\x89PNG") else "image/jpeg"

    def pixels(self) -> np.ndarray:
        """uint8 (H, W, 3)."""
        from regard.pictures.image_files import decode_image

        return decode_image(self.content, self.title or "a picture of a record")

    def to_dict(self) -> dict[str, Any]:
        """For JSON, the content as base64."""
        about = {"title": self.title, "width": self.width, "height": self.height, "type": self.media_type}
        return about | {"content": base64.b64encode(self.content).decode("ascii")}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Picture:
        """The picture, decoded once to see that it is one of that size."""
        found = cls(base64.b64decode(data["content"]), data["width"], data["height"], data["title"])
        height, width, _ = found.pixels().shape
        if (width, height) != (found.width, found.height) or found.media_type != data["type"]:
            given = f"a {found.media_type} of {width} x {height}"
            raise CorpusError(given, f"{data['type']} of {found.width} x {found.height}", where="Picture")
        return found


def _between(sums: np.ndarray, at: np.ndarray, axis: int) -> np.ndarray:
    """Running sums at places between the pixels, linearly."""
    below = np.clip(np.floor(at).astype(int), 0, sums.shape[axis] - 2)
    share = at - below
    low, high = np.take(sums, below, axis), np.take(sums, below + 1, axis)
    share = share[:, None] if axis == 0 else share
    return low * (1 - share) + high * share
