"""Image files: each kind is right to the pixel, or refused in a sentence with its name, in bounded memory."""

import io
import os
import resource
import struct
import subprocess
import sys
import warnings
import zlib
from pathlib import Path
from random import Random

import numpy as np
import pytest
from PIL import Image

from pictures.png import GREY, GREY_ALPHA, PALETTE, RGB, RGBA, chunk, header, png
from regard.errors import CorpusError, SettingError
from regard.pictures import decode_image, read_image, resize_box, resize_image

RNG = np.random.default_rng(11)
COLOURS = RNG.integers(0, 256, (5, 7, 3), np.uint8)
SMOOTH = np.add.outer(np.arange(40) * 3, np.arange(56) * 2)[:, :, None].astype(np.uint8) + np.array(
    [0, 10, 20], np.uint8
)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def grey(samples: np.ndarray) -> np.ndarray:
    return np.repeat(samples.reshape(*samples.shape[:2], 1).astype(np.uint8), 3, axis=2)


@pytest.fixture(autouse=True)
def _no_warnings():  # type: ignore[no-untyped-def]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
def test_grey_of_every_depth(depth: int) -> None:
    samples = RNG.integers(0, 2**depth, (5, 7, 1))
    samples[0, :2, 0] = 0, 2**depth - 1
    expected = grey(samples >> 8 if depth == 16 else samples * 255 // (2**depth - 1))
    assert (decode_image(png(samples, depth, GREY), "x") == expected).all()
    clear = int(samples[2, 3, 0])
    expected[samples[:, :, 0] == clear] = 255
    assert (decode_image(png(samples, depth, GREY, (b"tRNS", struct.pack(">H", clear))), "x") == expected).all()


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_palettes_with_and_without_transparency(depth: int) -> None:
    samples = RNG.integers(0, 2**depth, (5, 7, 1))
    palette = RNG.integers(0, 256, (2**depth, 3)).astype(np.uint8)
    table = (b"PLTE", palette.tobytes())
    assert (decode_image(png(samples, depth, PALETTE, table), "x") == palette[samples[:, :, 0]]).all()
    alpha = RNG.integers(0, 256, 2**depth).astype(np.uint8)
    blended = onto_white(palette, alpha[:, None])
    found = decode_image(png(samples, depth, PALETTE, table, (b"tRNS", alpha.tobytes())), "x")
    assert (found == blended[samples[:, :, 0]]).all()


def onto_white(colours: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    return np.rint((colours * alpha.astype(float) + 255.0 * (255.0 - alpha)) / 255).astype(np.uint8)


@pytest.mark.parametrize("depth", [8, 16])
@pytest.mark.parametrize("kind", [RGB, RGBA, GREY_ALPHA])
def test_colours_of_8_and_16_bits(depth: int, kind: int) -> None:
    channels = {RGB: 3, RGBA: 4, GREY_ALPHA: 2}[kind]
    samples = RNG.integers(0, 2**depth, (5, 7, channels))
    high = (samples >> (depth - 8)).astype(np.uint8)
    colours = np.repeat(high[:, :, :1], 3, axis=2) if kind == GREY_ALPHA else high[:, :, :3]
    expected = colours if kind == RGB else onto_white(colours, high[:, :, -1:])
    assert (decode_image(png(samples, depth, kind), "x") == expected).all()


def test_a_transparent_colour() -> None:
    clear = (b"tRNS", struct.pack(">HHH", *map(int, COLOURS[1, 2])))
    expected = COLOURS.copy()
    expected[(COLOURS[1, 2] == COLOURS).all(2)] = 255
    assert (decode_image(png(COLOURS, 8, RGB, clear), "x") == expected).all()
    with pytest.raises(CorpusError, match=r"^a\.png: A transparent colour in a PNG of 16 bits"):
        decode_image(png(COLOURS.astype(int) * 257, 16, RGB, (b"tRNS", bytes(6))), "a.png")


def test_interlaced_png() -> None:
    """Adam7, made by hand: seven small images, one after another."""
    starts = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
    for height, width in ((5, 7), (1, 1), (9, 2)):
        samples = RNG.integers(0, 256, (height, width, 3), np.uint8)
        passes = [samples[top::down, left::right] for left, top, right, down in starts]
        raw = b"".join(b"\0" + row.tobytes() for one in passes if one.size for row in one)
        head = struct.pack(">IIBBBBB", width, height, 8, RGB, 0, 0, 1)
        content = PNG[:8] + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
        assert (decode_image(content, "x") == samples).all()
        with pytest.raises(CorpusError, match="damaged"):
            decode_image(
                content.replace(chunk(b"IDAT", zlib.compress(raw)), chunk(b"IDAT", zlib.compress(raw[:-1]))), "x"
            )


def test_jpeg_and_webp_as_pillow_decodes_them() -> None:
    for kind, options in (("JPEG", {}), ("WEBP", {"lossless": True}), ("WEBP", {"quality": 50})):
        for mode in ("RGB", "L"):
            content = saved(Image.fromarray(SMOOTH).convert(mode), kind, **options)
            assert (decode_image(content, "x") == np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))).all()
    assert (decode_image(saved(Image.fromarray(COLOURS), "WEBP", lossless=True), "x") == COLOURS).all()


