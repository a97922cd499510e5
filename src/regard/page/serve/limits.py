"""How much the server takes on: every bound that a client can meet, in one place."""

from __future__ import annotations

from dataclasses import dataclass, fields

from regard.errors import SettingError

MAY_BE_NOUGHT = ("waiting_looks", "waiting_tiles", "waiting_downloads", "cached_bytes")


@dataclass(frozen=True)
class Limits:
    """Sizes are bytes, times are seconds; "waiting" are those in a queue beyond the ones at work."""

    characters: int = 20_000  # of each text
    prefix: int = 4096  # tokens that a writing can be made to begin with
    changes: int = 16  # of heads, in one intervention
    edits: int = 64  # keys of a row that is changed
    body_bytes: int = 2**18
    body_seconds: float = 10.0  # for a body to arrive
    head_seconds: float = 10.0  # for the head of a request to arrive, once its connection is open
    stall_seconds: float = 20.0  # that a client may take before reading on
    looks: int = 1  # at once
    waiting_looks: int = 8
    look_seconds: float = 60.0
    tiles: int = 2  # at once: tiles, rows and pairs
    waiting_tiles: int = 256
    tile_seconds: float = 30.0
    downloads: int = 2  # at once: payloads and files, until they have been sent
    waiting_downloads: int = 32
    download_seconds: float = 60.0  # to make one
    waiting_seconds: float = 120.0  # in any queue
    connections: int = 256
    cells: int = 1024  # rows of a tile, and columns
    exact: int = 2048 * 2048  # weights under a tile; beyond them it is an estimate
    payload_bytes: int = 2**25  # that maps come from; of more, the page asks for tiles
    records: int = 32  # that looks have made
    record_bytes: int = 2**30  # of them all
    cached_bytes: int = 2**26  # of answers that may be asked for again

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 0 or (value == 0 and field.name not in MAY_BE_NOUGHT):
                raise SettingError(f"{field.name}={value}", "more than 0", where="Limits")
