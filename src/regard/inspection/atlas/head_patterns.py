"""The patterns that a head can have, each a value: a name, and which keys are its targets for each query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.inspection.atlas.lexicon import NEAR, is_function, stem
from regard.inspection.atlas.token_features import NEAREST, SIGN, SPECIAL, Scene

Level = Literal["tokens", "words"]
Family = Literal["position", "landmark", "content", "pairs", "probe", "spread"]
FEW = 4  # keys that a query must see before it can look broadly, or words before one of them is the rarest


@dataclass(frozen=True)
class Trait:
    """`targets(scene)`: booleans (T, S) between tokens, or (units, units) between words; None where the question does
    not arise. `family` decides what a head must beat:

    position, landmark: an even look at all that is visible. content: what the same head gives to words that stand as
    far away and are, or are not, function words too. pairs: the same, to words of the same kind (how rare, noun or
    not), so that nothing but which two words they are is left. probe: what it gives to the other half of a text that is
    said twice.
    """

    name: str
    family: Family
    level: Level
    targets: Callable[[Scene], Tensor | None]


def _offset(step: int) -> Callable[[Scene], Tensor | None]:
    def targets(scene: Scene) -> Tensor | None:
        if not scene.within or scene.probe:
            return None
        T, S = scene.visible.shape
        return torch.arange(S) - torch.arange(T)[:, None] == step

    return targets


def _first(scene: Scene) -> Tensor | None:
    found = torch.zeros_like(scene.visible)
    found[:, :1] = True
    if scene.within:
        found[:1] = False  # that would be itself
    return None if scene.probe else found


def _delimiter(*kinds: int) -> Callable[[Scene], Tensor | None]:
    """Special tokens or punctuation."""

    def targets(scene: Scene) -> Tensor | None:
        of_key = scene.keys.kinds[scene.keys.of_token]
        found = torch.isin(of_key, torch.tensor(kinds))
        return None if scene.probe else found.expand_as(scene.visible) & ~_itself(scene)

    return targets


def _itself(scene: Scene) -> Tensor:
    T, S = scene.visible.shape
    return torch.eye(T, S, dtype=torch.bool) if scene.within else torch.zeros(T, S, dtype=torch.bool)


def _identical(apart: bool) -> Callable[[Scene], Tensor | None]:
    def targets(scene: Scene) -> Tensor | None:
        asked = _asked(scene, apart)
        return None if asked is None else asked & _equal(scene.queries.spelled, scene.keys.spelled)

    return targets


def _related(apart: bool) -> Callable[[Scene], Tensor | None]:
    """Other words of the same stem, or that come together in this corpus; function words are related to none."""

    def targets(scene: Scene) -> Tensor | None:
        asked = _asked(scene, apart)
        if asked is None:
            return None
        ours, theirs = scene.queries.spelled, scene.keys.spelled
        kin = [[other in others for other in theirs] for others in map(scene.lexicon.related, ours)]
        found = torch.tensor(kin) | _equal([stem(word) for word in ours], [stem(word) for word in theirs])
        open_ = [torch.tensor([not is_function(word) for word in words]) for words in (ours, theirs)]
        return asked & found & ~_equal(ours, theirs) & open_[0][:, None] & open_[1]

    return targets


def _asked(scene: Scene, apart: bool) -> Tensor | None:
    """Pairs of words of one text, or of two."""
    asked = scene.seen & (scene.apart if apart else ~scene.apart)
    return asked if not scene.probe and bool(asked.any()) else None


def _equal(ours: Sequence[str], theirs: Sequence[str]) -> Tensor:
    numbers: dict[str, int] = {}
    one, other = (torch.tensor([numbers.setdefault(word, len(numbers)) for word in words]) for words in (ours, theirs))
    return one[:, None] == other


def _predicting(scene: Scene) -> Tensor | None:
    """Of the neighbours of a word, the one that comes with it most often against chance (straw - berries)."""
    if scene.probe or not scene.within:
        return None
    near = scene.seen & ~scene.apart & (scene.distance.abs() <= NEAR)
    found = torch.zeros_like(near)
    for at, word in enumerate(scene.queries.spelled):
        strengths = [
            (scene.lexicon.predicts(word, scene.keys.spelled[key]), -key)
            for key in near[at].nonzero().squeeze(-1).tolist()
            if scene.keys.spelled[key] != word
        ]
        best, key = max(strengths, default=(0.0, 0))
        if best > 0:
            found[at, -key] = True
    return found


def _nouns(scene: Scene) -> Tensor | None:
    """Nouns and names, where a query could look at other words as well."""
    found = scene.seen & scene.key_nouns
    return None if scene.probe else found & (scene.seen & ~found).any(-1, keepdim=True)


def _rare(scene: Scene) -> Tensor | None:
    """The word that comes least often in the corpus, or those that do, of all that a query sees."""
    if scene.probe:
        return None
    counts = torch.tensor([float(scene.lexicon.count(word)) for word in scene.keys.spelled]).expand(scene.seen.shape)
    counts = counts.masked_fill(~scene.seen, torch.inf)
    rarest = (counts == counts.amin(-1, keepdim=True)) & scene.seen
    many = scene.seen.sum(-1, keepdim=True)
    return rarest & (many >= FEW) & (FEW * rarest.sum(-1, keepdim=True) <= many)  # where few words are as rare


def _gold(scene: Scene) -> Tensor | None:
    return None if scene.gold is None or scene.probe else scene.gold & scene.seen


def _diagonal(scene: Scene) -> Tensor | None:
    if scene.within or scene.probe or len(scene.queries) < 2:
        return None
    return scene.seen & (scene.distance.abs() <= 1)


def _repeated(step: int) -> Callable[[Scene], Tensor | None]:
    """In a text that is said twice: the token that stands `step` after the same token in the other half."""

    def targets(scene: Scene) -> Tensor | None:
        if not scene.probe or not scene.within:
            return None
        tokens = list(zip(scene.keys.of_token.tolist(), _pieces(scene), strict=True))
        T, S = scene.visible.shape
        found = torch.zeros(T, S, dtype=torch.bool)
        places: dict[str, list[int]] = {}
        for at, (_, piece) in enumerate(tokens):
            places.setdefault(piece, []).append(at)
        for at, (unit, piece) in enumerate(tokens):
            for other in places[piece] if scene.keys.kinds[unit] != SPECIAL else ():
                if other != at and 0 <= other + step < S and other + step != at:
                    found[at, other + step] = True
        return found & other_half(scene)

    return targets


def other_half(scene: Scene) -> Tensor:
    """(T, S): whether the key stands in the other half of a text that is said twice."""
    middle = (scene.keys.order[scene.keys.words].max() + 1 + scene.keys.order[scene.keys.words].min()) / 2
    late = scene.keys.order[scene.keys.of_token] >= middle
    word = scene.keys.words[scene.keys.of_token]
    return (late[:, None] != late) & word[:, None] & word


def _pieces(scene: Scene) -> list[str]:
    """Tokens as they are told apart: by their word and their number in it."""
    seen: dict[int, int] = {}
    found = []
    for unit in scene.keys.of_token.tolist():
        seen[unit] = seen.get(unit, -1) + 1
        found.append(f"{scene.keys.spelled[unit]} {seen[unit]}")
    return found


def _none(scene: Scene) -> Tensor | None:
    return None


BROAD = "broad"  # counted apart: it has no targets
NAMED = {-1: "previous", 0: "self", 1: "next"}
TRAITS: tuple[Trait, ...] = (
    *(
        Trait(NAMED.get(step, f"offset {step:+d}"), "position", "tokens", _offset(step))
        for step in range(-NEAREST, NEAREST + 1)
    ),
    Trait("first token", "landmark", "tokens", _first),
    Trait("delimiter", "landmark", "tokens", _delimiter(SPECIAL, SIGN)),
    Trait("identical word", "pairs", "words", _identical(False)),
    Trait("related word", "pairs", "words", _related(False)),
    Trait("predicting word", "pairs", "words", _predicting),
    Trait("identical word, other text", "pairs", "words", _identical(True)),
    Trait("related word, other text", "pairs", "words", _related(True)),
    Trait("nouns and names", "content", "words", _nouns),
    Trait("rare word", "content", "words", _rare),
    Trait("alignment", "pairs", "words", _gold),
    Trait("diagonal", "landmark", "words", _diagonal),
    Trait("induction", "probe", "tokens", _repeated(1)),
    Trait("induction, before", "probe", "tokens", _repeated(-1)),
    Trait(BROAD, "spread", "tokens", _none),
)
NUMBERS = {trait.name: number for number, trait in enumerate(TRAITS)}
