"""The cache and the record store stay within their bounds."""

from __future__ import annotations

from page.serve.fakes import place_of, record_of, refused
from regard.page.serve.service import LRU, RecordStore, record_size

SMALL = record_of(place_of(4))


def test_the_least_recently_used_value_is_evicted() -> None:
    cache: LRU[str, bytes] = LRU(len, max_count=3, max_bytes=1000)
    for key in "abc":
        cache.put(key, b"x")
    cache.get("a")
    cache.put("d", b"x")
    assert [cache.get(key) is not None for key in "abcd"] == [True, False, True, True]


def test_bytes_are_counted_when_a_value_is_replaced() -> None:
    cache: LRU[str, bytes] = LRU(len, max_count=None, max_bytes=10)
    cache.put("a", bytes(6))
    cache.put("a", bytes(4))
    cache.put("b", bytes(6))
    assert (cache.bytes, len(cache)) == (10, 2)
    cache.put("c", bytes(1))
    assert (cache.bytes, cache.get("a")) == (7, None)


def test_a_value_larger_than_the_cache_is_not_stored_and_evicts_nothing() -> None:
    cache: LRU[str, bytes] = LRU(len, max_count=None, max_bytes=10)
    cache.put("a", bytes(6))
    assert not cache.put("b", bytes(11))
    assert cache.get("a") == bytes(6)


def test_old_records_are_evicted_and_preloaded_ones_stay() -> None:
    records = RecordStore({"mine": SMALL}, max_count=2, max_bytes=2**30)
    names = [records.add(SMALL) for _ in range(5)]
    assert len(set(names)) == 5
    assert min(map(len, names)) >= 20, "nobody guesses an id"
    assert len(records.made) == 2
    assert records.get("mine") is SMALL and records.get(names[-1]) is SMALL
    with refused(404):
        records.get(names[0])


def test_records_are_bounded_in_bytes() -> None:
    records = RecordStore({}, max_count=100, max_bytes=3 * record_size(SMALL))
    for _ in range(10):
        records.add(SMALL)
    assert len(records.made) == 3
    with refused(413):
        records.add(record_of(place_of(200)))


def test_the_size_of_a_record_includes_its_tensors() -> None:
    large = record_of(place_of(200))
    assert record_size(large) > sum(tensor.nbytes for tensor in large.tensors().values())
