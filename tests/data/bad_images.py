"""Images and folders of images that must be refused."""

import io
import os
import struct
import zlib
from functools import partial

import numpy as np
from PIL import Image

from .mutants import Mutant


def save(image, form, **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def noise(random, *shape):
    return Image.fromarray(random.integers(0, 256, shape, dtype=np.uint8))


def _good_folder(folder, random, classes=("cat", "dog"), count=8, side=8):
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            noise(random, side, side).save(folder / name / f"{number}.png")
    return folder


def _with(folder, random, number, file, content, *, side=8):
    """A good folder with one bad file in it."""
    place = _good_folder(folder / f"{number:03}", random, side=side)
    (place / "cat" / file).write_bytes(content)
    return str(place)


def _chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _png(width, height, *between, depth=8, colour=0, pixels=b""):
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = _chunk(b"IHDR", header) + b"".join(between) + _chunk(b"IDAT", zlib.compress(pixels))
    return b"\x89PNG\r\n\x1a\n" + body + _chunk(b"IEND", b"")


def pngs(folder, random):
    good = save(noise(random, 8, 8), "PNG")
    end = len(good) - 12  # where the last chunk, which has no content, begins
    cases = []
    for cut in random.choice(np.arange(1, end), 10, replace=False):
        cases.append((f"png cut at {cut}", good[:cut]))
    for position in random.choice(np.arange(end), 24, replace=False):
        flipped = bytearray(good)
        flipped[position] ^= 1 << int(random.integers(8))
        cases.append((f"png flipped at {position}", bytes(flipped)))
    bomb = _chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(8_000_000)))
    cases += [
        ("png empty", b""),
        ("png is text", b"a,b\n1,2\n"),
        ("png is noise", random.bytes(400)),
        ("png is npy", b"\x93NUMPY\x01\0" + bytes(100)),
        ("png signature only", good[:8]),
        ("png 100000 x 100000", _png(100_000, 100_000)),
        ("png 2^31 wide", _png(2**31 - 1, 1)),
        ("png 30000 x 30000", _png(30_000, 30_000)),
        ("png 9000 x 9000", _png(9_000, 9_000)),
        ("png 40000 x 100", _png(40_000, 100)),
        ("png 0 wide", _png(0, 8)),
        ("png without pixels", _png(8, 8)),
        ("png of depth 3", _png(8, 8, depth=3, pixels=bytes(72))),
        ("png with a text bomb", _png(8, 8, bomb, pixels=bytes(72))),
    ]
    for number, (name, content) in enumerate(cases):
        data = _with(folder, random, number, "bad.png", content)
        yield Mutant(name, data, {"strict": True}, ("bad.png",), "image")


