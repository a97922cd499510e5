"""Which rows go together and in which order (a plan), and the iterator that hands their batches out: Batches.

A plan and a collate are pure functions of an Epoch, so a position in the data is three numbers: seed, epoch, batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from queue import Empty, Queue
from threading import Event, Thread
from typing import Generic, Protocol, TypeVar, overload

import numpy as np

from regard.errors import SettingError
from regard.text.batches.batch import Batch
from regard.text.batches.seeded_rng import Epoch

B = TypeVar("B", bound=Batch)
Made = TypeVar("Made", bound=Batch, covariant=True)


class Plan(Protocol):
    """The global batches of an epoch, each an array whose first dimension is its rows: example numbers, or what else a
    row is made of. A pure function of the epoch."""

    @property
    def fingerprint(self) -> str: ...

    def __call__(self, epoch: Epoch) -> Sequence[np.ndarray]: ...


class Collate(Protocol[Made]):
    """Makes a batch of some rows of a plan. A row comes out the same whatever its neighbours are; no rows make a batch
    of no rows, one position wide."""

    @property
    def fingerprint(self) -> str: ...

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> Made: ...

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        """How many tokens of these rows carry loss, without making the batch."""


class Batches(Generic[B]):
    """Iterate it: the batches of the rest of the current epoch; then it stands at the start of the next epoch.

    >>> collate = Translate(columns, tokenizer.special)
    >>> batches = Batches(Buckets(collate.lengths, budget=4096), collate, seed=1, rank=0, ranks=2)
    >>> for batch in batches: ...                  # epoch 0
    >>> for batch in batches: ...                  # epoch 1
    >>> state = batches.state_dict()               # after any batch; the same on every rank

    Rank r takes rows r::ranks of each global batch, perhaps none (then len(batch) is 0, so that all ranks make the
    same steps). `ahead`: how many batches a thread prepares in advance; nothing else changes by it.
    """

    def __init__(
        self, plan: Plan, collate: Collate[B], seed: int = 0, rank: int = 0, ranks: int = 1, ahead: int = 0
    ) -> None:
        _go_together(plan, collate)
        if not 0 <= rank < ranks:
            raise SettingError(f"rank={rank} of ranks={ranks}", "a rank from 0 to ranks - 1", where="Batches")
        if ahead < 0:
            raise SettingError(f"ahead={ahead}", "how many batches to prepare in advance, 0 or more", where="Batches")
        self.plan, self.collate, self.rank, self.ranks, self.ahead = plan, collate, rank, ranks, ahead
        self._epoch, self._batch = Epoch(seed), 0
        self._planned: tuple[Epoch, Sequence[np.ndarray]] | None = None
        self._iterator: object = None  # the one that hands out; an older one is refused

    @property
    def epoch(self) -> int:
        """The number of the current epoch, counted from 0."""
        return self._epoch.number

    def __len__(self) -> int:
        """How many batches the current epoch has, those already handed out included; epochs may differ by a few."""
        return len(self._rows())

    def __iter__(self) -> Iterator[B]:
        me = self._iterator = object()
        return self._hand_out(me)

    def state_dict(self) -> dict[str, int | str]:
        """Where we stand: the next batch to hand out. Batches prepared in advance do not count."""
        return {
            "seed": self._epoch.seed,
            "epoch": self._epoch.number,
            "batch": self._batch,
            "plan": self.plan.fingerprint,
            "data": self.collate.fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, int | str]) -> None:
        """Stand where `state` was taken, with any number of ranks; no batch before it is made."""
        mine = self.state_dict()
        if set(state) != set(mine):
            raise SettingError(f"the keys {sorted(state)}", f"{sorted(mine)}", where="Batches.load_state_dict")
        for key, advice in REFUSED.items():
            if state[key] != mine[key]:
                raise SettingError(
                    f"a state of {key} {state[key]}",
                    f"{key} {mine[key]}",
                    where="Batches.load_state_dict",
                    advice=advice,
                )
        epoch, batch = Epoch(int(mine["seed"]), int(state["epoch"])), int(state["batch"])
        planned = self._rows(epoch)
        if not 0 <= batch <= len(planned):
            raise SettingError(f"batch {batch}", f"0 to {len(planned)}", where="Batches.load_state_dict")
        self._epoch, self._batch, self._iterator = epoch, batch, None

    def _hand_out(self, me: object) -> Iterator[B]:
        epoch, planned = self._epoch, self._rows()
        made = self._made(planned, epoch)
        while self._mine(me) and self._batch < len(planned):
            batch = next(made)
            self._batch += 1
            yield batch
        self._epoch, self._batch = Epoch(epoch.seed, epoch.number + 1), 0

    def _mine(self, me: object) -> bool:
        if self._iterator is me:
            return True
        raise SettingError(
            "an iterator of Batches that another one, or load_state_dict, has overtaken",
            "one iterator at a time",
            where="Batches",
            advice="Call iter() again; it goes on where the batches stand.",
        )

    def _made(self, planned: Sequence[np.ndarray], epoch: Epoch) -> Iterator[B]:
        # a closure over plain values: the thread must not keep self alive
        collate, rank, ranks = self.collate, self.rank, self.ranks

        def make(number: int) -> B:
            rows = planned[number]
            if ranks == 1:
                return collate(rows, epoch)
            return replace(collate(rows[rank::ranks], epoch), all_tokens=collate.tokens(rows, epoch))

        numbers = range(self._batch, len(planned))
        return prefetch(make, numbers, self.ahead) if self.ahead else map(make, numbers)

    def _rows(self, epoch: Epoch | None = None) -> Sequence[np.ndarray]:
        """The plan of an epoch, the current one by default, made once."""
        epoch = epoch or self._epoch
        if self._planned is None or self._planned[0] != epoch:
            self._planned = (epoch, self.plan(epoch))
        return self._planned[1]


def _go_together(plan: object, collate: object) -> None:
    """Refuse a plan and a collate that were mixed up, or made for other streams or rows."""
    if not hasattr(collate, "tokens") or hasattr(plan, "tokens"):
        came = f"plan {type(plan).__name__}, collate {type(collate).__name__}"
        raise SettingError(came, "a plan (such as Buckets), then a collate (such as Translate)", where="Batches")
    for name in ("stream", "size"):
        planned, collated = getattr(plan, name, None), getattr(collate, name, None)
        if planned is not None and collated is not None and planned is not collated and planned != collated:
            came = f"{type(plan).__name__} and {type(collate).__name__} of another {name}"
            raise SettingError(came, f"one {name} for both", where="Batches")


REFUSED = {
    "seed": "Make the Batches with the seed of that run.",
    "plan": "The state belongs to other lengths, or to other settings of the plan (budget, rows, size).",
    "data": "The state belongs to other data, or to other settings of the collate.",
}


class Computed(Sequence[np.ndarray]):
    """A sequence whose entries are computed when asked for: plans too large to be held."""

    def __init__(self, length: int, entry: Callable[[int], np.ndarray]) -> None:
        self._length, self._entry = length, entry

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[np.ndarray]: ...
    def __getitem__(self, index: int | slice) -> np.ndarray | Sequence[np.ndarray]:
        if isinstance(index, slice):
            return [self._entry(number) for number in range(self._length)[index]]
        return self._entry(range(self._length)[index])


SAMPLE = 4096  # entries of an array that enter its fingerprint, evenly spaced


def fingerprint(*parts: np.ndarray | str | int | float | None) -> str:
    """A short name for settings and arrays: the same for the same ones, on every machine; large arrays are sampled."""
    digest = blake2b(digest_size=8)
    for part in parts:
        if isinstance(part, np.ndarray):
            flat = part.reshape(-1)
            sample = flat[:: max(1, len(flat) // SAMPLE)]
            digest.update(repr(part.shape).encode() + np.ascontiguousarray(sample, dtype="<i8").tobytes())
        else:
            digest.update(f"{type(part).__name__} {part!r};".encode())
    return digest.hexdigest()


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
