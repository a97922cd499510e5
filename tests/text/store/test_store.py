"""Token stores: the same whatever the workers and however often killed; stale and damaged ones are refused."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from regard.errors import CorpusError, RegardError, SettingError, StoreError
from regard.files import exclusive_lock
from regard.text import Chain, LabelledRows, Labels, ParallelCorpus, TextDocuments, TranslationRows
from regard.text.examples import Document
from regard.text.store import builder
from regard.text.store.columns import Columns
from regard.text.store.fields import DocumentFields, LabelledFields, TranslationFields, encode_columns
from regard.text.store.store import Store
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.trainers import BPE, WordLevel

LINES = [f"the cat number {number} sat on mat {number * 7919 % 1000} ." for number in range(400)]
TOKENIZER = Tokenizer.train(BPE(200), LINES)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(line + "\n" + "\n" * (number % 9 == 0) for number, line in enumerate(LINES)))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def build(folder: Path, text: Path, **settings: object) -> Store:
    return Store.build(folder, TextDocuments(text), DocumentFields(TOKENIZER), part=2000, **settings)  # type: ignore[arg-type]


def test_a_store_is_the_columns_of_its_corpus(tmp_path: Path, text: Path) -> None:
    counts: list[int] = []
    store = build(tmp_path / "store", text, progress=counts.append)
    columns = encode_columns(TextDocuments(text), DocumentFields(TOKENIZER))
    for one in (store, Store.open(tmp_path / "store")):
        assert list(one.fields) == ["text"]
        np.testing.assert_array_equal(one["text"].ids, columns["text"].ids)
        np.testing.assert_array_equal(one["text"].ends, columns["text"].ends)
        np.testing.assert_array_equal(one.documents, columns.documents)
        assert isinstance(one["text"].ids, np.memmap)
        assert one["text"].ids.dtype == np.uint8
        one.verify()
    assert sum(counts) == store.manifest.examples == len(list(TextDocuments(text)))
    assert len(counts) > 5
    assert store.manifest.tokens == {"text": len(columns["text"].ids)}
    assert not (tmp_path / "store.building").exists()


def test_the_number_of_workers_changes_nothing(tmp_path: Path, text: Path) -> None:
    build(tmp_path / "one", text)
    build(tmp_path / "two", text, workers=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_store_of_pairs_and_of_labels(tmp_path: Path, text: Path) -> None:
    pairs = ParallelCorpus(text, text)
    store = Store.build(tmp_path / "pairs", pairs, TranslationFields(TOKENIZER), part=3000)
    np.testing.assert_array_equal(
        store["target"].ids, encode_columns(pairs, TranslationFields(TOKENIZER))["target"].ids
    )
    assert store.manifest.skipped.count == pairs.skipped.count > 0
    labels = LabelledRows([{"text": line, "label": "ab"[len(line) % 2]} for line in LINES])
    fields = LabelledFields(TOKENIZER, Labels(("a", "b")))
    store = Store.build(tmp_path / "labels", labels, fields, part=500)
    np.testing.assert_array_equal(store["label"].ids, encode_columns(labels, fields)["label"].ids)
    assert store.documents is None


def test_examples_without_a_piece(tmp_path: Path) -> None:
    (tmp_path / "odd.txt").write_text("\u200b\n")
    empty = Tokenizer.train(BPE(200), LINES)
    store = Store.build(tmp_path / "s", TranslationRows([{"source": "a", "target": "b"}]), TranslationFields(empty))
    assert len(store) == 1
    flat = Store.build(tmp_path / "t", TextDocuments(tmp_path / "odd.txt"), DocumentFields(TOKENIZER))
    assert flat["text"].lengths.tolist() == [len(TOKENIZER.encode("\u200b").ids)]


def test_built_once(tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path / "store", text)
    before = contents(tmp_path / "store")
    (tmp_path / "store.building").mkdir()  # as a kill after the last step leaves it
    monkeypatch.setattr(builder, "write_part", None)
    build(tmp_path / "store", text)
    assert contents(tmp_path / "store") == before
    assert not (tmp_path / "store.building").exists()


def test_a_stale_store_is_refused_with_what_differs(tmp_path: Path, text: Path) -> None:
    build(tmp_path / "store", text)
    other = DocumentFields(Tokenizer.train(WordLevel(50), LINES))
    with pytest.raises(StoreError, match="got a store with tokenizer"):
        Store.build(tmp_path / "store", TextDocuments(text), other)
    with pytest.raises(StoreError, match="got a store with tokenizer"):
        Store.open(tmp_path / "store", other)
    with pytest.raises(StoreError, match="got a store with kind documents"):
        Store.open(tmp_path / "store", TranslationFields(TOKENIZER))
    with pytest.raises(StoreError, match="a store of 1 source files, expected 2"):
        Store.build(tmp_path / "store", Chain((TextDocuments(text), TextDocuments(text))), DocumentFields(TOKENIZER))
    content = text.read_bytes()
    text.write_bytes(content.replace(b"cat", b"dog", 1))  # of the same size
    with pytest.raises(StoreError, match=r"text\.txt has changed since the store was built"):
        build(tmp_path / "store", text)
    text.write_bytes(content)
    build(tmp_path / "store", text)


@pytest.mark.parametrize("name", ["text.ids.npy", "text.ends.npy", "documents.npy"])
def test_a_damaged_store_is_refused(tmp_path: Path, text: Path, name: str) -> None:
    build(tmp_path / "store", text)
    path = tmp_path / "store" / name
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    with pytest.raises(StoreError, match=f"{name}: The file is damaged"):
        Store.open(tmp_path / "store").verify()
    path.write_bytes(content[:-3])
    with pytest.raises(StoreError, match=f"{name}: got a file of {len(content) - 3} bytes, expected {len(content)}"):
        Store.open(tmp_path / "store")
    path.unlink()
    with pytest.raises(StoreError, match=f"{name}: The file is missing"):
        Store.open(tmp_path / "store")


def test_what_is_no_store_is_refused(tmp_path: Path, text: Path) -> None:
    with pytest.raises(StoreError, match=r"no manifest\.json"):
        Store.open(tmp_path)
    with pytest.raises(StoreError, match="a path that exists and is no store"):
        build(tmp_path, text)
    for content, said in (
        ("{", "The manifest is damaged"),
        ("[]", "format None"),
        ('{"format": 9}', "format 9, expected format 1"),
        ('{"format": 1}', "The manifest is damaged"),
    ):
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(StoreError, match=said):
            Store.open(tmp_path)
    (tmp_path / "blank.txt").write_text("\n\n")
    with pytest.raises(CorpusError, match="no examples"):
        build(tmp_path / "store", tmp_path / "blank.txt")
    with pytest.raises(SettingError, match="workers=0"):
        build(tmp_path / "store", text, workers=0)
    with pytest.raises(StoreError, match="No such file"):
        build(tmp_path / "store", tmp_path / "missing.txt")


class Slow(DocumentFields):
    """Fields that leave time to kill the build."""

    def encode(self, examples: Sequence[Document]) -> Columns:
        time.sleep(0.1)
        return super().encode(examples)


def start_building(folder: Path, text: Path, workers: int) -> subprocess.Popen[bytes]:
    """Build a store in another process, slowly."""
    script = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from text.store.test_store import TextDocuments, Slow, Store, TOKENIZER
if __name__ == "__main__":
    fields = Slow(TOKENIZER)
    Store.build(Path({str(folder)!r}), TextDocuments({str(text)!r}), fields, part=1000, workers={workers})
"""
    path = folder.with_name("script.py")
    path.write_text(script)
    return subprocess.Popen([sys.executable, str(path)], start_new_session=True)


