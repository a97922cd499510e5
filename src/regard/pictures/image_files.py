"""Read image files, PNG, JPEG and WebP, into RGB pixels: right, or refused in a sentence, in bounded memory.

- The size in the header is checked before anything is decoded; a file is read up to a limit.
- EXIF orientation is applied. Transparency is blended onto white. CMYK becomes RGB without a colour profile; other
  profiles are ignored.
- Samples of 16 bits keep their high byte: 65535 becomes 255.
- Of an animation (animated PNG or WebP) the first frame is read.
"""

from __future__ import annotations

import io
import os
import struct
import warnings
import zlib
from threading import Lock
from typing import Any, Literal

import numpy as np
from PIL import Image, ImageFile

from regard.bounded_files import read_bytes
from regard.errors import CorpusError, SettingError, unknown

MAX_PIXELS = 64_000_000  # of an image; below Pillow's own limits, at which it only warns
MAX_FILE_BYTES = 256 << 20  # of an image file
FORMATS = ("PNG", "JPEG", "WEBP")
ENDINGS = (".png", ".jpg", ".jpeg", ".webp")
SIGNATURES = {  # of files that people take for images that we read
    b"GIF8": "a GIF image",
    b"BM": "a BMP image",
    b"II*\x00": "a TIFF image",
    b"MM\x00*": "a TIFF image",
    b"%PDF": "a PDF document",
    b"<svg": "an SVG drawing",
    b"<?xm": "an XML document",
    b"<!DO": "a web page",
    b"<htm": "a web page",
    b"\x1f\x8b": "a gzip archive",
    b"PK\x03\x04": "a ZIP archive",
    b"vers": "a Git LFS pointer",
}
BLOCK_PIXELS = 1 << 22  # blended onto white at once
INFLATED = 1 << 20  # bytes of a PNG inflated at once, when they are counted
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_DECODE_ERRORS = (  # whatever Pillow's decoders raise for damaged files
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    EOFError,
    RuntimeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
_WARNINGS = Lock()  # filters of warnings belong to the process

Fit = Literal["crop", "stretch"]


def read_image(path: str | os.PathLike[str], at_least: int | None = None) -> np.ndarray:
    """The pixels of an image file: uint8 (H, W, 3), RGB. Raises CorpusError where the file cannot be read.

    `at_least`: the shorter side that is needed: large JPEG files are then decoded at a half, a quarter or an eighth of
    their size, several times faster, as long as both sides keep so many pixels.
    """
    where = f"{os.fspath(path)}"
    try:
        content = read_bytes(path, CorpusError, MAX_FILE_BYTES)
    except FileNotFoundError as error:
        raise CorpusError("File not found", where=where) from error
    except IsADirectoryError as error:
        raise CorpusError("a folder", "an image file", where=where) from error
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise CorpusError(f"Could not open the file: {getattr(error, 'strerror', error)}", where=where) from error
    return decode_image(content, where, at_least)


def decode_image(content: bytes, where: str, at_least: int | None = None) -> np.ndarray:
    """The pixels of an image file with this content; `where` names it in errors."""
    if not content:
        raise CorpusError("The file is empty", where=where)
    if (size := _header_size(content)) is not None:  # Pillow allocates a WebP when it opens the file
        _expect_bounded(size, where)
    try:
        with _WARNINGS, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(content), formats=FORMATS)
    except Image.DecompressionBombError as error:
        raise CorpusError(f"The image has more than {MAX_PIXELS:,} pixels", where=where) from error
    except _DECODE_ERRORS as error:
        raise CorpusError(_not_an_image(content), where=where, advice="Convert it to PNG, JPEG or WebP.") from error
    with image:
        _expect_bounded(image.size, where)
        try:
            return _pixels(image, content, where, at_least)
        except _DECODE_ERRORS as error:
            if isinstance(error, CorpusError):
                raise
            raise CorpusError(
                f"The {image.format} image is damaged or truncated ({str(error) or type(error).__name__})",
                where=where,
                advice="Copy or download it again.",
            ) from error


