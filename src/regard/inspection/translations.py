"""Translations looked at: the map between the words, the links read off it, how good they are, all as plain data."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.decoding.search import Search
from regard.decoding.translate import Tell, Translated, Translator
from regard.errors import SettingError
from regard.inspection.alignment import THRESHOLD, Agreement, Gold, balanced, links_of, measure
from regard.inspection.measures.words import between_words
from regard.text.examples import Links, Translation

if TYPE_CHECKING:
    from regard.training.objective import Grade


def word_map(translator: Translator, one: Translated) -> Tensor:
    """(target words, source words): how much each word that was written looked at each that was read."""
    if one.weights is None:
        raise SettingError(
            "a translation without attention",
            "one made with attention=True, by a model that attends",
            where="word_map",
            advice="A bottleneck looks at nothing, so there is nothing to show.",
        )
    source = translator.source.encode(one.source).words
    target = translator.target.encode(one.text).words[: len(one.weights)]
    return between_words(one.weights, source, target)


def links(
    translator: Translator,
    one: Translated,
    threshold: float = THRESHOLD,
    shares: Callable[[Tensor], Tensor] = balanced,
) -> Links:
    """Which word of the translation answers to which of the source, as far as attention tells.

    `shares`: what is made of the map before it is read, `balanced` or `as_it_is`.
    """
    return links_of(shares(word_map(translator, one)), threshold)


def told(translator: Translator, one: Translated) -> dict[str, Any]:
    """All that is known of a translation, as JSON takes it."""
    found: dict[str, Any] = {
        "source": one.source,
        "text": one.text,
        "score": round(one.score, 6),
        "finished": one.finished,
        "tokens": [translator.target.token(token) if token < len(translator.target) else None for token in one.tokens],
        "log_probs": [round(value, 6) for value in one.log_probs],
    }
    if one.weights is not None:
        words = word_map(translator, one)
        found["links"] = links_of(balanced(words))
        found["words"] = {"source": one.source.split(), "target": one.text.split()}
        found["weights"] = [[round(value, 4) for value in row] for row in words.tolist()]
    return found


@dataclass(frozen=True, eq=False)
class Judged:
    """What a translator made of sentences whose translations, and perhaps links, are known."""

    translations: list[Translated]
    bleu: Grade
    chrf: Grade
    agreement: Agreement | None  # of the links, where gold ones are known and the model attends
    by_length: dict[str, float]  # BLEU of the sentences of so many words


def judge(
    translator: Translator,
    pairs: Sequence[Translation],
    search: Search | None = None,
    lengths: Sequence[int] = (10, 20, 30, 40),
    tell: Tell = lambda more: None,
) -> Judged:
    """Translate the sources and compare; the links are read off while the model is made to write the references.

    `lengths`: where to cut the sentences into groups, by the words of their sources.
    """
    from regard.training.metrics import bleu, chrf

    found = [best for best, *_ in translator([pair.source for pair in pairs], search, tell=tell)]
    got, expected = [one.text for one in found], [pair.target for pair in pairs]
    groups: dict[str, list[int]] = {}
    for row, pair in enumerate(pairs):
        groups.setdefault(_group(len(pair.source.split()), lengths), []).append(row)
    by_length = {
        name: bleu([got[row] for row in groups[name]], [expected[row] for row in groups[name]]).value
        for name in _names(lengths)
        if name in groups
    }
    agreement = agreement_of(translator, pairs) if all(pair.links is not None for pair in pairs) else None
    return Judged(found, bleu(got, expected), chrf(got, expected), agreement, by_length)


def agreement_of(translator: Translator, pairs: Sequence[Translation]) -> Agreement | None:
    """How the links of given translations agree with the gold ones; None where the model attends to nothing."""
    read = translator.read([(pair.source, pair.target) for pair in pairs])
    if any(one.weights is None for one in read):
        return None
    return measure((links(translator, one) for one in read), (Gold.of(pair.links or ()) for pair in pairs))


def _names(lengths: Sequence[int]) -> list[str]:
    edges = [0, *lengths]
    return [f"{low + 1}-{high}" for low, high in pairwise(edges)] + [f"over {edges[-1]}"]


def _group(words: int, lengths: Sequence[int]) -> str:
    return _names(lengths)[bisect_left(lengths, words)]
