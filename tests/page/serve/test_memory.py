"""Memory stays flat over many looks: what a look leaves behind is bounded by the stores of records and responses."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from page.small import classifying
from regard.page.serve import Limits
from regard.page.serve.service import Service
from regard.page.tiles import TileBounds

WORDS = "the black cat sleeps on old chair . a dog hit me".split()
PAGE = 4096  # bytes


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


async def look(service: Service, number: int) -> None:
    """A look, and what a page asks for after it."""
    text = " ".join(WORDS[(number + at) % len(WORDS)] for at in range(4 + number % 9))
    name = await service.look("classifier", text, None, None)
    await service.row(name, 0, 0, 0)
    await service.tile(name, 1, number % 4, TileBounds(0, 4, 0, 4, 2, 2))
    await service.downloads.run(service.payload(name), 60)


async def growth_per_look(warm: int, count: int) -> float:
    """Bytes of memory that each of `count` looks adds, after some that fill the stores."""
    service = Service([classifying()], {}, Limits(records=8, cached_bytes=2**18))
    for number in range(warm):
        await look(service, number)
    before = resident()
    for number in range(count):
        await look(service, number)
    after = resident()
    assert len(service.records.made) <= 8 and service.cache.bytes <= 2**18
    service.close()
    return (after - before) / count


def test_memory_is_flat_over_some_looks() -> None:
    assert asyncio.run(growth_per_look(100, 200)) < 10_000  # a record that stays is four times that


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_memory_is_flat_over_many_looks() -> None:
    """What leaks 200 bytes a look would fail."""
    assert asyncio.run(growth_per_look(2_000, 20_000)) < 200