def resize_image(pixels: np.ndarray, size: int, fit: Fit = "crop") -> np.ndarray:
    """An image as a square of `size` pixels, antialiased (bilinear filter over the source pixels that each one covers).

    `crop`: the largest square in the middle is kept. `stretch`: everything is, whatever the proportions.
    """
    if size < 1:
        raise SettingError(f"size={size}", "1 pixel or more", where="resize_image")
    height, width = pixels.shape[:2]
    if fit == "stretch":
        return resize_box(pixels, (0, 0, width, height), size)
    if fit != "crop":
        raise unknown(fit, ("crop", "stretch"), kind="value of fit", where="resize_image")
    side = min(height, width)
    left, top = (width - side) / 2, (height - side) / 2
    return resize_box(pixels, (left, top, left + side, top + side), size)


def resize_box(pixels: np.ndarray, box: tuple[float, float, float, float], size: int) -> np.ndarray:
    """The part of an image within a box (left, top, right, bottom) as a square of `size` pixels.

    The filter reaches a little beyond the box, so that a crop of a small image is the middle of the small image.
    """
    image = Image.fromarray(pixels)
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box)).copy()


def _expect_bounded(size: tuple[int, int], where: str) -> None:
    width, height = size
    if width * height > MAX_PIXELS:
        raise CorpusError(f"an image of {width:,} x {height:,} pixels", f"at most {MAX_PIXELS:,} in all", where=where)
    if not width * height:
        raise CorpusError("The image has no pixels", where=where)


def _not_an_image(content: bytes) -> str:
    start = content[:64].lstrip()
    kind = next((kind for sign, kind in SIGNATURES.items() if start.startswith(sign)), None)
    if kind is None and content[4:8] == b"ftyp":
        kind = "a HEIC, AVIF or MP4 file"
    return f"This is {kind}, not a PNG, JPEG or WebP image" if kind else "This is not a PNG, JPEG or WebP image"


