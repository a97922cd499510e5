"""Folders of images as people have them: class folders, or a table with a column of image files and one of text.

    ImageFolder("flowers")                                      flowers/rose/*.jpg, ...: the folder is the label
    ImageTable("captions.tsv")                                  columns `image` and `caption`
    ImageTable("labels.csv", caption=None, label="class")
    ImageTable(TableFile("list.tsv", header=None), image=0, caption=1)

Both list the files when they are made and decode them when they are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from regard.errors import CorpusError, SettingError, unknown
from regard.pictures.image_files import ENDINGS, read_image
from regard.text import DictRows, Labels, SkippedLines, TableFile

Unreadable = Literal["refuse", "skip"]  # what to do with a file that cannot be read
Column = str | int


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image file and what is said of it; `where` is the line that names it, or its path."""

    path: Path
    where: str
    label: str | None = None
    caption: str | None = None

    def read(self, at_least: int | None = None) -> np.ndarray:
        """Its pixels: uint8 (H, W, 3); see read_image."""
        try:
            return read_image(self.path, at_least)
        except CorpusError as error:
            raise error.replace(where=f"{self.where}: {error.where}" if self.where != error.where else None) from error


@dataclass(frozen=True, slots=True)
class LoadedImage:
    """An image as it was read: uint8 (H, W, 3), with the file that it came from."""

    pixels: np.ndarray
    file: ImageFile

    @property
    def label(self) -> str | None:
        return self.file.label

    @property
    def caption(self) -> str | None:
        return self.file.caption


@dataclass
class ImageCorpus:
    """The base class of the readers: a list of files, decoded one at a time in each pass.

    A file that cannot be read is refused by its name; with unreadable="skip" it is counted in `skipped`, which belongs
    to the latest pass.
    """

    unreadable: Unreadable = field(default="refuse", kw_only=True)
    files: tuple[ImageFile, ...] = field(default=(), init=False, repr=False)
    skipped: SkippedLines = field(default_factory=SkippedLines, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.unreadable not in ("refuse", "skip"):
            raise unknown(self.unreadable, ("refuse", "skip"), kind="value of unreadable", where=type(self).__name__)

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[LoadedImage]:
        return self.read()

    def read(self, at_least: int | None = None) -> Iterator[LoadedImage]:
        """The images in order; large JPEG files are decoded smaller with `at_least` (see read_image)."""
        self.skipped = SkippedLines()
        for file in self.files:
            try:
                pixels = file.read(at_least)
            except CorpusError as error:
                if self.unreadable == "refuse":
                    raise
                self.skipped.add(error.where, error.problem)
                continue
            yield LoadedImage(pixels, file)

    def verify(self) -> tuple[ImageFile, ...]:
        """Decode every file once; those that can be read. The others are refused or skipped, as in a pass."""
        return tuple(loaded.file for loaded in self.read())

    @property
    def labels(self) -> Labels:
        """The labels, in order."""
        return Labels.of(file.label for file in self.files if file.label is not None)


@dataclass
class ImageFolder(ImageCorpus):
    """Class folders: every folder in `root` is a class, and the images in it, however deep, are its examples.

    Hidden files, and files with other endings than those of PNG, JPEG and WebP, are left out; `left_out` counts these.
    """

    root: str | os.PathLike[str]
    left_out: SkippedLines = field(default_factory=SkippedLines, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        root = Path(self.root)
        try:
            classes = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
        except FileNotFoundError as error:
            raise CorpusError("Folder not found", where=f"{root}") from error
        except OSError as error:
            raise CorpusError(f"Could not read the folder: {error.strerror}", where=f"{root}") from error
        if not classes:
            advice = f"Put the images of each class in a folder of its own: {root / 'cat' / '1.jpg'}."
            raise CorpusError("The folder has no class folders", where=f"{root}", advice=advice)
        self.files = tuple(file for path in classes for file in self._of_class(path))

    def _of_class(self, folder: Path) -> list[ImageFile]:
        found = []
        for path in _files_below(folder):
            if path.suffix.lower() in ENDINGS:
                found.append(ImageFile(path, f"{path}", label=folder.name))
            else:
                self.left_out.add(f"{path}", "not the ending of an image")
        if not found:
            raise CorpusError(
                "The class folder has no images", where=f"{folder}", advice=f"Known: {', '.join(ENDINGS)}."
            )
        return found


@dataclass
class ImageTable(ImageCorpus):
    """A table (TSV, CSV, JSON lines, or any rows) with a column of image files, and one of captions or labels, or both.

    Paths are relative to the table's folder, or to `root`. In JSON lines a list of captions is one example each.
    """

    rows: str | os.PathLike[str] | TableFile | DictRows
    image: Column = "image"
    caption: Column | None = "caption"
    label: Column | None = None
    root: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.caption is None and self.label is None:
            raise SettingError("neither caption nor label", "the column of one of them", where="ImageTable")
        rows = self.rows if isinstance(self.rows, (TableFile, DictRows)) else TableFile(Path(self.rows))
        default = rows.path.parent if isinstance(rows, TableFile) else Path()
        root = default if self.root is None else Path(self.root)
        found = []
        for row in rows:
            path, where = root / _filled(row.text(self.image), self.image, row.where), row.where
            label = None if self.label is None else _label(row.get(self.label), self.label, where)
            told = None if self.caption is None else row.get(self.caption)
            for caption in told if isinstance(told, list) and told else [told]:
                text = None if self.caption is None else _filled(caption, self.caption, where)
                found.append(ImageFile(path, where, label, text))
        if not found:
            raise CorpusError(
                "The table has no rows", where=f"{rows.path if isinstance(rows, TableFile) else rows.name}"
            )
        self.files = tuple(found)
        self.lines_skipped = rows.skipped


def _files_below(folder: Path) -> Iterator[Path]:
    """The files of a folder and of those in it, sorted, without hidden ones; links to folders are not followed."""
    for place, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(files) if not name.startswith("."))


def _refuse(error: OSError) -> None:
    raise CorpusError(f"Could not read the folder: {error.strerror}", where=f"{error.filename}") from error


def _filled(value: object, column: Column, where: str) -> str:
    if not isinstance(value, str):
        raise CorpusError(f"{column!r} = {value!r:.60}", "text", where=where)
    if not value.strip():
        raise CorpusError(f"Column {column!r} is blank", where=where)
    return value


def _label(value: object, column: Column, where: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _filled(value, column, where)
