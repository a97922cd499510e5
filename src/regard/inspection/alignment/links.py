"""Word links read off a map of attention: from weights to links, for a map alone or for what a translator wrote.

matrix = between_words(weights, source.words, target.words)        # (target words, source words)
links = links_of(balanced(matrix))                                 # ((0, 0), (1, 2), ...): source word, target word
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from regard.decoding import Translated, Translator
from regard.errors import SettingError
from regard.inspection.attribution.word_pooling import between_words
from regard.text import Links

THRESHOLD = 0.2  # a share from which on a source word is linked to its best target word, though that prefers another
ROUNDS = 3  # of sharing out; further ones change next to nothing


def balanced(matrix: Tensor) -> Tensor:
    """The map after words have competed for each other: every source word shares itself out among the target words,
    then every target word among the source words, and again (Sinkhorn & Knopp 1967).

    An article is often written while looking at its noun, whose gender it needs. The noun belongs to a word that wants
    nothing else; what is left for the article is the article.
    """
    shares = matrix.double() + 1e-6  # a word that nobody looked at is shared out evenly
    for _ in range(ROUNDS):
        shares = shares / shares.sum(0, keepdim=True)
        shares = shares / shares.sum(1, keepdim=True)
    return shares.to(matrix.dtype)


def as_it_is(matrix: Tensor) -> Tensor:
    """The map without competition, where `balanced` could stand."""
    return matrix


def links_of(shares: Tensor, threshold: float = THRESHOLD) -> Links:
    """Each target word with its best source word, and each source word with its best target word, if that gives it
    at least this share. `shares` (target words, source words): a map as it is, or balanced."""
    if not shares.numel():
        return ()
    best, whose = shares.max(0)
    links = {(j, i) for i, j in enumerate(shares.argmax(1).tolist())}
    wanted = (best >= threshold).tolist()
    links |= {(j, i) for j, i in enumerate(whose.tolist()) if wanted[j]}
    return tuple(sorted(links))


def pharaoh(links: Links) -> str:
    """`0-0 1-2`: source word - target word."""
    return " ".join(f"{i}-{j}" for i, j in links)


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