def _header_size(content: bytes) -> tuple[int, int] | None:
    """(width, height) in the header of a PNG or WebP file; None for others, and for headers that will be refused."""
    if content[:8] == b"\x89PNG\r\n\x1a\n" and len(content) >= 24:
        return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")
    if content[:4] != b"RIFF" or content[8:12] != b"WEBP" or len(content) < 30:
        return None
    kind, data = content[12:16], content[20:30]
    if kind == b"VP8X":
        return int.from_bytes(data[4:7], "little") + 1, int.from_bytes(data[7:10], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(data[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        return int.from_bytes(data[6:8], "little") & 0x3FFF, int.from_bytes(data[8:10], "little") & 0x3FFF
    return None


def _pixels(image: ImageFile.ImageFile, content: bytes, where: str, at_least: int | None) -> np.ndarray:
    """Decode an image whose header was read."""
    if image.format == "PNG":
        _expect_sound_png(content, where)
    rawmode = str(image.tile[0][3]) if image.tile and image.format == "PNG" else ""
    if at_least is not None and image.format == "JPEG":
        image.draft(None, (at_least, at_least))
    image.load()
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        orientation = image.getexif().get(0x0112, 1)
    pixels = _rgb(image, rawmode, where)
    return np.ascontiguousarray(_turned(pixels, orientation))


def _rgb(image: Image.Image, rawmode: str, where: str) -> np.ndarray:
    """The decoded samples as RGB, with transparency blended onto white."""
    clear = image.info.get("transparency")  # of a PNG: one value that is transparent, or one opacity a palette entry
    if image.mode in ("1", "L", "I;16", "I"):
        samples = np.asarray(image)
        grey = np.where(samples, 255, 0) if image.mode == "1" else samples
        if image.mode in ("I;16", "I"):
            grey = samples >> 8
        if isinstance(clear, int):
            steps = {"L;2": 85, "L;4": 17}.get(rawmode, 1)  # Pillow scales such samples, but not the transparent value
            grey = np.where(samples == (clear > 0 if image.mode == "1" else clear * steps), 255, grey)
        return np.repeat(grey.astype(np.uint8)[:, :, None], 3, axis=2)
    if image.mode == "RGB" and clear is not None and rawmode == "RGB;16B":
        raise CorpusError("A transparent colour in a PNG of 16 bits is not supported", where=where)
    if image.mode == "RGB" and isinstance(clear, tuple):
        pixels = np.array(image)
        pixels[(pixels == np.array(clear)).all(2)] = 255
        return pixels
    if image.mode in ("LA", "RGBA") or (image.mode == "P" and clear is not None):
        return _onto_white(image if image.mode == "RGBA" else image.convert("RGBA"))
    if image.mode in ("P", "RGB", "CMYK"):
        return np.array(image if image.mode == "RGB" else image.convert("RGB"))
    raise CorpusError(f"Images of mode {image.mode} are not supported", where=where, advice="Save it as RGB.")


def _onto_white(image: Image.Image) -> np.ndarray:
    """Blend onto white, some rows at a time."""
    width, height = image.size
    pixels = np.empty((height, width, 3), np.uint8)
    step = max(1, BLOCK_PIXELS // width)
    for top in range(0, height, step):
        rows = np.asarray(image.crop((0, top, width, min(top + step, height)))).astype(np.uint16)
        colour, alpha = rows[:, :, :3], rows[:, :, 3:]
        pixels[top : top + step] = (colour * alpha + 255 * (255 - alpha) + 127) // 255
    return pixels


def _turned(pixels: np.ndarray, orientation: object) -> np.ndarray:
    """Apply an EXIF orientation, 1 to 8; others mean nothing."""
    turns = {
        2: lambda seen: seen[:, ::-1],
        3: lambda seen: seen[::-1, ::-1],
        4: lambda seen: seen[::-1],
        5: lambda seen: seen.transpose(1, 0, 2),
        6: lambda seen: seen.transpose(1, 0, 2)[:, ::-1],
        7: lambda seen: seen[::-1, ::-1].transpose(1, 0, 2),
        8: lambda seen: seen.transpose(1, 0, 2)[::-1],
    }
    turn = turns.get(orientation) if isinstance(orientation, int) else None
    return pixels if turn is None else turn(pixels)


def _expect_sound_png(content: bytes, where: str) -> None:
    """Check what Pillow leaves unchecked in a PNG, and shows as wrong pixels: checksums, and rows that are missing."""
    view, at, wanted = memoryview(content), 8, 0
    inflate = zlib.decompressobj()
    while at + 12 <= len(content):
        length = int.from_bytes(view[at : at + 4], "big")
        kind, end = bytes(view[at + 4 : at + 8]), at + 8 + length
        if end + 4 > len(content):
            return  # truncated, as the decoder will say
        if kind[:1].isupper() and zlib.crc32(view[at + 4 : end]) != int.from_bytes(view[end : end + 4], "big"):
            raise CorpusError(f"The PNG image is damaged: a wrong checksum of {kind.decode('latin-1')}", where=where)
        if kind == b"IHDR":
            wanted = _png_bytes(bytes(view[at + 8 : end]))
        elif kind == b"IDAT":
            wanted -= _inflated(inflate, view[at + 8 : end], wanted)
        elif kind == b"IEND":
            break
        at = end + 4
    if wanted > 0:
        raise CorpusError("The PNG image is damaged: some of its pixels are missing", where=where)


def _inflated(inflate: Any, data: memoryview, most: int) -> int:
    """How many bytes compressed data hold, at most about `most`; they are not kept."""
    found, rest = 0, bytes(data)
    while rest and found < most:
        found += len(inflate.decompress(rest, INFLATED))
        rest = inflate.unconsumed_tail
    return found


def _png_bytes(header: bytes) -> int:
    """The bytes of a PNG's rows before compression, each with a filter byte; in seven passes if it is interlaced."""
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    bits = depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}.get(kind, 1)
    passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
    total = 0
    for left, top, right, down in passes:
        columns, rows = -(-(width - left) // right), -(-(height - top) // down)
        total += rows * (1 + -(-columns * bits // 8)) if columns > 0 and rows > 0 else 0
    return total
