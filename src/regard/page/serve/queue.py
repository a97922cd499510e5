"""A bounded work queue: how many requests run and wait at the same time; cooperative cancellation of running work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from threading import Event, get_ident
from typing import Any, TypeVar

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from regard.page.serve.serve_errors import ServeError

Result = TypeVar("Result")
THREAD_PREFIX = "regard-serve-"
Work = Callable[[Event], Result]  # it checks the event regularly, which is set when the work is cancelled


class WorkQueue:
    """`queue.run(work, seconds)` waits for a free thread and returns the result of the work.

    A slot becomes free when its work has stopped, not when its client has disconnected; anyio's and starlette's thread
    pools free it at once and have no bounds for waiting (tests/page/serve/test_queue.py).
    """

    def __init__(self, name: str, workers: int, max_waiting: int, max_wait: float) -> None:
        self.name, self.workers, self.max_waiting, self.max_wait = name, workers, max_waiting, max_wait
        self._slots: set[Slot] = set()
        self._waiters = 0
        self._open()

    def _open(self) -> None:
        self._free = asyncio.Semaphore(self.workers)
        self._ended = asyncio.Event()
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix=f"{THREAD_PREFIX}{self.name}")

    def stop(self) -> None:
        """Cancel all work, running and waiting: each request is answered at once that the server is stopping."""
        self._ended.set()
        for slot in self._slots:
            slot.stop.set()
        for _ in range(self._waiters):
            self._free.release()  # wakes up one that waits, which then sees that the queue has ended

    def close(self) -> None:
        """Cancel all work; the queue can be used again afterwards."""
        self.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._open()

    async def run(self, work: Work[Result], seconds: float) -> Result:
        async with self.slot() as slot:
            return await slot.run(work, seconds)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[Slot]:
        """A free thread, once there is one; release it as soon as possible."""
        free, ended = self._free, self._ended
        await self._acquire(free, ended)
        slot = Slot(self.name, self._threads, ended)
        self._slots.add(slot)
        try:
            yield slot
        finally:
            self._slots.discard(slot)
            slot.stop.set()
            if slot.job is None or slot.job.done():
                free.release()
            else:
                slot.job.add_done_callback(lambda job: free.release())

    async def _acquire(self, free: asyncio.Semaphore, ended: asyncio.Event) -> None:
        if ended.is_set():
            raise _stopping()
        if free.locked() and self._waiters >= self.max_waiting:
            problem = f"The queue of {self.name} is full ({self.max_waiting} waiting)"
            raise ServeError(problem, advice="Try again in a few seconds.", status=429)
        self._waiters += 1
        try:
            async with asyncio.timeout(self.max_wait):
                await free.acquire()
        except TimeoutError:
            problem = f"No free slot in the queue of {self.name} within {self.max_wait:g} seconds"
            raise ServeError(problem, advice="Try again later.", status=503) from None
        finally:
            self._waiters -= 1
        if ended.is_set():
            raise _stopping()


@dataclass(eq=False)
class Slot:
    """A thread, the event that cancels its work, and the end of its queue."""

    name: str
    threads: ThreadPoolExecutor
    ended: asyncio.Event
    stop: Event = field(default_factory=Event)
    job: asyncio.Future[Any] | None = None

    async def run(self, work: Work[Result], seconds: float) -> Result:
        job = asyncio.get_running_loop().run_in_executor(self.threads, work, self.stop)
        job.add_done_callback(
            lambda job: job.cancelled() or job.exception()
        )  # retrieved even if the client has disconnected
        self.job = job
        ended: asyncio.Future[Any] = asyncio.ensure_future(self.ended.wait())
        try:  # unlike asyncio.timeout, asyncio.wait does not cancel the job
            await asyncio.wait({job, ended}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        if self.ended.is_set():
            raise _stopping()
        if not job.done():
            problem = f"The computation took more than {seconds:g} seconds and was cancelled"
            raise ServeError(problem, advice="A shorter text takes less time.", status=504)
        return job.result()


def _stopping() -> ServeError:
    return ServeError("The server is stopping", advice="Try again once it has been started anew.", status=503)


class Cancelled(Exception):
    """The work was cancelled: its client has disconnected, or its time is over."""


def raise_if_cancelled(stop: Event) -> None:
    if stop.is_set():
        raise Cancelled


@contextmanager
def cancellable(stop: Event) -> Iterator[None]:
    """Inside, in this thread only, a call of any torch module raises Cancelled once `stop` is set."""
    thread = get_ident()

    def hook(module: nn.Module, inputs: Any) -> None:
        if get_ident() == thread:
            raise_if_cancelled(stop)

    handle = register_module_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()
