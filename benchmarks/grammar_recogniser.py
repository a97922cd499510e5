"""A recogniser of the built-in grammar: could it have drawn this sentence? It is asked to draw again, with hindsight.

A rule makes two kinds of choices: it compares a random number, or picks from a list. Here every comparison that the
number has not settled yet may come out both ways, and only those entries are picked whose words stand in the sentence.
All ways through the rules are walked, depth first, until one of them writes the sentence. So the rules that draw are
the rules that read, and nothing has to be kept in step with them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from regard.errors import SettingError
from regard.text.grammar.function_words import Pronoun
from regard.text.grammar.lexicon import Adjective, FixedExpression, Noun, Verb
from regard.text.grammar.rng import GrammarRng
from regard.text.grammar.tokens import SentencePair, Slot, WordForm

PASSING = frozenset(("a", "another", "several", "some"))  # under a negation they turn into others, or fall away
DEEPEST = 12  # rules within rules, and one more for every word: a clause within a clause takes three
MOST = 300_000  # ways walked before one gives up: a sentence of the stories has some thousands


def reads(sentence: Sequence[str], view: Callable[[GrammarRng], SentencePair], most: int = MOST) -> bool:
    """Whether `view` can draw an English sentence of these words, signs apart, the first one with a capital.

    >>> reads("She sold it .".split(), stories.told)
    """
    wanted = tuple(sentence)
    hindsight = _Hindsight(wanted)
    for _ in range(most):
        hindsight.start()
        if _walked(view, hindsight) == wanted:
            return True
        if not hindsight.turn():
            return False
    raise SettingError(
        " ".join(wanted), f"a sentence that is settled in {most:,} ways through the rules", where="grammar.reads"
    )


def _walked(view: Callable[[GrammarRng], SentencePair], hindsight: _Hindsight) -> tuple[str, ...] | None:
    """The words at the end of a way, or None where it does not lead to the sentence."""
    try:
        return view(hindsight).source
    except _Astray:
        return None


class _Astray(Exception):
    """The choices made so far cannot end in the sentence."""


class _Hindsight(GrammarRng):
    """Chance that knows how it ends: it walks its choices one after the other instead of drawing them."""

    __slots__ = ("_at", "_calls", "_deepest", "_fits", "_path", "_stretches", "_told", "_words")

    def __init__(self, sentence: tuple[str, ...]) -> None:
        super().__init__("")
        first = sentence[0][:1].lower() + sentence[0][1:] if sentence else ""
        self._words = {*sentence, first, *(["a"] if "an" in (first, *sentence) else [])}
        # the sentence, as it is and begun small, to find stretches of words in
        self._stretches = [f" {' '.join(one)} ".replace(" an ", " a ") for one in (sentence, (first, *sentence[1:]))]
        self._deepest = DEEPEST + len(sentence)
        self._fits: dict[int, tuple[object, list[int]]] = {}  # of every list: what may be picked from it
        self._path: list[list[int]] = []  # the way walked: at each choice which one, of how many
        self.random = self._random
        self.choice = self._pick
        self.emit = self._heard
        self.start()

    def start(self) -> None:
        self._at = 0
        self._told: list[str] = []  # the longer stretches that were said on this way
        self._calls: dict[tuple[FrameType, int], FrameType | None] = {}

    def turn(self) -> bool:
        """Go back to the last choice that has another side; False if there is none."""
        del self._path[self._at :]
        while self._path:
            last = self._path[-1]
            last[0] += 1
            if last[0] < last[1]:
                return True
            self._path.pop()
        return False

    def choose(self, count: int) -> int:
        """The number of the choice on this way, of so many."""
        if self._at == len(self._path):
            self._path.append([0, count])
        self._at += 1
        return self._path[self._at - 1][0]

    def _random(self) -> Any:
        self._no_second_time()
        return _Number(self)

    def _pick(self, choices: Sequence[Any]) -> Any:
        self._no_second_time()
        known = self._fits.get(id(choices))
        if known is None:  # the list is kept with its entry: another one in its place would have the same id
            fits = [number for number, one in enumerate(choices) if self._can_say(one)]
            known = self._fits[id(choices)] = (choices, fits)
        fits = known[1]
        if not fits:
            raise _Astray
        return choices[fits[0] if len(fits) == 1 else fits[self.choose(len(fits))]]

    def _heard(self, slots: Sequence[Slot]) -> None:
        """Words beside each other: are they in the sentence, and, if they are many, as often as they were said?

        What an article becomes is decided after it was said.
        """
        words = [slot[0].form for slot in slots]
        if words and words[0] in PASSING:
            del words[0]
        stretch = f" {' '.join(words)} " if words else " "
        if len(words) > 2:
            self._told.append(stretch)
        if not any(whole.count(stretch) >= self._told.count(stretch) and stretch in whole for whole in self._stretches):
            raise _Astray

    def _no_second_time(self) -> None:
        """A rule that throws away what it drew and draws again need not: its first draw is walked all ways.

        Nor do rules call each other deeper than the sentence has words for.
        """
        frame: FrameType | None = sys._getframe(2)
        child: FrameType | None = None
        depth = 0
        while frame is not None and frame.f_code is not reads.__code__:
            place = (frame, frame.f_lasti)
            if place in self._calls and (child is None or self._calls[place] is not child):
                raise _Astray
            self._calls[place] = child
            frame, child, depth = frame.f_back, frame, depth + 1
        if depth > self._deepest:
            raise _Astray

    def _can_say(self, one: Any) -> bool:
        """Whether some form of an entry stands in the sentence; what is no entry says nothing by itself."""
        if isinstance(one, Noun):
            return any(self._stand(form) for form in one.english)
        if isinstance(one, Adjective):
            return self._stand((one.english,)) or self._stand(one.comparative)
        if isinstance(one, Verb):
            return any(self._stand((form,)) for form in (one.base, one.third, one.past, one.participle, one.ing))
        if isinstance(one, FixedExpression):
            return self._stand(one.english)
        if isinstance(one, Pronoun):
            return any(self._stand((word,)) for word in (one.subject, one.object, one.possessive))
        if isinstance(one, WordForm):
            return self._stand((one,))
        if isinstance(one, str):
            return not one[:1].isupper() or one in self._words  # a name; kinds are written small
        if isinstance(one, tuple):  # an entry and what goes with it, or English first
            entries = [part for part in one if isinstance(part, Noun | Verb | Adjective)]
            return self._can_say(entries[0] if entries else one[0])
        return True

    def _stand(self, words: Sequence[WordForm]) -> bool:
        return all(word.form in self._words for word in words)


class _Number:
    """A random number of which is known only what the rules have asked: it lies between low and high."""

    __slots__ = ("_high", "_low", "_rng")

    def __init__(self, rng: _Hindsight) -> None:
        self._rng, self._low, self._high = rng, 0.0, 1.0

    def __lt__(self, bound: float) -> bool:
        if bound >= self._high or bound <= self._low:
            return bound >= self._high
        if self._rng.choose(2) == 0:
            self._high = bound
            return True
        self._low = bound
        return False

    def __gt__(self, bound: float) -> bool:
        return not self < bound
