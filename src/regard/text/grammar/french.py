"""French morphology: plurals, feminines, and conjugation in the tenses of the grammar.

Verbs follow a few models; irregular ones are in a table:
present | stem of the imparfait | stem of the future | participle.
"""

from __future__ import annotations

from typing import NamedTuple

from regard.text.grammar.adjectives import FEMININE
from regard.text.grammar.nouns import ASPIRATED, FRENCH_PLURALS

VOWELS = "aàâeéèêëiîïoôuûyœæh"
CONSONANTS = "bcdfghjklmnpqrstvwxz"


class FrenchVerbForms(NamedTuple):
    """The forms of a French verb: six persons (je, tu, il, nous, vous, ils) a tense, the infinitive, the participle."""

    present: tuple[str, ...]
    imperfect: tuple[str, ...]
    future: tuple[str, ...]
    infinitive: str
    participle: str


def begins_with_vowel(word: str) -> bool:
    """Whether a word calls for elision before it: l'homme, l'eau, but le hibou, le yaourt."""
    return word[0].lower() in VOWELS and word not in ASPIRATED


def plural(noun: str) -> str:
    """
    >>> plural("cheval"), plural("gâteau"), plural("fils"), plural("pomme de terre")
    ('chevaux', 'gâteaux', 'fils', 'pommes de terre')
    """
    if noun in FRENCH_PLURALS:
        return FRENCH_PLURALS[noun]
    head, _, rest = noun.partition(" ")
    if rest:
        return f"{plural(head)} {rest}"
    if noun.endswith(("s", "x", "z")):
        return noun
    if noun.endswith("al"):
        return noun[:-2] + "aux"
    return noun + ("x" if noun.endswith(("eau", "eu")) and noun != "bleu" else "s")


def feminine(adjective: str) -> str:
    """
    >>> feminine("noir"), feminine("heureux"), feminine("fier"), feminine("définitif"), feminine("rouge")
    ('noire', 'heureuse', 'fière', 'définitive', 'rouge')
    """
    if adjective in FEMININE:
        return FEMININE[adjective]
    if adjective.endswith("e") or " " in adjective:  # en bois, en ruine: never change
        return adjective
    for ending, changed in (
        ("eux", "euse"),
        ("f", "ve"),
        ("er", "ère"),
        ("el", "elle"),
        ("en", "enne"),
        ("on", "onne"),
    ):
        if adjective.endswith(ending):
            return adjective.removesuffix(ending) + changed
    return adjective + "e"


def agreement_forms(adjective: str) -> tuple[str, str, str, str]:
    """Masculine, feminine, and their plurals.

    >>> agreement_forms("beau")
    ('beau', 'belle', 'beaux', 'belles')
    """
    if " " in adjective:
        return (adjective,) * 4
    her = feminine(adjective)
    if adjective in _IRREGULAR_AGREEMENT:
        return _IRREGULAR_AGREEMENT[adjective]
    return adjective, her, plural(adjective), plural(her)


_IRREGULAR_AGREEMENT = {"dû": ("dû", "due", "dus", "dues"), "eu": ("eu", "eue", "eus", "eues")}


def conjugate(infinitive: str) -> FrenchVerbForms:
    """
    >>> conjugate("manger").present[3], conjugate("acheter").future[0], conjugate("comprendre").participle
    ('mangeons', 'achèterai', 'compris')
    """
    for prefix, model in _models(infinitive):
        return _irregular(prefix, model, infinitive)
    if infinitive.endswith("er"):
        return _first_group(infinitive)
    if infinitive.endswith("ir"):
        return _second_group(infinitive)
    return _third_group(infinitive)


def _models(infinitive: str) -> list[tuple[str, str]]:
    """The irregular verb that this one is derived from, if any: comprendre is com + prendre."""
    if infinitive in _TABLE:
        return [("", infinitive)]
    found = [model for model in _TABLE if infinitive.endswith(model) and infinitive[: -len(model)] in _PREFIXES]
    return [(infinitive[: -len(model)], model) for model in found]