def test_webp_with_transparency() -> None:
    samples = np.dstack([COLOURS, RNG.integers(0, 256, (5, 7, 1), np.uint8)])
    content = saved(Image.fromarray(samples), "WEBP", lossless=True, exact=True)
    assert (decode_image(content, "x") == onto_white(COLOURS, samples[:, :, 3:])).all()


def test_cmyk() -> None:
    cmyk = Image.fromarray(SMOOTH).convert("CMYK")
    found = decode_image(saved(cmyk, "JPEG", quality=95), "x")
    assert np.abs(found.astype(int) - np.asarray(cmyk.convert("RGB"))).max() < 12


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(9))
def test_photographs_stand_upright(orientation: int, kind: str) -> None:
    upright = np.repeat(np.repeat(RNG.integers(0, 2, (3, 4, 1), np.uint8) * 255, 16, 0), 16, 1).repeat(3, 2)
    turned = {  # what a camera stores, by the standard's words for row 0 and column 0
        2: upright[:, ::-1],  # top, right
        3: upright[::-1, ::-1],  # bottom, right
        4: upright[::-1],  # bottom, left
        5: upright.transpose(1, 0, 2),  # left, top
        6: upright.transpose(1, 0, 2)[::-1],  # right, top
        7: upright[::-1, ::-1].transpose(1, 0, 2),  # right, bottom
        8: upright.transpose(1, 0, 2)[:, ::-1],  # left, bottom
    }.get(orientation, upright)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if kind == "WEBP" else {"quality": 95} if kind == "JPEG" else {}
    found = decode_image(saved(Image.fromarray(np.ascontiguousarray(turned)), kind, exif=exif, **options), "x")
    assert found.shape == upright.shape and found.flags.c_contiguous
    assert np.abs(found.astype(int) - upright).mean() < 3


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_the_first_frame_of_an_animation(kind: str) -> None:
    frames = [Image.fromarray(np.roll(COLOURS, at, 0)) for at in range(3)]
    content = saved(frames[0], kind, save_all=True, append_images=frames[1:], lossless=True)
    assert Image.open(io.BytesIO(content)).n_frames == 3  # type: ignore[attr-defined]
    assert (decode_image(content, "x") == COLOURS).all()


def test_large_photographs_are_decoded_smaller_on_request() -> None:
    content = saved(Image.fromarray(np.tile(SMOOTH, (16, 16, 1))), "JPEG")
    assert decode_image(content, "x").shape == (640, 896, 3)
    assert decode_image(content, "x", at_least=64).shape == (80, 112, 3)
    assert decode_image(content, "x", at_least=100).shape == (160, 224, 3)
    assert decode_image(png(COLOURS, 8, RGB), "x", at_least=2).shape == COLOURS.shape


