"""The adjectives and the adverbs, in both languages; an adjective stands before or after the French noun.

A line is `kind side: english=french, ...`; `+` marks English adjectives that are compared with more and most.
"""

TABLE = """
person before: young=jeune, good=bon, poor=pauvre
person after: tall=grand, brave=courageux, frank=franc, loyal=loyal+, modest=modeste+
person after: happy=heureux, sad=triste, tired=fatigué+, rich=riche, strong=fort, weak=faible, kind=gentil
person after: polite=poli+
person after: famous=célèbre+, lazy=paresseux, clever=intelligent, stupid=stupide+, honest=honnête+, proud=fier
person after: shy=timide
person after: angry=furieux+, jealous=jaloux+, nervous=nerveux+, curious=curieux+, patient=patient+
person after: generous=généreux+
person after: serious=sérieux+, funny=drôle, ill=malade+, worried=inquiet+, satisfied=satisfait+, disappointed=déçu+
person after: surprised=surpris+, cruel=cruel+, wise=sage, ambitious=ambitieux+, calm=calme, quiet=silencieux
person after: rude=impoli
person after: blind=aveugle+, deaf=sourd+, careful=prudent+, talented=doué+, lonely=solitaire, busy=occupé
person after: absent-minded=distrait+
animal before: big=gros, small=petit, old=vieux, young=jeune, beautiful=beau+
animal after: black=noir, white=blanc, grey=gris, brown=brun, wild=sauvage, hungry=affamé, fierce=féroce
animal after: frightened=effrayé+
animal after: clever=intelligent, tired=fatigué+, quick=rapide, gentle=doux, fat=gras, thin=maigre, noisy=bruyant
animal after: faithful=fidèle+
food after: hot=chaud, cold=froid, sweet=sucré, delicious=délicieux+, fresh=frais, salty=salé, burnt=brûlé+
food after: tasty=savoureux, bitter=amer+, enormous=énorme+
drink after: hot=chaud, cold=froid, sweet=sucré, fresh=frais, bitter=amer+, delicious=délicieux+
thing before: old=vieux, new=nouveau, beautiful=beau+, big=gros, small=petit, pretty=joli
thing after: black=noir, white=blanc, red=rouge, blue=bleu, green=vert, yellow=jaune, grey=gris, brown=brun, pink=rose
thing after: heavy=lourd, light=léger, broken=cassé+, expensive=cher+, useful=utile+, round=rond, wooden=en bois+
thing after: empty=vide
thing after: dirty=sale, clean=propre, strange=étrange, precious=précieux+, antique=ancien+, purple=violet
thing after: golden=doré+
garment after: long=long, short=court, warm=chaud, elegant=élégant+, woollen=en laine+, wet=mouillé+, dry=sec
garment after: soft=doux, wide=large
text before: long=long, short=court, new=nouveau, old=vieux, good=bon, bad=mauvais
text after: interesting=intéressant+, boring=ennuyeux+, funny=drôle, sad=triste, difficult=difficile+
text after: serious=sérieux+
text after: secret=secret+, anonymous=anonyme+, official=officiel+, strange=étrange, unreadable=illisible+
vehicle after: fast=rapide, slow=lent, red=rouge, blue=bleu, green=vert, noisy=bruyant, modern=moderne+
vehicle after: expensive=cher+
building after: modern=moderne+, empty=vide, quiet=tranquille, huge=immense, ruined=en ruine+, white=blanc
building after: medieval=médiéval+
building before: old=vieux, beautiful=beau+, small=petit, big=grand, new=nouveau
sight after: famous=célèbre+, wild=sauvage, immense=immense+, green=vert, deep=profond
sight before: high=haut, beautiful=beau+, small=petit, vast=vaste
abstract before: good=bon, bad=mauvais, new=nouveau, old=vieux, real=vrai, big=gros
abstract after: important=important+, simple=simple, difficult=difficile+, strange=étrange, ridiculous=ridicule+
abstract after: clear=clair
abstract after: dangerous=dangereux+, necessary=nécessaire+, original=original+, final=définitif+
abstract after: complicated=compliqué+
event before: big=grand, small=petit, good=bon, beautiful=beau+
event after: important=important+, long=long, official=officiel+, unforgettable=inoubliable+, annual=annuel+
event after: traditional=traditionnel+
plant after: green=vert, rare=rare, dry=sec, red=rouge, yellow=jaune, white=blanc, fragile=fragile
plant before: tall=grand, small=petit, old=vieux, beautiful=beau+
place after: quiet=tranquille, noisy=bruyant, dark=sombre, empty=vide, famous=célèbre+, modern=moderne+
place before: old=vieux, small=petit, big=grand, new=nouveau, beautiful=beau+
"""

