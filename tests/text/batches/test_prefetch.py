"""Preparing in advance changes when things are made, and nothing else."""

import gc
import threading
import time

import pytest

from regard.text.batches.plan import Batches, prefetch_values
from text.batches.batching import KINDS, Counted, assert_same


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "regard-prefetch"]


@pytest.mark.parametrize("name", sorted(KINDS))
def test_the_same_batches(name):
    plan, collate = KINDS[name]
    for one, other in zip(Batches(plan, collate, 1), Batches(plan, collate, 1, prefetch=3), strict=True):
        assert_same(one, other)
    assert not threads()


def test_the_state_counts_yielded_batches_not_prefetched_ones():
    plan, collate = KINDS["blocks"]
    counted = Counted(collate)
    batches = Batches(plan, counted, prefetch=4)
    iterator = iter(batches)
    next(iterator)
    wait_until(lambda: counted.calls == 5)  # one handed out, four ahead, and no more
    time.sleep(0.05)
    assert counted.calls == 5
    assert batches.state_dict()["batch"] == 1
    iterator.close()


def test_an_error_reaches_whoever_asks_in_its_turn():
    plan, collate = KINDS["blocks"]
    batches = Batches(plan, Counted(collate, fail_at=3), prefetch=4)
    iterator = iter(batches)
    next(iterator), next(iterator)
    with pytest.raises(RuntimeError, match="call 3"):
        next(iterator)
    assert batches.state_dict()["batch"] == 2
    assert not threads()


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_dropping_the_iterator_ends_the_thread(prefetch):
    batches = Batches(*KINDS["blocks"], prefetch=prefetch)
    iterator = iter(batches)
    next(iterator)
    assert threads()
    del iterator
    gc.collect()
    assert not threads()
    for _ in batches:
        break
    gc.collect()
    assert not threads()


def test_a_closed_iterator_makes_nothing_more():
    made = []
    iterator = prefetch_values(lambda number: made.append(number), range(100_000), depth=3)
    next(iterator)
    iterator.close()
    assert len(made) < 10


def test_work_is_done_in_another_thread_and_in_order():
    seen = []

    def make(number: int) -> int:
        seen.append(threading.current_thread())
        return number

    assert list(prefetch_values(make, range(50), depth=3)) == list(range(50))
    assert threading.main_thread() not in seen


def wait_until(done) -> None:
    deadline = time.monotonic() + 300
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)
