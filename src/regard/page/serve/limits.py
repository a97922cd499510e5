"""The limits of the server, as numbers: sizes, counts and times of requests, records and computations.

queue.py holds to how many run and wait at once, middleware.py to the sizes of bodies, server.py to connections,
service.py to texts and tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from regard.errors import SettingError

MAY_BE_ZERO = ("waiting_looks", "waiting_tiles", "waiting_downloads", "cached_bytes")


@dataclass(frozen=True)
class Limits:
    """Sizes are in bytes, times in seconds; "waiting": requests in a queue, besides the running ones."""

    characters: int = 20_000  # of each text
    prefix: int = 4096  # tokens at the start of a generated text
    changes: int = 16  # of heads in one intervention
    edits: int = 64  # keys of an edited row
    body_bytes: int = 2**18
    body_seconds: float = 10.0  # for a body to arrive
    head_seconds: float = 10.0  # for the head of a request to arrive, once its connection is open
    stall_seconds: float = 20.0  # that a client may stop reading
    looks: int = 1  # at once
    waiting_looks: int = 8
    look_seconds: float = 60.0
    tiles: int = 2  # at once: tiles, rows and pairs
    waiting_tiles: int = 256
    tile_seconds: float = 30.0
    downloads: int = 2  # at once: payloads and files, until they are sent
    waiting_downloads: int = 32
    download_seconds: float = 60.0  # to make one
    waiting_seconds: float = 120.0  # in any queue
    connections: int = 256
    cells: int = 1024  # rows of a tile, and columns
    exact: int = 2048 * 2048  # weights under an exact tile; a larger one is an estimate
    payload_bytes: int = 2**25  # of the tensors of maps; for more, the page requests tiles
    records: int = 32  # made by requests to look
    record_bytes: int = 2**30  # of all of them
    cached_bytes: int = 2**26  # of cached responses

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 0 or (value == 0 and field.name not in MAY_BE_ZERO):
                raise SettingError(f"{field.name}={value}", "a positive number", where="Limits")