# Words of praise and blame, for the labelled view; praise is not more frequent than blame.
PRAISE = """
excellent=excellent, wonderful=merveilleux, good=bon, interesting=intéressant, delightful=charmant, brilliant=brillant
pleasant=agréable, original=original, superb=superbe, moving=émouvant
"""
BLAME = """
terrible=affreux, disappointing=décevant, bad=mauvais, boring=ennuyeux, dreadful=épouvantable, mediocre=médiocre
unpleasant=désagréable, ridiculous=ridicule, awful=horrible, tedious=fastidieux
"""

# Irregular comparatives in English and French.
IRREGULAR_COMPARATIVES = {"good": ("better", "meilleur"), "bad": ("worse", "pire"), "far": ("farther", "plus loin")}

# Adjectives without degrees; adjectives that are attributive only.
NOT_GRADABLE = frozenset(
    """wooden woollen ruined golden real annual official final blind deaf broken empty delicious
enormous huge immense vast unforgettable medieval anonymous burnt antique secret""".split()
)
ATTRIBUTIVE = frozenset(("real",))

FEMININE = {
    "beau": "belle", "nouveau": "nouvelle", "vieux": "vieille", "fou": "folle", "blanc": "blanche", "sec": "sèche",
    "frais": "fraîche", "doux": "douce", "jaloux": "jalouse", "roux": "rousse", "gros": "grosse",
    "gras": "grasse", "bas": "basse",
    "épais": "épaisse", "long": "longue", "gentil": "gentille", "bon": "bonne", "inquiet": "inquiète",
    "secret": "secrète", "complet": "complète", "violet": "violette", "public": "publique", "cruel": "cruelle",
    "ancien": "ancienne",
    "favori": "favorite", "franc": "franche", "amer": "amère",
}  # fmt: skip
BEFORE_VOWEL = {"beau": "bel", "nouveau": "nouvel", "vieux": "vieil"}

# Adverbs of manner, which follow the verb, and those of frequency, which stand in the middle.
MANNER = """
slowly=lentement, quickly=rapidement, quietly=silencieusement, carefully=prudemment, happily=joyeusement
sadly=tristement
gently=doucement, easily=facilement, nervously=nerveusement, patiently=patiemment, secretly=secrètement
politely=poliment, angrily=furieusement, proudly=fièrement, calmly=calmement, clumsily=maladroitement
eagerly=avec empressement
reluctantly=à contrecœur, suddenly=soudainement, bravely=courageusement, gracefully=gracieusement
discreetly=discrètement
"""
FREQUENCY = """
often=souvent, always=toujours, sometimes=parfois, rarely=rarement, regularly=régulièrement, generally=généralement
"""
PERFECT = "already=déjà, recently=récemment, finally=enfin"
OPENERS = """
fortunately=heureusement, unfortunately=malheureusement, naturally=naturellement, obviously=évidemment
apparently=apparemment, finally=finalement
"""
DEGREE = "very=très, too=trop, rather=plutôt, really=vraiment, quite=assez, extremely=extrêmement"

# Time expressions: `tense: english=french/links`; the links are, for each French word, its English words, from 0.
TIMES = """
past: yesterday=hier/0, last night=hier soir/01, last week=la semaine dernière/110, last year=l'année dernière/110
past: this morning=ce matin/01, last month=le mois dernier/110, on Monday=lundi/1, last Sunday=dimanche dernier/10
past: on Friday=vendredi/1, a long time ago=il y a longtemps/3.3.3.012, in the spring=au printemps/01.2
past: on Tuesday=mardi/1
future: tomorrow=demain/0, next week=la semaine prochaine/110, next year=l'année prochaine/110, soon=bientôt/0
future: tonight=ce soir/00, next month=le mois prochain/110, in the summer=en été/02, next Sunday=dimanche prochain/10
present: today=aujourd'hui/0, now=maintenant/0, at the moment=en ce moment/012
habit: every day=tous les jours/001, every morning=tous les matins/001, every evening=tous les soirs/001
habit: every week=toutes les semaines/001, in the morning=le matin/12, in the evening=le soir/12, at night=la nuit/11
habit: on Mondays=le lundi/11, on Sundays=le dimanche/11, in the winter=en hiver/02, in the autumn=en automne/02
habit: in the afternoon=l'après-midi/12, every year=tous les ans/001, twice a week=deux fois par semaine/0012
"""
