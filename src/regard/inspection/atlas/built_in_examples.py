"""The built-in corpus as texts of an atlas: in the format of a run's own task, with the tags that the grammar knows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any

from regard.inspection.atlas.passages import NOUNS, Nouns, Passage, nouns_in
from regard.runs import Run
from regard.text import Answered, Document, Labelled, Tagged, grammar, whitespace_words
from regard.text.grammar import GeneratedCorpus, GrammarRng, detokenize, sentence
from regard.training import load_recipe
from regard.training.tasks import AnsweringRecipe, ClassificationRecipe, MaskedLMRecipe, TranslationRecipe

SPLIT = "test"  # not part of any built-in training data
TAGGED_SENTENCES = 4000  # from which the usual tag of a word is counted, for views without tags


def built_in_passages(run: Run | None, kind: str, count: int) -> list[Passage]:
    """Passages in the format of this run's task; without a run, sentence pairs for a translation model, and single
    sentences for any other."""
    recipe: Any = None if run is None else load_recipe(run)
    data = getattr(recipe, "data", None)
    french = "french" in f"{getattr(data, 'view', '')} {getattr(data, 'language', '')}"
    if isinstance(recipe, TranslationRecipe) or kind == "translates":
        from_french = getattr(data, "direction", "en-fr") == "fr-en"
        return list(GeneratedCorpus(_reversed_pair if from_french else _pair, count, SPLIT))
    if isinstance(recipe, AnsweringRecipe):
        questions: Iterable[Answered] = GeneratedCorpus(grammar.question, count, SPLIT)
        return [_with_nouns(one.question, one.passage) for one in questions]
    if isinstance(recipe, ClassificationRecipe):
        view = grammar.opinion_french if french else grammar.opinion
        opinions: Iterable[Labelled] = GeneratedCorpus(view, count, SPLIT)
        return [_with_nouns(one.text, french=french) for one in opinions]
    if isinstance(recipe, MaskedLMRecipe):
        return list(islice(_sentence_pairs(french, count), count))
    name = str(getattr(data, "view", ""))
    if "document" in name or "prose" in name:
        return list(islice(_document_parts(french, "prose" in name, count), count))
    return list(GeneratedCorpus(_french if french else _english, count, SPLIT))


def _pair(rng: GrammarRng) -> Passage:
    drawn = sentence(rng)
    texts, words = (drawn.source, drawn.target), (drawn.source_words, drawn.target_words)
    nouns = tuple(_nouns(text, [word.tag for word in own]) for text, own in zip(texts, words, strict=True))
    return Passage(" ".join(drawn.source), " ".join(drawn.target), drawn.links, (nouns[0], nouns[1]))


def _reversed_pair(rng: GrammarRng) -> Passage:
    one = _pair(rng)
    assert one.other is not None and one.links is not None
    links = tuple(sorted((target, source) for source, target in one.links))
    return Passage(one.other, one.text, links, one.nouns[::-1])


def _english(rng: GrammarRng) -> Passage:
    one = _pair(rng)
    return Passage(one.text, nouns=(one.nouns[0], None))


def _french(rng: GrammarRng) -> Passage:
    one = _reversed_pair(rng)
    return Passage(one.text, nouns=(one.nouns[0], None))


def _nouns(words: tuple[str, ...], tags: list[str]) -> Nouns:
    return nouns_in(" ".join(words), Tagged(words, tuple(tags)), "the grammar")


def _sentence_pairs(french: bool, count: int) -> Iterator[Passage]:
    """Two consecutive sentences of a story, as BERT reads them."""
    for story in _stories(french, count):
        for one, other in list(pairwise(story.sentences))[::2]:
            yield _with_nouns(one, other, french)


def _document_parts(french: bool, prose: bool, count: int) -> Iterator[Passage]:
    """Three sentences of a story, as a language model reads them."""
    for story in _stories(french, count):
        lines = story.sentences
        if prose:
            lines = tuple(detokenize(line.split(), "fr" if french else "en") for line in lines)
        for at in range(0, len(lines) - 2, 3):
            yield _with_nouns(" ".join(lines[at : at + 3]), french=french)


def _stories(french: bool, count: int) -> Iterable[Document]:
    return GeneratedCorpus(grammar.document_french if french else grammar.document, count, SPLIT)


def _with_nouns(text: str, other: str | None = None, french: bool = False) -> Passage:
    """A passage with its nouns: each word has its most frequent tag in the grammar."""
    usual = _usual_tags(french)

    def nouns(one: str) -> Nouns:
        return tuple((span, usual.get(_bare(one[slice(*span)]), False)) for span in whitespace_words(one))

    return Passage(text, other, nouns=(nouns(text), None if other is None else nouns(other)))


@lru_cache(maxsize=2)
def _usual_tags(french: bool) -> dict[str, bool]:
    counts: defaultdict[str, Counter[bool]] = defaultdict(Counter)
    for one in GeneratedCorpus(grammar.tagged_french if french else grammar.tagged, TAGGED_SENTENCES, "train"):
        for word, tag in zip(one.words, one.tags, strict=True):
            counts[_bare(word)][tag.startswith(NOUNS)] += 1
    return {word: own.most_common(1)[0][0] for word, own in counts.items()}


def _bare(word: str) -> str:
    return word.strip(".,?!;:").lower()
