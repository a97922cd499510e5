"""Image augmentation: random crop with scale, horizontal flip and colour jitter, by seed and index."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import numpy as np

from regard.errors import SettingError
from regard.pictures.image_files import resize_box

CROP_TRIES = 10  # until the largest square in the middle is taken
LUMINANCE = np.array((0.299, 0.587, 0.114), np.float32)


@dataclass(frozen=True, slots=True)
class Augment:
    """Training-time changes of an image, as values.

    >>> Augment(64, flip=0.5)(pixels, seed=0, index=17).shape
    (64, 64, 3)

    size       side of the result in pixels
    scale      share of the image's area that a crop keeps (least, most)
    ratio      width over height of a crop (least, most)
    flip       probability of a horizontal flip; 0, since captions may say left and right
    brightness, contrast, saturation    largest relative change of each
    """

    size: int
    scale: tuple[float, float] = (0.5, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.0
    brightness: float = 0.2
    contrast: float = 0.2
    saturation: float = 0.2

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SettingError(f"size={self.size}", "1 pixel or more", where="Augment")
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise SettingError(f"scale={self.scale}", "two shares above 0, at most 1, in order", where="Augment")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise SettingError(f"ratio={self.ratio}", "two positive ratios, in order", where="Augment")
        for name in ("flip", "brightness", "contrast", "saturation"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingError(f"{name}={getattr(self, name)}", "a number from 0 to 1", where="Augment")

    def __call__(self, pixels: np.ndarray, seed: int, index: int) -> np.ndarray:
        """The changed image, uint8 (size, size, 3). Count epochs in the seed, to change an image anew in each."""
        rng = Random(f"augment/{seed}/{index}")
        height, width = pixels.shape[:2]
        changed = resize_box(pixels, self._crop(rng, width, height), self.size)
        if rng.random() < self.flip:
            changed = changed[:, ::-1]
        return self._jitter(rng, changed)

    def _crop(self, rng: Random, width: int, height: int) -> tuple[float, float, float, float]:
        for _ in range(CROP_TRIES):
            area = width * height * rng.uniform(*self.scale)
            ratio = math.exp(rng.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            across, down = math.sqrt(area * ratio), math.sqrt(area / ratio)
            left, top = rng.random() * (width - across), rng.random() * (height - down)
            if across <= width and down <= height:
                return left, top, left + across, top + down
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        return left, top, left + side, top + side

    def _jitter(self, rng: Random, pixels: np.ndarray) -> np.ndarray:
        """Brightness, then saturation about each pixel's grey, then contrast about the mean grey."""
        brightness, contrast, saturation = (
            1 + most * rng.uniform(-1, 1) for most in (self.brightness, self.contrast, self.saturation)
        )
        colours = pixels.astype(np.float32) * np.float32(brightness)
        grey = colours @ LUMINANCE
        colours += np.float32(saturation - 1) * (colours - grey[:, :, None])
        mean = np.float32(grey.mean())
        colours = mean + np.float32(contrast) * (colours - mean)
        return np.clip(np.rint(colours), 0, 255).astype(np.uint8)
