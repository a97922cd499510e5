"""Symmetrisation of word alignments of both directions: intersection, union, grow-diag, grow-diag-final-and, ...

symmetrize(forward, reverse, "grow-diag-final-and")

A translator links each target word to source words, so the links of one direction are many-to-one on one side only.
Those of the other direction complement them (Och & Ney 2003; Koehn, Och & Marcu 2003).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from regard.errors import unknown
from regard.text import Links

Link = tuple[int, int]
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def reverse_links(links: Iterable[Link]) -> Links:
    """Links of target and source as links of source and target."""
    return tuple(sorted((j, i) for i, j in links))


def symmetrize(forward: Iterable[Link], reverse: Iterable[Link], method: str) -> Links:
    """Combine two sets of links (source word, target word); `reverse` comes from a model of the other direction.

    intersection, union: of both. grow-diag: starts with the intersection and adds links of either that neighbour a link
    in the set, if one of the two words has none yet. grow-diag-final: then also isolated links, if one of the words has
    none; grow-diag-final-and: if neither has.
    """
    if method not in METHODS:
        raise unknown(method, METHODS, kind="symmetrisation method", where="symmetrize")
    return tuple(sorted(METHODS[method](set(forward), set(reverse))))


def _intersection(forward: set[Link], reverse: set[Link]) -> set[Link]:
    return forward & reverse


def _union(forward: set[Link], reverse: set[Link]) -> set[Link]:
    return forward | reverse


def _grow_diag(forward: set[Link], reverse: set[Link]) -> set[Link]:
    either, found = forward | reverse, _LinkSet(forward & reverse)
    before = -1
    while len(found.links) > before:
        before = len(found.links)
        for i, j in sorted(either):  # word after word; links that were added in this round count
            if (i, j) in found.links:
                for across, down in NEIGHBOURS:
                    near = (i + across, j + down)
                    if near in either and found.lacks_one(near):
                        found.add(near)
    return found.links


def _grow_diag_final(forward: set[Link], reverse: set[Link]) -> set[Link]:
    found = _LinkSet(_grow_diag(forward, reverse))
    for link in (*sorted(forward), *sorted(reverse)):
        if found.lacks_one(link):
            found.add(link)
    return found.links


def _grow_diag_final_and(forward: set[Link], reverse: set[Link]) -> set[Link]:
    found = _LinkSet(_grow_diag(forward, reverse))
    for link in (*sorted(forward), *sorted(reverse)):
        if found.lacks_both(link):
            found.add(link)
    return found.links


class _LinkSet:
    """Links so far, and the words that have one."""

    def __init__(self, links: set[Link]) -> None:
        self.links = set(links)
        self.sources, self.targets = {i for i, _ in links}, {j for _, j in links}

    def add(self, link: Link) -> None:
        self.links.add(link)
        self.sources.add(link[0])
        self.targets.add(link[1])

    def lacks_one(self, link: Link) -> bool:
        return link[0] not in self.sources or link[1] not in self.targets

    def lacks_both(self, link: Link) -> bool:
        return link[0] not in self.sources and link[1] not in self.targets


METHODS: dict[str, Callable[[set[Link], set[Link]], set[Link]]] = {
    "intersection": _intersection,
    "union": _union,
    "grow-diag": _grow_diag,
    "grow-diag-final": _grow_diag_final,
    "grow-diag-final-and": _grow_diag_final_and,
}
