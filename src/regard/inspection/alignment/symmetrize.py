"""Links of two directions made one: what both say, what either says, and what lies in between.

merged(forth, back, "grow-diag-final-and")

A translator links each word that it writes to what it reads, so one word may answer to many on one side only. The same
sentences aligned the other way round make up for it (Och & Ney 2003; Koehn, Och & Marcu 2003).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from regard.errors import unknown
from regard.text import Links

Link = tuple[int, int]
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def turned_about(links: Iterable[Link]) -> Links:
    """Links of target and source as links of source and target."""
    return tuple(sorted((j, i) for i, j in links))


def merged(forth: Iterable[Link], back: Iterable[Link], method: str) -> Links:
    """Both sets are links (source word, target word); `back` comes from a model that reads the target.

    intersection, union: of both. grow-diag: begins with the intersection and takes up what either says beside a link
    that is there already, if one of its two words has none yet. grow-diag-final: then also what stands alone, if one of
    its words has none; grow-diag-final-and: if neither has.
    """
    if method not in METHODS:
        raise unknown(method, METHODS, kind="method", where="merged")
    return tuple(sorted(METHODS[method](set(forth), set(back))))


def _intersection(forth: set[Link], back: set[Link]) -> set[Link]:
    return forth & back


def _union(forth: set[Link], back: set[Link]) -> set[Link]:
    return forth | back


def _grown(forth: set[Link], back: set[Link]) -> set[Link]:
    either, found = forth | back, _Linked(forth & back)
    before = -1
    while len(found.links) > before:
        before = len(found.links)
        for i, j in sorted(either):  # word after word; what was added on the way counts at once
            if (i, j) in found.links:
                for across, down in NEIGHBOURS:
                    near = (i + across, j + down)
                    if near in either and found.lacks_one(near):
                        found.add(near)
    return found.links


def _final(forth: set[Link], back: set[Link]) -> set[Link]:
    found = _Linked(_grown(forth, back))
    for link in (*sorted(forth), *sorted(back)):
        if found.lacks_one(link):
            found.add(link)
    return found.links


def _final_and(forth: set[Link], back: set[Link]) -> set[Link]:
    found = _Linked(_grown(forth, back))
    for link in (*sorted(forth), *sorted(back)):
        if found.lacks_both(link):
            found.add(link)
    return found.links


class _Linked:
    """Links so far, and which words have one."""

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
    "grow-diag": _grown,
    "grow-diag-final": _final,
    "grow-diag-final-and": _final_and,
}
