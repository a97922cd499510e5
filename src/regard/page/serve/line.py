"""A line before a few threads: so many work at once, so many more wait, and whoever comes then is sent away."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock
from typing import TypeVar

from regard.page.serve.refusals import Busy, Crowded, TooLong

Found = TypeVar("Found")
Work = Callable[[Event], Found]  # it looks at the event now and then: once that is set, nobody wants what it makes


class Line:
    """`line.do(work, seconds)` waits for a free thread and gives back what the work finds.

    A place at work becomes free when the work has really stopped, not when its visitor has gone.
    """

    def __init__(self, name: str, at_once: int, waiting: int, patience: float) -> None:
        self.name, self.waiting, self.patience = name, waiting, patience
        self._free = at_once
        self._waiters: deque[Future[None]] = deque()
        self._lock = Lock()  # threads leave the line too
        self._new_threads = partial(ThreadPoolExecutor, at_once, thread_name_prefix=name)
        self._threads = self._new_threads()
        self._turns: set[Turn] = set()

    async def do(self, work: Work[Found], seconds: float) -> Found:
        async with self.turn() as turn:
            return await turn.run(work, seconds)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn]:
        """One's turn, from the end of the waiting on; to be kept no longer than needed."""
        await self._enter()
        turn = Turn(self.name, self._threads)
        self._turns.add(turn)
        try:
            yield turn
        finally:
            self._turns.discard(turn)
            turn.stop.set()
            turn.job.add_done_callback(lambda job: self._leave())

    def close(self) -> None:
        """Whatever is at work is asked to stop; whoever comes later finds the line open again."""
        for turn in self._turns:
            turn.stop.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._threads = self._new_threads()

    async def _enter(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            if len(self._waiters) >= self.waiting:
                came = f"one more for the {self.name}, with {self.waiting} waiting"
                raise Busy(came, "a shorter line", advice="Ask again in a few seconds.")
            mine: Future[None] = Future()
            self._waiters.append(mine)
        try:
            async with asyncio.timeout(self.patience) as limit:
                await asyncio.wrap_future(mine)
        except BaseException as error:
            with self._lock:
                came_too_late = not mine.cancel()
                if not came_too_late and mine in self._waiters:
                    self._waiters.remove(mine)
            if came_too_late:
                self._leave()
            if isinstance(error, TimeoutError) and limit.expired():
                came = f"{self.patience:g} seconds of waiting for the {self.name}"
                raise Crowded(came, "a line that moves", advice="Ask again later.") from None
            raise

    def _leave(self) -> None:
        with self._lock:
            while self._waiters:
                following = self._waiters.popleft()
                if following.set_running_or_notify_cancel():
                    following.set_result(None)
                    return
            self._free += 1


def _nothing() -> Future[object]:
    done: Future[object] = Future()
    done.set_result(None)
    return done


@dataclass(eq=False)
class Turn:
    """A free thread, and the sign by which its work is told to stop."""

    name: str
    threads: ThreadPoolExecutor
    stop: Event = field(default_factory=Event)
    job: Future[object] = field(default_factory=_nothing)

    async def run(self, work: Work[Found], seconds: float) -> Found:
        job = self.threads.submit(work, self.stop)
        self.job = job  # type: ignore[assignment]  # a future of one thing is also a future of an object
        try:
            async with asyncio.timeout(seconds) as limit:
                return await asyncio.wrap_future(job)
        except TimeoutError:
            if not limit.expired():
                raise
            advice = "A shorter text takes less time."
            came = f"more than {seconds:g} seconds of work for the {self.name}"
            raise TooLong(came, "less", advice=advice) from None
