"""Write the built-in corpus to files: parallel text with Pharaoh word alignments, documents, TSV, JSON lines, CoNLL.

A split's files hold what `GeneratedCorpus` yields for it, in the same order, whatever the number of processes.
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
from regard.text.grammar.generated_corpus import (
    CHUNK_SIZE,
    MAX_EMPTY_CHUNKS,
    SPLITS,
    chunk,
    fingerprint,
    split_of,
    translation,
)
from regard.text.grammar.opinions import opinion, verdict
from regard.text.grammar.stories import document
from regard.text.grammar.views import question, sense, tagged

HELD_OUT = 2000  # maximum number of examples in valid, test and names
Lines = tuple[str, ...]  # what one example adds to each file of its split


class ViewFormat(NamedTuple):
    """The file format of a view: the function that draws an example, the file endings, and the lines for each."""

    generate: Callable[..., object]
    endings: tuple[str, ...]
    lines: Callable[..., Lines]
    splits: tuple[str, ...] = SPLITS
    header: str = ""  # the first line of tables


class WrittenCorpus(NamedTuple):
    """The files written, with the number of examples in each, and the totals."""

    files: dict[str, int]
    examples: int
    drawn: int  # examples drawn; duplicates and those of full splits are not written


def write_corpus(
    folder: Path,
    pairs: int,
    seed: int = 0,
    view: str = "translation",
    workers: int = 1,
    replace: bool = False,
    progress: Callable[[int], None] = lambda more: None,
) -> WrittenCorpus:
    """Write `pairs` training examples and the held-out splits; `progress` is called with each number of new examples.

    Existing files are refused, or replaced with `replace`, including those of the same splits that would no longer
    match, such as links of other sentences.
    """
    if pairs < 1:
        raise SettingError(f"pairs={pairs}", "1 or more", where="corpus")
    if view not in VIEWS:
        raise unknown(view, VIEWS, kind="view", where="corpus")
    held_out = min(HELD_OUT, max(1, pairs // 20))
    shape = VIEWS[view]
    wanted = {split: pairs if split == "train" else held_out for split in shape.splits}
    there = _existing_files(folder, shape)
    if there and not replace:
        raise SettingError(
            f"{folder} already contains {there[0].name}",
            where="corpus",
            advice="Give another folder, or replace the files with --replace.",
        )
    with _SplitFiles(folder, shape, wanted, there) as files, _worker_pool(workers) as start:
        drawn, fruitless = 0, 0
        for unseen in (False, True):
            chunks = _chunks(shape, seed, unseen, start)
            while not files.full(unseen):
                drawn += CHUNK_SIZE
                added = sum(files.add(split, *portion) for split, portion in next(chunks).items())
                fruitless = 0 if added else fruitless + 1
                if fruitless == MAX_EMPTY_CHUNKS:
                    raise SettingError(
                        f"pairs={pairs}",
                        f"at most about {files.counts['train']}, all that the view {view!r} has",
                        where="corpus",
                    )
                progress(added)
    return WrittenCorpus(
        {name: files.counts[split] for split, _, name in files.names}, sum(files.counts.values()), drawn
    )


def _existing_files(folder: Path, view: ViewFormat) -> list[Path]:
    """The existing files that writing this view would replace or make wrong: links belong to tokenized text."""
    alike = [other.endings for other in VIEWS.values() if set(other.endings) & set(view.endings)]
    names = [f"{split}.{ending}" for split in SPLITS for ending in sorted({e for endings in alike for e in endings})]
    return [folder / name for name in names if (folder / name).exists()]


Portion = tuple[list[int], list[list[str]]]  # the hashes of some examples, and the lines they add to each file


Start = Callable[
    ..., Callable[[], dict[str, Portion]]
]  # starts a task and returns a function that waits for its result


@contextmanager
def _worker_pool(workers: int) -> Iterator[tuple[Start, int]]:
    """A function that starts tasks, in this process or in several, and how many to keep in flight."""
    if workers <= 1:
        yield (lambda task, *settings: lambda: task(*settings)), 1
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield (lambda task, *settings: pool.submit(task, *settings).result), 4 * workers
        pool.shutdown(cancel_futures=True)


def _chunks(view: ViewFormat, seed: int, unseen: bool, start: tuple[Start, int]) -> Iterator[dict[str, Portion]]:
    """The chunks in order, a few of them started in advance."""
    begin, ahead = start
    waiting = deque(begin(_portions, view, seed, number, unseen) for number in range(ahead))
    for number in count(ahead):
        yield waiting.popleft()()
        waiting.append(begin(_portions, view, seed, number, unseen))


def _portions(view: ViewFormat, seed: int, number: int, unseen: bool) -> dict[str, Portion]:
    """The examples of a chunk, by split."""
    found: dict[str, Portion] = {}
    for example in chunk(view.generate, seed, number, unseen):
        digest = fingerprint(example)
        digests, files = found.setdefault(split_of(example, digest, unseen), ([], [[] for _ in view.endings]))
        digests.append(digest)
        for lines, line in zip(files, view.lines(example), strict=True):
            lines.append(line + "\n")
    return found


class _SplitFiles:
    """The files of every split, written under temporary names and renamed when all are complete."""

    def __init__(self, folder: Path, view: ViewFormat, wanted: dict[str, int], old: list[Path]) -> None:
        self.folder, self.wanted, self.header, self.old = folder, wanted, view.header, old
        self.names = [(split, which, f"{split}.{e}") for split in view.splits for which, e in enumerate(view.endings)]
        self.counts = dict.fromkeys(view.splits, 0)
        self.seen: set[int] = set()
        self.open: dict[str, list[IO[str]]] = {split: [] for split in view.splits}
        self.stack = ExitStack()

    def __enter__(self) -> _SplitFiles:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for split, _, name in self.names:
                file = self._aside(name).open("w", encoding="utf-8", newline="\n")
                self.open[split].append(self.stack.enter_context(file))
                file.write(self.header)
        except OSError as error:
            self.stack.close()
            raise SettingError(
                f"Could not write to the folder {self.folder}: {error.strerror}", where="corpus"
            ) from error
        return self

    def _aside(self, name: str) -> Path:
        return self.folder / f".{name}.part"

    def full(self, unseen: bool) -> bool:
        """Whether every split that examples with (or without) held-out names belong to is full."""
        return all(self.counts[split] == self.wanted[split] for split in self.counts if (split == "names") == unseen)

    def add(self, split: str, digests: list[int], files: list[list[str]]) -> int:
        """Write the new examples until the split is full; how many those were."""
        room = self.wanted.get(split, 0) - self.counts.get(split, 0)
        new = []
        for place, digest in enumerate(digests):
            if digest not in self.seen:
                self.seen.add(digest)
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


def detokenize(words: Iterable[str], language: str) -> str:
    """Detokenize: l'homme, the king's; French keeps a space before its question mark.

    >>> detokenize("Est-ce qu' il m' a vu ?".split(), "fr")
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


