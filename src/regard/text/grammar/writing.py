"""The built-in corpus as files, the way corpora come: parallel text with links, documents, tables, columns.

What is written for a split is what `Drawn` yields for it, in the same order, whatever the number of processes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import IO, NamedTuple

from regard.errors import SettingError
from regard.text.examples import Answered, Document, Labelled, Sense, Tagged, Translation
from regard.text.grammar.drawing import SPLITS, chunk, fingerprint, split_of, translation
from regard.text.grammar.opinions import opinion
from regard.text.grammar.questions import question
from regard.text.grammar.stories import document
from regard.text.grammar.views import sense, tagged

HELD_OUT = 2000  # at most so many examples in valid, test and names
WORTH_IT = 20_000  # pairs from which on several processes pay for their start
Lines = tuple[str, ...]  # what one example adds to each file of its split


class View(NamedTuple):
    """A view of the grammar as files: what draws an example, the files' endings, and what each of them gets."""

    draw: Callable[..., object]
    endings: tuple[str, ...]
    lines: Callable[..., Lines]
    splits: tuple[str, ...] = SPLITS


class Written(NamedTuple):
    """What was written: files with the number of examples in each."""

    files: dict[str, int]
    drawn: int  # examples drawn for it; some belong to a split that was full already


def write(
    folder: Path,
    pairs: int,
    seed: int = 0,
    view: str = "translation",
    prose: bool = False,
    workers: int | None = None,
    tell: Callable[[int], None] = lambda more: None,
) -> Written:
    """Write `pairs` training examples and the held-out splits; `tell` hears how many more examples are done."""
    if pairs < 1:
        raise SettingError(f"pairs={pairs}", "1 or more", where="regard corpus")
    held_out = min(HELD_OUT, max(1, pairs // 20))
    shape = PROSE if prose and view == "translation" else VIEWS[view]
    wanted = {split: pairs if split == "train" else held_out for split in shape.splits}
    with _Files(folder, shape) as files:
        drawn = 0
        for unseen in (False, True):
            sizes = {split: size for split, size in wanted.items() if (split == "names") == unseen}
            for split, lines in _routed(shape, seed, unseen, sizes, workers):
                drawn += 1
                if lines:
                    files.add(split, lines)
                    tell(1)
    return Written({name: files.counts[split] for split, _, name in files.names}, drawn)


def _routed(
    view: View, seed: int, unseen: bool, sizes: dict[str, int], workers: int | None
) -> Iterator[tuple[str, Lines | None]]:
    """Every example drawn, with the lines it adds if it is new and its split still has room."""
    if not sizes:
        return
    seen: set[int] = set()
    left = dict(sizes)
    cores = workers if workers is not None else (os.cpu_count() or 1 if sizes.get("train", 0) >= WORTH_IT else 1)
    for examples in _chunks(view, seed, unseen, cores):
        for mark, split, lines in examples:
            if left.get(split, 0) and mark not in seen:
                seen.add(mark)
                left[split] -= 1
                yield split, lines
            else:
                yield split, None
        if not any(left.values()):
            return


def _chunks(view: View, seed: int, unseen: bool, workers: int) -> Iterator[list[tuple[int, str, Lines]]]:
    """The chunks in order, drawn here or by several processes a little ahead of the reader."""
    if workers <= 1:
        yield from (_lines_of(view, seed, number, unseen) for number in count())
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        ahead: list[Future[list[tuple[int, str, Lines]]]] = []
        try:
            for number in count():
                ahead.append(pool.submit(_lines_of, view, seed, number, unseen))
                if len(ahead) > 3 * workers:
                    yield ahead.pop(0).result()
        finally:
            for future in ahead:
                future.cancel()


def _lines_of(view: View, seed: int, number: int, unseen: bool) -> list[tuple[int, str, Lines]]:
    found = []
    for example in chunk(view.draw, seed, number, unseen):
        mark = fingerprint(example)
        found.append((mark, split_of(example, mark, unseen), view.lines(example)))
    return found


class _Files:
    """The files of every split, written aside and put in place when all of them are whole."""

    def __init__(self, folder: Path, view: View) -> None:
        self.folder = folder
        self.names = [(split, which, f"{split}.{e}") for split in view.splits for which, e in enumerate(view.endings)]
        self.counts = dict.fromkeys(view.splits, 0)
        self.open: dict[str, list[IO[str]]] = {split: [] for split in view.splits}
        self.stack = ExitStack()

    def __enter__(self) -> _Files:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for split, _, name in self.names:
                file = self._aside(name).open("w", encoding="utf-8", newline="\n")
                self.open[split].append(self.stack.enter_context(file))
        except OSError as error:
            self.stack.close()
            where = "regard corpus"
            raise SettingError(f"{self.folder} ({error.strerror})", "a folder to write to", where=where) from error
        return self

    def _aside(self, name: str) -> Path:
        return self.folder / f".{name}.part"

    def add(self, split: str, lines: Lines) -> None:
        self.counts[split] += 1
        for file, line in zip(self.open[split], lines, strict=True):
            file.write(line + "\n")

    def __exit__(self, kind: object, *rest: object) -> None:
        self.stack.close()
        for _, _, name in self.names:
            if kind is None:
                self._aside(name).replace(self.folder / name)
            else:
                self._aside(name).unlink(missing_ok=True)


def as_prose(words: Iterable[str], language: str) -> str:
    """Words as one writes them: l'homme, the king's; French keeps a space before its question mark.

    >>> as_prose("Est-ce qu' il m' a vu ?".split(), "fr")
    "Est-ce qu'il m'a vu\xa0?"
    """
    text = ""
    for word in words:
        if word == "?":
            text += "\u00a0?" if language == "fr" else "?"
        elif word in (".", ",", "'s") or text.endswith("'") or not text:
            text += word
        else:
            text += " " + word
    return text


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Links as every alignment tool reads them: 0-0 1-2."""
    return " ".join(f"{source}-{target}" for source, target in links)


def _pair(example: Translation) -> Lines:
    return example.source, example.target, pharaoh(example.links or ())


def _prose(example: Translation) -> Lines:
    return as_prose(example.source.split(), "en"), as_prose(example.target.split(), "fr")


def _document(example: Document) -> Lines:
    return ("\n".join(example.sentences) + "\n",)  # a blank line ends it


def _opinion(example: Labelled) -> Lines:
    return (f"{example.text}\t{example.label}\t{' '.join(map(str, example.evidence or ()))}",)


def _tagged(example: Tagged) -> Lines:
    return ("".join(f"{word}\t{tag}\n" for word, tag in zip(example.words, example.tags, strict=True)),)


def _question(example: Answered) -> Lines:
    fields = {"question": example.question, "passage": example.passage, "start": example.start, "end": example.end}
    return (json.dumps(fields, ensure_ascii=False),)


def _sense(example: Sense) -> Lines:
    return (f"{example.text}\t{example.index}\t{example.word}\t{example.sense}",)


VIEWS = {
    "translation": View(translation, ("en", "fr", "align"), _pair),
    "document": View(document, ("txt",), _document),
    "opinion": View(opinion, ("tsv",), _opinion, SPLITS[:3]),  # no names in them
    "tagged": View(tagged, ("conll",), _tagged),
    "question": View(question, ("jsonl",), _question),
    "sense": View(sense, ("senses.tsv",), _sense),
}
PROSE = View(translation, ("en", "fr"), _prose)
