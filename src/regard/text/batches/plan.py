"""Batch plans, collators, and the resumable iterator over batches with prefetching: Batches.

A plan and a collator are pure functions of an Epoch, so a position in the data is three numbers: seed, epoch, batch.
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
Batch_co = TypeVar("Batch_co", bound=Batch, covariant=True)


class BatchPlan(Protocol):
    """The global batches of an epoch, as a PyTorch batch sampler has them: each an array of rows, which are example
    numbers or tuples. A pure function of the epoch."""

    @property
    def fingerprint(self) -> str: ...

    def __call__(self, epoch: Epoch) -> Sequence[np.ndarray]: ...


class Collator(Protocol[Batch_co]):
    """Makes a batch of some rows of a plan, as a PyTorch collate_fn. A row does not depend on the other rows; no rows
    make a batch of no rows, one position wide."""

    @property
    def fingerprint(self) -> str: ...

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> Batch_co: ...

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        """The number of targets in these rows, without making the batch."""


class Batches(Generic[B]):
    """A resumable iterable of batches: iterating yields the rest of the current epoch and moves on to the next one.

    >>> collate = TranslationCollator(columns, tokenizer.special)
    >>> batches = Batches(Buckets(collate.lengths, budget=4096), collate, seed=1, rank=0, ranks=2)
    >>> for batch in batches: ...                  # epoch 0
    >>> for batch in batches: ...                  # epoch 1
    >>> state = batches.state_dict()               # after any batch; the same on every rank

    Rank r takes rows r::ranks of each global batch, perhaps none (then len(batch) is 0, so that all ranks make the
    same steps). `prefetch`: how many batches a thread prepares in advance; the batches do not depend on it.
    """

    def __init__(
        self, plan: BatchPlan, collate: Collator[B], seed: int = 0, rank: int = 0, ranks: int = 1, prefetch: int = 0
    ) -> None:
        _check_match(plan, collate)
        if not 0 <= rank < ranks:
            raise SettingError(f"rank={rank} of ranks={ranks}", "a rank from 0 to ranks - 1", where="Batches")
        if prefetch < 0:
            raise SettingError(f"prefetch={prefetch}", "0 batches or more to prepare in advance", where="Batches")
        self.plan, self.collate, self.rank, self.ranks, self.prefetch = plan, collate, rank, ranks, prefetch
        self._epoch, self._batch = Epoch(seed), 0
        self._planned: tuple[Epoch, Sequence[np.ndarray]] | None = None
        self._iterator: object = None  # the active one; an older one is refused

    @property
    def epoch(self) -> int:
        """The number of the current epoch, counted from 0."""
        return self._epoch.number

    def __len__(self) -> int:
        """The number of batches of the current epoch, those already yielded included; epochs may differ by a few."""
        return len(self._rows())

    def __iter__(self) -> Iterator[B]:
        iterator = self._iterator = object()
        return self._generate(iterator)

    def state_dict(self) -> dict[str, int | str]:
        """The position: the next batch to yield. Prefetched batches do not count."""
        return {
            "seed": self._epoch.seed,
            "epoch": self._epoch.number,
            "batch": self._batch,
            "plan": self.plan.fingerprint,
            "data": self.collate.fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, int | str]) -> None:
        """Restore the position of `state`, with any number of ranks, without making the batches before it."""
        own = self.state_dict()
        if set(state) != set(own):
            raise SettingError(f"the keys {sorted(state)}", f"{sorted(own)}", where="Batches.load_state_dict")
        for key, advice in STATE_ADVICE.items():
            if state[key] != own[key]:
                raise SettingError(
                    f"a state of {key} {state[key]}",
                    f"{key} {own[key]}",
                    where="Batches.load_state_dict",
                    advice=advice,
                )
        epoch, batch = Epoch(int(own["seed"]), int(state["epoch"])), int(state["batch"])
        planned = self._rows(epoch)
        if not 0 <= batch <= len(planned):
            raise SettingError(f"batch {batch}", f"0 to {len(planned)}", where="Batches.load_state_dict")
        self._epoch, self._batch, self._iterator = epoch, batch, None

    def _generate(self, iterator: object) -> Iterator[B]:
        epoch, planned = self._epoch, self._rows()
        batches = self._make_batches(planned, epoch)
        while self._is_active(iterator) and self._batch < len(planned):
            batch = next(batches)
            self._batch += 1
            yield batch
        self._epoch, self._batch = Epoch(epoch.seed, epoch.number + 1), 0

    def _is_active(self, iterator: object) -> bool:
        if self._iterator is iterator:
            return True
        raise SettingError(
            "This iterator is no longer valid: a later iter() or load_state_dict() has replaced it",
            where="Batches",
            advice="Call iter() again; it continues at the current position.",
        )

    def _make_batches(self, planned: Sequence[np.ndarray], epoch: Epoch) -> Iterator[B]:
        # a closure over plain values: the thread must not keep self alive
        collate, rank, ranks = self.collate, self.rank, self.ranks

        def make(number: int) -> B:
            rows = planned[number]
            if ranks == 1:
                return collate(rows, epoch)
            return replace(collate(rows[rank::ranks], epoch), all_tokens=collate.tokens(rows, epoch))

        numbers = range(self._batch, len(planned))
        return prefetch_values(make, numbers, self.prefetch) if self.prefetch else map(make, numbers)

    def _rows(self, epoch: Epoch | None = None) -> Sequence[np.ndarray]:
        """The plan of an epoch, the current one by default, made once."""
        epoch = epoch or self._epoch
        if self._planned is None or self._planned[0] != epoch:
            self._planned = (epoch, self.plan(epoch))
        return self._planned[1]


def _check_match(plan: object, collate: object) -> None:
    """Check that the plan and the collator were not swapped, and were made for the same stream and size."""
    if not hasattr(collate, "tokens") or hasattr(plan, "tokens"):
        given = f"plan {type(plan).__name__}, collate {type(collate).__name__}"
        expected = "a plan (such as Buckets), then a collator (such as TranslationCollator)"
        raise SettingError(given, expected, where="Batches")
    for name in ("stream", "size"):
        planned, collated = getattr(plan, name, None), getattr(collate, name, None)
        if planned is not None and collated is not None and planned is not collated and planned != collated:
            names = f"{type(plan).__name__} and {type(collate).__name__}"
            raise SettingError(f"{names} have a different {name}", where="Batches", advice=f"Use one {name} for both.")


STATE_ADVICE = {
    "seed": "Make the Batches with the seed of the saved state.",
    "plan": "The state belongs to other lengths, or to other settings of the plan (budget, rows, size).",
    "data": "The state belongs to other data, or to other settings of the collator.",
}


class LazySequence(Sequence[np.ndarray]):
    """A sequence whose entries are computed on access, for plans that do not fit in memory."""

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


SAMPLE_SIZE = 4096  # evenly spaced entries of an array that enter its fingerprint


def fingerprint(*parts: np.ndarray | str | int | float | None) -> str:
    """A short hash of settings and arrays, the same on every machine; large arrays are sampled."""
    digest = blake2b(digest_size=8)
    for part in parts:
        if isinstance(part, np.ndarray):
            flat = part.reshape(-1)
            sample = flat[:: max(1, len(flat) // SAMPLE_SIZE)]
            digest.update(repr(part.shape).encode() + np.ascontiguousarray(sample, dtype="<i8").tobytes())
        else:
            digest.update(f"{type(part).__name__} {part!r};".encode())
    return digest.hexdigest()


T = TypeVar("T")


def prefetch_values(make: Callable[[int], T], numbers: Iterable[int], depth: int) -> Iterator[T]:
    """Prefetching: make(n) for each n in order, up to `depth` of them in advance, in a thread.

    An error of `make` is raised here, in its turn. The thread starts with the first value requested, and ends when the
    iterator is exhausted, closed or dropped.
    """
    ready: Queue[_Result[T] | None] = Queue(maxsize=max(1, depth - 1))  # the thread holds one more
    stop = Event()
    thread = Thread(target=_produce, args=(make, numbers, ready, stop), name="regard-prefetch", daemon=True)
    thread.start()
    try:
        while (made := ready.get()) is not None:
            yield made.value()
    finally:
        stop.set()
        while thread.is_alive():
            _drain(ready)
            thread.join(0.01)


class _Result(Generic[T]):
    """A value, or the error raised instead."""

    def __init__(self, make: Callable[[int], T], number: int) -> None:
        self.result: T | None = None
        self.error: BaseException | None = None
        try:
            self.result = make(number)
        except BaseException as error:  # noqa: BLE001  raised again in the consumer's thread
            self.error = error

    def value(self) -> T:
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


def _produce(make: Callable[[int], T], numbers: Iterable[int], ready: Queue[_Result[T] | None], stop: Event) -> None:
    for number in numbers:
        if stop.is_set():
            return
        made = _Result(make, number)
        ready.put(made)  # the consumer drains the queue when it stops, so this cannot block for ever
        if made.error is not None:
            return
    ready.put(None)


def _drain(ready: Queue[_Result[T] | None]) -> None:
    try:
        while True:
            ready.get_nowait()
    except Empty:
        return
