"""Names, which both languages share: a translator must copy them, and some it will never have seen.

Family names and towns are put together from two halves, so there are many more than a vocabulary would hold. One in ten
is kept out of every split but `names`: whether a model has learned to copy shows only there.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import product

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


# What happens to be a word, or another name, in one of the two languages.
WORDS = frozenset(
    """Island Pardon Almond Marin Cordon Boring Baring Bering Berlin Martin Dalton Orin Olland Salaud Soldier Parrot
    Barrel Parson Carport Malin Marier Parier Valet Salin Palin Calin Cornard Maraud Bernard Mortier""".split()
)


def _made(starts: str, ends: str) -> list[str]:
    return sorted({start + end for start, end in product(starts.split(), ends.split())} - WORDS)


def kept_out(name: str) -> bool:
    """Whether a name never occurs in training."""
    return blake2b(name.encode(), digest_size=4).digest()[0] < 26  # about one in ten


FAMILIES = [name for name in _made(FAMILY_STARTS, FAMILY_ENDS) if not kept_out(name)]
TOWNS = [name for name in _made(TOWN_STARTS, TOWN_ENDS) if not kept_out(name)]
UNSEEN_FAMILIES = [name for name in _made(FAMILY_STARTS, FAMILY_ENDS) if kept_out(name)]
UNSEEN_TOWNS = [name for name in _made(TOWN_STARTS, TOWN_ENDS) if kept_out(name)]

UNSEEN = frozenset(UNSEEN_FAMILIES + UNSEEN_TOWNS)
