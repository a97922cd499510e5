"""An image store: pictures of one size in a memory-mapped file, with their captions or labels and gold regions.

    store = ImageStore.build(folder / "data" / "train.images", SceneImages("captioned", 20_000), workers=2)
    store.pixels[17], store.texts[17]        # uint8 (H, W, 3), text

Drawing a scene and decoding a photograph take longer than a training step has for them, so both are done once. A store
that is there already is opened; one of other settings, or of files that have changed, is refused.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from regard.bounded_files import DATA_LIMIT, read_json
from regard.errors import CorpusError, SettingError, StoreError
from regard.files import write_atomic
from regard.pictures.folder import ImageFile, Unreadable
from regard.pictures.image_files import resize_image
from regard.pictures.scene_corpus import SceneCorpus
from regard.pictures.scene_rng import SceneSettings
from regard.pictures.scene_views import CaptionedScene, LabelledScene, ScenePhrase, captioned, labelled, phrase

FORMAT = 1
MAX_BYTES = 16 << 30  # of pixels in one store
BLOCK = 250  # pictures that a process makes at once
PARALLEL = 2_000  # pictures from which on several processes are worth their start
ABOUT, PIXELS, REGIONS = "images.json", "pixels.npy", "regions.npy"
GOLD_KINDS = ("colour", "shape")  # of words whose region is kept
NO_REGION = -1

SceneView = Literal["captioned", "labelled", "phrase"]


class StoredImage(NamedTuple):
    """A picture, uint8 (H, W, 3), its text, gold regions, bool (R, H, W), and the region of each word or NO_REGION."""

    pixels: np.ndarray
    text: str
    regions: np.ndarray | None = None
    words: tuple[int, ...] = ()


class ImageSource(Protocol):
    """Where the pictures of a store come from; `describe` tells all that they depend on."""

    @property
    def size(self) -> int: ...

    @property
    def regions(self) -> int:
        """Gold regions of each picture."""

    def __len__(self) -> int: ...

    def describe(self) -> dict[str, Any]: ...

    def read(self, start: int, stop: int) -> list[StoredImage | str]:
        """Some of the pictures, or why one is left out."""


@dataclass(frozen=True)
class SceneImages:
    """Scenes of the built-in corpus. With `gold`, also the regions that colour and shape words of captions speak of."""

    view: SceneView
    count: int
    split: str = "train"
    seed: int = 0
    settings: SceneSettings = field(default_factory=SceneSettings)
    gold: bool = False

    @property
    def size(self) -> int:
        return self.settings.size

    @property
    def regions(self) -> int:
        if self.view == "phrase":
            return 1
        return 2 if self.view == "captioned" and self.gold else 0

    def __len__(self) -> int:
        return self.count

    def describe(self) -> dict[str, Any]:
        settings = {name: getattr(self.settings, name) for name in SceneSettings.__dataclass_fields__}
        return {"scenes": self.view, "count": self.count, "split": self.split, "seed": self.seed, **settings}

    def read(self, start: int, stop: int) -> list[StoredImage | str]:
        views = {"captioned": captioned, "labelled": labelled, "phrase": phrase}
        corpus: SceneCorpus[Any] = SceneCorpus(views[self.view], stop, self.split, self.seed, self.settings)
        return [self._stored(corpus[index]) for index in range(start, stop)]

    def _stored(self, example: CaptionedScene | LabelledScene | ScenePhrase) -> StoredImage:
        scene = example.scene
        if isinstance(example, LabelledScene):
            return StoredImage(scene.draw(), example.label)
        if isinstance(example, ScenePhrase):
            return StoredImage(scene.draw(), example.text, scene.region([example.target])[None])
        caption = example.caption
        if not self.gold:
            return StoredImage(scene.draw(), caption.text)
        both = (caption.target, caption.landmark)
        regions = np.stack([scene.region([one]) for one in both])
        words = tuple(both.index(word.objects[0]) if word.kind in GOLD_KINDS else NO_REGION for word in caption.words)
        return StoredImage(scene.draw(), caption.text, regions, words)


@dataclass(frozen=True)
class FileImages:
    """Image files with a caption or a label, made squares of `size` pixels."""

    files: tuple[ImageFile, ...]
    size: int
    unreadable: Unreadable = "refuse"
    fit: Literal["crop", "stretch"] = "crop"
    regions = 0

    def __len__(self) -> int:
        return len(self.files)

    def describe(self) -> dict[str, Any]:
        listed = [[str(one.path), one.label or "", one.caption or "", *_state(one.path)] for one in self.files]
        return {"files": listed, "size": self.size, "unreadable": self.unreadable, "fit": self.fit}

    def read(self, start: int, stop: int) -> list[StoredImage | str]:
        return [self._stored(one) for one in self.files[start:stop]]

    def _stored(self, file: ImageFile) -> StoredImage | str:
        text = file.label if file.caption is None else file.caption
        assert text is not None, "an image file with a caption or a label"
        try:
            return StoredImage(resize_image(file.read(self.size), self.size, self.fit), text)
        except CorpusError as error:
            if self.unreadable == "refuse":
                raise
            return f"{error.where}: {error.problem}"


@dataclass(frozen=True, eq=False)
class ImageStore:
    """Pictures that were made once. `words`: the gold region of each word of a text; `skipped`: what was left out."""

    pixels: np.ndarray  # uint8 (N, H, W, 3)
    texts: tuple[str, ...]
    packed_regions: np.ndarray | None = None  # uint8 (N, R, ceil(H W / 8))
    words: tuple[tuple[int, ...], ...] = ()
    skipped: tuple[str, ...] = ()
    fingerprint: str = ""

    @classmethod
    def build(cls, folder: Path, source: ImageSource, workers: int = 1) -> ImageStore:
        """The store of a source in a folder: the one that is there, or else a new one.

        `workers`: processes that make the pictures. A script that asks for several needs `if __name__ == "__main__"`.
        """
        described = json.loads(json.dumps(source.describe()))
        if (folder / ABOUT).exists():
            return cls.open(folder, described)
        _expect_bounded(source)
        with _folder_aside(folder) as aside:
            _write(aside, source, described, workers)
        return cls.open(folder, described)

    @classmethod
    def open(cls, folder: Path, described: Mapping[str, Any]) -> ImageStore:
        try:
            about = read_json(folder / ABOUT, StoreError, DATA_LIMIT)
            if about["format"] != FORMAT or about["source"] != described:
                raise StoreError(
                    "These pictures are of other settings, or of files that have changed since",
                    where=f"{folder}",
                    advice="Train in a new folder.",
                )
            count = len(about["texts"])
            pixels = np.load(folder / PIXELS, mmap_mode="r")[:count]
            regions = np.load(folder / REGIONS, mmap_mode="r")[:count] if about["regions"] else None
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"The pictures cannot be read ({error})", where=f"{folder}") from error
        words = tuple(map(tuple, about["words"]))
        return cls(pixels, tuple(about["texts"]), regions, words, tuple(about["skipped"]), _digest(described))

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def size(self) -> int:
        return int(self.pixels.shape[1])

    def regions(self, rows: np.ndarray) -> np.ndarray:
        """The gold regions of some pictures, bool (B, R, H, W)."""
        assert self.packed_regions is not None
        bits = np.unpackbits(self.packed_regions[rows], axis=-1, count=self.size**2)
        return bits.astype(bool).reshape(*bits.shape[:-1], self.size, self.size)

    def part(self, start: int, stop: int) -> ImageStore:
        """The pictures from start to stop; what is memory-mapped stays so."""
        regions = None if self.packed_regions is None else self.packed_regions[start:stop]
        fingerprint = f"{self.fingerprint}[{start}:{stop}]"
        return replace(
            self,
            pixels=self.pixels[start:stop],
            texts=self.texts[start:stop],
            packed_regions=regions,
            words=self.words[start:stop],
            fingerprint=fingerprint,
        )


def _write(folder: Path, source: ImageSource, described: Mapping[str, Any], workers: int) -> None:
    size, many = source.size, source.regions
    pixels = np.lib.format.open_memmap(folder / PIXELS, "w+", np.uint8, (len(source), size, size, 3))
    regions = None
    if many:
        shape = (len(source), many, -(-size * size // 8))
        regions = np.lib.format.open_memmap(folder / REGIONS, "w+", np.uint8, shape)
    texts: list[str] = []
    words: list[tuple[int, ...]] = []
    skipped: list[str] = []
    for made in _all_of(source, workers):
        if isinstance(made, str):
            skipped.append(made)
            continue
        pixels[len(texts)] = made.pixels
        if regions is not None and made.regions is not None:
            regions[len(texts)] = np.packbits(made.regions.reshape(many, -1), axis=-1)
        texts.append(made.text)
        words.append(made.words)
    pixels.flush()
    if regions is not None:
        regions.flush()
    if not texts:
        raise CorpusError("No image could be read", where=skipped[0] if skipped else f"{folder}")
    about = {"format": FORMAT, "source": described, "regions": many, "texts": texts, "words": words, "skipped": skipped}
    write_atomic(folder / ABOUT, json.dumps(about).encode())


def _all_of(source: ImageSource, workers: int) -> Iterator[StoredImage | str]:
    """All pictures in order, made in this process or in several."""
    starts = range(0, len(source), BLOCK)
    stops = [min(start + BLOCK, len(source)) for start in starts]
    if workers <= 1 or len(source) < PARALLEL:
        yield from _chained(map(source.read, starts, stops))
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        try:
            yield from _chained(pool.map(_read, repeat(source), starts, stops))
        finally:
            pool.shutdown(cancel_futures=True)


def _read(source: ImageSource, start: int, stop: int) -> list[StoredImage | str]:
    return source.read(start, stop)


def _chained(blocks: Iterable[list[StoredImage | str]]) -> Iterator[StoredImage | str]:
    for block in blocks:
        yield from block


def _expect_bounded(source: ImageSource) -> None:
    needed = len(source) * source.size**2 * 3
    if not len(source):
        raise CorpusError("There are no pictures", where="ImageStore")
    if needed > MAX_BYTES:
        raise SettingError(
            f"{len(source):,} pictures of {source.size} pixels a side, {needed / (1 << 30):.1f} GiB",
            f"at most {MAX_BYTES >> 30} GiB",
            where="ImageStore",
            advice="Take fewer or smaller pictures.",
        )


@contextmanager
def _folder_aside(folder: Path) -> Iterator[Path]:
    """A new folder beside, which takes the place of the folder when all went well."""
    aside = folder.with_name(f"{folder.name}.part")
    for old in (aside, folder):  # of a process that was killed
        shutil.rmtree(old, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _state(path: Path) -> tuple[int, int]:
    """The size and the time of change of a file, which tell whether it is still the same; zeros where there is none."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


def _digest(described: Mapping[str, Any]) -> str:
    from hashlib import blake2b

    return blake2b(json.dumps(described, sort_keys=True).encode(), digest_size=16).hexdigest()
