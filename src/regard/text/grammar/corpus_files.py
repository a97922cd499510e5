"""The built-in corpus as files, the way corpora come: parallel text with links, documents, tables, columns.

What is written for a split is what `Drawn` yields for it, in the same order, whatever the number of processes.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import IO, NamedTuple

from regard.errors import SettingError, unknown
from regard.text.examples import Answered, Document, Labelled, Sense, Tagged, Translation
from regard.text.grammar.drawn import CHUNK, FUTILE, SPLITS, chunk, fingerprint, split_of, translation
from regard.text.grammar.opinions import opinion, verdict
from regard.text.grammar.stories import document
from regard.text.grammar.views import question, sense, tagged

HELD_OUT = 2000  # at most so many examples in valid, test and names
Lines = tuple[str, ...]  # what one example adds to each file of its split


class View(NamedTuple):
    """A view of the grammar as files: what draws an example, the files' endings, and what each of them gets."""

    draw: Callable[..., object]
    endings: tuple[str, ...]
    lines: Callable[..., Lines]
    splits: tuple[str, ...] = SPLITS
    header: str = ""  # the first line of tables


class Written(NamedTuple):
    """What was written: files with the number of examples in each, and how many examples those are."""

    files: dict[str, int]
    examples: int
    drawn: int  # examples drawn for it; some came up twice, or belong to a split that was full already


