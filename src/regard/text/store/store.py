"""The token store: a corpus tokenized once into memory-mapped files, with a checksummed manifest.

columns = Store.build("corpus.store", corpus, TranslationFields(tokenizer), workers=4)   # or opened, if it exists
columns = Store.open("corpus.store")
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from regard.bounded_files import expect_regular
from regard.errors import StoreError
from regard.text.corpora.corpus import Corpus
from regard.text.store.builder import PART, Builder, Progress, build_folder
from regard.text.store.columns import Columns, RaggedArray
from regard.text.store.fields import Fields
from regard.text.store.manifest import NAME, REBUILD, Manifest, check_identity, check_sources, fingerprint


@dataclass(frozen=True, eq=False, repr=False)
class Store(Columns):
    """Columns on disk; `open` checks file sizes, `verify` every checksum."""

    folder: Path = field(kw_only=True)
    manifest: Manifest = field(kw_only=True)

    @classmethod
    def build(
        cls,
        folder: str | os.PathLike[str],
        corpus: Corpus[Any],
        fields: Fields[Any],
        *,
        workers: int = 1,
        part: int = PART,
        progress: Progress | None = None,
    ) -> Store:
        """Build the store of a corpus, or open it if it exists and is up to date.

        An interrupted build is resumed. A store of other text or of another tokenizer is refused.
        """
        folder = Path(folder)
        if not hasattr(corpus, "sources"):
            raise StoreError(
                f"examples of type {type(corpus).__name__}",
                "a corpus that reads files, whose changes the store can detect",
                where=f"{folder}",
                advice="encode_columns(examples, fields) takes any iterable; `regard corpus` writes the "
                "built-in corpus to files.",
            )
        if not (folder / NAME).exists():
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise StoreError("a path that exists and is no store", "a new or an empty folder", where=f"{folder}")
            Builder(folder, corpus, fields, workers, part).run(progress)
            return cls.open(folder)
        store = cls.open(folder, fields)
        check_sources(folder, store.manifest.sources, [fingerprint(path) for path in corpus.sources])
        if build_folder(folder).exists():  # left by an interruption after the last step
            shutil.rmtree(build_folder(folder))
        return store

    @classmethod
    def open(cls, folder: str | os.PathLike[str], fields: Fields[Any] | None = None) -> Store:
        """Memory-map a store; with `fields`, one made with other settings (another tokenizer) is refused."""
        folder = Path(folder)
        manifest = Manifest.read(folder)
        if fields is not None:
            check_identity(folder, manifest.identity, fields.identity)
        for file in manifest.files:
            _check_size(folder / file.path, file.size)
        columns = {
            name: RaggedArray(_memory_map(folder / f"{name}.ids.npy"), _memory_map(folder / f"{name}.ends.npy"))
            for name in manifest.tokens
        }
        bounds = _memory_map(folder / "documents.npy") if (folder / "documents.npy").exists() else None
        return cls(columns, bounds, folder=folder, manifest=manifest)

    def verify(self) -> None:
        """Read every file and compare its checksum with the manifest."""
        for kept in self.manifest.files:
            found = fingerprint(self.folder / kept.path)
            if found.sha256 != kept.sha256:
                raise StoreError(
                    f"The file is damaged: sha256 {found.sha256[:12]}... instead of {kept.sha256[:12]}...",
                    where=f"{self.folder / kept.path}",
                    advice=REBUILD,
                )


def _check_size(path: Path, size: int) -> None:
    try:
        found = path.stat().st_size
    except OSError as error:
        raise StoreError(f"The file is missing ({error.strerror})", where=f"{path}", advice=REBUILD) from error
    if found != size:
        raise StoreError(f"a file of {found} bytes", f"{size} bytes", where=f"{path}", advice=REBUILD)


def _memory_map(path: Path) -> Any:
    try:
        expect_regular(path, StoreError)
        return np.load(path, mmap_mode="r")
    except StoreError:
        raise
    except (ValueError, OSError, EOFError) as error:
        raise StoreError(f"The file is damaged ({error})", where=f"{path}", advice=REBUILD) from error
