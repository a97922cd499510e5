"""The grammar's sentences seen from other sides: parts of speech, and words of two meanings."""

from __future__ import annotations

from regard.text.examples import Sense, Tagged
from regard.text.grammar.chance import Draw
from regard.text.grammar.sentences import sentence

# English words with two meanings, and the French lemmas that tell them apart.
SENSES = {
    "train": ("train", "s'entraîner"),
    "bat": ("chauve-souris", "batte"),
    "bank": ("banque", "rive"),
    "nail": ("clou", "ongle"),
    "match": ("allumette", "match"),
    "spring": ("ressort", "source"),
    "seal": ("phoque", "sceau"),
    "saw": ("scie", "voir"),
    "watch": ("montre", "observer"),
    "fly": ("mouche", "voler"),
    "play": ("pièce", "jouer", "jouer de", "jouer à"),
    "ring": ("bague", "sonner"),
    "water": ("eau", "arroser"),
    "plant": ("plante", "planter"),
    "fish": ("poisson", "pêcher"),
    "cook": ("cuisinier", "cuisiner"),
    "light": ("léger", "allumer"),
    "star": ("vedette", "étoile"),
    "judge": ("juge", "juger"),
    "miss": ("rater", "manquer à"),
}


def tagged(draw: Draw) -> Tagged:
    """The words of an English sentence and their parts of speech (the universal tags: NOUN, VERB, ADJ ...)."""
    drawn = sentence(draw)
    return Tagged(drawn.source, tuple(word.tag for word in drawn.source_words))


def tagged_french(draw: Draw) -> Tagged:
    drawn = sentence(draw)
    return Tagged(drawn.target, tuple(word.tag for word in drawn.target_words))


def sense(draw: Draw) -> Sense:
    """A word of two meanings in a sentence: he took a train, he likes to train."""
    while True:
        drawn = sentence(draw)
        if len(drawn.source) > 20:
            continue
        for place, word in enumerate(drawn.source_words):
            ambiguous = word.form if word.form in SENSES else word.lemma
            if ambiguous in SENSES:
                for source, target in drawn.links:
                    meaning = drawn.target_words[target].lemma
                    if source == place and meaning in SENSES[ambiguous]:
                        return Sense(" ".join(drawn.source), place, drawn.source[place], meaning)
