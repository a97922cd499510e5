"""How many sentences of a GPT's stories are sentences of the built-in grammar?

    python benchmarks/grammatical.py RUN [--texts 200] [--temperature 1.0]

The grammar draws sentences and cannot read them, so it is asked for many, and a sentence is held against those:

- Words are of one class if the lexicon lists them under the same heads with the same marks: wherever one of them can
  be drawn, so can the others. Every two neighbours must have been drawn with their classes, ends of sentences
  included.
- The sentence as a whole must have been drawn by its shape: the forms of its verbs and what they take, numbers, the
  small words as they are; adjectives before a noun left out, as what opens a sentence before a comma, which must have
  been drawn as it is.
- "a" and "an" stand where they should.

So an accepted sentence has the grammar's syntax from end to end, and its choice of words from neighbour to neighbour.
How much of the grammar itself is accepted (rare shapes are not all drawn), and how much of it with two words swapped,
is printed beside.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Hashable, Iterator
from pathlib import Path
from random import Random

from regard.text.grammar import names
from regard.text.grammar.chance import Draw
from regard.text.grammar.english import begins_with_vowel
from regard.text.grammar.entries import Noun, Verb
from regard.text.grammar.lexicon import lexicon
from regard.text.grammar.stories import story
from regard.text.grammar.tokens import Word

Class = Hashable
ADJECTIVE = frozenset({"adjective"})


class Classes:
    """The class and the shape of every word, and those that a spelling may have."""

    def __init__(self) -> None:
        heads: dict[tuple[str, str, str], set[tuple[Class, Class]]] = defaultdict(set)
        for word, head, shape in _listed():
            heads[word.tag, word.lemma, word.form].add((head, shape))
        self.known = {
            key: (frozenset(head for head, _ in found), frozenset(shape for _, shape in found))
            for key, found in heads.items()
        }
        self.spelled: dict[str, set[tuple[Class, Class]]] = defaultdict(set)
        for (_, _, form), found in self.known.items():
            self.spelled[form].add(found)

    def of(self, word: Word) -> tuple[Class, Class]:
        return self.known.get((word.tag, word.lemma, word.form), (word.form, word.form))

    def possible(self, form: str) -> set[tuple[Class, Class]]:
        return {(form, form), *self.spelled.get(form, ())}


class Accepts:
    """The sentences of a grammar: shapes of whole ones as a tree, which classes are neighbours, and how they open."""

    def __init__(self, sentences: int, seed: str = "grammatical") -> None:
        self.classes, self.root = Classes(), {}
        self.neighbours: set[tuple[Class, Class]] = set()
        self.openings: set[tuple[str, ...]] = {()}
        for words in drawn(sentences, seed):
            forms = [word.form for word in words]
            start = forms.index(",") + 1 if "," in forms else 0
            self.openings.add(tuple(forms[:start]))
            node, before = self.root, None
            told = [self.classes.of(word) for word in words[start:]]
            for (kind, shape), (_, after) in zip(told, [*told[1:], (None, None)], strict=True):
                self.neighbours.add((before, kind))
                before = kind
                if not _inside(shape, after):
                    node = node.setdefault(shape, {})
            node[None] = {}

    def __call__(self, sentence: list[str]) -> bool:
        """Words and signs apart, the first with a capital."""
        if not sentence or not sentence[0][:1].isupper():
            return False
        for place, word in enumerate(sentence[:-1]):
            if word.lower() in ("a", "an") and begins_with_vowel(sentence[place + 1]) != (word.lower() == "an"):
                return False
        first = [sentence[0], sentence[0][0].lower() + sentence[0][1:]]
        start = sentence.index(",") + 1 if "," in sentence else 0
        if start:
            opens = any((one, *sentence[1:start]) in self.openings for one in first)
            return opens and self._from(self.root, None, sentence[start:])
        return any(self._from(self.root, None, [one, *sentence[1:]]) for one in first)

    def _from(self, node: dict, before: Class, sentence: list[str]) -> bool:
        if not sentence:
            return None in node
        form = "a" if sentence[0] == "an" else sentence[0]
        for kind, shape in self.classes.possible(form):
            if (before, kind) not in self.neighbours:
                continue
            follows = self.classes.possible(sentence[1]) if len(sentence) > 1 else ()
            if any(_inside(shape, after) for _, after in follows) and self._from(node, kind, sentence[1:]):
                return True
            if shape in node and self._from(node[shape], kind, sentence[1:]):
                return True
        return False


def _inside(shape: Class, after: Class) -> bool:
    """Whether this is an adjective before a noun, which any noun may have."""
    return shape == ADJECTIVE and (after == ADJECTIVE or _is_noun(after))


def _is_noun(shape: Class) -> bool:
    return isinstance(shape, frozenset) and any(isinstance(one, tuple) and one[0] == "noun" for one in shape)


def drawn(count: int, seed: str) -> Iterator[tuple[Word, ...]]:
    draw, told = Draw(seed), 0
    while told < count:
        for sentence in story(draw):
            told += 1
            yield sentence.source_words


def sentences(text: str) -> list[list[str]]:
    """The sentences of a text whose words and signs stand apart; what is left at its end is none."""
    found = [one.split() for one in re.findall(r"[^.?]*[.?]", re.sub(r"\b(Mr|Ms|Mrs)\s*\.", r"\1_", text))]
    return [[word.replace("_", ".") for word in one] for one in found]


def _listed() -> Iterator[tuple[Word, Class, Class]]:
    """Every word of the lexicon with a head that it is listed under and the marks of its entry; and its shape."""
    lexical = lexicon()
    for kind, entries in lexical.nouns.items():
        for noun in entries:
            yield from _noun(noun, ("noun", kind))
    for table, entries in (("place", lexical.places), ("surface", lexical.surfaces)):
        for preposition, french, noun in entries:
            yield from _noun(noun, (table, preposition.form, french.form))
    for noun, acts, verbs in lexical.homonyms:
        yield from _noun(noun, ("homonym", noun.english[0]))
        for verb in verbs:
            yield from _verb(verb, ("homonym", noun.english[0], acts), "alone" if acts else "object")
    for frame, lines in lexical.verbs.items():
        for verb, subjects, objects in lines:
            yield from _verb(verb, (frame, subjects, objects), frame)
    for table in (lexical.adjectives, lexical.predicates, {"praise": lexical.praise, "blame": lexical.blame}):
        for kind, entries in table.items():
            for one in entries:
                marks = (kind, table is lexical.predicates, one.before, one.graded, len(one.comparative))
                yield one.english, ("adjective", *marks), "adjective"
                if len(one.comparative) == 1:
                    yield one.comparative[0], ("comparative", *marks), "comparative"
    for expression in lexical.manner:
        if len(expression.english) == 1:
            yield expression.english[0], "manner", "manner"
    lists = {"woman": names.WOMEN, "man": names.MEN, "family": names.FAMILIES, "town": names.TOWNS}
    for kind, listed in lists.items():
        for form in listed:
            yield Word(form, "PROPN", form, begins_with_vowel(form)), kind, kind
    for word, _, feminine in lexical.countries:
        yield word, ("country", feminine), "country"


def _noun(noun: Noun, head: Class) -> Iterator[tuple[Word, Class, Class]]:
    for number, phrase in enumerate(noun.english):
        for place, word in enumerate(phrase):
            shape = (noun.mass, noun.plural_only, number, place, len(phrase))
            yield word, (head, shape, noun.english[0] if len(phrase) > 1 else None), ("noun", *shape)


def _verb(verb: Verb, head: Class, frame: str) -> Iterator[tuple[Word, Class, Class]]:
    particles = tuple(word.form for word in verb.particles)
    for slot in ("base", "third", "past", "participle", "ing"):
        marks = (particles, slot, verb.preposition is None, verb.reflexive, verb.going_on, verb.motion, verb.away)
        yield getattr(verb, slot), (head, marks, verb.base.form if particles else None), (frame, slot, particles)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--texts", type=int, default=200, help="stories to draw")
    parser.add_argument("--drawn", type=int, default=400_000, help="sentences that the grammar is asked for")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()

    from regard.decoding import Rules, Sample
    from regard.decoding.generate import continued, unsaid
    from regard.text.tokenizers.tokenizer import Tokenizer
    from regard.training.run import load

    accepts = Accepts(given.drawn)
    model, tokenizer = load(given.run), Tokenizer.load(given.run / "tokenizer.json")
    rules = Rules(tokenizer.special.end, 120, banned=unsaid(tokenizer))
    search = Sample(given.temperature, seed=given.seed)
    stories = [one.text for (one,) in continued(model, tokenizer, [""] * given.texts, search, rules)]
    written = [sentence for text in stories for sentence in sentences(text)]
    fine = [accepts(sentence) for sentence in written]
    for sentence, good in list(zip(written, fine, strict=True))[:12]:
        print(" " if good else "x", " ".join(sentence))
    print("\nnot accepted, for example:")
    for sentence in [one for one, good in zip(written, fine, strict=True) if not good][:8]:
        print(" ", " ".join(sentence))
    real = [" ".join(_spelled(words)).split() for words in drawn(3000, "others")]
    print(
        f"\naccepted: {sum(fine) / max(1, len(fine)):.1%} of {len(fine)} sentences at temperature {given.temperature}"
    )
    print(f"of sentences that the grammar drew: {sum(map(accepts, real)) / len(real):.1%} of {len(real)}")
    mixed = [_swapped(sentence, Random(number)) for number, sentence in enumerate(real)]
    print(f"of those with two neighbours swapped: {sum(map(accepts, mixed)) / len(mixed):.1%}")


def _swapped(sentence: list[str], chance: Random) -> list[str]:
    place = chance.randrange(1, len(sentence) - 2) if len(sentence) > 3 else 1
    return [*sentence[:place], sentence[place + 1], sentence[place], *sentence[place + 2 :]]


def _spelled(words: tuple[Word, ...]) -> list[str]:
    """As the grammar writes them."""
    from regard.text.grammar.tokens import _written

    return list(_written(list(words)))


if __name__ == "__main__":
    main()
