"""The payload of the page: what it needs of a record, in a compact binary format.

Deflated, little-endian: 8 bytes (b"regard" and a version of two bytes), 4 bytes with the size of a JSON header, the
header, then the tensors, each at an offset that is a multiple of 8, from the end of the padded header. What the page
can compute from stored maps, such as the largest weights of a query, is left out.
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

from regard.attention import cell_assignment
from regard.inspection import PlaceRecord, Record

MAGIC = b"regard\x01\x00"
THUMBNAIL_SIDE = 64  # rows and columns of a thumbnail whose map is in the payload
REMOTE_THUMBNAIL_SIDE = 128  # of one whose map stays on the server
DEFLATE_LEVEL = 1  # higher levels save only 0.1%: most of the numbers are noise
DTYPES = {torch.float32: "float32", torch.int16: "int16", torch.int32: "int32", torch.uint8: "uint8"}

RECOMPUTED = {"top_values", "top_indices", "entropy", "received"}
MAP_TENSORS = {
    "queries",
    "queries_scale",
    "keys",
    "keys_scale",
    "keys_centre",
    "first",
    "last",
    "mask",
    "bias",
    "bias_starts",
    "centre",
    "lse",
    "output_grads",
    "output_grads_scale",
    "values",
    "values_scale",
}


def pack_payload(record: Record, max_map_bytes: int | None = None) -> bytes:
    """The bytes that the page reads.

    `max_map_bytes`: where the tensors of the maps take more, they are left out, the header says {"remote": true}, and
    the page requests tiles from the server.
    """
    remote = max_map_bytes is not None and sum(map(_map_bytes, record.places)) > max_map_bytes
    side = REMOTE_THUMBNAIL_SIDE if remote else THUMBNAIL_SIDE
    record = replace(record, places=tuple(_with_small_thumbnails(place, side) for place in record.places))
    chosen: dict[str, Tensor] = {}
    for name, tensor in record.tensors().items():
        number, _, own = name.partition(".")
        if not _is_recomputed(record.places[int(number)], own):
            chosen[name] = _round_mantissa(tensor) if own == "value_norms" else tensor
    if remote:
        chosen = {name: tensor for name, tensor in chosen.items() if not _is_map_tensor(name)}
    info = {**record.to_dict(), "remote": remote}
    return _pack(info, chosen)


def unpack_payload(content: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the tensors, as the page reads them."""
    plain = zlib.decompress(content)
    if plain[: len(MAGIC)] != MAGIC:
        raise ValueError("not a payload of this version")
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
    return head["record"], found


def _map_bytes(place: PlaceRecord) -> int:
    """The size of the tensors from which the maps of a place are recomputed, approximately."""
    stored, grads = place.stored, place.stored_gradients
    found = [] if stored is None else [stored.queries, stored.keys]
    found += [] if grads is None else [grads.output_grads, grads.values]
    return sum(one.codes.nbytes for one in found)


def _is_recomputed(place: PlaceRecord, name: str) -> bool:
    all_heads = place.stored is not None and len(place.stored.heads) == place.heads
    return all_heads and name in RECOMPUTED


def _with_small_thumbnails(place: PlaceRecord, side: int) -> PlaceRecord:
    """The place with a thumbnail of at most side x side cells, which is shown until the first tile is computed."""
    thumbnail = place.statistics.thumbnail
    if place.stored is None or thumbnail is None:
        return place
    for dim, tokens in ((1, place.T), (2, place.S)):
        size = thumbnail.size(dim)
        if size > side:
            edges = -(-torch.arange(size + 1) * tokens // size)  # the first token of every cell
            share = cell_assignment(size, side, thumbnail) * edges.diff()
            share = share / share.sum(-1, keepdim=True)
            thumbnail = torch.tensordot(thumbnail, share, dims=([dim], [1])).movedim(-1, dim)
    return replace(place, statistics=replace(place.statistics, thumbnail=thumbnail))


def _round_mantissa(x: Tensor) -> Tensor:
    """Round the mantissa to 12 bits, so that the tensor deflates to half its size; the error is below 1e-4."""
    return ((x.contiguous().view(torch.int32) + 2**10) & -(2**11)).view(torch.float32)


def _is_map_tensor(name: str) -> bool:
    return name.partition(".")[2] in MAP_TENSORS


def _pack(info: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bytes:
    table, parts, offset = {}, [], 0
    for name, tensor in tensors.items():
        planes = tensor.dtype == torch.int16
        numbers = np.ascontiguousarray(tensor.numpy())
        numbers = numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)
        if planes:  # separate planes: the high bytes are similar and deflate well
            numbers = np.ascontiguousarray(numbers.reshape(-1).view(np.uint8).reshape(-1, 2).T)
        content = numbers.tobytes()
        table[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "offset": offset, "planes": planes}
        padding = -len(content) % 8
        parts += [content, bytes(padding)]
        offset += len(content) + padding
    head = json.dumps(
        {"record": finite_or_null(info), "tensors": table}, separators=(",", ":"), allow_nan=False
    ).encode("ascii")
    head += b" " * (-(len(MAGIC) + 4 + len(head)) % 8)
    deflate = zlib.compressobj(DEFLATE_LEVEL)
    pieces = [deflate.compress(piece) for piece in (MAGIC, struct.pack("<I", len(head)), head, *parts)]
    return b"".join([*pieces, deflate.flush()])


def finite_or_null(value: Any) -> Any:
    """For strict JSON: infinities and NaN become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite_or_null(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_null(one) for one in value]
    return value
