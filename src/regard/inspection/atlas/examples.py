"""The texts that an atlas is made from, and what is known of their words: given, from files, or the built-in corpus."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, pairwise, zip_longest
from pathlib import Path
from typing import Any

from regard.errors import CorpusError, SettingError
from regard.runs import Run
from regard.text import (
    Answered,
    Document,
    Labelled,
    Lines,
    Links,
    Span,
    TagFile,
    Tagged,
    Translation,
    grammar,
    parse_links,
    spaced,
)
from regard.text.grammar import Draw, Drawn, as_prose, sentence
from regard.training import recorded
from regard.training.tasks import Answering, Classification, Masked, Translation as TranslationRecipe

NOUNS = ("NOUN", "PROPN", "NN")  # how tags of nouns and names begin: universal ones, and Penn's NN, NNS, NNP, NNPS

Nouns = tuple[tuple[Span, bool], ...]
"""Stretches of a text, as characters, and whether each is a noun or a name."""


@dataclass(frozen=True)
class Passage:
    """A text, and perhaps a second one or its translation. `links`: which word of `text` answers to which of `other`,
    both counted between spaces. `nouns`: of the words of each text, where somebody knows. `probe`: a text that was
    made to see one thing, random words said twice, and is no language."""

    text: str
    other: str | None = None
    links: Links | None = None
    nouns: tuple[Nouns | None, Nouns | None] = (None, None)
    probe: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,) if self.other is None else (self.text, self.other)


Given = str | tuple[str, str] | Translation | Passage


def passages_of(texts: Iterable[Given], words: int | None = None) -> list[Passage]:
    """Whatever was given as passages; those of more than `words` words are cut, links and all."""
    found = [_passage(one) for one in texts]
    return found if words is None else [_cut(one, words) for one in found]


def _passage(given: Given) -> Passage:
    if isinstance(given, Passage):
        return given
    if isinstance(given, Translation):
        return Passage(given.source, given.target, given.links)
    if isinstance(given, str):
        return Passage(given)
    return Passage(*given)


def _cut(one: Passage, words: int) -> Passage:
    if all(len(spaced(text)) <= words for text in one.texts):
        return one
    text, *rest = (text[: spaced(text)[:words][-1][1]] if text.strip() else text for text in one.texts)
    links = None if one.links is None else tuple(link for link in one.links if max(link) < words)
    return replace(one, text=text, other=rest[0] if rest else None, links=links)


def read_passages(path: Path, most: int | None = None) -> list[Passage]:
    """The texts of a file, one a line; a tab stands before a second text, another one before gold links (0-0 1-2).
    Blank lines are passed over; `most`: so many texts, the first ones."""
    found: list[Passage] = []
    for number, line in Lines(path):
        where = f"{path}:{number}"
        if not line.strip():
            continue
        if most is not None and len(found) >= most:
            break
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) > 3 or not all(cells[:2]):
            came = f"{len(cells)} columns, {sum(not cell for cell in cells)} of them blank"
            raise CorpusError(came, "a text, or two with a tab between, and perhaps links after another", where=where)
        other = cells[1] if len(cells) > 1 else None
        links = parse_links(cells[2], cells[0], cells[1], where) if len(cells) > 2 else None
        found.append(Passage(cells[0], other, links))
    if not found:
        raise CorpusError("no text", "at least one line of it", where=str(path))
    return found


def tagged_by(passages: Sequence[Passage], path: Path) -> list[Passage]:
    """The same passages with the tags of a file: a tagged sentence for each of their texts, in the same order.

    Either a sentence a line, word_TAG word_TAG ..., or a word and its tag a line, a blank line after each sentence.
    """
    asked = [(number, which) for number, one in enumerate(passages) for which in range(len(one.texts))]
    known: list[list[Nouns | None]] = [[None, None] for _ in passages]
    for count, (slot, tagged) in enumerate(zip_longest(asked, _tagged(path)), start=1):
        if slot is None:
            break  # the file goes on; those texts were not asked about
        number, which = slot
        if tagged is None:
            came = f"tags for {count - 1} texts"
            raise CorpusError(came, f"a tagged sentence for each of {len(asked)}", where=str(path))
        known[number][which] = nouns_in(passages[number].texts[which], tagged, f"{path}, sentence {count}")
    return [replace(one, nouns=(first, second)) for one, (first, second) in zip(passages, known, strict=True)]


def nouns_in(text: str, sentence: Tagged, where: str) -> Nouns:
    """Where the tagged words stand in a text, which must be made of them."""
    found, at = [], 0
    for word, tag in zip(sentence.words, sentence.tags, strict=True):
        start = at + len(text[at:]) - len(text[at:].lstrip())
        if not text.startswith(word, start):
            came = f"the tagged word {word!r} where the text goes on with {text[start : start + 20]!r}"
            raise CorpusError(came, "the words of the text in its order", where=where)
        at = start + len(word)
        found.append(((start, at), tag.startswith(NOUNS)))
    return tuple(found)


def _tagged(path: Path) -> Iterator[Tagged]:
    """The sentences of a file of tags, in either of its two forms."""
    first = next((text for _, text in Lines(path) if text.strip()), "")
    if not all("_" in word for word in first.split()):
        yield from TagFile(path)
        return
    for number, text in Lines(path):
        cells = [word.rpartition("_") for word in text.split()]
        if not all(word and tag for word, _, tag in cells):
            raise CorpusError(f"{text[:60]!r}", "word_TAG word_TAG ...", where=f"{path}:{number}")
        if cells:
            yield Tagged(tuple(word for word, _, _ in cells), tuple(tag for _, _, tag in cells))


BUILT_IN = "built-in"
SPLIT = "test"  # what no built-in training has seen
LEARNED = 4000  # tagged sentences that tell of words in views without tags


def built_in(run: Run | None, kind: str, count: int) -> list[Passage]:
    """So many passages of the kind that this run was trained on; of a model from elsewhere, pairs of a
    sentence and its translation for one that translates, and single sentences for any other."""
    recipe: Any = None if run is None else recorded(run)
    data = getattr(recipe, "data", None)
    french = "french" in f"{getattr(data, 'view', '')} {getattr(data, 'language', '')}"
    if isinstance(recipe, TranslationRecipe) or kind == "translates":
        turned = getattr(data, "direction", "en-fr") == "fr-en"
        return list(Drawn(_turned_pair if turned else _pair, count, SPLIT))
    if isinstance(recipe, Answering):
        asked: Iterable[Answered] = Drawn(grammar.question, count, SPLIT)
        return [_noted(one.question, one.passage) for one in asked]
    if isinstance(recipe, Classification):
        opinions: Iterable[Labelled] = Drawn(grammar.opinion_french if french else grammar.opinion, count, SPLIT)
        return [_noted(one.text, french=french) for one in opinions]
    if isinstance(recipe, Masked):
        return list(islice(_neighbours(french, count), count))
    view = str(getattr(data, "view", ""))
    if "document" in view or "prose" in view:
        return list(islice(_stretches(french, "prose" in view, count), count))
    return list(Drawn(_french if french else _english, count, SPLIT))


def expect_built_in(run: Run | None, where: str) -> None:
    """Refuse the built-in corpus for a run that was trained on other text: it would be tested on what it never saw."""
    kind = BUILT_IN if run is None else run.section("data").get("kind", BUILT_IN)
    if kind != BUILT_IN:
        raise SettingError(
            f"{BUILT_IN}, for a run that learned from {kind}",
            "a file of text such as it learned from",
            where=where,
        )


def _pair(draw: Draw) -> Passage:
    drawn = sentence(draw)
    texts, words = (drawn.source, drawn.target), (drawn.source_words, drawn.target_words)
    nouns = tuple(_nouns(text, [word.tag for word in own]) for text, own in zip(texts, words, strict=True))
    return Passage(" ".join(drawn.source), " ".join(drawn.target), drawn.links, (nouns[0], nouns[1]))


def _turned_pair(draw: Draw) -> Passage:
    one = _pair(draw)
    assert one.other is not None and one.links is not None
    links = tuple(sorted((target, source) for source, target in one.links))
    return Passage(one.other, one.text, links, one.nouns[::-1])


def _english(draw: Draw) -> Passage:
    one = _pair(draw)
    return Passage(one.text, nouns=(one.nouns[0], None))


def _french(draw: Draw) -> Passage:
    one = _turned_pair(draw)
    return Passage(one.text, nouns=(one.nouns[0], None))


def _nouns(words: tuple[str, ...], tags: list[str]) -> Nouns:
    return nouns_in(" ".join(words), Tagged(words, tuple(tags)), "the grammar")


def _neighbours(french: bool, count: int) -> Iterator[Passage]:
    """Two sentences of a story that follow each other, as BERT reads them."""
    for story in _stories(french, count):
        for one, other in list(pairwise(story.sentences))[::2]:
            yield _noted(one, other, french)


def _stretches(french: bool, prose: bool, count: int) -> Iterator[Passage]:
    """Three sentences of a story, as a language model reads them."""
    for story in _stories(french, count):
        lines = story.sentences
        if prose:
            lines = tuple(as_prose(line.split(), "fr" if french else "en") for line in lines)
        for at in range(0, len(lines) - 2, 3):
            yield _noted(" ".join(lines[at : at + 3]), french=french)


def _stories(french: bool, count: int) -> Iterable[Document]:
    return Drawn(grammar.document_french if french else grammar.document, count, SPLIT)


def _noted(text: str, other: str | None = None, french: bool = False) -> Passage:
    """A passage whose nouns are told word by word: each word has the tag that it has most often in the grammar."""
    usual = _usual(french)
    first, second = (
        None if one is None else tuple((span, usual.get(_bare(one[slice(*span)]), False)) for span in spaced(one))
        for one in (text, other)
    )
    return Passage(text, other, nouns=(first, second))


@lru_cache(maxsize=2)
def _usual(french: bool) -> dict[str, bool]:
    counts: defaultdict[str, Counter[bool]] = defaultdict(Counter)
    for one in Drawn(grammar.tagged_french if french else grammar.tagged, LEARNED, "train"):
        for word, tag in zip(one.words, one.tags, strict=True):
            counts[_bare(word)][tag.startswith(NOUNS)] += 1
    return {word: own.most_common(1)[0][0] for word, own in counts.items()}


def _bare(word: str) -> str:
    return word.strip(".,?!;:").lower()
