"""The nouns in both languages, with the gender of the French one, and the names, which both languages share.

A line of the table is `kind gender: english=french, ...`. The kinds decide which verbs and adjectives go with a noun,
so that no sentence eats a bridge. `kind*` holds mass nouns (bread, water). Names of persons follow the French
gender: a word such as *doctor*, which English leaves open, is here always the one its French counterpart says.

Family names and towns are composed of two halves, so there are many more than a vocabulary would hold: a translator
must copy them. One in ten is held out of every split but `names`, which tests whether a model has learned to copy.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import product

TABLE = """
person m: man=homme, boy=garçon, king=roi, prince=prince, farmer=fermier, baker=boulanger, butcher=boucher
person m: doctor=médecin
person m: lawyer=avocat, judge=juge, teacher=professeur, student=étudiant, writer=écrivain, poet=poète
person m: painter=peintre
person m: soldier=soldat, sailor=marin, fisherman=pêcheur, hunter=chasseur, gardener=jardinier, carpenter=menuisier
person m: plumber=plombier, engineer=ingénieur, pilot=pilote, driver=chauffeur, mechanic=mécanicien, waiter=serveur
person m: cook=cuisinier, tailor=tailleur, barber=coiffeur, priest=prêtre, monk=moine, knight=chevalier, thief=voleur
person m: policeman=policier, fireman=pompier, guard=gardien, mayor=maire, minister=ministre, president=président
person m: musician=musicien, pianist=pianiste, actor=acteur, clown=clown, magician=magicien, dentist=dentiste
person m: journalist=journaliste, scholar=savant, merchant=marchand, tourist=touriste, neighbour=voisin, guest=invité
person m: stranger=inconnu, child=enfant, hero=héros, champion=champion, coach=entraîneur, librarian=bibliothécaire
person m: architect=architecte, sculptor=sculpteur, butler=majordome, shepherd=berger, miller=meunier, giant=géant
person m: boss=patron, customer=client, passenger=passager, witness=témoin, translator=traducteur, author=auteur
person f: woman=femme, girl=fille, queen=reine, princess=princesse, nurse=infirmière, actress=actrice
person f: singer=chanteuse
person f: dancer=danseuse, waitress=serveuse, witch=sorcière, nun=religieuse, shopkeeper=commerçante, lady=dame
person f: secretary=secrétaire, midwife=sage-femme, schoolgirl=écolière, heroine=héroïne, victim=victime, star=vedette
kin m: father=père, brother=frère, son=fils, uncle=oncle, grandfather=grand-père, nephew=neveu, husband=mari
kin m: friend=ami
kin m: cousin=cousin, grandson=petit-fils, colleague=collègue, classmate=camarade
kin f: mother=mère, sister=sœur, daughter=fille, aunt=tante, grandmother=grand-mère, niece=nièce, wife=épouse
kin f: granddaughter=petite-fille
animal m: cat=chat, dog=chien, horse=cheval, donkey=âne, rabbit=lapin, wolf=loup, bear=ours, lion=lion, tiger=tigre
animal m: elephant=éléphant, monkey=singe, pig=cochon, sheep=mouton, squirrel=écureuil, hedgehog=hérisson
animal m: camel=chameau
animal m: hamster=hamster, crocodile=crocodile, lizard=lézard, snake=serpent, kitten=chaton, puppy=chiot
animal f: cow=vache, goat=chèvre, mouse=souris, tortoise=tortue, giraffe=girafe, frog=grenouille, mare=jument
bird m: bird=oiseau, duck=canard, rooster=coq, owl=hibou, crow=corbeau, pigeon=pigeon, eagle=aigle, parrot=perroquet
bird f: hen=poule, goose=oie, swallow=hirondelle, gull=mouette
insect m: butterfly=papillon, mosquito=moustique
insect f: fly=mouche, bee=abeille, wasp=guêpe, ladybird=coccinelle
food m: cake=gâteau, egg=œuf, sandwich=sandwich, biscuit=biscuit, melon=melon, lemon=citron, bean=haricot
food m: pancake=crêpe/f
food m: leek=poireau, mushroom=champignon, lobster=homard, croissant=croissant, pumpkin=potiron, apricot=abricot
food f: apple=pomme, pear=poire, orange=orange, strawberry=fraise, cherry=cerise, banana=banane, carrot=carotte
food f: tomato=tomate, potato=pomme de terre, tart=tarte, onion=oignon/m, peach=pêche, pizza=pizza
food f: raspberry=framboise, walnut=noix, salad=salade, sausage=saucisse, omelette=omelette, plum=prune
food* m: bread=pain, butter=beurre, cheese=fromage, rice=riz, honey=miel, sugar=sucre, fish=poisson
food* m: chocolate=chocolat
food* m: chicken=poulet, ham=jambon, garlic=ail, yoghurt=yaourt
food* f: meat=viande, jam=confiture, soup=soupe, cream=crème, ice cream=glace, lettuce=laitue
drink* m: milk=lait, tea=thé, coffee=café, wine=vin, cider=cidre, orange juice=jus d'orange
drink* f: water=eau, beer=bière, lemonade=limonade
thing m: bag=sac, knife=couteau, basket=panier, bucket=seau, mirror=miroir, hammer=marteau, phone=téléphone
thing m: gift=cadeau
thing m: pencil=crayon, umbrella=parapluie, key=clé/f, suitcase=valise/f, comb=peigne, vase=vase, toy=jouet
thing m: ball=ballon
thing m: necklace=collier, purse=porte-monnaie, carpet=tapis, painting=tableau, statue=statue/f, flag=drapeau
thing m: plate=assiette/f, spoon=cuillère/f, fork=fourchette/f, bowl=bol, glass=verre, cup=tasse/f, bottle=bouteille/f
thing m: rope=corde/f, needle=aiguille/f, brush=brosse/f, broom=balai, axe=hache/f, ladder=échelle/f, saw=scie/f
thing m: box=boîte/f, candle=bougie/f, doll=poupée/f, kite=cerf-volant, telescope=télescope, camera=appareil photo
thing m: computer=ordinateur, hat=chapeau, wallet=portefeuille, soap=savon, towel=serviette/f, ring=bague/f
thing m: watch=montre/f
thing m: coin=pièce/f, map=carte/f, ticket=billet, blanket=couverture/f, pillow=oreiller, envelope=enveloppe/f
thing m: stamp=timbre
machine f: radio=radio, television=télévision, lamp=lampe, washing machine=machine à laver, oven=four/m
machine f: engine=moteur/m
garment m: coat=manteau, shirt=chemise/f, dress=robe/f, skirt=jupe/f, jacket=veste/f, sweater=pull, scarf=écharpe/f
garment m: hat=chapeau, glove=gant, shoe=chaussure/f, boot=botte/f, tie=cravate/f, belt=ceinture/f, sock=chaussette/f
text m: book=livre, letter=lettre/f, newspaper=journal, poem=poème, novel=roman, article=article, story=histoire/f
text m: magazine=magazine, play=pièce/f, report=rapport, notebook=carnet, message=message, contract=contrat
vehicle f: car=voiture, lorry=camion/m, taxi=taxi/m, ambulance=ambulance, van=camionnette
craft m: train=train, bus=bus, bicycle=vélo, boat=bateau, plane=avion, ship=navire, motorbike=moto/f, tractor=tracteur
craft m: helicopter=hélicoptère, sledge=traîneau, ferry=ferry, tram=tramway
vehicle m: ambulance=ambulance/f
furniture f: table=table, chair=chaise, bed=lit/m, wardrobe=armoire, sofa=canapé/m, desk=bureau/m, shelf=étagère
furniture m: armchair=fauteuil, bench=banc, stool=tabouret, drawer=tiroir, curtain=rideau
plant m: tree=arbre, oak=chêne, rosebush=rosier, cactus=cactus, apple tree=pommier, fir tree=sapin
plant f: flower=fleur, rose=rose, tulip=tulipe, plant=plante, vine=vigne, daisy=marguerite
opening f: door=porte, window=fenêtre, gate=portail/m, shutter=volet/m
building f: house=maison, church=église, school=école, tower=tour, cabin=cabane, farm=ferme
building f: castle=château/m
building m: palace=palais, museum=musée, hotel=hôtel, hospital=hôpital, theatre=théâtre, prison=prison/f
structure m: bridge=pont, wall=mur, dam=barrage, fence=clôture/f
building m: cathedral=cathédrale/f, lighthouse=phare, shed=hangar, mill=moulin
sight m: lake=lac, volcano=volcan, river=rivière/f, waterfall=cascade/f, island=île/f, valley=vallée/f, desert=désert
sight m: mountain=montagne/f, cave=grotte/f, meadow=prairie/f, landscape=paysage, rainbow=arc-en-ciel
abstract m: plan=projet, secret=secret, idea=idée/f, question=question/f, answer=réponse/f, problem=problème
abstract m: mistake=erreur/f
abstract m: truth=vérité/f, decision=décision/f, rule=règle/f, dream=rêve, promise=promesse/f, proposal=proposition/f
abstract m: danger=danger
abstract m: lesson=leçon/f, joke=blague/f, rumour=rumeur/f, language=langue/f, recipe=recette/f, theory=théorie/f
event m: wedding=mariage, party=fête/f, concert=concert, meeting=réunion/f, exam=examen, trip=voyage, race=course/f
event m: ceremony=cérémonie/f, contest=concours, birthday=anniversaire, show=spectacle, dinner=dîner
event m: festival=festival
work m: film=film, meal=repas, novel=roman, room=chambre/f, service=service, concert=concert, hotel=hôtel
work m: song=chanson/f
instrument m: piano=piano, violin=violon, flute=flûte/f, guitar=guitare/f, drum=tambour, trumpet=trompette/f
instrument m: harp=harpe/f
instrument m: cello=violoncelle, accordion=accordéon, clarinet=clarinette/f
game m: football=football, tennis=tennis, chess=échecs/p, cards=cartes/fp, basketball=basket, hockey=hockey
sky m: sun=soleil, moon=lune/f, star=étoile/f
bell m: phone=téléphone, bell=cloche/f, alarm clock=réveil
money* m: money=argent, gold=or
award m: award=prix, medal=médaille/f, prize=prix, cup=coupe/f
"""

# Places, with the prepositions that go with being there: `english=french gender, in / dans`.
PLACES = """
in dans m: garden=jardin, park=parc, street=rue/f, kitchen=cuisine/f, forest=forêt/f, field=champ, village=village
in dans m: cellar=cave/f, yard=cour/f, living room=salon, bathroom=salle de bains/f, corridor=couloir, attic=grenier
in dans m: classroom=salle de classe/f, dining room=salle à manger/f, stable=écurie/f, tunnel=tunnel
in dans m: waiting room=salle d'attente/f
at à m: station=gare/f, market=marché, school=école/f, hospital=hôpital, office=bureau, theatre=théâtre, museum=musée
at à m: airport=aéroport, beach=plage/f, library=bibliothèque/f, restaurant=restaurant, university=université/f
at à m: factory=usine/f
at à m: bakery=boulangerie/f, swimming pool=piscine/f, post office=poste/f, zoo=zoo, cinema=cinéma, hotel=hôtel
at à m: farm=ferme/f
at à m: town hall=mairie/f, port=port, stadium=stade, café=café, pharmacy=pharmacie/f
on sur m: hill=colline/f, bridge=pont, roof=toit, square=place/f, terrace=terrasse/f, balcony=balcon, path=chemin
on sur m: quay=quai
"""

# What something may lie on, in or under: `english preposition=french preposition: nouns`.
SURFACES = """
on=sur m: table=table/f, chair=chaise/f, bed=lit, shelf=étagère/f, desk=bureau, bench=banc, sofa=canapé, carpet=tapis
in=dans m: drawer=tiroir, bag=sac, box=boîte/f, basket=panier, suitcase=valise/f, wardrobe=armoire/f, cupboard=placard
under=sous m: table=table/f, bed=lit, tree=arbre, chair=chaise/f, stairs=escalier, pillow=oreiller
behind=derrière m: door=porte/f, curtain=rideau, wall=mur, tree=arbre, house=maison/f
"""

# Two words that only their company tells apart: the English word, then each French one with the verbs it goes with.
HOMONYMS = """
bat=chauve-souris f subject: fly=voler, sleep=dormir, wake up=se réveiller
bat=batte f object: swing=manier, lend=prêter, repair=réparer, break=casser
bank=banque f object: rob=cambrioler, own=posséder!, phone=téléphoner à
bank=rive f object: reach=atteindre, follow=longer, climb=escalader
nail=clou m object: hammer in=enfoncer, straighten=redresser
nail=ongle m object: file=limer, polish=vernir, bite=ronger
match=allumette f object: light=allumer, strike=frotter, burn=brûler
match=match m object: win=gagner, lose=perdre, watch=regarder, cancel=annuler
spring=ressort m object: stretch=étirer, replace=remplacer, repair=réparer
spring=source f object: discover=découvrir, drink from=boire à, pollute=polluer
seal=phoque m subject: swim=nager, dive=plonger, breathe=respirer
seal=sceau m object: break=briser, affix=apposer, forge=contrefaire
"""

COUNTRIES = """
f: France=France, Italy=Italie, Spain=Espagne, Germany=Allemagne, Belgium=Belgique, Switzerland=Suisse
f: England=Angleterre
f: Greece=Grèce, Norway=Norvège, Sweden=Suède, Poland=Pologne, Turkey=Turquie, India=Inde, China=Chine
m: Japan=Japon, Canada=Canada, Portugal=Portugal, Brazil=Brésil, Morocco=Maroc, Mexico=Mexique, Peru=Pérou
m: Chile=Chili
"""

ENGLISH_PLURALS = {
    "man": "men", "woman": "women", "child": "children", "foot": "feet", "tooth": "teeth", "goose": "geese",
    "mouse": "mice", "sheep": "sheep", "wolf": "wolves", "knife": "knives", "thief": "thieves", "wife": "wives",
    "midwife": "midwives", "shelf": "shelves", "scarf": "scarves", "hero": "heroes", "potato": "potatoes",
    "tomato": "tomatoes",
    "fisherman": "fishermen", "policeman": "policemen", "fireman": "firemen", "cactus": "cacti",
    "volcano": "volcanoes", "mosquito": "mosquitoes", "watch": "watches", "stairs": "stairs", "cards": "cards",
    "chess": "chess",
}  # fmt: skip

FRENCH_PLURALS = {
    "œil": "yeux", "festival": "festivals", "grand-père": "grands-pères", "grand-mère": "grands-mères",
    "petit-fils": "petits-fils", "petite-fille": "petites-filles", "sage-femme": "sages-femmes",
    "chauve-souris": "chauves-souris", "cerf-volant": "cerfs-volants", "arc-en-ciel": "arcs-en-ciel",
    "porte-monnaie": "porte-monnaie", "pneu": "pneus", "ail": "ails", "bijou": "bijoux", "hibou": "hiboux",
    "travail": "travaux", "vitrail": "vitraux", "portail": "portails", "réveil": "réveils",
}  # fmt: skip

# Words whose first h is silent yet stops elision (le hibou), and others that behave like it.
ASPIRATED = frozenset(
    """héros hibou hache haricot haricots hiboux haches hamster hamsters homard homards hérisson hérissons harpe
