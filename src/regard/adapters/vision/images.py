"""Images as users pass them: paths, uint8 arrays, PIL images; several of them; and a video as a list of its frames."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import CorpusError, SettingError

ENDINGS = (".png", ".jpg", ".jpeg", ".webp")
MAX_IMAGES = 256  # of one look, frames of videos included


@dataclass(frozen=True, eq=False)
class GivenImage:
    """An image as pixels, uint8 (H, W, 3), or a video as the list of its frames; and what it is called."""

    frames: tuple[np.ndarray, ...]
    title: str = ""
    video: bool = False

    @property
    def pixels(self) -> np.ndarray:
        return self.frames[0]


def is_image_path(given: object) -> bool:
    """Whether this is a path of an image: any Path, and text that ends like one and names a file, or has no spaces.

    >>> is_image_path("cat.png"), is_image_path("a cat in cat.png ."), is_image_path("a cat")
    (True, False, False)
    """
    if isinstance(given, Path):
        return True
    if not isinstance(given, str) or not given.lower().endswith(ENDINGS) or "\n" in given or "\0" in given:
        return False
    return os.path.exists(given) or not any(one.isspace() for one in given)


def given_images(given: Any) -> list[GivenImage]:
    """The images that a user passed; none where it is a text.

    A list has one image, or one video, in each place; a video is a list of frames, or an array (N, H, W, 3).
    """
    if isinstance(given, str) and not is_image_path(given):
        return []
    single = not isinstance(given, list | tuple)
    if not single and not given:
        raise SettingError("The list of images is empty", where="look")
    found = [_one(item) for item in ([given] if single else given)]
    count = sum(len(one.frames) for one in found)
    if count > MAX_IMAGES:
        raise SettingError(f"{count} images", f"at most {MAX_IMAGES}", where="look")
    return found


def _one(given: Any) -> GivenImage:
    if isinstance(given, np.ndarray) and given.ndim == 4:
        given = list(given)
    if isinstance(given, list | tuple):
        if not given:
            raise SettingError("A video without frames", where="look")
        frames = [_pixels(one) for one in given]
        if len({one.shape for one in frames}) > 1:
            raise SettingError("The frames of a video have several sizes", where="look")
        return GivenImage(tuple(frames), video=True)
    title = Path(given).name if is_image_path(given) else ""
    return GivenImage((_pixels(given),), title)


def _pixels(given: Any) -> np.ndarray:
    """uint8 (H, W, 3)."""
    from PIL import Image

    from regard.pictures import read_image

    if is_image_path(given):
        return read_image(given)
    if isinstance(given, Image.Image):
        return np.asarray(given.convert("RGB"))
    if isinstance(given, np.ndarray):
        if given.dtype != np.uint8 or given.ndim not in (2, 3) or (given.ndim == 3 and given.shape[2] != 3):
            came = f"an array of {given.dtype} {given.shape}"
            raise SettingError(came, "uint8 (height, width, 3), or (height, width) in grey", where="look")
        if not given.size:
            raise CorpusError("The image has no pixels", where="look")
        return given if given.ndim == 3 else np.repeat(given[:, :, None], 3, 2)
    advice = "Tensors that are ready for the model are passed by name: {'pixel_values': ...}."
    expected = "a text, an image (path, uint8 array, PIL image), a list of images, or tensors by name"
    raise SettingError(f"a {type(given).__name__}", expected, where="look", advice=advice)


def describe_images(images: Sequence[GivenImage], text: str | None) -> str:
    """The images and the text, in words: the title of a record."""
    names = [one.title or (f"a video of {len(one.frames)} frames" if one.video else "an image") for one in images]
    if len(names) > 3 or (len(names) > 1 and len(set(names)) == 1):
        names = [f"{len(names)} images" if not any(one.video for one in images) else f"{len(names)} images and videos"]
    return ", ".join(names) + ("" if text is None else f": {text}")
