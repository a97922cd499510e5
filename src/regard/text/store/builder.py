"""Builds a token store: tokenizes a corpus in parts, in several processes, and resumes after an interruption.

The parts lie in `<folder>.building`; each is written to a temporary file, synced and renamed, so a part with its final
name is complete. When all exist they are merged, and one rename makes the store. The text alone decides where parts
end, so the result does not depend on the number of processes or attempts.
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

from regard.bounded_files import read_json
from regard.errors import CorpusError, SettingError, StoreError
from regard.files import FileDigest, exclusive_lock, write_atomic
from regard.text.corpora.corpus import Corpus
from regard.text.store.columns import Columns
from regard.text.store.fields import Fields, check_examples, chunk_by_size
from regard.text.store.manifest import (
    FORMAT,
    REBUILD,
    Manifest,
    check_identity,
    check_sources,
    fingerprint,
)
from regard.text.store.merge import merge_parts

PART = 1 << 21  # characters
Progress = Callable[[int], None]  # called with the number of examples just finished


@dataclass(frozen=True)
class Builder:
    """One build of a store, new or resumed."""

    folder: Path
    corpus: Corpus[Any]
    fields: Fields[Any]
    workers: int = 1  # 1: in this process, with the threads of the tokenizers library
    part: int = PART

    def run(self, progress: Progress | None = None) -> None:
        """Make the missing parts, merge them, and rename the result to the store."""
        if self.workers < 1:
            raise SettingError(f"workers={self.workers}", "at least 1", where="Store.build")
        before = self._source_stamps()
        sources = tuple(fingerprint(path) for path in self.corpus.sources)
        workspace = build_folder(self.folder)
        workspace.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(
            workspace, lambda: StoreError("Another process is building this store", where=f"{workspace}")
        ):
            self._check_same_build(workspace, sources)
            parts, examples = self._make_parts(workspace, progress)
            if not parts:
                raise CorpusError("The corpus has no examples", where=", ".join(map(str, self.corpus.sources)))
            if self._source_stamps() != before:
                raise StoreError("A source file changed while it was read", where=f"{workspace}", advice=REBUILD)
            tokens, dtypes, files = merge_parts(parts, workspace / "store")
            Manifest(
                identity=dict(self.fields.identity),
                sources=sources,
                examples=examples,
                tokens=tokens,
                dtypes=dtypes,
                files=files,
                skipped=self.corpus.skipped,
            ).write(workspace / "store")
            os.rename(workspace / "store", self.folder)
            shutil.rmtree(workspace)

    def _source_stamps(self) -> list[tuple[Path, int, int]]:
        """The modification time and size of each source."""
        found = ((path, path.stat()) for path in self.corpus.sources if path.exists())
        return [(path, status.st_mtime_ns, status.st_size) for path, status in found]

    def _check_same_build(self, workspace: Path, sources: tuple[FileDigest, ...]) -> None:
        """Record what is being built, or check that an unfinished build was of the same corpus and fields."""
        note = workspace / "build.json"
        if not note.exists():
            identity = {"format": FORMAT, "part": self.part, "identity": self.fields.identity}
            write_atomic(note, json.dumps({**identity, "sources": [asdict(one) for one in sources]}).encode())
            return
        noted = read_json(note, StoreError)
        if (noted["format"], noted["part"]) != (FORMAT, self.part):
            raise StoreError("The unfinished build has another format", where=f"{workspace}", advice="Delete it.")
        check_identity(workspace, noted["identity"], self.fields.identity)
        check_sources(workspace, [FileDigest(**one) for one in noted["sources"]], sources)

    def _make_parts(self, workspace: Path, progress: Progress | None) -> tuple[list[Path], int]:
        """Make every part; the parts in order, and the number of examples. At most two parts a worker are in flight."""
        made = {int(path.name.split("-")[1]): path.name for path in workspace.glob("part-*.npz")}
        parts: list[Path] = []
        total = 0
        pending: deque[tuple[int, Future[None]]] = deque()

        def finish(max_pending: int) -> None:
            while len(pending) > max_pending:
                count, future = pending.popleft()
                _result(future, workspace)
                if progress is not None:
                    progress(count)

        with _pool(self.workers, self.fields) as submit:
            for number, portion in enumerate(
                chunk_by_size(check_examples(self.corpus, self.fields), self.fields.size, self.part)
            ):
                path = _part(workspace, number, _digest(portion), made)
                parts.append(path)
                total += len(portion)
                pending.append((len(portion), _done() if number in made else submit(portion, path)))
                finish(2 * self.workers)
            finish(0)
        return parts, total


def build_folder(folder: Path) -> Path:
    """The folder in which a store is built, next to its final one."""
    return folder.with_name(folder.name + ".building")


def _part(workspace: Path, number: int, digest: str, made: dict[int, str]) -> Path:
    """The path of a part; one of the same number with another digest means that the text has changed."""
    name = f"part-{number:06}-{digest}.npz"
    if made.get(number, name) != name:
        problem = f"The text of part {number} has changed since the build began"
        raise StoreError(problem, where=f"{workspace}", advice="Delete it and build again.")
    return workspace / name


def _digest(portion: Sequence[Any]) -> str:
    """A checksum of the examples."""
    values = attrgetter(*(field.name for field in fields(portion[0])))
    text = json.dumps([values(example) for example in portion], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def write_part(fields: Fields[Any], portion: Sequence[Any], path: Path) -> None:
    """Tokenize a portion of the corpus into one file."""
    columns: Columns = fields.encode(portion)
    arrays = {
        f"{name}.{what}": getattr(flat, what) for name, flat in columns.fields.items() for what in ("ids", "ends")
    }
    if columns.documents is not None:
        arrays["documents"] = columns.documents
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_atomic(path, buffer.getvalue())


Submit = Callable[[Sequence[Any], Path], "Future[None]"]


@contextmanager
def _pool(workers: int, fields: Fields[Any]) -> Iterator[Submit]:
    """A function that submits portions to worker processes, or with one worker runs them here."""
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


def _result(future: Future[None], workspace: Path) -> None:
    try:
        future.result()
    except BrokenProcessPool as error:
        raise StoreError(
            "A worker process died",
            where=f"{workspace}",
            advice="It may have run out of memory, or your script builds the store outside `if __name__ == "
            "'__main__':`. Finished parts are kept: run it again to resume, perhaps with fewer workers.",
        ) from error


_worker_fields: Any = None  # set once in each worker process


def _start_worker(fields: Fields[Any]) -> None:
    global _worker_fields
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    _worker_fields = fields
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Exit when the parent process has gone: a worker would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(portion: Sequence[Any], path: Path) -> None:
    write_part(_worker_fields, portion, path)
