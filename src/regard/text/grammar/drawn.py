"""Any number of examples from the grammar: the same ones for the same seed, no two alike, and no split shares one.

What belongs to which split is decided by a hash of the example itself, so it holds for every seed. Chance is cut into
chunks, each with a seed of its own, so that several processes can draw at once and give the same examples in the
same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count, islice
from typing import Generic, TypeVar

from regard.errors import SettingError, unknown
from regard.text.examples import Translation
from regard.text.grammar.nouns import UNSEEN
from regard.text.grammar.rng import Draw
from regard.text.grammar.sentences import sentence
from regard.text.grammar.tokens import Sentence

SPLITS = ("train", "valid", "test", "names")
CHUNK = 500  # examples drawn from one seed
FUTILE = 50  # chunks without a new example, after which nothing more is to be hoped for

Example = TypeVar("Example")


@dataclass(frozen=True)
class Drawn(Generic[Example]):
    """A corpus that nobody wrote down: iterate it as often as you like, it is drawn anew and is always the same.

    >>> for pair in Drawn(translation, 1000): print(pair.source, pair.target, pair.links)
    >>> Drawn(tagged, 100, split="test", seed=3)

    `view` draws one example; `split` is train, valid, test, or names (names that no other split contains).
    """

    view: Callable[[Draw], Example]
    count: int
    split: str = "train"
    seed: int = 0

    def __post_init__(self) -> None:
        if not callable(self.view):
            raise SettingError(f"view={self.view!r}", "a view, such as grammar.translation", where="grammar.Drawn")
        if self.split not in SPLITS:
            raise unknown(self.split, SPLITS, kind="split", where="grammar.Drawn")
        if self.count < 0:
            raise SettingError(f"count={self.count}", "0 or more examples", where="grammar.Drawn")

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Example]:
        return islice(self._endless(), self.count)

    def _endless(self) -> Iterator[Example]:
        seen: set[int] = set()
        unseen = self.split == "names"
        for number in count():
            for example in chunk(self.view, self.seed, number, unseen):
                mark = fingerprint(example)
                if mark not in seen and split_of(example, mark, unseen) == self.split:
                    seen.add(mark)
                    yield example
            if number >= FUTILE and len(seen) < number // FUTILE:
                raise SettingError(
                    f"count={self.count} of {self.view.__name__}",
                    f"at most about {len(seen)}: this view has no more in split {self.split!r}",
                    where="grammar.Drawn",
                )


def chunk(view: Callable[[Draw], Example], seed: int, number: int, unseen: bool = False) -> list[Example]:
    """The examples of one chunk; a pure function of its arguments."""
    draw = Draw(f"{view.__name__}/{seed}/{number}/{unseen}", unseen)
    return [view(draw) for _ in range(CHUNK)]


def fingerprint(example: object) -> int:
    """A hash that is the same on every machine; no two examples of a corpus share it."""
    text = f"{example.source} ||| {example.target}" if isinstance(example, Translation) else repr(example)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def split_of(example: object, mark: int, unseen: bool) -> str:
    """Whose an example is: one in twenty is for testing, another one for validation, the rest for training.

    What was drawn with unseen names is for `names`, if it holds one of them, and else for nobody.
    """
    if unseen:
        return "names" if any(word in UNSEEN for word in _words(example)) else ""
    return ("test", "valid", "train")[min(mark % 20, 2)]


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


def translation(draw: Draw) -> Translation:
    """A sentence, its translation, and which word answers to which; words stand between spaces."""
    return as_translation(sentence(draw))


def as_translation(drawn: Sentence) -> Translation:
    return Translation(" ".join(drawn.source), " ".join(drawn.target), drawn.links)