class _LinkTexts(dict[tuple[int, int], str]):
    """The text of every link, cached."""

    def __missing__(self, link: tuple[int, int]) -> str:
        self[link] = f"{link[0]}-{link[1]}"
        return self[link]


_LINK_TEXTS = _LinkTexts()


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Word alignments in Pharaoh format: 0-0 1-2."""
    return " ".join([_LINK_TEXTS[link] for link in links])


def _pair(example: Translation) -> Lines:
    return example.source, example.target, pharaoh(example.links or ())


def _prose(example: Translation) -> Lines:
    return detokenize(example.source.split(), "en"), detokenize(example.target.split(), "fr")


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
    "translation": ViewFormat(translation, ("en", "fr", "align"), _pair),
    "prose": ViewFormat(translation, ("en", "fr"), _prose),  # the same sentences, detokenized; without links
    "document": ViewFormat(document, ("txt",), _document),
    "opinion": ViewFormat(opinion, ("tsv",), _opinion, SPLITS[:3], "text\tlabel\tevidence\n"),  # no names in them
    "verdict": ViewFormat(verdict, ("tsv",), _opinion, SPLITS[:3], "text\tlabel\tevidence\n"),
    "tagged": ViewFormat(tagged, ("conll",), _tagged),
    "question": ViewFormat(question, ("jsonl",), _question),
    "sense": ViewFormat(sense, ("senses.tsv",), _sense, header="text\tindex\tword\tsense\n"),
}
