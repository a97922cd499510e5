"""French words change as the grammar books say: forms written out by hand, none taken from the code."""

import pytest

from regard.text.grammar import english, french
from regard.text.grammar.french import agreement_forms, conjugate, feminine, plural

PRESENT = """
manger: mange manges mange mangeons mangez mangent
commencer: commence commences commence commençons commencez commencent
acheter: achète achètes achète achetons achetez achètent
préférer: préfère préfères préfère préférons préférez préfèrent
appeler: appelle appelles appelle appelons appelez appellent
nettoyer: nettoie nettoies nettoie nettoyons nettoyez nettoient
essayer: essaie essaies essaie essayons essayez essaient
finir: finis finis finit finissons finissez finissent
vendre: vends vends vend vendons vendez vendent
interrompre: interromps interromps interrompt interrompons interrompez interrompent
être: suis es est sommes êtes sont
avoir: ai as a avons avez ont
aller: vais vas va allons allez vont
faire: fais fais fait faisons faites font
dire: dis dis dit disons dites disent
pouvoir: peux peux peut pouvons pouvez peuvent
vouloir: veux veux veut voulons voulez veulent
prendre: prends prends prend prenons prenez prennent
apprendre: apprends apprends apprend apprenons apprenez apprennent
mettre: mets mets met mettons mettez mettent
venir: viens viens vient venons venez viennent
souvenir: souviens souviens souvient souvenons souvenez souviennent
dormir: dors dors dort dormons dormez dorment
endormir: endors endors endort endormons endormez endorment
ouvrir: ouvre ouvres ouvre ouvrons ouvrez ouvrent
découvrir: découvre découvres découvre découvrons découvrez découvrent
boire: bois bois boit buvons buvez boivent
connaître: connais connais connaît connaissons connaissez connaissent
reconnaître: reconnais reconnais reconnaît reconnaissons reconnaissez reconnaissent
peindre: peins peins peint peignons peignez peignent
rejoindre: rejoins rejoins rejoint rejoignons rejoignez rejoignent
convaincre: convaincs convaincs convainc convainquons convainquez convainquent
recevoir: reçois reçois reçoit recevons recevez reçoivent
asseoir: assieds assieds assied asseyons asseyez asseyent
envoyer: envoie envoies envoie envoyons envoyez envoient
coudre: couds couds coud cousons cousez cousent
"""


@pytest.mark.parametrize("line", PRESENT.strip().splitlines())
def test_the_present(line: str) -> None:
    infinitive, _, forms = line.partition(": ")
    assert conjugate(infinitive).present == tuple(forms.split())


@pytest.mark.parametrize(
    ("infinitive", "imperfect", "future", "participle"),
    [
        ("manger", "mangeait", "mangera", "mangé"),
        ("commencer", "commençait", "commencera", "commencé"),
        ("acheter", "achetait", "achètera", "acheté"),
        ("préférer", "préférait", "préférera", "préféré"),
        ("appeler", "appelait", "appellera", "appelé"),
        ("nettoyer", "nettoyait", "nettoiera", "nettoyé"),
        ("envoyer", "envoyait", "enverra", "envoyé"),
        ("finir", "finissait", "finira", "fini"),
        ("vendre", "vendait", "vendra", "vendu"),
        ("être", "était", "sera", "été"),
        ("avoir", "avait", "aura", "eu"),
        ("aller", "allait", "ira", "allé"),
        ("voir", "voyait", "verra", "vu"),
        ("prévoir", "prévoyait", "prévoira", "prévu"),
        ("savoir", "savait", "saura", "su"),
        ("courir", "courait", "courra", "couru"),
        ("mourir", "mourait", "mourra", "mort"),
        ("tenir", "tenait", "tiendra", "tenu"),
        ("surprendre", "surprenait", "surprendra", "surpris"),
        ("écrire", "écrivait", "écrira", "écrit"),
        ("décrire", "décrivait", "décrira", "décrit"),
        ("vivre", "vivait", "vivra", "vécu"),
        ("conduire", "conduisait", "conduira", "conduit"),
        ("éteindre", "éteignait", "éteindra", "éteint"),
        ("offrir", "offrait", "offrira", "offert"),
        ("disparaître", "disparaissait", "disparaîtra", "disparu"),
        ("accueillir", "accueillait", "accueillera", "accueilli"),
    ],
)
def test_the_other_tenses(infinitive: str, imperfect: str, future: str, participle: str) -> None:
    forms = conjugate(infinitive)
    assert (forms.imperfect[2], forms.future[2], forms.participle) == (imperfect, future, participle)


