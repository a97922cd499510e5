"""What the page needs of a record, in as few bytes as will do.

Deflated, little-endian: 8 bytes (b"regard" and a version of two bytes), 4 bytes with the size of a JSON head, the head,
then the numbers, each tensor at an offset that is a multiple of 8, counted from the end of the head as it is padded.
What the page can compute from the maps, such as the largest weights of a query, is left out where they are kept.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attention import cells
from regard.inspection import Place, Record

MAGIC = b"regard\x01\x00"
SIDE = 64  # rows and columns of a thumbnail where the map itself is there
FAR_SIDE = 128  # and where tiles of it have to be asked for
LEVEL = 1  # of deflating: more gains a thousandth, for most of the numbers are noise
DTYPES = {torch.float32: "float32", torch.int16: "int16", torch.int32: "int32", torch.uint8: "uint8"}

COMPUTED = {"top_values", "top_indices", "entropy", "received"}
MAPS = {
    "queries",
    "queries_scale",
    "keys",
    "keys_scale",
    "keys_centre",
    "first",
    "last",
    "sight",
    "added",
    "centre",
    "lse",
    "asks",
    "asks_scale",
    "sends",
    "sends_scale",
}


def payload(record: Record, most: int | None = None) -> bytes:
    """The bytes that the page reads.

    `most`: where the numbers that maps come from take more bytes than this, they are left out, and the page asks the
    server for tiles; its head says {"remote": true}.
    """
    remote = most is not None and sum(map(_map_bytes, record.places)) > most
    side = FAR_SIDE if remote else SIDE
    record = replace(record, places=tuple(_with_small_thumbnails(place, side) for place in record.places))
    chosen: dict[str, Tensor] = {}
    for name, tensor in record.tensors().items():
        number, _, own = name.partition(".")
        if not _needless(record.places[int(number)], own):
            chosen[name] = _rounded(tensor) if own == "value_norms" else tensor
    if remote:
        chosen = {name: tensor for name, tensor in chosen.items() if not _of_maps(name)}
    told = {**record.told(), "remote": remote}
    return _packed(told, chosen)


def unpacked(content: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The head and the numbers, as the page sees them."""
    plain = zlib.decompress(content)
    if plain[: len(MAGIC)] != MAGIC:
        raise ValueError("no payload of this version")
    (size,) = struct.unpack_from("<I", plain, len(MAGIC))
    start = len(MAGIC) + 4
    head = json.loads(plain[start : start + size])
    start += size
    found = {}
    for name, how in head["tensors"].items():
        dtype = np.dtype(how["dtype"]).newbyteorder("<")
        count = math.prod(how["shape"])
        flat = np.frombuffer(plain, np.uint8, count * dtype.itemsize, start + how["offset"])
        if how["planes"]:
            flat = np.ascontiguousarray(flat.reshape(dtype.itemsize, -1).T)
        found[name] = flat.view(dtype).reshape(how["shape"])
    return head["told"], found


def _map_bytes(place: Place) -> int:
    """About how many bytes the maps of a place come from."""
    kept, slopes = place.kept, place.slopes
    fixed = [] if kept is None else [kept.queries, kept.keys, *([] if slopes is None else [slopes.asks, slopes.sends])]
    return sum(one.steps.nbytes for one in fixed)


def _needless(place: Place, name: str) -> bool:
    whole = place.kept is not None and len(place.kept.heads) == place.heads
    return whole and name in COMPUTED


def _with_small_thumbnails(place: Place, side: int) -> Place:
    """(H, R, C) no larger than the eye needs before the first tile is there: means over the tokens of each cell."""
    thumbnail = place.statistics.thumbnail
    if place.kept is None or thumbnail is None:
        return place
    for dim, tokens in ((1, place.T), (2, place.S)):
        size = thumbnail.size(dim)
        if size > side:
            edges = -(-torch.arange(size + 1) * tokens // size)  # the first token of every cell
            share = cells(size, side, thumbnail) * edges.diff()
            share = share / share.sum(-1, keepdim=True)
            thumbnail = torch.tensordot(thumbnail, share, dims=([dim], [1])).movedim(-1, dim)
    return replace(place, statistics=replace(place.statistics, thumbnail=thumbnail))


def _rounded(x: Tensor) -> Tensor:
    """To 12 bits after the leading one, which deflate to half: nobody sees a ten-thousandth of a length."""
    return ((x.contiguous().view(torch.int32) + 2**10) & -(2**11)).view(torch.float32)


def _of_maps(name: str) -> bool:
    return name.partition(".")[2] in MAPS


def _packed(told: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bytes:
    table, parts, offset = {}, [], 0
    for name, tensor in tensors.items():
        planes = tensor.dtype == torch.int16
        numbers = np.ascontiguousarray(tensor.numpy())
        numbers = numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)
        if planes:  # high bytes are alike, low ones are not: apart, the high ones deflate
            numbers = np.ascontiguousarray(numbers.reshape(-1).view(np.uint8).reshape(-1, 2).T)
        content = numbers.tobytes()
        table[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "offset": offset, "planes": planes}
        padding = -len(content) % 8
        parts += [content, bytes(padding)]
        offset += len(content) + padding
    head = json.dumps({"told": finite(told), "tensors": table}, separators=(",", ":"), allow_nan=False).encode("ascii")
    head += b" " * (-(len(MAGIC) + 4 + len(head)) % 8)
    deflate = zlib.compressobj(LEVEL)
    pieces = [deflate.compress(piece) for piece in (MAGIC, struct.pack("<I", len(head)), head, *parts)]
    return b"".join([*pieces, deflate.flush()])


def finite(value: Any) -> Any:
    """As strict JSON takes it, which knows no infinity: null where a number is none."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return value