def write(
    folder: Path,
    pairs: int,
    seed: int = 0,
    view: str = "translation",
    workers: int = 1,
    replace: bool = False,
    tell: Callable[[int], None] = lambda more: None,
) -> Written:
    """Write `pairs` training examples and the held-out splits; `tell` hears how many more examples are done.

    Files that are there already are refused, or replaced by choice, those of the same splits that would no longer fit
    included: links beside other sentences are worse than none.
    """
    if pairs < 1:
        raise SettingError(f"pairs={pairs}", "1 or more", where="regard corpus")
    if view not in VIEWS:
        raise unknown(view, VIEWS, kind="view", where="regard corpus")
    held_out = min(HELD_OUT, max(1, pairs // 20))
    shape = VIEWS[view]
    wanted = {split: pairs if split == "train" else held_out for split in shape.splits}
    there = _there(folder, shape)
    if there and not replace:
        came, advice = (
            f"{folder} with {there[0].name} in it",
            "Give another folder, or replace what is there: --replace.",
        )
        raise SettingError(came, "a folder without it", where="regard corpus", advice=advice)
    with _Files(folder, shape, wanted, there) as files, _several(workers) as start:
        drawn, fruitless = 0, 0
        for unseen in (False, True):
            chunks = _chunks(shape, seed, unseen, start)
            while not files.full(unseen):
                drawn += CHUNK
                added = sum(files.add(split, *portion) for split, portion in next(chunks).items())
                fruitless = 0 if added else fruitless + 1
                if fruitless == FUTILE:
                    raise SettingError(
                        f"pairs={pairs}", f"about {files.counts['train']}: {view} has no more", where="regard corpus"
                    )
                tell(added)
    return Written({name: files.counts[split] for split, _, name in files.names}, sum(files.counts.values()), drawn)


def _there(folder: Path, view: View) -> list[Path]:
    """The files of earlier runs that writing this view would replace or belie: links belong to words, not to prose."""
    alike = [other.endings for other in VIEWS.values() if set(other.endings) & set(view.endings)]
    names = [f"{split}.{ending}" for split in SPLITS for ending in sorted({e for endings in alike for e in endings})]
    return [folder / name for name in names if (folder / name).exists()]


Portion = tuple[list[int], list[list[str]]]  # the marks of some examples, and for each file the lines they add


Start = Callable[..., Callable[[], dict[str, Portion]]]  # begins a task and gives what waits for its result


@contextmanager
def _several(workers: int) -> Iterator[tuple[Start, int]]:
    """A way to start tasks, here or in several processes, and how many to have under way."""
    if workers <= 1:
        yield (lambda task, *settings: lambda: task(*settings)), 1
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield (lambda task, *settings: pool.submit(task, *settings).result), 4 * workers
        pool.shutdown(cancel_futures=True)


def _chunks(view: View, seed: int, unseen: bool, start: tuple[Start, int]) -> Iterator[dict[str, Portion]]:
    """The chunks in order, a few of them begun before they are asked for."""
    begin, ahead = start
    waiting = deque(begin(_portions, view, seed, number, unseen) for number in range(ahead))
    for number in count(ahead):
        yield waiting.popleft()()
        waiting.append(begin(_portions, view, seed, number, unseen))


def _portions(view: View, seed: int, number: int, unseen: bool) -> dict[str, Portion]:
    """The examples of a chunk, by split."""
    found: dict[str, Portion] = {}
    for example in chunk(view.draw, seed, number, unseen):
        mark = fingerprint(example)
        marks, files = found.setdefault(split_of(example, mark, unseen), ([], [[] for _ in view.endings]))
        marks.append(mark)
        for lines, line in zip(files, view.lines(example), strict=True):
            lines.append(line + "\n")
    return found


class _Files:
    """The files of every split, written aside and put in place when all of them are whole."""

    def __init__(self, folder: Path, view: View, wanted: dict[str, int], old: list[Path]) -> None:
        self.folder, self.wanted, self.header, self.old = folder, wanted, view.header, old
        self.names = [(split, which, f"{split}.{e}") for split in view.splits for which, e in enumerate(view.endings)]
        self.counts = dict.fromkeys(view.splits, 0)
        self.seen: set[int] = set()
        self.open: dict[str, list[IO[str]]] = {split: [] for split in view.splits}
        self.stack = ExitStack()

    def __enter__(self) -> _Files:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for split, _, name in self.names:
                file = self._aside(name).open("w", encoding="utf-8", newline="\n")
                self.open[split].append(self.stack.enter_context(file))
                file.write(self.header)
        except OSError as error:
            self.stack.close()
            where = "regard corpus"
            raise SettingError(f"{self.folder} ({error.strerror})", "a folder to write to", where=where) from error
        return self

    def _aside(self, name: str) -> Path:
        return self.folder / f".{name}.part"

    def full(self, unseen: bool) -> bool:
        """Whether every split that such examples are for has what it wants."""
        return all(self.counts[split] == self.wanted[split] for split in self.counts if (split == "names") == unseen)

    def add(self, split: str, marks: list[int], files: list[list[str]]) -> int:
        """Write the examples that are new, as far as there is room; how many those were."""
        room = self.wanted.get(split, 0) - self.counts.get(split, 0)
        new = []
        for place, mark in enumerate(marks):
            if mark not in self.seen:
                self.seen.add(mark)
                new.append(place)
        del new[room:]
        for file, lines in zip(self.open.get(split, []), files, strict=False):
            file.writelines([lines[place] for place in new])
        if new:
            self.counts[split] += len(new)
        return len(new)

    def __exit__(self, kind: object, *rest: object) -> None:
        self.stack.close()
        for path in self.old if kind is None else []:
            path.unlink()
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


class _Spelled(dict[tuple[int, int], str]):
    """Every link as it is written, made when it first comes up."""

    def __missing__(self, link: tuple[int, int]) -> str:
        self[link] = f"{link[0]}-{link[1]}"
        return self[link]


_SPELLED = _Spelled()


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Links as every alignment tool reads them: 0-0 1-2."""
    return " ".join([_SPELLED[link] for link in links])


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
    "prose": View(translation, ("en", "fr"), _prose),  # the same sentences as one writes them; no words to link
    "document": View(document, ("txt",), _document),
    "opinion": View(opinion, ("tsv",), _opinion, SPLITS[:3], "text\tlabel\tevidence\n"),  # no names in them
    "verdict": View(verdict, ("tsv",), _opinion, SPLITS[:3], "text\tlabel\tevidence\n"),
    "tagged": View(tagged, ("conll",), _tagged),
    "question": View(question, ("jsonl",), _question),
    "sense": View(sense, ("senses.tsv",), _sense, header="text\tindex\tword\tsense\n"),
}
