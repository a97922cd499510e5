"""The verbs of both languages, with their subcategorisation frames: subjects, objects, prepositions, particles.

A line is `frame subjects [objects]: english=french, ...`, kinds of nouns joined by +. A French verb may be reflexive
(se lever), bring further words (avoir besoin de) and end in the preposition of its object (obéir à); an English one
may bring particles (look for). Marks after the French verb: `~` punctual, no progressive; `!` stative: no progressive,
and its simple past is the French imparfait; `>` leads to a place, `<` away from one; `-` no dative shift: given to
somebody, never *given somebody*.
"""

TABLE = """
alone person+kin+animal: sleep=dormir, run=courir, swim=nager, jump=sauter, fall=tomber, breathe=respirer
alone person+kin+animal: disappear=disparaître, rest=se reposer, fall asleep=s'endormir, hide=se cacher
alone person+kin+animal: wake up=se réveiller
alone person+kin+animal: tremble=trembler, limp=boiter, snore=ronfler, grow up=grandir, get lost=se perdre
alone person+kin+animal: return=revenir<
alone person+kin: walk=marcher, sing=chanter, dance=danser, laugh=rire, smile=sourire, cry=pleurer, work=travailler
alone person+kin: travel=voyager, shout=crier, cough=tousser, sneeze=éternuer, train=s'entraîner, get up=se lever
alone person+kin: hurry=se dépêcher, go to bed=se coucher, complain=se plaindre, take a walk=se promener, pray=prier
alone person+kin: cook=cuisiner, blush=rougir, have lunch=déjeuner, have dinner=dîner, lie=mentir, fail=échouer
alone person+kin: succeed=réussir, hesitate=hésiter, smoke=fumer, fish=pêcher, whisper=chuchoter, calm down=se calmer
alone person+kin: get married=se marier, get dressed=s'habiller, get bored=s'ennuyer, sit down=s'asseoir
alone person+kin: apologize=s'excuser
alone person+kin: faint=s'évanouir, cheat=tricher, ski=skier, sigh=soupirer, vote=voter, have fun=s'amuser
alone person+kin: exaggerate=exagérer
alone person+kin: arrive=arriver, leave=partir<, stay=rester, move house=déménager<, lose weight=maigrir
alone person+kin: worry=s'inquiéter
alone person+kin: come back=revenir<, set off=se mettre en route<, protest=protester, wash=se laver
alone bird+insect: fly=voler, fly away=s'envoler<
alone vehicle: break down=tomber en panne
alone vehicle+craft: stop=s'arrêter, slow down=ralentir, set off=démarrer<
alone plant+animal: die=mourir
alone plant: grow=pousser, bloom=fleurir, wither=se faner
alone sky: shine=briller
alone bell: ring=sonner
place person+kin: live=vivre!, go=aller>, arrive=arriver, work=travailler, wait=attendre, stay=rester
place person+kin: return=retourner>, run=courir, walk=marcher, sleep=dormir, play=jouer, train=s'entraîner
object person+kin person+kin+animal: see=voir~, hear=entendre~, love=aimer!, hate=détester!, follow=suivre
object person+kin person+kin+animal: hit=frapper
object person+kin person+kin+animal: look for=chercher, look at=regarder, watch=observer, wait for=attendre
object person+kin person+kin+animal: find=trouver~
object person+kin person+kin+animal: wake=réveiller, protect=protéger, comfort=consoler, frighten=effrayer, wash=laver
object person+kin person+kin+animal: look after=s'occuper de, make fun of=se moquer de, cure=guérir, push=pousser
object person+kin person+kin: know=connaître!, meet=rencontrer, help=aider, kiss=embrasser, thank=remercier
object person+kin person+kin: invite=inviter
object person+kin person+kin: call=appeler, accuse=accuser, arrest=arrêter, criticize=critiquer, defend=défendre
object person+kin person+kin: convince=convaincre, congratulate=féliciter, greet=saluer, scold=gronder, punish=punir
object person+kin person+kin: ignore=ignorer, imitate=imiter, interrupt=interrompre, avoid=éviter, join=rejoindre
object person+kin person+kin: surprise=surprendre, deceive=tromper, threaten=menacer, bother=déranger, admire=admirer!
object person+kin person+kin: respect=respecter!, listen to=écouter, betray=trahir, encourage=encourager
object person+kin person+kin: advise=conseiller
object person+kin person+kin: reassure=rassurer, welcome=accueillir, judge=juger, pay=payer, describe=décrire
object person+kin person+kin: paint=peindre
object person+kin person+kin: obey=obéir à, phone=téléphoner à, answer=répondre à, forgive=pardonner à
object person+kin person+kin: resemble=ressembler à!
object person+kin person+kin: trust=faire confiance à!, visit=rendre visite à, talk to=parler à, smile at=sourire à
object person+kin person+kin: lie to=mentir à
object person+kin person+kin: need=avoir besoin de!, remember=se souvenir de!, complain about=se plaindre de
object person+kin person+kin: say goodbye to=dire au revoir à
object person+kin animal+bird: feed=nourrir, own=posséder!, photograph=photographier, catch=attraper, draw=dessiner
object person+kin animal+bird: raise=élever
object animal animal+bird: chase=poursuivre, see=voir~, hear=entendre~, bite=mordre, smell=sentir, follow=suivre
object animal person+kin: bite=mordre, follow=suivre, see=voir~, wake=réveiller, recognize=reconnaître~
object insect person+kin+animal: sting=piquer
object person+kin+animal food+food*: eat=manger, smell=sentir, steal=voler, find=trouver~, want=vouloir!
object person+kin food+food*: cut=couper, prepare=préparer, buy=acheter, taste=goûter, share=partager, order=commander
object person+kin food+food*: like=aimer!, swallow=avaler, sell=vendre, hate=détester!, bring=apporter
object person+kin drink*: drink=boire, order=commander, buy=acheter, spill=renverser, like=aimer!, pour=verser
object person+kin drink*: bring=apporter
object person+kin thing: buy=acheter, sell=vendre, lose=perdre, find=trouver~, break=casser, repair=réparer
object person+kin thing: carry=porter
object person+kin thing: hide=cacher, steal=voler, take=prendre, throw=lancer, look for=chercher, wrap=emballer
object person+kin thing: own=posséder!
object person+kin thing: use=utiliser, choose=choisir, forget=oublier~, keep=garder, borrow=emprunter, touch=toucher
object person+kin thing: lift=soulever
object person+kin thing: pick up=ramasser, drop=laisser tomber, receive=recevoir~, need=avoir besoin de!
object person+kin thing: put away=ranger
object person+kin machine: turn on=allumer, turn off=éteindre, repair=réparer, sell=vendre, buy=acheter
object person+kin machine: use=se servir de
object person+kin garment: wear=porter, put on=mettre, take off=enlever, wash=laver, fold=plier, buy=acheter
object person+kin garment: sew=coudre
object person+kin garment: iron=repasser, try on=essayer, lend=prêter, choose=choisir
object person+kin text: read=lire, write=écrire, finish=terminer, publish=publier, translate=traduire, copy=copier
object person+kin text: print=imprimer
object person+kin text: sign=signer, burn=brûler, tear up=déchirer, correct=corriger, keep=garder, quote=citer
object person+kin vehicle: take=prendre, drive=conduire, park=garer, wash=laver, repair=réparer, buy=acheter
object person+kin vehicle: miss=rater
object person+kin vehicle: sell=vendre, wait for=attendre, rent=louer, see=voir~, stop=arrêter, steal=voler
object person+kin vehicle: get out of=sortir de
object person+kin craft: take=prendre, repair=réparer, buy=acheter, miss=rater, sell=vendre, wait for=attendre
object person+kin craft: rent=louer, see=voir~, steal=voler, get off=descendre de
object person+kin structure: build=construire, destroy=détruire, see=voir~, paint=peindre, repair=réparer
object person+kin furniture: buy=acheter, move=déplacer, build=fabriquer, paint=peindre, sell=vendre, clean=nettoyer
object person+kin plant: plant=planter, water=arroser, cut=couper, draw=dessiner, buy=acheter, look after=s'occuper de
object person+kin opening: open=ouvrir, close=fermer, paint=peindre, push=pousser, lock=verrouiller, repair=réparer
object person+kin building: build=construire, destroy=détruire, visit=visiter, see=voir~, paint=peindre
object person+kin building: photograph=photographier
object person+kin building: buy=acheter, decorate=décorer, leave=quitter, rebuild=reconstruire, enter=entrer dans
object person+kin sight: see=voir~, cross=traverser, admire=admirer!, photograph=photographier, discover=découvrir~
object person+kin sight: describe=décrire, draw=dessiner, reach=atteindre, explore=explorer, dream of=rêver de
object person+kin abstract: understand=comprendre~, explain=expliquer, forget=oublier~, know=connaître!
object person+kin abstract: discover=découvrir~
object person+kin abstract: accept=accepter, refuse=refuser, hide=cacher, repeat=répéter, learn=apprendre
object person+kin abstract: invent=inventer
object person+kin abstract: think about=réfléchir à, talk about=parler de, doubt=douter de!, discuss=discuter de
object person+kin event: organize=organiser, cancel=annuler, prepare=préparer, attend=assister à, miss=rater
object person+kin event: leave=quitter
object person+kin event: describe=décrire, remember=se souvenir de!, take part in=participer à, enjoy=apprécier
object person+kin event: forget=oublier~
object person+kin instrument: play=jouer de, buy=acheter, tune=accorder, break=casser, repair=réparer
object person+kin game: play=jouer à
object person+kin award: win=gagner, receive=recevoir~, deserve=mériter!, refuse=refuser, show off=exhiber
object person+kin money*: lend=prêter, lose=perdre, find=trouver~, save=économiser, earn=gagner, spend=dépenser
object person+kin money*: steal=voler
give person+kin thing+text+garment+money*: give=donner, lend=prêter, send=envoyer, offer=offrir, sell=vendre
give person+kin thing+text+garment+money*: show=montrer
give person+kin thing+text+garment: bring=apporter, give back=rendre-, hand=remettre, leave=laisser, owe=devoir!
give person+kin food+food*: give=donner, offer=offrir, bring=apporter, serve=servir, promise=promettre, sell=vendre
give person+kin abstract: explain=expliquer-, teach=apprendre, reveal=révéler-, describe=décrire-, announce=annoncer-
that person+kin: think=penser!, know=savoir!, say=dire, believe=croire!, hope=espérer!, announce=annoncer
that person+kin: claim=prétendre
that person+kin: repeat=répéter, promise=promettre, imagine=imaginer, notice=remarquer~, see=voir~, explain=expliquer
that person+kin: understand=comprendre~, remember=se rappeler!, guess=deviner, discover=découvrir~, admit=admettre
to person+kin: want=vouloir!, like=aimer!, hate=détester!, hope=espérer!, prefer=préférer!, dare=oser, try=essayer de
to person+kin: begin=commencer à, decide=décider de, learn=apprendre à, refuse=refuser de, forget=oublier de
to person+kin: plan=prévoir de
to person+kin: promise=promettre de, continue=continuer à, need=avoir besoin de!, manage=réussir à
to person+kin: intend=avoir l'intention de!
to person+kin: agree=accepter de, hesitate=hésiter à, love=adorer!, choose=choisir de, pretend=faire semblant de
to person+kin: threaten=menacer de
"""