def jpgs(folder, random):
    good = save(noise(random, 32, 32), "JPEG")
    start = good.index(b"\xff\xc0")  # the frame header: length, depth, height, width
    cases = []
    for cut in random.integers(1, len(good) * 6 // 10, 10):
        cases.append((f"jpg cut at {cut}", good[:cut]))
    for position in (0, 1):
        for bit in random.choice(8, 3, replace=False):
            flipped = bytearray(good)
            flipped[position] ^= 1 << int(bit)
            cases.append((f"jpg flipped at {position}", bytes(flipped)))
    for height, width in ((65_535, 65_535), (30_001, 8), (9_000, 9_000), (20_000, 20_000)):
        large = bytearray(good)
        large[start + 5 : start + 9] = struct.pack(">HH", height, width)
        cases.append((f"jpg {width} x {height}", bytes(large)))
    cases += [
        ("jpg empty", b""),
        ("jpg is text", b"not an image\n" * 20),
        ("jpg start only", good[:2]),
        ("jpg without frame header", good[:start] + good[start + 4 :]),
    ]
    for number, (name, content) in enumerate(cases):
        data = _with(folder, random, number, "bad.jpg", content, side=32)
        yield Mutant(name, data, {"strict": True}, ("bad.jpg",), "image")


def odd_images(folder, random):
    grey = noise(random, 8, 8)
    real = Image.fromarray(random.random((8, 8), dtype=np.float32))
    cases = (
        ("real numbers", "bad.tif", save(real, "TIFF"), "mode F"),
        ("32 bits", "bad.tif", save(grey.convert("I"), "TIFF"), "mode I"),
        ("another size", "bad.png", save(noise(random, 8, 9), "PNG"), "9x8"),
        ("cut bmp", "bad.bmp", save(grey, "BMP")[:40], "bad"),
        ("cut gif", "bad.gif", save(grey, "GIF")[:30], "bad"),
        ("cut webp", "bad.webp", save(grey, "WEBP", lossless=True)[:30], "bad"),
        ("cut tif", "bad.tif", save(grey, "TIFF")[:60], "bad"),
        ("cut pgm", "bad.pgm", save(grey, "PPM")[:40], "bad"),
        ("pgm of a giant", "bad.pgm", b"P5\n99999 99999\n255\n" + bytes(100), "bad"),
        ("bmp of a giant", "bad.bmp", _giant_bmp(save(grey, "BMP")), "bad"),
        ("png renamed txt", "bad.txt", save(grey, "PNG"), "must be an image"),
        ("png without ending", "bad", save(grey, "PNG"), "must be an image"),
        ("notes", "notes.md", b"# notes\n", "must be an image"),
        ("a name of two lines", "bad\nname.png", b"", "bad?name.png"),
    )
    for number, (name, file, content, *words) in enumerate(cases):
        data = _with(folder, random, number, file, content)
        first = file.split(".", maxsplit=1)[0].split("\n", maxsplit=1)[0]
        yield Mutant(name, data, {"size": 0, "strict": True}, (first, *words), "image")


def _giant_bmp(good):
    return good[:18] + struct.pack("<ii", 60_000, 60_000) + good[26:]


def _new(folder, name):
    place = folder / name.replace(" ", "-")
    place.mkdir()
    return place


def _case(name, place, *words, **arguments):
    return Mutant(name, str(place), arguments, words, "image")


def folders(folder, random):
    new, case = partial(_new, folder), _case
    yield case("empty folder", new("empty folder"), "empty-folder", "empty")
    place = new("only hidden files")
    (place / ".DS_Store").write_bytes(b"x")
    yield case("only hidden files", place, "empty")
    place = new("no classes")
    noise(random, 8, 8).save(place / "1.png")
    yield case("no classes", place, "1.png", "subfolder")
    place = _good_folder(new("one class"), random, ("cat",))
    yield case("one class", place, "cat", "one class")
    place = _good_folder(new("empty class"), random)
    (place / "emu").mkdir()
    yield case("empty class", place, "emu", "no training image")
    place = _good_folder(new("folder called png"), random)
    (place / "cat" / "x.png").mkdir()
    yield case("folder called png", place, "x.png", "folder", strict=True)
    place = _good_folder(new("broken link"), random)
    (place / "cat" / "link.png").symlink_to(place / "nowhere.png")
    yield case("broken link", place, "link.png", "not there", strict=True)
    place = _good_folder(new("link to itself"), random)
    (place / "cat" / "loop.png").symlink_to(place / "cat" / "loop.png")
    yield case("link to itself", place, "loop.png", strict=True)
    if hasattr(os, "mkfifo"):
        place = _good_folder(new("pipe"), random)
        os.mkfifo(place / "cat" / "pipe.png")
        yield case("pipe", place, "pipe.png", "something else", strict=True)
        os.mkfifo(folder / "pipe.csv")
        yield Mutant(
            "pipe as csv", str(folder / "pipe.csv"), {"target": "y"}, ("pipe.csv",), "table"
        )
    file = folder / "single.png"
    noise(random, 8, 8).save(file)
    yield case("one image as data", file, "single.png", "must be images with a class each")
    file = folder / "notes.txt"
    file.write_text("hello")
    yield case("text as data", file, "notes.txt", "must be images with a class each")


def parts(folder, random):
    """Folders train, valid and test that do not fit together."""
    new, case = partial(_new, folder), _case
    place = new("test alone")
    _good_folder(place / "test", random)
    yield case("test alone", place, "test-alone", "train")
    place = new("empty train")
    (place / "train").mkdir()
    yield case("empty train", place, "train", "empty")
    place = new("two valids")
    for part in ("train", "val", "valid"):
        _good_folder(place / part, random)
    yield case("two valids", place, "val and valid")
    place = new("mixed")
    _good_folder(place / "train", random)
    _good_folder(place, random, ("bird",))
    yield case("mixed", place, "bird", "train")
    place = new("class in test alone")
    _good_folder(place / "train", random)
    _good_folder(place / "test", random, ("cat", "dog", "emu"))
    yield case("class in test alone", place, "emu", "no training image")
    place = new("empty test")
    for part in ("train", "test"):
        _good_folder(place / part, random)
    for file in (place / "test").rglob("*.png"):
        file.unlink()
    yield case("empty test", place, "test", "no image")
    place = _good_folder(new("batch too large"), random)
    yield case("batch too large", place, "batch_size", "500", batch_size=500)


MAKERS = (pngs, jpgs, odd_images, folders, parts)
