"""Tokenises a corpus into the files of a store: in parts, by several processes, and on from where a kill left it.

The parts lie in `<folder>.building`, each written aside, synced and renamed: what has its name is finished. When all
are there they are joined, and one rename makes the store. Parts are cut by the text alone, so the number of processes
and of attempts changes nothing in the result.
"""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import os
import shutil
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import CorpusError, SettingError, StoreError
from regard.files import Print, alone, write_whole
from regard.text.corpora.corpus import Corpus
from regard.text.store.columns import Columns
from regard.text.store.fields import Fields, fitting, portions
from regard.text.store.joining import join
from regard.text.store.manifest import (
    AGAIN,
    FORMAT,
    Manifest,
    fingerprint,
    same_identity,
    same_sources,
)

PART = 1 << 21  # characters
Progress = Callable[[int], None]  # is told how many examples have just been finished


@dataclass(frozen=True)
class Builder:
    """One build of a store, perhaps the continuation of an earlier one."""

    folder: Path
    corpus: Corpus[Any]
    fields: Fields[Any]
    workers: int = 1  # 1: in this process, on the library's threads
    part: int = PART

    def run(self, progress: Progress | None = None) -> None:
        """Make every part that is missing, join them, and give the store its name."""
        if self.workers < 1:
            raise SettingError(f"workers={self.workers}", "at least 1", where="Store.build")
        before = self._stamps()
        sources = tuple(fingerprint(path) for path in self.corpus.sources)
        aside = building(self.folder)
        aside.mkdir(parents=True, exist_ok=True)
        with alone(
            aside, lambda: StoreError("a build that another process is doing", "one at a time", where=f"{aside}")
        ):
            self._agree(aside, sources)
            parts, examples = self._make_parts(aside, progress)
            if not parts:
                raise CorpusError("no examples", "at least one", where=", ".join(map(str, self.corpus.sources)))
            if self._stamps() != before:
                raise StoreError(
                    "a source that changed while it was read", "one at rest", where=f"{aside}", advice=AGAIN
                )
            tokens, dtypes, files = join(parts, aside / "store")
            Manifest(
                identity=dict(self.fields.identity),
                sources=sources,
                examples=examples,
                tokens=tokens,
                dtypes=dtypes,
                files=files,
                skipped=self.corpus.skipped,
            ).write(aside / "store")
            os.rename(aside / "store", self.folder)
            shutil.rmtree(aside)

    def _stamps(self) -> list[tuple[Path, int, int]]:
        """When each source was last written, and how long it is."""
        found = ((path, path.stat()) for path in self.corpus.sources if path.exists())
        return [(path, status.st_mtime_ns, status.st_size) for path, status in found]

    def _agree(self, aside: Path, sources: tuple[Print, ...]) -> None:
        """Note what is being built, or make sure that an unfinished build was of the same thing."""
        note = aside / "build.json"
        if not note.exists():
            said = {"format": FORMAT, "part": self.part, "identity": self.fields.identity}
            write_whole(note, json.dumps({**said, "sources": [asdict(one) for one in sources]}).encode())
            return
        said = json.loads(note.read_text(encoding="utf-8"))
        if (said["format"], said["part"]) != (FORMAT, self.part):
            raise StoreError("an unfinished build of another format", "this one", where=f"{aside}", advice="Delete it.")
        same_identity(aside, said["identity"], self.fields.identity)
        same_sources(aside, [Print(**one) for one in said["sources"]], sources)

    def _make_parts(self, aside: Path, progress: Progress | None) -> tuple[list[Path], int]:
        """Every part, in order, and the number of examples; at most two parts a worker are in flight."""
        made = {int(path.name.split("-")[1]): path.name for path in aside.glob("part-*.npz")}
        parts: list[Path] = []
        total = 0
        pending: deque[tuple[int, Future[None]]] = deque()

        def finish(most: int) -> None:
            while len(pending) > most:
                count, future = pending.popleft()
                _result(future, aside)
                if progress is not None:
                    progress(count)

        with _pool(self.workers, self.fields) as submit:
            for number, portion in enumerate(portions(fitting(self.corpus, self.fields), self.fields.size, self.part)):
                path = _part(aside, number, _digest(portion), made)
                parts.append(path)
                total += len(portion)
                pending.append((len(portion), _done() if number in made else submit(portion, path)))
                finish(2 * self.workers)
            finish(0)
        return parts, total


def building(folder: Path) -> Path:
    """Where a store is built: beside the folder it will have."""
    return folder.with_name(folder.name + ".building")


def _part(aside: Path, number: int, digest: str, made: dict[int, str]) -> Path:
    """Where a part lies; a part of the same number made of other text means that the text changed."""
    name = f"part-{number:06}-{digest}.npz"
    if made.get(number, name) != name:
        came = f"other text in part {number} than when the build began"
        raise StoreError(came, "the same text", where=f"{aside}", advice="Delete it and build again.")
    return aside / name


def _digest(portion: Sequence[Any]) -> str:
    """A checksum of what the examples say."""
    values = attrgetter(*(field.name for field in fields(portion[0])))
    said = json.dumps([values(example) for example in portion], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def write_part(fields: Fields[Any], portion: Sequence[Any], path: Path) -> None:
    """Tokenise a portion of the corpus into one file."""
    columns: Columns = fields.encode(portion)
    arrays = {
        f"{name}.{what}": getattr(flat, what) for name, flat in columns.fields.items() for what in ("ids", "ends")
    }
    if columns.documents is not None:
        arrays["documents"] = columns.documents
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_whole(path, buffer.getvalue())


Submit = Callable[[Sequence[Any], Path], "Future[None]"]


@contextmanager
def _pool(workers: int, fields: Fields[Any]) -> Iterator[Submit]:
    """A way to hand portions to processes that each hold the tokenizer; with one worker, to nobody."""
    if workers == 1:

        def here(portion: Sequence[Any], path: Path) -> Future[None]:
            write_part(fields, portion, path)
            return _done()

        yield here
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(fields,)) as pool:
        try:
            yield lambda portion, path: pool.submit(_work, portion, path)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _done() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future


def _result(future: Future[None], aside: Path) -> None:
    try:
        future.result()
    except BrokenProcessPool as error:
        raise StoreError(
            "a worker process that died",
            "one that lives",
            where=f"{aside}",
            advice="Was memory short, or does a script build a store outside `if __name__ == '__main__':`? "
            "Finished parts are kept: run it again to go on, perhaps with fewer workers.",
        ) from error


_worker_fields: Any = None  # set once in each worker process


def _start_worker(fields: Fields[Any]) -> None:
    global _worker_fields
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    _worker_fields = fields
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(portion: Sequence[Any], path: Path) -> None:
    write_part(_worker_fields, portion, path)
