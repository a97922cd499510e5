"""Process tuning for long computations: OpenMP threads that yield, and an allocator that keeps freed memory."""

from __future__ import annotations

import ctypes
import os
import sys

_MMAP_THRESHOLD, _TRIM_THRESHOLD, _TOP_PAD = -3, -1, -2  # mallopt's names for what follows
_LARGEST = 32 * 2**20  # the largest block that glibc agrees to take from its own heap
_USER_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def prepare_machine() -> None:
    """Call this before torch is loaded.

    Waiting OpenMP threads then yield their core soon: two trainings at once are twice as slow, not many times. A single
    one is as fast as before (benchmarks/RESULTS.md).
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    keep_freed_memory()


def keep_freed_memory() -> bool:
    """Make glibc keep freed memory, unless the user has configured its allocator; whether it does.

    By default glibc returns every large block to the system and gets it back zeroed, page by page, at the next step: a
    quarter of the time of a small model's step.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _USER_SETTINGS):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return False
    settings = ((_MMAP_THRESHOLD, _LARGEST), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 2 * _LARGEST))
    granted = [mallopt(which, value) == 1 for which, value in settings]
    return all(granted)