# French verbs whose compound past takes être; the reflexive ones do as well.
WITH_ETRE = frozenset(
    "aller arriver descendre entrer mourir naître partir rester retourner revenir sortir tomber venir".split()
)

# English verbs: base, past, participle, where they are not regular.
ENGLISH = """
be was been, beat beat beaten, become became become, begin began begun, bite bit bitten, break broke broken
bring brought brought, build built built, burn burned burned, buy bought bought, catch caught caught
choose chose chosen, come came come, cut cut cut, do did done, draw drew drawn, dream dreamed dreamed
drink drank drunk, drive drove driven, eat ate eaten, fall fell fallen, feed fed fed, find found found, fly flew flown
forget forgot forgotten, forgive forgave forgiven, get got got, give gave given, go went gone, grow grew grown
have had had, hear heard heard, hide hid hidden, hit hit hit, keep kept kept, know knew known, lead led led
leave left left, light lit lit, lend lent lent, lie lied lied, lose lost lost, make made made, meet met met
owe owed owed, pay paid paid, put put put, read read read, ring rang rung, run ran run, say said said
see saw seen, sell sold sold, send sent sent, set set set
sew sewed sewn, shine shone shone, show showed shown, sing sang sung, sit sat sat
sleep slept slept, spend spent spent, steal stole stolen, sting stung stung, strike struck struck, swim swam swum
swing swung swung, take took taken, teach taught taught, tear tore torn, tell told told, think thought thought
throw threw thrown, understand understood understood, wake woke woken, wear wore worn, win won won
write wrote written, rebuild rebuilt rebuilt, spill spilled spilled
"""

# English verbs that take a pronoun in their middle: put it on, but look for it.
SEPARABLE = frozenset(
    ("turn on", "turn off", "put on", "put away", "take off", "try on", "tear up", "pick up", "show off", "give back")
)

# Verbs of one syllable (or stressed on the last) that double their consonant: stop, stopping.
DOUBLED = frozenset(
    """stop run swim sit travel cancel prefer get put cut hit win set plan drop wrap rob forget begin admit chat
dip""".split()
)
