"""Symmetrised links, against cases by hand and the published algorithm."""

import pytest
from hypothesis import given, strategies as st

from regard.errors import SettingError
from regard.inspection.alignment.symmetrize import METHODS, reverse_links, symmetrize

links = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=14)


def as_published(forth: frozenset, back: frozenset, end: str) -> set:
    """grow-diag and its two ends, as Koehn et al. write them down: loops over all pairs of words, a matrix of links."""
    size = 6
    found = {link for link in forth if link in back}

    def source_is_free(i: int) -> bool:
        return all((i, other) not in found for other in range(size))

    def target_is_free(j: int) -> bool:
        return all((other, j) not in found for other in range(size))

    added = True
    while added:
        added = False
        for i in range(size):
            for j in range(size):
                if (i, j) not in found:
                    continue
                for di, dj in ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)):
                    new = (i + di, j + dj)
                    free = source_is_free(new[0]) or target_is_free(new[1])
                    if new not in found and free and (new in forth or new in back):
                        found.add(new)
                        added = True
    for direction in () if not end else (forth, back):
        for i in range(size):
            for j in range(size):
                free = (source_is_free(i), target_is_free(j))
                if (i, j) in direction and (all(free) if end == "and" else any(free)):
                    found.add((i, j))
    return found


@given(links, links)
def test_growing_is_the_published_algorithm(forth: frozenset, back: frozenset) -> None:
    for method, end in (("grow-diag", ""), ("grow-diag-final", "or"), ("grow-diag-final-and", "and")):
        assert set(symmetrize(forth, back, method)) == as_published(forth, back, end), method


@given(links, links)
def test_every_method_lies_between_intersection_and_union(forth: frozenset, back: frozenset) -> None:
    for method in METHODS:
        found = symmetrize(forth, back, method)
        assert forth & back <= set(found) <= forth | back
        assert list(found) == sorted(set(found))
    assert set(symmetrize(forth, back, "grow-diag")) <= set(symmetrize(forth, back, "grow-diag-final-and"))
    assert set(symmetrize(forth, back, "grow-diag-final-and")) <= set(symmetrize(forth, back, "union"))


@given(links)
def test_equal_directions_are_unchanged(both: frozenset) -> None:
    assert {symmetrize(both, both, method) for method in METHODS} == {tuple(sorted(both))}
    assert set(reverse_links(reverse_links(both))) == both


def test_ne_pas_typed_out() -> None:
    """does not see / ne voit pas: one direction finds ne, the other pas; a stray link far away has two free words."""
    forth = [(1, 0), (2, 1), (4, 5)]
    back = [(1, 0), (1, 2), (2, 1), (0, 1)]
    assert symmetrize(forth, back, "intersection") == ((1, 0), (2, 1))
    assert symmetrize(forth, back, "union") == ((0, 1), (1, 0), (1, 2), (2, 1), (4, 5))
    assert symmetrize(forth, back, "grow-diag") == (
        (0, 1),
        (1, 0),
        (1, 2),
        (2, 1),
    )  # beside a link, and a word was free
    assert symmetrize(forth, back, "grow-diag-final-and") == ((0, 1), (1, 0), (1, 2), (2, 1), (4, 5))


def test_the_two_ends_differ_where_one_word_is_taken() -> None:
    forth, back = [(0, 0), (0, 4)], [(0, 0)]
    assert symmetrize(forth, back, "grow-diag") == ((0, 0),)  # too far from what is there
    assert symmetrize(forth, back, "grow-diag-final") == ((0, 0), (0, 4))
    assert symmetrize(forth, back, "grow-diag-final-and") == ((0, 0),)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(SettingError, match="grow-diag-final-and"):
        symmetrize([], [], "grow-diag-final-an")