harpes hangar hangars hockey haut haute hauts hautes hors huit onze yaourt yaourts honte hasard hollandais""".split()
)


MEN = """Paul Pierre Louis Henri Hugo Jules Victor Simon Thomas Antoine Marc Nicolas Daniel David Martin Oscar Arthur
Samuel Adrien Gabriel Robert Albert Bernard Charles Georges Philippe Laurent Julien Bruno Igor Omar Karim
Félix Edgar""".split()
WOMEN = """Marie Anne Claire Alice Julie Sophie Emma Louise Jeanne Charlotte Camille Lucie Agathe Rose Irène Sara Nadia
Clara Laura Eva Marion Suzanne Élise Mathilde Olga Inès Laila Diane Flora Juliette Nora Vera Amélie Ada""".split()

FAMILY_STARTS = """Bar Bel Bor Bran Cal Cor Dal Dor Fal Fer Gal Gor Kel Kor Lam Lor Mal Mar Mel Mor Nol Or Par Pel Ral
Rom Sal Sol Tar Tol Val Ver Vor Al Ber Der Es Ul Zan"""
FAMILY_ENDS = """aud bert das dier don eau erel ier in ing iski mann mond nard net oux ov quet rel rin rot sen son tier
tin vel vin zac zel"""
TOWN_STARTS = "Al Bran Car Dun El Far Gren Is Kar Lan Mir Nor Ol Por Ros Sel Tor Ul Var Wes"
TOWN_ENDS = "bourg burg dal dorf gard ham land mare mont mouth ola ora port sund ton vik ville"


# Compositions that are a word, or another name, in one of the two languages.
REAL_WORDS = frozenset(
    """Island Pardon Almond Marin Cordon Boring Baring Bering Berlin Martin Dalton Orin Olland Salaud Soldier Parrot
    Barrel Parson Carport Malin Marier Parier Valet Salin Palin Calin Cornard Maraud Bernard Mortier""".split()
)


def _combine(starts: str, ends: str) -> list[str]:
    return sorted({start + end for start, end in product(starts.split(), ends.split())} - REAL_WORDS)


def is_held_out(name: str) -> bool:
    """Whether a name never occurs in training."""
    return blake2b(name.encode(), digest_size=4).digest()[0] < 26  # about one in ten


FAMILIES = [name for name in _combine(FAMILY_STARTS, FAMILY_ENDS) if not is_held_out(name)]
TOWNS = [name for name in _combine(TOWN_STARTS, TOWN_ENDS) if not is_held_out(name)]
HELD_OUT_FAMILIES = [name for name in _combine(FAMILY_STARTS, FAMILY_ENDS) if is_held_out(name)]
HELD_OUT_TOWNS = [name for name in _combine(TOWN_STARTS, TOWN_ENDS) if is_held_out(name)]

HELD_OUT_NAMES = frozenset(HELD_OUT_FAMILIES + HELD_OUT_TOWNS)