def _irregular(prefix: str, model: str, infinitive: str) -> FrenchVerbForms:
    present, past, future, participle = _TABLE[model]
    return FrenchVerbForms(
        tuple(prefix + form for form in present),
        _imperfect(prefix + past),
        _future(prefix + future),
        infinitive,
        prefix + participle,
    )


def _first_group(infinitive: str) -> FrenchVerbForms:
    stem = infinitive[:-2]
    stressed = _stressed_stem(stem)  # the stem before a silent e: j'achète
    soft = stem + "e" if stem.endswith("g") else stem[:-1] + "ç" if stem.endswith("c") else stem  # before a and o
    present = (stressed + "e", stressed + "es", stressed + "e", soft + "ons", stem + "ez", stressed + "ent")
    # é stays in the future (préférera); e, l, t and y change there as before any silent e
    lasting = stem if _has_acute(stem) else stressed
    past = tuple((stem if ending.startswith("i") else soft) + ending for ending in _IMPERFECT)
    return FrenchVerbForms(present, past, _future(lasting + "er"), infinitive, stem + "é")


def _stressed_stem(stem: str) -> str:
    if stem.endswith("y"):
        return stem[:-1] + "i"
    if stem in ("appel", "rappel", "jet"):
        return stem + stem[-1]
    tail = stem[-3:] if stem[-2:] in ("gn", "ch", "gr", "br") else stem[-2:]
    if tail[0] in "eé" and all(letter in CONSONANTS for letter in tail[1:]):
        return stem[: -len(tail)] + "è" + tail[1:]
    return stem


def _has_acute(stem: str) -> bool:
    return stem[-2:-1] == "é"


def _second_group(infinitive: str) -> FrenchVerbForms:
    stem = infinitive[:-2]
    present = tuple(stem + ending for ending in ("is", "is", "it", "issons", "issez", "issent"))
    return FrenchVerbForms(present, _imperfect(stem + "iss"), _future(infinitive), infinitive, stem + "i")


def _third_group(infinitive: str) -> FrenchVerbForms:
    stem = infinitive[:-2]
    third = stem if stem.endswith(("d", "t")) else stem + "t"
    present = (stem + "s", stem + "s", third, stem + "ons", stem + "ez", stem + "ent")
    return FrenchVerbForms(present, _imperfect(stem), _future(infinitive[:-1]), infinitive, stem + "u")


_IMPERFECT = ("ais", "ais", "ait", "ions", "iez", "aient")


def _imperfect(stem: str) -> tuple[str, ...]:
    return tuple(stem + ending for ending in _IMPERFECT)


def _future(stem: str) -> tuple[str, ...]:
    return tuple(stem + ending for ending in ("ai", "as", "a", "ons", "ez", "ont"))


_PREFIXES = frozenset(
    """com ap sur re de sou par pro ad rec dis dé ob pour inter con tra pré en en contre recon entre""".split()
)

