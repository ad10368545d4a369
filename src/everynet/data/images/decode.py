"""One image file as whole numbers: height x width x 1 or 3, from 0 to 255.

Grey, colour, palette and 16-bit files are read (16-bit ones in steps of 257), and turned as their
orientation tag says. CMYK becomes RGB by Pillow's plain rule, (1 - C)(1 - K) and so on, without the
profile of a press. Transparent pixels are put on white, and of several frames or pages the first is
taken; both are notes, so that whoever reads many files can say how many. Real numbers and
32 bits are refused, because which of them is white is for the user to say.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeAlias

import numpy as np
from jaxtyping import UInt8
from PIL import Image, UnidentifiedImageError

from everynet.data.paths import read_bytes, regular, unreadable
from everynet.system.errors import UserError
from everynet.system.wording import shown

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm", ".pnm"}
)
_GREY = ("1", "L", "LA", "I;16", "I;16B", "I;16L", "I;16N")
_COLOUR = ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr")
FRAMES, CLEAR = "frames", "clear"
"""Notes: the first of several frames was taken; transparent pixels were put on white."""
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
MOST_BYTES = 2**28
MOST_PIXELS = 40_000_000
MOST_SIDE = 30_000

_TURNED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What each value of the orientation tag asks for."""

Pixels = UInt8[np.ndarray, "height width channels"]
Notes: TypeAlias = tuple[str, ...]


@contextmanager
def quiet() -> Iterator[None]:
    """Within it pillow's warnings, say of a broken tag, are kept from the user's terminal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def decode(path: Path, content: bytes) -> Pixels:
    """The pixels of an image file of that content, or one line that says why not."""
    return noted(path, content)[0]


def noted(path: Path, content: bytes) -> tuple[Pixels, Notes]:
    """The pixels, and what was done to them that is worth a word."""
    return _decoded(path, content, _plain)


def levels(path: Path, content: bytes) -> UInt8[np.ndarray, "height width"]:
    """The grey levels or the numbers in the palette of a mask, as they stand in the file."""
    return _decoded(path, content, _numbered)[0][:, :, 0]


def _decoded(
    path: Path, content: bytes, plain: Callable[[Path, Image.Image], tuple[Image.Image, Notes]]
) -> tuple[Pixels, Notes]:
    try:
        image = _open(path, content)
        if image.format == "PNG":
            # Pillow looks at the checksums of the pixels only here.
            _open(path, content).verify()
        turn = _TURNED.get(_orientation(image))
        # A phone's jpg may carry more pictures (MPO); the first is the one that was taken.
        several = image.format != "MPO" and getattr(image, "is_animated", False)
        deep = _deep(image)
        image.load()
        image, notes = plain(path, image)
        image = image if turn is None else image.transpose(turn)
        pixels = np.asarray(image)
        if deep:
            pixels = (pixels.astype(np.uint32) + 128) // 257
        pixels = pixels.astype(np.uint8)
    except UserError:
        raise
    except Exception as error:  # decoders raise whatever a damaged file leads them to
        raise unreadable(path, error) from None
    notes = (FRAMES, *notes) if several else notes
    return pixels if pixels.ndim == 3 else pixels[:, :, None], notes


def read(path: Path) -> Pixels:
    """The pixels of an image file; the header is looked at before the rest is read."""
    with quiet():
        probe(path)
        return decode(path, read_bytes(path, MOST_BYTES))


def probe(path: Path) -> tuple[int, int, int]:
    """Height, width and channels of an image file, from its header alone."""
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(
            f"{shown(path)} must be an image, its name ending in {', '.join(sorted(SUFFIXES))}"
        )
    try:
        with regular(path).open("rb") as stream:
            if not stream.read(1):
                raise UserError(f"{shown(path)} is empty")
            stream.seek(0)
            image = _open(path, stream)
            width, height = image.size
            if _orientation(image) >= 5:  # lies on its side
                height, width = width, height
    except UserError:
        raise
    except Exception as error:  # decoders raise whatever a damaged file leads them to
        raise unreadable(path, error) from None
    return height, width, 1 if image.mode in _GREY or _deep(image) else 3


def _open(path: Path, content: bytes | IO[bytes]) -> Image.Image:
    """The image with its header read and its pixels not yet decoded."""
    try:
        stream = io.BytesIO(content) if isinstance(content, bytes) else content
        image = Image.open(stream, formats=_FORMATS)
    except Image.DecompressionBombError:
        raise UserError(f"{shown(path)} must have at most {MOST_PIXELS:,} pixels") from None
    except UnidentifiedImageError:
        raise UserError(f"{shown(path)} is not an image that can be read, or is damaged") from None
    width, height = image.size
    if width * height > MOST_PIXELS or max(width, height) > MOST_SIDE:
        raise UserError(
            f"{shown(path)} ({width}x{height}) must have at most {MOST_PIXELS:,} pixels and sides "
            f"of at most {MOST_SIDE:,}"
        )
    return image


def _deep(image: Image.Image) -> bool:
    """Whether grey levels go up to 65,535."""
    return image.mode.startswith("I;16") or (image.format == "PPM" and image.mode == "I")


def _orientation(image: Image.Image) -> int:
    """The orientation tag; looking for one that comes after the pixels would decode them."""
    if image.format == "PNG" and "exif" not in image.info:
        return 1
    return int(image.getexif().get(0x0112, 1))


def _plain(path: Path, image: Image.Image) -> tuple[Image.Image, Notes]:
    """The image as 8-bit grey, 16-bit grey or RGB."""
    if _deep(image):
        return image, ()
    if image.mode not in (*_GREY, *_COLOUR):
        raise UserError(f"{shown(path)} has colour mode {image.mode}; save it as grey or RGB")
    plain = "L" if image.mode in _GREY else "RGB"
    notes: Notes = ()
    if "transparency" in image.info or image.mode.endswith("A"):
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema() != (255, 255):
            white = Image.new("RGBA", image.size, "white")
            image, notes = Image.alpha_composite(white, image), (CLEAR,)
        image = image.convert("RGB")
    return image.convert(plain), notes


def _numbered(path: Path, image: Image.Image) -> tuple[Image.Image, Notes]:
    """The image as whole numbers that are no colours."""
    if getattr(image, "is_animated", False):
        raise UserError(f"{shown(path)} must hold one mask, not an animation or several pages")
    if image.mode not in ("1", "L", "P") or image.format in ("JPEG", "MPO", "WEBP"):
        what = image.format if image.mode in ("1", "L", "P") else f"colour mode {image.mode}"
        raise UserError(
            f"{shown(path)} ({what}) must be a PNG in 8-bit grey or with a palette, because its "
            "levels are classes"
        )
    return image.convert("L") if image.mode == "1" else image, ()


def luma(pixels: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "height width 1"]:
    """Colour as grey, by the weights of ITU-R BT.601; equal channels keep their value."""
    weighted = pixels.astype(np.uint32) @ np.array([19595, 38470, 7471], dtype=np.uint32)
    return ((weighted + 2**15) >> 16).astype(np.uint8)[:, :, None]
