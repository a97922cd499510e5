"""The built-in corpus as texts of an atlas: of the kind that a run was trained on, with the tags its grammar knows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any

from regard.inspection.atlas.examples import NOUNS, Nouns, Passage, nouns_in
from regard.runs import Run
from regard.text import Answered, Document, Labelled, Tagged, grammar, spaced
from regard.text.grammar import Draw, Drawn, as_prose, sentence
from regard.training import recorded
from regard.training.tasks import Answering, Classification, Masked, Translation

SPLIT = "test"  # what no built-in training has seen
LEARNED = 4000  # tagged sentences that tell of words in views without tags


def built_in(run: Run | None, kind: str, count: int) -> list[Passage]:
    """So many passages of the kind that this run was trained on; of a model from elsewhere, pairs of a
    sentence and its translation for one that translates, and single sentences for any other."""
    recipe: Any = None if run is None else recorded(run)
    data = getattr(recipe, "data", None)
    french = "french" in f"{getattr(data, 'view', '')} {getattr(data, 'language', '')}"
    if isinstance(recipe, Translation) or kind == "translates":
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
