"""The texts of an atlas, given or from files, with word alignments and part-of-speech tags where they are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from regard.errors import CorpusError, SettingError
from regard.runs import Run
from regard.text import Lines, Links, Span, TagFile, Tagged, Translation, parse_links, whitespace_words

BUILT_IN = "built-in"
NOUNS = ("NOUN", "PROPN", "NN")  # prefixes of noun and name tags: universal ones, and Penn's NN, NNS, NNP, NNPS

Nouns = tuple[tuple[Span, bool], ...]
"""Character spans of a text, and whether each is a noun or a name."""


@dataclass(frozen=True)
class Passage:
    """A text, and perhaps a second one or its translation.

    links   gold word alignments of `text` and `other`, words counted between spaces
    nouns   which words of each text are nouns or names, if known
    probe   random words, repeated, that test for induction heads; not language
    """

    text: str
    other: str | None = None
    links: Links | None = None
    nouns: tuple[Nouns | None, Nouns | None] = (None, None)
    probe: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,) if self.other is None else (self.text, self.other)


PassageLike = str | tuple[str, str] | Translation | Passage


def to_passages(texts: Iterable[PassageLike], max_words: int | None = None) -> list[Passage]:
    """Texts, pairs and translations as passages; those of more than `max_words` words are truncated, links and all."""
    found = [_to_passage(one) for one in texts]
    return found if max_words is None else [_truncate(one, max_words) for one in found]


def _to_passage(given: PassageLike) -> Passage:
    if isinstance(given, Passage):
        return given
    if isinstance(given, Translation):
        return Passage(given.source, given.target, given.links)
    if isinstance(given, str):
        return Passage(given)
    return Passage(*given)


def _truncate(one: Passage, words: int) -> Passage:
    if all(len(whitespace_words(text)) <= words for text in one.texts):
        return one
    text, *rest = (text[: whitespace_words(text)[:words][-1][1]] if text.strip() else text for text in one.texts)
    links = None if one.links is None else tuple(link for link in one.links if max(link) < words)
    return replace(one, text=text, other=rest[0] if rest else None, links=links)


def read_passages(path: Path, max_texts: int | None = None) -> list[Passage]:
    """The texts of a file, one a line; a second text after a tab, gold links (0-0 1-2) after another. Blank lines are
    skipped; `max_texts`: only the first ones."""
    found: list[Passage] = []
    for number, line in Lines(path):
        where = f"{path}:{number}"
        if not line.strip():
            continue
        if max_texts is not None and len(found) >= max_texts:
            break
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) > 3 or not all(cells[:2]):
            came = f"{len(cells)} columns, {sum(not cell for cell in cells)} of them blank"
            raise CorpusError(came, "a text, or two with a tab between, and perhaps links after another", where=where)
        other = cells[1] if len(cells) > 1 else None
        links = parse_links(cells[2], cells[0], cells[1], where) if len(cells) > 2 else None
        found.append(Passage(cells[0], other, links))
    if not found:
        raise CorpusError("The file has no text", where=str(path))
    return found


def with_tags(passages: Sequence[Passage], path: Path) -> list[Passage]:
    """The same passages with the tags of a file: a tagged sentence for each of their texts, in the same order.

    Either a sentence a line, word_TAG word_TAG ..., or a word and its tag a line, a blank line after each sentence.
    """
    slots = [(number, which) for number, one in enumerate(passages) for which in range(len(one.texts))]
    known: list[list[Nouns | None]] = [[None, None] for _ in passages]
    for count, (slot, tagged) in enumerate(zip_longest(slots, _tagged_sentences(path)), start=1):
        if slot is None:
            break  # the file has tags of more texts than were asked for
        number, which = slot
        if tagged is None:
            raise CorpusError(f"tags for {count - 1} texts", f"tags for each of {len(slots)}", where=str(path))
        known[number][which] = nouns_in(passages[number].texts[which], tagged, f"{path}, sentence {count}")
    return [replace(one, nouns=(first, second)) for one, (first, second) in zip(passages, known, strict=True)]


def nouns_in(text: str, sentence: Tagged, where: str) -> Nouns:
    """The spans of the tagged words in a text, which must consist of them."""
    found, at = [], 0
    for word, tag in zip(sentence.words, sentence.tags, strict=True):
        start = at + len(text[at:]) - len(text[at:].lstrip())
        if not text.startswith(word, start):
            came = f"the tagged word {word!r} where the text continues with {text[start : start + 20]!r}"
            raise CorpusError(came, "the words of the text in its order", where=where)
        at = start + len(word)
        found.append(((start, at), tag.startswith(NOUNS)))
    return tuple(found)


def _tagged_sentences(path: Path) -> Iterator[Tagged]:
    """The sentences of a file of tags, in either of its two formats."""
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


def expect_built_in(run: Run | None, where: str) -> None:
    """Refuse the built-in corpus for a run that was trained on other text."""
    kind = BUILT_IN if run is None else run.section("data").get("kind", BUILT_IN)
    if kind != BUILT_IN:
        raise SettingError(
            f"This run was trained on {kind} data, not on the built-in corpus",
            where=where,
            advice="Name a file of text like that which it was trained on.",
        )
