"""The built-in corpus as an iterable: any number of distinct examples, reproducible, with disjoint splits.

A hash of the example decides its split, so the splits are disjoint for every seed. Examples are drawn in chunks, each
with its own seed, so that several processes draw the same examples in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count, islice
from typing import Generic, TypeVar

from regard.errors import SettingError, unknown
from regard.text.examples import Translation
from regard.text.grammar.nouns import HELD_OUT_NAMES
from regard.text.grammar.rng import GrammarRng
from regard.text.grammar.sentences import sentence
from regard.text.grammar.tokens import SentencePair

SPLITS = ("train", "valid", "test", "names")
CHUNK_SIZE = 500  # examples drawn with one seed
MAX_EMPTY_CHUNKS = 50  # successive chunks without a new example, after which the view is exhausted

Example = TypeVar("Example")


@dataclass(frozen=True)
class GeneratedCorpus(Generic[Example]):
    """A synthetic corpus, generated anew on each iteration and always the same.

    >>> for pair in GeneratedCorpus(translation, 1000): print(pair.source, pair.target, pair.links)
    >>> GeneratedCorpus(tagged, 100, split="test", seed=3)

    `view` draws one example; `split` is train, valid, test, or names (with names that no other split contains).
    """

    view: Callable[[GrammarRng], Example]
    count: int
    split: str = "train"
    seed: int = 0

    def __post_init__(self) -> None:
        if not callable(self.view):
            raise SettingError(
                f"view={self.view!r}", "a view, such as grammar.translation", where="grammar.GeneratedCorpus"
            )
        if self.split not in SPLITS:
            raise unknown(self.split, SPLITS, kind="split", where="grammar.GeneratedCorpus")
        if self.count < 0:
            raise SettingError(f"count={self.count}", "0 or more examples", where="grammar.GeneratedCorpus")

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Example]:
        return islice(self._endless(), self.count)

    def _endless(self) -> Iterator[Example]:
        seen: set[int] = set()
        unseen = self.split == "names"
        for number in count():
            for example in chunk(self.view, self.seed, number, unseen):
                digest = fingerprint(example)
                if digest not in seen and split_of(example, digest, unseen) == self.split:
                    seen.add(digest)
                    yield example
            if number >= MAX_EMPTY_CHUNKS and len(seen) < number // MAX_EMPTY_CHUNKS:
                raise SettingError(
                    f"count={self.count} of {self.view.__name__}",
                    f"at most about {len(seen)}, all that split {self.split!r} has",
                    where="grammar.GeneratedCorpus",
                )


def chunk(view: Callable[[GrammarRng], Example], seed: int, number: int, unseen: bool = False) -> list[Example]:
    """The examples of one chunk; a pure function of its arguments."""
    rng = GrammarRng(f"{view.__name__}/{seed}/{number}/{unseen}", unseen)
    return [view(rng) for _ in range(CHUNK_SIZE)]


def fingerprint(example: object) -> int:
    """A hash of an example that is the same on every machine; examples with equal hashes count as duplicates."""
    text = f"{example.source} ||| {example.target}" if isinstance(example, Translation) else repr(example)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def split_of(example: object, digest: int, unseen: bool) -> str:
    """The split of an example: one in twenty is for testing, one in twenty for validation, the rest for training.

    An example drawn with held-out names belongs to `names` if it contains one, and else to no split ("").
    """
    if unseen:
        return "names" if any(word in HELD_OUT_NAMES for word in _words(example)) else ""
    return ("test", "valid", "train")[min(digest % 20, 2)]


def _words(example: object) -> Iterator[str]:
    """Every word of an example, whatever its kind."""
    if isinstance(example, str):
        yield from example.split()
    elif isinstance(example, tuple | list):
        for part in example:
            yield from _words(part)
    elif hasattr(example, "__dataclass_fields__"):
        for field in example.__dataclass_fields__:
            yield from _words(getattr(example, field))


def translation(rng: GrammarRng) -> Translation:
    """A sentence, its translation, and the word links; words are separated by spaces."""
    return as_translation(sentence(rng))


def as_translation(drawn: SentencePair) -> Translation:
    return Translation(" ".join(drawn.source), " ".join(drawn.target), drawn.links)
