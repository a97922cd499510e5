"""A bounded queue before a few threads, and cooperative cancellation of what runs in them."""

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

Found = TypeVar("Found")
Work = Callable[[Event], Found]  # it looks at the event now and then: once it is set, nobody wants the result


class WorkQueue:
    """`queue.run(work, seconds)` waits for a free thread and returns what the work finds.

    A slot becomes free when its work has really stopped, not when its client has gone; anyio's and starlette's thread
    pools free it at once and wait without bounds (tests/page/serve/test_queue.py).
    """

    def __init__(self, name: str, workers: int, waiting: int, patience: float) -> None:
        self.name, self.workers, self.waiting, self.patience = name, workers, waiting, patience
        self._slots: set[Slot] = set()
        self._waiters = 0
        self._open()

    def _open(self) -> None:
        self._free = asyncio.Semaphore(self.workers)
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix=self.name)

    def close(self) -> None:
        """Cancel all work; whoever comes later finds the queue open again."""
        for slot in self._slots:
            slot.stop.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._open()

    async def run(self, work: Work[Found], seconds: float) -> Found:
        async with self.slot() as slot:
            return await slot.run(work, seconds)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[Slot]:
        """A thread of one's own, from the end of the waiting on; not to be kept longer than needed."""
        free = self._free
        await self._acquire(free)
        slot = Slot(self.name, self._threads)
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

    async def _acquire(self, free: asyncio.Semaphore) -> None:
        if free.locked() and self._waiters >= self.waiting:
            came = f"one more for the {self.name}, with {self.waiting} waiting"
            raise ServeError(came, "a shorter line", advice="Ask again in a few seconds.", status=429)
        self._waiters += 1
        try:
            async with asyncio.timeout(self.patience):
                await free.acquire()
        except TimeoutError:
            came = f"{self.patience:g} seconds of waiting for the {self.name}"
            raise ServeError(came, "a line that moves", advice="Ask again later.", status=503) from None
        finally:
            self._waiters -= 1


@dataclass(eq=False)
class Slot:
    """A free thread, and the event that tells its work to stop."""

    name: str
    threads: ThreadPoolExecutor
    stop: Event = field(default_factory=Event)
    job: asyncio.Future[Any] | None = None

    async def run(self, work: Work[Found], seconds: float) -> Found:
        job = asyncio.get_running_loop().run_in_executor(self.threads, work, self.stop)
        job.add_done_callback(lambda job: job.cancelled() or job.exception())  # read, also where nobody waits any more
        self.job = job
        done, _ = await asyncio.wait({job}, timeout=seconds)  # which, unlike asyncio.timeout, leaves the job alone
        if not done:
            came = f"more than {seconds:g} seconds of work for the {self.name}"
            raise ServeError(came, "less", advice="A shorter text takes less time.", status=504)
        return job.result()


class Cancelled(Exception):
    """Nobody waits for this work any more."""


def check(stop: Event) -> None:
    if stop.is_set():
        raise Cancelled


@contextmanager
def cancellable(stop: Event) -> Iterator[None]:
    """Inside, in this thread alone, a call of any torch module raises Cancelled once `stop` is set."""
    own = get_ident()

    def hook(module: nn.Module, inputs: Any) -> None:
        if get_ident() == own:
            check(stop)

    handle = register_module_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()