def finished(folder: Path) -> list[Path]:
    return sorted(folder.with_name(folder.name + ".building").glob("part-*.npz"))


@pytest.mark.parametrize(("workers", "parts"), [(1, 3), (2, 4)])
def test_killed_and_resumed_is_the_same_byte_for_byte(
    tmp_path: Path, text: Path, workers: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields, folder = DocumentFields(TOKENIZER), tmp_path / "killed"
    counts: list[int] = []
    Store.build(tmp_path / "whole", TextDocuments(text), fields, part=1000, progress=counts.append)
    process = start_building(folder, text, workers)
    while len(finished(folder)) < parts and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    process.wait()
    while running(process.pid):  # workers leave when their parent dies; the test below sees to that
        time.sleep(0.01)
    made = finished(folder)
    assert parts <= len(made) < len(counts) - 2, "the kill came too late to mean anything"
    with pytest.raises(StoreError, match=r"no manifest\.json"):
        Store.open(folder)
    again: list[Path] = []
    real = builder.write_part
    monkeypatch.setattr(
        builder, "write_part", lambda fields, portion, path: (again.append(path), real(fields, portion, path))
    )
    Store.build(folder, TextDocuments(text), fields, part=1000)
    assert contents(folder) == contents(tmp_path / "whole")
    assert len(again) == len(counts) - len(made)
    assert not set(again) & set(made), "finished parts were made again"
    assert not folder.with_name("killed.building").exists()


def test_workers_leave_with_their_parent(tmp_path: Path, text: Path) -> None:
    process = start_building(tmp_path / "s", text, workers=2)
    while not finished(tmp_path / "s") and process.poll() is None:
        time.sleep(0.01)
    assert len(running(process.pid)) >= 3
    process.kill()
    process.wait()
    deadline = time.monotonic() + 300
    while running(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running(process.pid)


def running(session: int) -> list[int]:
    """Processes of a session that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, _, sid = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(sid) == session and state != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("step", ["join", "manifest", "rename"])
def test_stopped_at_any_later_step(tmp_path: Path, text: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path / "whole", text)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if step == "join":
            patched.setattr("regard.text.store.merge._documents", stop)
        elif step == "manifest":
            patched.setattr("regard.text.store.manifest.Manifest.write", stop)
        else:
            patched.setattr(os, "rename", stop)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / "store", text)
    assert not (tmp_path / "store").exists()
    build(tmp_path / "store", text)
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")


@pytest.fixture
def unfinished(tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build that was stopped when its parts were done."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(builder, "merge_parts", stop)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / "store", text)
    return tmp_path / "store.building"


def test_an_unfinished_build_of_something_else_is_refused(unfinished: Path, tmp_path: Path, text: Path) -> None:
    with pytest.raises(StoreError, match="got a store with tokenizer"):
        Store.build(
            tmp_path / "store", TextDocuments(text), DocumentFields(Tokenizer.train(WordLevel(50), LINES)), part=2000
        )
    with pytest.raises(StoreError, match="another format"):
        Store.build(tmp_path / "store", TextDocuments(text), DocumentFields(TOKENIZER), part=999)
    text.write_text(text.read_text().replace("cat", "dog"))
    with pytest.raises(StoreError, match=r"text\.txt has changed since the store was built"):
        build(tmp_path / "store", text)


def test_a_damaged_part_is_refused(unfinished: Path, tmp_path: Path, text: Path) -> None:
    part = min(unfinished.glob("part-000002-*.npz"))
    content = part.read_bytes()
    part.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    with pytest.raises(StoreError, match=f"{part.name}: The part is damaged"):
        build(tmp_path / "store", text)
    part.write_bytes(content[: len(content) // 2])
    with pytest.raises(StoreError, match=f"{part.name}: The part is damaged"):
        build(tmp_path / "store", text)
    part.unlink()
    build(tmp_path / "store", text).verify()


def test_rows_that_changed_since_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    rows = [{"source": line, "target": line} for line in LINES]
    with monkeypatch.context() as patched:
        patched.setattr(builder, "merge_parts", stop)
        with pytest.raises(KeyboardInterrupt):
            Store.build(tmp_path / "s", TranslationRows(rows), TranslationFields(TOKENIZER), part=5000)
    rows[-1] = {"source": "new", "target": "new"}
    with pytest.raises(StoreError, match="The text of part"):
        Store.build(tmp_path / "s", TranslationRows(rows), TranslationFields(TOKENIZER), part=5000)


def test_a_source_that_changes_meanwhile_is_noticed(tmp_path: Path, text: Path) -> None:
    def meddle(_: int) -> None:
        text.write_text("something else\n")

    with pytest.raises(StoreError, match="changed while it was read"):
        build(tmp_path / "store", text, progress=meddle)
    assert not (tmp_path / "store").exists()


def test_two_builds_at_once_are_refused(tmp_path: Path, text: Path) -> None:
    (tmp_path / "store.building").mkdir()
    with exclusive_lock(tmp_path / "store.building", KeyError), pytest.raises(StoreError, match="Another process"):
        build(tmp_path / "store", text)
    build(tmp_path / "store", text)


def test_an_error_comes_home_from_a_worker(tmp_path: Path) -> None:
    rows = [{"text": line, "label": "a"} for line in LINES]
    fields = LabelledFields(TOKENIZER, Labels(("b",)))
    with pytest.raises(CorpusError, match="label 'a'"):
        Store.build(tmp_path / "s", LabelledRows(rows), fields, workers=2, part=500)
    error = StoreError("came", "expected", where="here", advice="Do.")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.advice) == (StoreError, str(error), "Do.")
    assert isinstance(pickle.loads(pickle.dumps(RegardError("a", "b"))), RegardError)


class Dying(DocumentFields):
    """Fields whose worker is killed by the machine."""

    def encode(self, examples: Sequence[Document]) -> Columns:
        os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(examples)


def test_a_worker_that_dies_is_reported(tmp_path: Path, text: Path) -> None:
    with pytest.raises(StoreError, match=r"A worker process died.*Finished parts are kept"):
        Store.build(tmp_path / "s", TextDocuments(text), Dying(TOKENIZER), workers=2, part=2000)
    assert not (tmp_path / "s").exists()


def test_examples_without_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="encode_columns"):
        Store.build(tmp_path / "s", [Document(("a",))], DocumentFields(TOKENIZER))  # type: ignore[arg-type]
