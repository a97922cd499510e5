"""The work queue: bounded concurrency and waiting; a slot is free only when its work has stopped."""

from __future__ import annotations

import asyncio
import threading
from threading import Event

import pytest

from page.serve.fakes import refused
from regard.page.serve.queue import WorkQueue
from regard.page.serve.serve_errors import ServeError, error_response


async def _until(true: object) -> None:
    for _ in range(1000):
        if true():  # type: ignore[operator]
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came to be")


def test_the_number_of_concurrent_jobs_is_bounded_and_all_are_served() -> None:
    async def story() -> None:
        queue, lock, now, most = WorkQueue("works", 2, 20, 60), threading.Lock(), 0, 0

        def work(stop: Event) -> int:
            nonlocal now, most
            with lock:
                now, most = now + 1, max(most, now + 1)
            Event().wait(0.01)
            with lock:
                now -= 1
            return 1

        assert sum(await asyncio.gather(*(queue.run(work, 60) for _ in range(12)))) == 12
        assert most == 2

    asyncio.run(story())


def test_a_full_queue_refuses_work() -> None:
    async def story() -> None:
        queue, go = WorkQueue("works", 1, 2, 60), Event()
        tasks = [asyncio.ensure_future(queue.run(lambda stop: go.wait(60), 60)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ServeError) as caught:
            await queue.run(lambda stop: None, 60)
        assert caught.value.status == 429 and "Retry-After" in error_response(caught.value).headers
        go.set()
        assert await asyncio.gather(*tasks) == [True] * 3

    asyncio.run(story())


def test_a_slot_is_free_only_when_its_work_has_stopped() -> None:
    async def story() -> None:
        queue, go, told = WorkQueue("works", 1, 1, 60), Event(), Event()

        def work(stop: Event) -> None:
            stop.wait(60)
            told.set()
            go.wait(60)  # deaf for a while, as a long operation is

        with refused(504):
            await queue.run(work, 0.01)
        await _until(told.is_set)
        waiting = asyncio.ensure_future(queue.run(lambda stop: "served", 60))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        go.set()
        assert await waiting == "served"

    asyncio.run(story())


def test_waiting_times_out_and_leaves_no_trace() -> None:
    async def story() -> None:
        queue, go = WorkQueue("works", 1, 1, 0.02), Event()
        working = asyncio.ensure_future(queue.run(lambda stop: go.wait(60), 60))
        await asyncio.sleep(0)
        for _ in range(3):  # each would find the line full if the one before were still in it
            with refused(503):
                await queue.run(lambda stop: None, 60)
        go.set()
        await working
        assert await queue.run(lambda stop: "served", 60) == "served"

    asyncio.run(story())


def test_a_cancelled_waiter_leaves_the_queue() -> None:
    async def story() -> None:
        queue, go = WorkQueue("works", 1, 1, 60), Event()
        working = asyncio.ensure_future(queue.run(lambda stop: go.wait(60), 60))
        await asyncio.sleep(0)
        leaving = asyncio.ensure_future(queue.run(lambda stop: None, 60))
        await asyncio.sleep(0.01)
        leaving.cancel()
        await asyncio.wait([leaving])
        staying = asyncio.ensure_future(queue.run(lambda stop: "served", 60))
        await asyncio.sleep(0.01)
        go.set()
        assert await working and await staying == "served"

    asyncio.run(story())


def test_work_of_a_disconnected_client_is_cancelled() -> None:
    async def story() -> None:
        queue, seen = WorkQueue("works", 1, 1, 60), Event()

        def work(stop: Event) -> None:
            stop.wait(60)
            seen.set()

        task = asyncio.ensure_future(queue.run(work, 60))
        await asyncio.sleep(0.01)
        task.cancel()
        await _until(seen.is_set)

    asyncio.run(story())


def test_exceptions_of_the_work_are_raised_and_free_the_slot() -> None:
    async def story() -> None:
        queue = WorkQueue("works", 1, 0, 60)

        def work(stop: Event) -> None:
            raise TimeoutError("its own")

        with pytest.raises(TimeoutError, match="its own"):
            await queue.run(work, 60)
        assert await queue.run(lambda stop: "served", 60) == "served"

    asyncio.run(story())


def test_closing_cancels_all_work() -> None:
    async def story() -> None:
        queue = WorkQueue("works", 1, 0, 60)
        seen: list[bool] = []
        task = asyncio.ensure_future(queue.run(lambda stop: seen.append(stop.wait(60)), 60))
        await asyncio.sleep(0.01)
        queue.close()
        with refused(503):
            await task
        await asyncio.sleep(0.1)
        assert seen == [True], "the work itself ends too"
        assert await queue.run(lambda stop: "open again", 60) == "open again"

    asyncio.run(story())


def test_a_stop_answers_what_runs_what_waits_and_what_comes() -> None:
    async def story() -> None:
        queue = WorkQueue("works", 1, 5, 60)
        tasks = [asyncio.ensure_future(queue.run(lambda stop: stop.wait(60), 60)) for _ in range(6)]
        await asyncio.sleep(0.01)
        queue.stop()
        tasks.append(asyncio.ensure_future(queue.run(lambda stop: "late", 60)))
        found = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert [getattr(one, "status", None) for one in found] == [503] * 7
        assert all("The server is stopping" in str(one) for one in found)
        queue.close()
        assert await queue.run(lambda stop: "open again", 60) == "open again"

    asyncio.run(story())
