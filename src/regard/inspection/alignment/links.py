"""Word links from a map of attention: Sinkhorn normalisation, link extraction, and the Pharaoh format `0-0 1-2`.

matrix = pool_to_words(weights, source.words, target.words)        # (target words, source words)
links = extract_links(sinkhorn(matrix))                            # ((0, 0), (1, 2), ...): source word, target word
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from regard.decoding import Translated, Translator
from regard.errors import SettingError
from regard.inspection.attribution.word_pooling import pool_to_words
from regard.text import Links

THRESHOLD = 0.2  # the share that links a source word to its best target word, even if that prefers another
ROUNDS = 3  # of normalisation; further ones change next to nothing


def sinkhorn(matrix: Tensor) -> Tensor:
    """Normalise a map so that words compete for each other: columns, then rows, `ROUNDS` times (Sinkhorn & Knopp 1967).

    An article is often written while the model attends to its noun, whose gender it needs. The noun already belongs to
    another word; the article is left for the article.
    """
    shares = matrix.double() + 1e-6  # a word without attention is shared out evenly
    for _ in range(ROUNDS):
        shares = shares / shares.sum(0, keepdim=True)
        shares = shares / shares.sum(1, keepdim=True)
    return shares.to(matrix.dtype)


def unnormalized(matrix: Tensor) -> Tensor:
    """The map as it is, in place of `sinkhorn`."""
    return matrix


def extract_links(matrix: Tensor, threshold: float = THRESHOLD) -> Links:
    """Link each target word to its best source word, and each source word to its best target word if that has at least
    this share of it. `matrix` (target words, source words), normalised or not."""
    if not matrix.numel():
        return ()
    best, whose = matrix.max(0)
    links = {(j, i) for i, j in enumerate(matrix.argmax(1).tolist())}
    wanted = (best >= threshold).tolist()
    links |= {(j, i) for j, i in enumerate(whose.tolist()) if wanted[j]}
    return tuple(sorted(links))


def to_pharaoh(links: Links) -> str:
    """The Pharaoh format, `0-0 1-2`: source word - target word."""
    return " ".join(f"{i}-{j}" for i, j in links)


def word_map(translator: Translator, one: Translated) -> Tensor:
    """(target words, source words): the attention of each target word to each source word."""
    if one.weights is None:
        raise SettingError(
            "This translation has no attention weights",
            where="word_map",
            advice="Translate with attention=True, by a model that attends; one with a fixed bottleneck does not.",
        )
    source = translator.source.encode(one.source).words
    target = translator.target.encode(one.text).words[: len(one.weights)]
    return pool_to_words(one.weights, source, target)


def translation_links(
    translator: Translator,
    one: Translated,
    threshold: float = THRESHOLD,
    normalise: Callable[[Tensor], Tensor] = sinkhorn,
) -> Links:
    """The links of a translation, from its attention weights."""
    return extract_links(normalise(word_map(translator, one)), threshold)


def translation_to_dict(translator: Translator, one: Translated) -> dict[str, Any]:
    """A translation with its log-probabilities, links and word map, for JSON."""
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
        found["links"] = extract_links(sinkhorn(words))
        found["words"] = {"source": one.source.split(), "target": one.text.split()}
        found["weights"] = [[round(value, 4) for value in row] for row in words.tolist()]
    return found
