"""What is kept between requests stays within its bounds."""

from __future__ import annotations

from page.serve.fakes import place_of, record_of, refused
from regard.page.serve.service import LRU, Records, record_size

SMALL = record_of(place_of(4))


def test_what_was_not_used_for_the_longest_time_goes_first() -> None:
    cache: LRU[str, bytes] = LRU(len, count=3, most=1000)
    for key in "abc":
        cache.put(key, b"x")
    cache.get("a")
    cache.put("d", b"x")
    assert [cache.get(key) is not None for key in "abcd"] == [True, False, True, True]


def test_bytes_are_counted_also_when_a_thing_is_replaced() -> None:
    cache: LRU[str, bytes] = LRU(len, count=None, most=10)
    cache.put("a", bytes(6))
    cache.put("a", bytes(4))
    cache.put("b", bytes(6))
    assert (cache.held, len(cache)) == (10, 2)
    cache.put("c", bytes(1))
    assert (cache.held, cache.get("a")) == (7, None)


def test_a_thing_larger_than_the_cache_is_not_taken_and_drives_nothing_out() -> None:
    cache: LRU[str, bytes] = LRU(len, count=None, most=10)
    cache.put("a", bytes(6))
    assert not cache.put("b", bytes(11))
    assert cache.get("a") == bytes(6)


def test_records_come_and_go_and_given_ones_stay() -> None:
    records = Records({"mine": SMALL}, count=2, most=2**30)
    names = [records.add(SMALL) for _ in range(5)]
    assert len(set(names)) == 5
    assert min(map(len, names)) >= 20, "nobody guesses an id"
    assert len(records.made) == 2
    assert records.get("mine") is SMALL and records.get(names[-1]) is SMALL
    with refused(404):
        records.get(names[0])


def test_records_are_bounded_in_bytes() -> None:
    records = Records({}, count=100, most=3 * record_size(SMALL))
    for _ in range(10):
        records.add(SMALL)
    assert len(records.made) == 3
    with refused(413):
        records.add(record_of(place_of(200)))


def test_a_record_is_at_least_as_large_as_its_numbers() -> None:
    large = record_of(place_of(200))
    assert record_size(large) > sum(tensor.nbytes for tensor in large.tensors().values())