PNG = png(np.tile(COLOURS, (20, 20, 1)), 8, RGB)
JPEG = saved(Image.fromarray(np.tile(SMOOTH, (3, 3, 1))), "JPEG")
WEBP = saved(Image.fromarray(np.tile(COLOURS, (20, 20, 1))), "WEBP", lossless=True)


def vp8x(width: int, height: int) -> bytes:
    body = b"VP8X" + struct.pack("<I", 10) + bytes(4)
    body += (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little") + bytes(20)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


HOSTILE = {
    "empty": (b"", "The file is empty"),
    "text": (b"hello, world\n" * 9, "This is not a PNG, JPEG or WebP image"),
    "zeros": (bytes(5000), "This is not a PNG, JPEG or WebP image"),
    "gif": (saved(Image.fromarray(SMOOTH), "GIF"), "This is a GIF image, not a PNG"),
    "tiff": (saved(Image.fromarray(SMOOTH), "TIFF"), "This is a TIFF image, not a PNG"),
    "bmp": (saved(Image.fromarray(SMOOTH), "BMP"), "This is a BMP image, not a PNG"),
    "html": (b"<!DOCTYPE html><title>404</title>", "This is a web page, not a PNG"),
    "heic": (b"\0\0\0\x18ftypheic" + bytes(99), "HEIC"),
    "signature": (PNG[:8], "not a PNG, JPEG or WebP image"),
    "huge-png": (header(50_000, 50_000, 8, RGB) + chunk(b"IDAT", b"x"), r"50,000 x 50,000 pixels, expected at most"),
    "huger-png": (header(2**31 - 1, 2**31 - 1, 16, RGBA), "pixels"),
    "large-png": (header(9_000, 9_000, 1, GREY) + chunk(b"IDAT", zlib.compress(bytes(10**6))), "9,000 x 9,000 pixels"),
    "no-png": (header(0, 0, 8, RGB) + chunk(b"IDAT", b""), "not a PNG|no pixels"),
    "huge-jpeg": (
        JPEG.replace(struct.pack(">HH", 120, 168), struct.pack(">HH", 50_000, 50_000)),
        "more than 64,000,000 pixels",
    ),
    "huge-webp": (vp8x(16_384, 16_384), "16,384 x 16,384 pixels"),
    "huger-webp": (vp8x(1 << 24, 1 << 24), "16,777,216 x 16,777,216 pixels"),
    "half-png": (PNG[: len(PNG) // 2], "The PNG image is damaged or truncated"),
    "few-rows": (header(10, 10, 8, GREY) + chunk(b"IDAT", zlib.compress(bytes(33))) + chunk(b"IEND", b""), "damaged"),
    "half-jpeg": (JPEG[: len(JPEG) // 2], "The JPEG image is damaged or truncated"),
    "half-webp": (WEBP[: len(WEBP) // 2], "WebP|WEBP"),
    "flipped": (PNG[:60] + bytes([PNG[60] ^ 4]) + PNG[61:], "damaged"),
    "odd-mode": (
        header(4, 4, 16, PALETTE) + chunk(b"IDAT", zlib.compress(bytes(40))),
        "not a PNG|damaged|not supported",
    ),
    "text-bomb": (
        header(4, 4, 8, GREY) + chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(64 << 20))) + chunk(b"IEND", b""),
        "not a PNG|damaged",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_a_sentence(name: str, tmp_path: Path) -> None:
    content, said = HOSTILE[name]
    path = tmp_path / f"{name}.png"
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=said) as caught:
        read_image(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ") and "\n" not in text and text.endswith(".")


def test_what_is_no_file_is_a_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.png")
    (tmp_path / "link.png").symlink_to(tmp_path / "fifo.png")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    for name, said in [
        ("fifo.png", "got a FIFO, expected a regular file"),
        ("link.png", "got a FIFO"),
        ("zero.png", "got a character device"),
        ("loop.png", "Could not open the file"),
        ("none.png", "File not found"),
        (".", "got a folder, expected an image file"),
        ("null\0.png", "Could not open the file"),
        ("a" * 300, "Could not open the file"),
    ]:
        with pytest.raises(CorpusError, match=said):
            read_image(tmp_path / name)


def test_overlong_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.pictures.image_files.MAX_FILE_BYTES", 200)
    (tmp_path / "a.png").write_bytes(PNG)
    with pytest.raises(CorpusError, match="a file of more than 200 bytes"):
        read_image(tmp_path / "a.png")


@pytest.mark.parametrize("name", ["PNG", "JPEG", "WEBP"])
def test_damaged_files_are_an_image_or_a_sentence(name: str) -> None:
    """Never another exception, nor a warning; and a PNG with a flipped bit in its pixels is never an image."""
    content, random = globals()[name], Random(5)
    right, said = decode_image(content, "x"), []
    for _ in range(250):
        damaged = bytearray(content)
        for _ in range(random.choice((1, 1, 3, 20))):
            damaged[random.randrange(len(damaged) if random.random() < 0.5 else 120)] = random.randrange(256)
        cut = damaged[: random.randrange(len(damaged))] if random.random() < 0.2 else damaged
        try:
            found = decode_image(bytes(cut), "x.img")
        except CorpusError as error:
            said.append(str(error))
        else:
            assert found.ndim == 3 and found.dtype == np.uint8
            assert name != "PNG" or (found == right).all()
    assert len(said) > 20 and all(text.startswith("x.img: ") and "\n" not in text for text in said)


LIMITED = """
import sys
from regard.errors import CorpusError
from regard.pictures import decode_image, read_image
import resource
decode_image(open(sys.argv[1], "rb").read(), "first")
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[2:]:
    try:
        read_image(path)
    except CorpusError as error:
        print(error.where)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) // 1024)
"""


def test_hostile_files_take_no_memory(tmp_path: Path) -> None:
    paths = []
    (tmp_path / "right.png").write_bytes(PNG)
    for name, (content, _) in HOSTILE.items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path / "right.png", *paths], capture_output=True, text=True, check=True
    )
    *refused, grown = done.stdout.splitlines()
    assert refused == [str(path) for path in paths] and not done.stderr
    assert int(grown) < 64, "MiB"


def test_a_large_image_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """RGBA, which is blended in blocks: at most twelve bytes a pixel."""
    side = 2000
    Image.new("RGBA", (side, side), (10, 20, 30, 128)).save(tmp_path / "a.png")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (read_image(tmp_path / "a.png")[::500, ::500] == [132, 137, 142]).all()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 12 * side * side + 4 * 8 * (1 << 22)


def test_resizing_keeps_what_it_says() -> None:
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, 20:40] = 200
    assert (resize_image(wide, 10)[:, 1:-1] == 200).all()
    stretched = resize_image(wide, 30, "stretch")
    assert stretched.shape == (30, 30, 3) and (stretched[:, 12:18] == 200).all() and (stretched[:, :8] == 0).all()
    checks = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
    assert np.abs(resize_image(grey(checks), 16)[2:-2, 2:-2].astype(int) - 127).max() <= 2  # antialiased
    assert resize_image(np.zeros((1, 50_000, 3), np.uint8), 8).shape == (8, 8, 3)
    assert (resize_box(COLOURS, (2, 1, 5, 4), 3) == COLOURS[1:4, 2:5]).all()
    assert (resize_image(COLOURS[:, :5], 5) == COLOURS[:, :5]).all()


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(SettingError, match="1 pixel or more"):
        resize_image(COLOURS, 0)
    with pytest.raises(SettingError, match="Unknown value of fit 'crp'"):
        resize_image(COLOURS, 4, "crp")  # type: ignore[arg-type]
