"""Documents: a few connected sentences about the same people and things, in both languages.

A person is introduced by name, then referred to by pronouns and by name again, which a language model must copy. An
object that was bought or found is taken up in the next sentence: anaphora across sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from regard.text.examples import Document
from regard.text.grammar import function_words as fw, nouns
from regard.text.grammar.clauses import clause_about
from regard.text.grammar.copula import copular, predicate_adjective
from regard.text.grammar.frames import Clause, ditransitive, intransitive, locative, transitive, transitive_with_pronoun
from regard.text.grammar.function_words import Pronoun
from regard.text.grammar.lexicon import Noun, Verb, lexicon
from regard.text.grammar.noun_phrases import modified_noun
from regard.text.grammar.phrases import (
    NounPhrase,
    add_definite_article,
    add_possessive,
    fixed_phrase,
    pronoun_phrase,
    proper_noun,
    titled_name,
)
from regard.text.grammar.rng import GrammarRng
from regard.text.grammar.sentences import (
    MAX_WORDS,
    MIN_WORDS,
    add_opening,
    end_sentence,
    has_frequency_adverb,
    words_of,
)
from regard.text.grammar.tokens import A, AlignedWord, SentencePair, Slot
from regard.text.grammar.verb_phrase import PAST, PAST_PROGRESSIVE, verb_phrase


class Person(NamedTuple):
    """A person whom a story is about."""

    feminine: bool
    mention: Callable[[], NounPhrase]  # the name, once more

    @property
    def as_pronoun(self) -> Pronoun:
        return fw.SHE if self.feminine else fw.HE


def document(rng: GrammarRng) -> Document:
    """An English document of 4 to 10 sentences."""
    return Document(tuple(" ".join(drawn.source) for drawn in story(rng)))


def document_french(rng: GrammarRng) -> Document:
    return Document(tuple(" ".join(drawn.target) for drawn in story(rng)))


def story(rng: GrammarRng) -> list[SentencePair]:
    """The sentences of a document, with their translations and links."""
    feminine = rng.random() < 0.5
    hero, friend = _new_person(rng, feminine), _new_person(rng, not feminine)  # so that he and she are unambiguous
    found = [_introduction(rng, hero)]
    last: Clause | None = None  # a sentence whose object may be taken up again
    for number in range(rng.choice((3, 4, 5, 6, 7, 8, 9))):
        if last is not None and rng.random() < 0.6:
            assert last.object is not None
            found.append(
                end_sentence(
                    words_of(_object_continuation(rng, last.object, {word.lemma for word, _ in last.french}, hero))
                )
            )
            last = None
            continue
        built = _next_event(rng, hero, friend, fresh=number == 0)
        last = built if _can_continue(built, hero) else None
        found.append(end_sentence(_maybe_timed(rng, built)))
    return [drawn for drawn in found if MIN_WORDS <= len(drawn.source) <= MAX_WORDS]


def story_sentence(rng: GrammarRng) -> SentencePair:
    """A random sentence of the kinds that stories hold, for a recogniser."""
    feminine = rng.random() < 0.5
    hero, friend = _renamed_person(rng, feminine), _renamed_person(rng, not feminine)
    u = rng.random()
    if u < 0.2:
        return _introduction(rng, hero)
    if u < 0.4:
        noun = rng.choice(rng.lexicon.nouns[rng.choice(_DESCRIBABLE_KINDS)])
        plural = noun.plural_only or (not noun.mass and noun.kind not in ("kin", "sky") and rng.random() < 0.5)
        return end_sentence(words_of(_describe_object(rng, noun, plural, hero)))
    if u < 0.6:
        kind = rng.choice(_OBJECT_KINDS)
        them = (fw.HE, fw.SHE) if kind in ("person", "kin") else (fw.IT,)
        some = them if kind.endswith("*") else (*them, fw.THEY)
        verb = rng.choice(rng.lexicon.transitive_by_object[kind])
        return end_sentence(words_of(_act_on_object(rng, hero, (verb,), rng.choice(some))))
    return end_sentence(_maybe_timed(rng, _next_event(rng, hero, friend, fresh=False)))


_DESCRIBABLE_KINDS = tuple(kind for kind in lexicon().nouns if lexicon().predicates.get(kind.rstrip("*")))
_OBJECT_KINDS = tuple(lexicon().transitive_by_object)


def _can_continue(built: Clause, hero: Person) -> bool:
    """Whether the next sentence can take up the object: the hero acted on it, and nobody else owns it."""
    obj = built.object
    if obj is None or obj.noun is None or built.subject.feminine != hero.feminine:
        return False
    return not any(word is fw.NE for word, _ in built.french) and not any(slot[0] is fw.S for slot in obj.slots)


def _new_person(rng: GrammarRng, feminine: bool) -> Person:
    """A person with one name throughout."""
    return Person(feminine, _name_generator(rng, feminine))


def _renamed_person(rng: GrammarRng, feminine: bool) -> Person:
    """A person whose name is drawn at each mention."""

    def mention() -> NounPhrase:
        phrase = _name_generator(rng, feminine)()
        rng.emit(phrase.slots)
        return phrase

    return Person(feminine, mention)


def _name_generator(rng: GrammarRng, feminine: bool) -> Callable[[], NounPhrase]:
    if rng.families is nouns.FAMILIES and rng.random() < 0.3:
        form = rng.choice(nouns.WOMEN if feminine else nouns.MEN)

        def called() -> NounPhrase:
            english, french = proper_noun(form)
            slot: Slot = [english, 0]
            return NounPhrase([slot], [(french, (slot,))], feminine, False)

        return called
    family = rng.choice(rng.families)
    return lambda: titled_name(family, feminine)


def _introduction(rng: GrammarRng, hero: Person) -> SentencePair:
    """Ms. Valdon lived in Torvik."""
    who = hero.mention()
    live = rng.lexicon.verbs["place"][0][0]
    vp = verb_phrase(live, PAST, who)
    english, french = proper_noun(rng.choice(rng.towns))
    slots: list[Slot] = [[fw.IN, 0], [english, 0]]
    aligned: list[AlignedWord] = [(A, (slots[0],)), (french, (slots[1],))]
    return end_sentence(words_of(Clause(who, vp.front, vp.rest + slots, vp.french + aligned)))


def _next_event(rng: GrammarRng, hero: Person, friend: Person, fresh: bool) -> Clause:
    """The next event: about the hero, by name or pronoun, or about the friend."""
    u = rng.random()
    tense = PAST if rng.random() < 0.85 else PAST_PROGRESSIVE
    if u < 0.2:
        verb = rng.choice(rng.lexicon.transitive_by_object["person"])
        return transitive_with_pronoun(rng, friend.mention(), tense, verb, hero.as_pronoun)
    if u < 0.3:
        return clause_about(rng, friend.mention(), tense)
    who = hero.mention() if u < 0.5 or fresh else pronoun_phrase(hero.as_pronoun)
    return rng.choice((transitive, transitive, transitive, intransitive, locative, ditransitive, copular))(
        rng, who, tense
    )


def _object_continuation(rng: GrammarRng, obj: NounPhrase, done_already: set[str], hero: Person) -> Clause:
    """A sentence that takes up the last object: the bicycle was old; she sold it."""
    assert obj.noun is not None
    choices = rng.lexicon.predicates[obj.noun.kind]
    if choices and rng.random() < 0.5 and not any(slot[0].tag == "ADJ" for slot in obj.slots):
        return _describe_object(rng, obj.noun, obj.plural, hero)
    kind = obj.noun.kind + ("*" if obj.noun.mass else "")
    verbs = [verb for verb in rng.lexicon.transitive_by_object.get(kind, ()) if verb.lemma not in done_already]
    if not verbs:
        return intransitive(rng, pronoun_phrase(hero.as_pronoun), PAST)
    return _act_on_object(rng, hero, verbs, obj.as_pronoun)


def _describe_object(rng: GrammarRng, noun: Noun, plural: bool, hero: Person) -> Clause:
    """The bicycle was old; her brother was taller than Paul."""
    again = modified_noun(rng, noun, plural, 1.0)
    if noun.kind == "kin":
        add_possessive(again, hero.as_pronoun)
    else:
        add_definite_article(again)
    return predicate_adjective(rng, again, PAST, rng.choice(rng.lexicon.predicates[noun.kind]), None)


def _act_on_object(rng: GrammarRng, hero: Person, verbs: Sequence[Verb], it: Pronoun) -> Clause:
    """She sold it; never negated."""
    who = pronoun_phrase(hero.as_pronoun)
    while True:
        built = transitive_with_pronoun(rng, who, PAST, rng.choice(verbs), it)
        if not any(word is fw.NE for word, _ in built.french):
            return built


def _maybe_timed(rng: GrammarRng, built: Clause) -> tuple[list[Slot], list[AlignedWord]]:
    if rng.random() < 0.2 and not has_frequency_adverb(built):
        return add_opening(fixed_phrase(rng.choice(rng.lexicon.times["past"])), words_of(built))
    return words_of(built)
