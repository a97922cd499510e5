"""Preparing the next few values in a thread while the present one is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from queue import Empty, Queue
from threading import Event, Thread
from typing import Generic, TypeVar

T = TypeVar("T")


def prefetch(make: Callable[[int], T], numbers: Iterable[int], ahead: int) -> Iterator[T]:
    """make(n) for each n in order, up to `ahead` of them made before they are asked for.

    An error of `make` is raised here, in its turn. The thread starts with the first value asked for, and ends when the
    iterator does, is closed, or is dropped.
    """
    ready: Queue[_Made[T] | None] = Queue(maxsize=max(1, ahead - 1))  # one more waits in the thread's hand
    stop = Event()
    thread = Thread(target=_work, args=(make, numbers, ready, stop), name="regard-prefetch", daemon=True)
    thread.start()
    try:
        while (made := ready.get()) is not None:
            yield made.value()
    finally:
        stop.set()
        while thread.is_alive():
            _drain(ready)
            thread.join(0.01)


class _Made(Generic[T]):
    """A value, or the error that stands in its place."""

    def __init__(self, make: Callable[[int], T], number: int) -> None:
        self.result: T | None = None
        self.error: BaseException | None = None
        try:
            self.result = make(number)
        except BaseException as error:  # noqa: BLE001  it is raised again, in the thread of whoever asked
            self.error = error

    def value(self) -> T:
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


def _work(make: Callable[[int], T], numbers: Iterable[int], ready: Queue[_Made[T] | None], stop: Event) -> None:
    for number in numbers:
        if stop.is_set():
            return
        made = _Made(make, number)
        ready.put(made)  # whoever stops us drains the queue, so this never waits for ever
        if made.error is not None:
            return
    ready.put(None)


def _drain(ready: Queue[_Made[T] | None]) -> None:
    try:
        while True:
            ready.get_nowait()
    except Empty:
        return