def test_the_imparfait_of_nous_keeps_its_stem() -> None:
    assert conjugate("manger").imperfect[3] == "mangions"
    assert conjugate("commencer").imperfect[3] == "commencions"
    assert conjugate("oublier").imperfect[3] == "oubliions"


@pytest.mark.parametrize(
    ("noun", "expected"),
    [
        ("chat", "chats"), ("cheval", "chevaux"), ("festival", "festivals"), ("gâteau", "gâteaux"), ("neveu", "neveux"),
        ("fils", "fils"), ("nez", "nez"), ("prix", "prix"), ("hibou", "hiboux"), ("clou", "clous"),
        ("pomme de terre", "pommes de terre"), ("grand-mère", "grands-mères"), ("arc-en-ciel", "arcs-en-ciel"),
        ("journal", "journaux"), ("portail", "portails"), ("machine à laver", "machines à laver"),
    ],
)  # fmt: skip
def test_plurals(noun: str, expected: str) -> None:
    assert plural(noun) == expected


@pytest.mark.parametrize(
    ("adjective", "forms"),
    [
        ("noir", "noir noire noirs noires"), ("rouge", "rouge rouge rouges rouges"), ("gris", "gris grise gris grises"),
        ("heureux", "heureux heureuse heureux heureuses"), ("beau", "beau belle beaux belles"),
        ("vieux", "vieux vieille vieux vieilles"), ("nouveau", "nouveau nouvelle nouveaux nouvelles"),
        ("blanc", "blanc blanche blancs blanches"), ("long", "long longue longs longues"),
        ("fier", "fier fière fiers fières"), ("cruel", "cruel cruelle cruels cruelles"),
        ("doux", "doux douce doux douces"), ("frais", "frais fraîche frais fraîches"), ("sec", "sec sèche secs sèches"),
        ("inquiet", "inquiet inquiète inquiets inquiètes"),
        ("définitif", "définitif définitive définitifs définitives"),
        ("gentil", "gentil gentille gentils gentilles"), ("bleu", "bleu bleue bleus bleues"),
        ("médiéval", "médiéval médiévale médiévaux médiévales"), ("bon", "bon bonne bons bonnes"),
        ("franc", "franc franche francs franches"), ("dû", "dû due dus dues"),
    ],
)  # fmt: skip
def test_adjectives_agree(adjective: str, forms: str) -> None:
    assert agreement_forms(adjective) == tuple(forms.split())


def test_adjectives_of_several_words_never_change() -> None:
    assert agreement_forms("en bois") == ("en bois",) * 4
    assert feminine("en ruine") == "en ruine"


@pytest.mark.parametrize(("word", "elides"), [
    ("homme", True), ("eau", True), ("œuf", True), ("été", True), ("île", True), ("hôtel", True), ("héroïne", True),
    ("hibou", False), ("héros", False), ("haricot", False), ("homard", False), ("huit", False), ("onze", False),
    ("yaourt", False), ("chat", False), ("haut", False), ("hache", False),
])  # fmt: skip
def test_which_words_call_for_elision(word: str, elides: bool) -> None:
    assert french.begins_with_vowel(word) is elides


@pytest.mark.parametrize(("word", "an"), [
    ("apple", True), ("honest", True), ("umbrella", True), ("honey", False), ("university", False), ("useful", False),
    ("house", False), ("old", True),
])  # fmt: skip
def test_a_or_an(word: str, an: bool) -> None:
    assert english.begins_with_vowel(word) is an


@pytest.mark.parametrize(("base", "forms"), [
    ("eat", "eat eats ate eaten eating"), ("stop", "stop stops stopped stopped stopping"),
    ("cry", "cry cries cried cried crying"), ("lie", "lie lies lied lied lying"),
    ("watch", "watch watches watched watched watching"),
    ("travel", "travel travels travelled travelled travelling"),
    ("describe", "describe describes described described describing"),
    ("go", "go goes went gone going"), ("play", "play plays played played playing"),
    ("forget", "forget forgets forgot forgotten forgetting"),
])  # fmt: skip
def test_english_verbs(base: str, forms: str) -> None:
    assert tuple(english.conjugate(base)) == tuple(forms.split())


@pytest.mark.parametrize(("noun", "expected"), [
    ("child", "children"), ("wolf", "wolves"), ("box", "boxes"), ("story", "stories"), ("boy", "boys"),
    ("sheep", "sheep"),
    ("apple tree", "apple trees"), ("tomato", "tomatoes"), ("piano", "pianos"),
])  # fmt: skip
def test_english_plurals(noun: str, expected: str) -> None:
    assert english.plural(noun) == expected
