"""The function words of both languages: pronouns and clitics, determiners, negation, conjunctions, prepositions."""

from __future__ import annotations

from typing import NamedTuple

from regard.text.grammar.tokens import DE, LA, LE, LES, A, WordForm, en, fr


class Pronoun(NamedTuple):
    """A personal pronoun: subject and object forms, possessive determiner, French clitics, person and gender."""

    subject: WordForm  # I
    object: WordForm  # me
    possessive: WordForm  # my
    french: WordForm  # je
    direct: WordForm  # me: the direct object clitic
    indirect: WordForm  # me, lui: the indirect object clitic
    reflexive: WordForm  # me
    french_possessives: tuple[
        WordForm, WordForm, WordForm, WordForm
    ]  # mon, ma, mes, mes: masculine, feminine, and their plurals
    person: int  # 0 je, 1 tu, 2 il, 3 nous, 4 vous, 5 ils
    feminine: bool
    plural: bool


def _pronoun(english: str, french: str, owned: str, person: int, feminine: bool = False) -> Pronoun:
    subject, obj, owner = english.split()
    his, direct, indirect, reflexive = french.split()
    determiners = owned.split()  # mon ma mes
    hers = fr(
        determiners[1], "DET", determiners[0], determiners[0] if determiners[1] != determiners[0] else None
    )  # mon amie
    elided = {"je": "j'", "me": "m'", "te": "t'", "se": "s'", "le": "l'", "la": "l'"}
    possessed = fr(determiners[2], "DET", determiners[0])
    return Pronoun(
        en(subject, "PRON"),
        en(obj, "PRON", subject),
        en(owner, "DET"),
        fr(his, "PRON", before_vowel=elided.get(his)),
        fr(direct, "PRON", his, elided.get(direct)),
        fr(indirect, "PRON", his, elided.get(indirect)),
        fr(reflexive, "PRON", "se", elided.get(reflexive)),
        (fr(determiners[0], "DET"), hers, possessed, possessed),
        person,
        feminine,
        person > 2,
    )


I = _pronoun("I me my", "je me me me", "mon ma mes", 0)  # noqa: E741
YOU = _pronoun("you you your", "tu te te te", "ton ta tes", 1)
HE = _pronoun("he him his", "il le lui se", "son sa ses", 2)
SHE = _pronoun("she her her", "elle la lui se", "son sa ses", 2, feminine=True)
WE = _pronoun("we us our", "nous nous nous nous", "notre notre nos", 3)
THEY = _pronoun("they them their", "ils les leur se", "leur leur leurs", 5)
THEY_F = _pronoun("they them their", "elles les leur se", "leur leur leurs", 5, feminine=True)
IT = _pronoun("it it its", "il le lui se", "son sa ses", 2)
IT_F = _pronoun("it it its", "elle la lui se", "son sa ses", 2, feminine=True)
PERSONS = (I, YOU, HE, SHE, WE, THEY)
SPEAKERS = (I, YOU, WE)

THE, AN, THIS, THESE = (
    en("the", "DET"),
    en("a", "DET", before_vowel="an"),
    en("this", "DET"),
    en("these", "DET", "this"),
)
SOME, ANY, EVERY, ANOTHER = en("some", "DET"), en("any", "DET"), en("every", "DET"), en("another", "DET")
SEVERAL, MANY, ALL = en("several", "ADJ"), en("many", "ADJ"), en("all", "DET")
UN, UNE, DES = fr("un", "DET"), fr("une", "DET", "un"), fr("des", "DET", "un")
CE, CETTE, CES = fr("ce", "DET", "ce", "cet"), fr("cette", "DET", "ce"), fr("ces", "DET", "ce")
CHAQUE, PLUSIEURS = fr("chaque", "DET"), fr("plusieurs", "ADJ")
AUTRE, BEAUCOUP = fr("autre", "ADJ"), fr("beaucoup", "ADV")
TOUS, TOUTES = fr("tous", "DET", "tout"), fr("toutes", "DET", "tout")
ARTICLES = (LE, LA, LES, LES)  # by gender and number: index feminine + 2 * plural

NUMBERS = tuple(
    (en(english, "NUM"), fr(french, "NUM"))
    for english, french in (
        pair.split("=")
        for pair in """two=deux three=trois four=quatre five=cinq six=six seven=sept eight=huit nine=neuf ten=dix
        eleven=onze twelve=douze fifteen=quinze twenty=vingt""".split()
    )
)

# Auxiliaries and negation.
DO, DOES, DID, WILL = en("do", "AUX"), en("does", "AUX", "do"), en("did", "AUX", "do"), en("will", "AUX")
HAVE, HAS = en("have", "AUX"), en("has", "AUX", "have")
AM, IS, ARE = en("am", "AUX", "be"), en("is", "AUX", "be"), en("are", "AUX", "be")
WAS, WERE, BE, BEEN = en("was", "AUX", "be"), en("were", "AUX", "be"), en("be", "AUX"), en("been", "AUX", "be")
NE, PAS, JAMAIS, PLUS = fr("ne", "ADV", "ne", "n'"), fr("pas", "ADV"), fr("jamais", "ADV"), fr("plus", "ADV")
TO, NOT = en("to", "PART"), en("not", "PART")


