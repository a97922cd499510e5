"""The section [data] of tasks on pictures: built-in scenes, class folders, tables of image files; [augment]."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from regard.errors import CorpusError, SettingError
from regard.pictures import (
    Augment,
    FileImages,
    ImageFile,
    ImageFolder,
    ImageStore,
    ImageTable,
    SceneImages,
    SceneSettings,
)
from regard.text import Buckets, Epoch
from regard.training.section import Count, Fraction, InputPath, RecipeSection
from regard.training.tasks.holdout import first_held_out

MAX_WORKERS = 4
Side = Annotated[int, Field(ge=8, le=1024)]
Range = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]
Unreadable = Literal["refuse", "skip"]


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """The stores of training and validation pictures."""

    train: ImageStore
    valid: ImageStore | None

    @cached_property
    def notes(self) -> tuple[str, ...]:
        skipped = [one for store in (self.train, self.valid) if store is not None for one in store.skipped]
        held_out = "none" if self.valid is None else f"{len(self.valid):,}"
        told = f"{len(self.train):,} training pictures of {self.train.size} pixels, {held_out} for validation"
        return (told, *([f"{len(skipped):,} skipped, such as {skipped[0]}"] if skipped else []))


class _SceneData(RecipeSection):
    """Scenes of the built-in picture corpus, drawn before training: `examples` and `valid`, `size` pixels a side.

    `objects`, `clutter`: least and most in a scene. `noise`: standard deviations in grey levels, one for each scene.
    """

    kind: Literal["built-in"] = "built-in"
    examples: Count = 20_000
    valid: Annotated[int, Field(ge=0)] = 1000
    seed: Annotated[int, Field(ge=0)] = 0
    size: Annotated[int, Field(ge=64, le=128)] = SceneSettings().size
    objects: Range = (3, 5)
    clutter: Range = (0, 4)
    noise: tuple[float, ...] = (0.0, 3.0, 6.0)

    def _stores(self, folder: Path, view: Literal["captioned", "labelled", "phrase"]) -> ImageSplit:
        settings = SceneSettings(size=self.size, objects=self.objects, clutter=self.clutter, noise=self.noise)

        def store(split: str, count: int) -> ImageStore:
            source = SceneImages(view, count, split, self.seed, settings, gold=split != "train")
            return ImageStore.build(folder / "data" / f"{split}.images", source, _processes())

        return ImageSplit(store("train", self.examples), store("valid", self.valid) if self.valid else None)


class CaptionedScenes(_SceneData):
    """Scenes with captions by the rule of the corpus; for validation also with the gold regions of their words."""

    def stores(self, folder: Path) -> ImageSplit:
        return self._stores(folder, "captioned")


class LabelledScenes(_SceneData):
    """Scenes with one key shape each, which is the class."""

    labels: list[str] | None = None

    def stores(self, folder: Path) -> ImageSplit:
        return self._stores(folder, "labelled")


class PhraseScenes(_SceneData):
    """Scenes with a phrase that refers to one object, and its region."""

    def stores(self, folder: Path) -> ImageSplit:
        return self._stores(folder, "phrase")


class _ImageFiles(RecipeSection):
    """Image files, made squares of `size` pixels before training: the largest square in the middle of each ("crop"), or
    all of it ("stretch").

    `valid`: as `train`, or the share of the pictures to hold out, chosen at random and always the same. `unreadable`:
    files that cannot be read are refused by name, or skipped and counted.
    """

    train: InputPath
    valid: InputPath | Fraction = 0.1
    size: Side = 64
    fit: Literal["crop", "stretch"] = "crop"
    unreadable: Unreadable = "refuse"

    def _split(self, folder: Path, read: Callable[[Path], Sequence[ImageFile]]) -> ImageSplit:
        files = tuple(read(self.train))
        if isinstance(self.valid, float):
            train, valid = hold_out(files, self.valid, self.train)
        else:
            train, valid = files, tuple(read(self.valid))

        def store(name: str, some: tuple[ImageFile, ...]) -> ImageStore:
            source = FileImages(some, self.size, self.unreadable, self.fit)
            return ImageStore.build(folder / "data" / f"{name}.images", source, _processes())

        return ImageSplit(store("train", train), store("valid", valid) if valid else None)


class ImageFolderData(_ImageFiles):
    """Class folders: every folder in `train` is a class, and the images in it are its examples."""

    kind: Literal["image-folder"] = "image-folder"
    labels: list[str] | None = None

    def stores(self, folder: Path) -> ImageSplit:
        return self._split(folder, lambda path: ImageFolder(path).files)


class LabelledImageTable(_ImageFiles):
    """A table (TSV, CSV, JSON lines) with a column of image files and one of classes."""

    kind: Literal["image-table"] = "image-table"
    image: str = "image"
    label: str = "label"
    labels: list[str] | None = None

    def stores(self, folder: Path) -> ImageSplit:
        return self._split(folder, lambda path: ImageTable(path, self.image, None, self.label).files)


class CaptionTable(_ImageFiles):
    """A table (TSV, CSV, JSON lines) with a column of image files and one of captions; in JSON lines a list of captions
    is an example each, all of them on the same side of the holdout."""

    kind: Literal["image-table"] = "image-table"
    image: str = "image"
    caption: str = "caption"

    def stores(self, folder: Path) -> ImageSplit:
        return self._split(folder, lambda path: ImageTable(path, self.image, self.caption).files)


class NoAugment(RecipeSection):
    kind: Literal["none"] = "none"


class RandomAugment(RecipeSection):
    """Random crops (`scale`: the share of the area that is kept), flips and colours, anew in every epoch.

    `flip` is the probability of a mirror image: leave it at 0 where captions say left and right.
    """

    kind: Literal["random"] = "random"
    scale: tuple[float, float] = (0.5, 1.0)
    flip: float = 0.0
    brightness: float = 0.2
    contrast: float = 0.2
    saturation: float = 0.2


AnyAugment = Annotated[NoAugment | RandomAugment, Field(discriminator="kind")]


def augment_of(section: NoAugment | RandomAugment, size: int) -> Augment | None:
    """The augmentation of a section; None: there is none."""
    if isinstance(section, NoAugment):
        return None
    try:
        return Augment(size, **section.model_dump(exclude={"kind"}))
    except SettingError as error:
        raise error.replace(where="augment") from error


class ImageBatches(RecipeSection):
    """`rows` pictures a batch."""

    rows: Count = 64

    def plan(self, pictures: int) -> Buckets:
        return Buckets(np.ones(pictures, np.int64), self.rows)


class CaptionBatches(ImageBatches):
    """Captions are truncated to `max_length` tokens."""

    max_length: Count | None = 64


def hold_out(
    files: Sequence[ImageFile], share: float, where: Path
) -> tuple[tuple[ImageFile, ...], tuple[ImageFile, ...]]:
    """The files for training and those for validation: a share of the images of each class, at random."""
    if not share:
        return tuple(files), ()
    classes: dict[str | None, dict[Path, None]] = {}
    for file in files:
        classes.setdefault(file.label, {})[file.path] = None
    held: set[Path] = set()
    for number, paths in enumerate(classes.values()):
        order = Epoch(number).rng("holdout").permutation(len(paths))
        listed = list(paths)
        try:
            first = first_held_out(len(listed), share, [where])
        except CorpusError:
            continue  # a class of one image has none to spare
        held |= {listed[place] for place in order[first:]}
    if not held:
        first_held_out(1, share, [where])  # says why
    return tuple(one for one in files if one.path not in held), tuple(one for one in files if one.path in held)


def _processes() -> int:
    """How many processes draw: several on the command line, and one in a script or notebook, which new processes would
    run again from its beginning."""
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None) or ""
    if not (spec is not None and spec.name.startswith("regard.")) and Path(file).name != "regard":
        return 1
    return min(MAX_WORKERS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
