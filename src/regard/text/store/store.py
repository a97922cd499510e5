"""A token store: a corpus tokenised once into files that are mapped into memory, with a manifest that vouches for them.

columns = Store.build("corpus.store", corpus, TranslationFields(tokenizer), workers=4)   # once; then it is there
columns = Store.open("corpus.store")
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import StoreError
from regard.text.corpora.corpus import Corpus
from regard.text.store.builder import PART, Builder, Progress, building
from regard.text.store.columns import Columns, Flat
from regard.text.store.fields import Fields
from regard.text.store.manifest import AGAIN, NAME, Manifest, fingerprint, same_identity, same_sources


@dataclass(frozen=True, eq=False)
class Store(Columns):
    """Columns on disk; `open` looks at sizes, `verify` at every byte."""

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
        """The store of a corpus: tokenised now, or taken as it is if it is there and still of this corpus.

        A build that was killed goes on where it was. A store of other text or of another tokenizer is refused.
        """
        folder = Path(folder)
        if not hasattr(corpus, "sources"):
            raise StoreError(
                f"examples of type {type(corpus).__name__}",
                "a corpus that reads files, so that the store can tell when it is stale",
                where=f"{folder}",
                advice="columns_of(examples, fields) takes any; `regard corpus` writes the built-in one as files.",
            )
        if not (folder / NAME).exists():
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise StoreError("something that is no store", "a new or an empty folder", where=f"{folder}")
            Builder(folder, corpus, fields, workers, part).run(progress)
            return cls.open(folder)
        store = cls.open(folder, fields)
        same_sources(folder, store.manifest.sources, [fingerprint(path) for path in corpus.sources])
        if building(folder).exists():  # a kill after the last step left it behind
            shutil.rmtree(building(folder))
        return store

    @classmethod
    def open(cls, folder: str | os.PathLike[str], fields: Fields[Any] | None = None) -> Store:
        """Map a store into memory; with `fields`, one that was made otherwise (another tokenizer) is refused."""
        folder = Path(folder)
        manifest = Manifest.read(folder)
        if fields is not None:
            same_identity(folder, manifest.identity, fields.identity)
        for print_ in manifest.files:
            _sized(folder / print_.path, print_.size)
        flats = {
            name: Flat(_mapped(folder / f"{name}.ids.npy"), _mapped(folder / f"{name}.ends.npy"))
            for name in manifest.tokens
        }
        bounds = _mapped(folder / "documents.npy") if (folder / "documents.npy").exists() else None
        return cls(flats, bounds, folder=folder, manifest=manifest)

    def verify(self) -> None:
        """Read every file through and compare its checksum with the manifest's."""
        for kept in self.manifest.files:
            found = fingerprint(self.folder / kept.path)
            if found.sha256 != kept.sha256:
                raise StoreError(
                    f"a damaged file (sha256 {found.sha256[:12]}...)",
                    f"sha256 {kept.sha256[:12]}...",
                    where=f"{self.folder / kept.path}",
                    advice=AGAIN,
                )


def _sized(path: Path, size: int) -> None:
    try:
        found = path.stat().st_size
    except OSError as error:
        raise StoreError(f"a file that is missing ({error.strerror})", "it", where=f"{path}", advice=AGAIN) from error
    if found != size:
        raise StoreError(f"a file of {found} bytes", f"{size} bytes", where=f"{path}", advice=AGAIN)


def _mapped(path: Path) -> Any:
    try:
        return np.load(path, mmap_mode="r")
    except (ValueError, OSError) as error:
        raise StoreError(f"a damaged file ({error})", "an array", where=f"{path}", advice=AGAIN) from error