class Negation(NamedTuple):
    """*not* follows an auxiliary and needs do-support; *never* and *no longer* take the position of adverbs."""

    english: tuple[WordForm, ...]
    french: WordForm
    needs_do: bool


NEGATIONS = (
    Negation((NOT,), PAS, True),
    Negation((en("never", "ADV"),), JAMAIS, False),
    Negation((en("no", "ADV"), en("longer", "ADV", "long")), PLUS, False),
)
NEGATED, NEVER, NO_LONGER = NEGATIONS

QUE, QUI, OU = fr("que", "SCONJ", "que", "qu'"), fr("qui", "PRON"), fr("où", "PRON")
DONT, WHOSE = fr("dont", "PRON"), en("whose", "PRON")
THAT, WHO, WHERE, WHAT = en("that", "SCONJ"), en("who", "PRON"), en("where", "ADV"), en("what", "PRON")
THAT_ONE, WHOM, QUE_ONE = en("that", "PRON"), en("whom", "PRON", "who"), fr("que", "PRON", "que", "qu'")
AND, ET, OR, OU_BIEN = en("and", "CCONJ"), fr("et", "CCONJ"), en("or", "CCONJ"), fr("ou", "CCONJ")
BUT, MAIS, SO, DONC = en("but", "CCONJ"), fr("mais", "CCONJ"), en("so", "CCONJ"), fr("donc", "CCONJ")
IF, SI, S_ = en("if", "SCONJ"), fr("si", "SCONJ"), fr("s'", "SCONJ", "si")
OF, WITH, AVEC, WITHOUT, SANS = (
    en("of", "ADP"),
    en("with", "ADP"),
    fr("avec", "ADP"),
    en("without", "ADP"),
    fr("sans", "ADP"),
)
FOR, POUR, IN, DANS, EN = en("for", "ADP"), fr("pour", "ADP"), en("in", "ADP"), fr("dans", "ADP"), fr("en", "ADP")
FROM, TOWARDS, AT, S = en("from", "ADP"), en("to", "ADP"), en("at", "ADP"), en("'s", "PART")
THERE, Y, IL = en("there", "PRON"), fr("y", "PRON"), fr("il", "PRON")
THAN, AS, AUSSI = en("than", "ADP"), en("as", "ADP"), fr("aussi", "ADV")

# Prepositions of relative position, for any place.
RELATIVE_POSITIONS = (
    ((en("near", "ADP"),), (fr("près", "ADV"), DE)),
    ((en("behind", "ADP"),), (fr("derrière", "ADP"),)),
    ((en("in", "ADP"), en("front", "NOUN"), OF), (fr("devant", "ADP"),)),
    ((en("next", "ADJ"), en("to", "ADP")), (A, fr("côté", "NOUN"), DE)),
    ((en("opposite", "ADP"),), (EN, fr("face", "NOUN"), DE)),
    ((en("far", "ADV"), en("from", "ADP")), (fr("loin", "ADV"), DE)),
    ((en("around", "ADP"),), (fr("autour", "ADV"), DE)),
)

# Subordinating conjunctions of clauses with one time reference; the first also combines with the future.
WHILE, WHEN = (en("while", "SCONJ"),), (en("when", "SCONJ"),)
SUBORDINATORS = (
    ((en("because", "SCONJ"),), (fr("parce", "SCONJ"), QUE)),
    (WHEN, (fr("quand", "SCONJ"),)),
    (WHILE, (fr("pendant", "SCONJ"), QUE)),
    ((en("even", "ADV"), en("though", "SCONJ")), (fr("même", "ADV"), SI)),
    ((en("since", "SCONJ"),), (fr("puisque", "SCONJ", "puisque", "puisqu'"),)),
)

# The parts of speech of words that occur only in fixed expressions.
TAGS = {
    "ADP": "avec to for at up down away off of after on out about in from by ago à de en du au par dans",
    "DET": "a the this every tous toutes les le la l' ce",
    "NOUN": """bed walk lunch dinner weight house fun goodbye part night week year morning month spring summer moment
    day evening winter autumn afternoon time Monday Friday Tuesday Sunday Mondays Sundays route panne besoin intention
    confiance visite revoir semblant soir semaine année matin mois printemps été jours matins soirs semaines nuit hiver
    automne après-midi ans lundi mardi vendredi dimanche fois contrecœur bois laine ruine empressement""",
    "ADJ": "asleep lost last next long dernière dernier prochaine prochain",
    "VERB": "married dressed bored tomber a",
    "ADV": """back yesterday tomorrow soon tonight today now twice hier demain bientôt aujourd'hui maintenant y
    longtemps""",
    "PRON": "il",
    "NUM": "deux",
}
TAG_OF = {form: tag for tag, forms in reversed(TAGS.items()) for form in forms.split()}
