"""What a process that computes for long asks of its machine: threads that yield, and memory that stays."""

from __future__ import annotations

import ctypes
import os
import sys

_MMAP_THRESHOLD, _TRIM_THRESHOLD, _TOP_PAD = -3, -1, -2  # mallopt's names for what follows
_LARGEST = 32 * 2**20  # the largest block that glibc agrees to take from its own heap
_OWN_WORD = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def prepare_machine() -> None:
    """To be called before torch is loaded.

    Threads that wait give their core away soon: two trainings at once are then twice as slow, not many times. OpenMP
    reads it when torch is loaded. Alone on the machine it makes no difference (benchmarks/RESULTS.md).
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    keep_freed_memory()


def keep_freed_memory() -> bool:
    """Let the process keep what it frees, where there is glibc and nobody has set its allocator; whether it does.

    glibc gives every large block back to the system and fetches it anew, page by page, zeroed, when the next step wants
    it: a quarter of the time of a small model's step.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _OWN_WORD):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return False
    wishes = ((_MMAP_THRESHOLD, _LARGEST), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 2 * _LARGEST))
    granted = [mallopt(which, value) == 1 for which, value in wishes]
    return all(granted)
