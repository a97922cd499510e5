"""PNG files made by hand, of any kind that the format has: for tests of readers."""

import struct
import zlib

import numpy as np

GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def header(width: int, height: int, depth: int, kind: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0))


def png(samples: np.ndarray, depth: int, kind: int, *extra: tuple[bytes, bytes]) -> bytes:
    """A PNG of samples (H, W, channels) of `depth` bits, with these chunks before the pixels."""
    height, width = samples.shape[:2]
    flat = samples.reshape(height, width * CHANNELS[kind])
    rows = []
    for row in flat:
        if depth == 16:
            rows.append(b"\0" + row.astype(">u2").tobytes())
        else:
            bits = np.unpackbits(row.astype(np.uint8)[:, None], axis=1)[:, 8 - depth :]
            rows.append(b"\0" + np.packbits(bits.ravel()).tobytes())
    body = b"".join(chunk(*one) for one in extra) + chunk(b"IDAT", zlib.compress(b"".join(rows)))
    return header(width, height, depth, kind) + body + chunk(b"IEND", b"")