_IRREGULAR = """
être: suis es est sommes êtes sont | ét | ser | été
avoir: ai as a avons avez ont | av | aur | eu
aller: vais vas va allons allez vont | all | ir | allé
faire: fais fais fait faisons faites font | fais | fer | fait
dire: dis dis dit disons dites disent | dis | dir | dit
voir: vois vois voit voyons voyez voient | voy | verr | vu
prévoir: prévois prévois prévoit prévoyons prévoyez prévoient | prévoy | prévoir | prévu
savoir: sais sais sait savons savez savent | sav | saur | su
pouvoir: peux peux peut pouvons pouvez peuvent | pouv | pourr | pu
vouloir: veux veux veut voulons voulez veulent | voul | voudr | voulu
devoir: dois dois doit devons devez doivent | dev | devr | dû
recevoir: reçois reçois reçoit recevons recevez reçoivent | recev | recevr | reçu
prendre: prends prends prend prenons prenez prennent | pren | prendr | pris
mettre: mets mets met mettons mettez mettent | mett | mettr | mis
battre: bats bats bat battons battez battent | batt | battr | battu
venir: viens viens vient venons venez viennent | ven | viendr | venu
tenir: tiens tiens tient tenons tenez tiennent | ten | tiendr | tenu
partir: pars pars part partons partez partent | part | partir | parti
sortir: sors sors sort sortons sortez sortent | sort | sortir | sorti
sentir: sens sens sent sentons sentez sentent | sent | sentir | senti
mentir: mens mens ment mentons mentez mentent | ment | mentir | menti
servir: sers sers sert servons servez servent | serv | servir | servi
dormir: dors dors dort dormons dormez dorment | dorm | dormir | dormi
courir: cours cours court courons courez courent | cour | courr | couru
mourir: meurs meurs meurt mourons mourez meurent | mour | mourr | mort
ouvrir: ouvre ouvres ouvre ouvrons ouvrez ouvrent | ouvr | ouvrir | ouvert
couvrir: couvre couvres couvre couvrons couvrez couvrent | couvr | couvrir | couvert
offrir: offre offres offre offrons offrez offrent | offr | offrir | offert
accueillir: accueille accueilles accueille accueillons accueillez accueillent | accueill | accueiller | accueilli
écrire: écris écris écrit écrivons écrivez écrivent | écriv | écrir | écrit
décrire: décris décris décrit décrivons décrivez décrivent | décriv | décrir | décrit
lire: lis lis lit lisons lisez lisent | lis | lir | lu
rire: ris ris rit rions riez rient | ri | rir | ri
boire: bois bois boit buvons buvez boivent | buv | boir | bu
croire: crois crois croit croyons croyez croient | croy | croir | cru
connaître: connais connais connaît connaissons connaissez connaissent | connaiss | connaîtr | connu
paraître: parais parais paraît paraissons paraissez paraissent | paraiss | paraîtr | paru
naître: nais nais naît naissons naissez naissent | naiss | naîtr | né
suivre: suis suis suit suivons suivez suivent | suiv | suivr | suivi
vivre: vis vis vit vivons vivez vivent | viv | vivr | vécu
conduire: conduis conduis conduit conduisons conduisez conduisent | conduis | conduir | conduit
construire: construis construis construit construisons construisez construisent | construis | construir | construit
détruire: détruis détruis détruit détruisons détruisez détruisent | détruis | détruir | détruit
traduire: traduis traduis traduit traduisons traduisez traduisent | traduis | traduir | traduit
peindre: peins peins peint peignons peignez peignent | peign | peindr | peint
éteindre: éteins éteins éteint éteignons éteignez éteignent | éteign | éteindr | éteint
atteindre: atteins atteins atteint atteignons atteignez atteignent | atteign | atteindr | atteint
plaindre: plains plains plaint plaignons plaignez plaignent | plaign | plaindr | plaint
joindre: joins joins joint joignons joignez joignent | joign | joindr | joint
coudre: couds couds coud cousons cousez cousent | cous | coudr | cousu
vaincre: vaincs vaincs vainc vainquons vainquez vainquent | vainqu | vaincr | vaincu
asseoir: assieds assieds assied asseyons asseyez asseyent | assey | assiér | assis
pleuvoir: pleus pleus pleut pleuvons pleuvez pleuvent | pleuv | pleuvr | plu
envoyer: envoie envoies envoie envoyons envoyez envoient | envoy | enverr | envoyé
"""


def _read_table() -> dict[str, tuple[tuple[str, ...], str, str, str]]:
    table = {}
    for line in _IRREGULAR.strip().splitlines():
        infinitive, _, forms = line.partition(": ")
        present, past, future, participle = forms.split(" | ")
        table[infinitive] = (tuple(present.split()), past, future, participle)
    return table


_TABLE = _read_table()
