"""Films: frames that follow each other at a rate, as an animated WebP and as a strip for paper."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import UInt8
from matplotlib.figure import Figure
from PIL import Image

from everynet.plot.style import DPI, WIDTH, drawing, png
from everynet.system.errors import UserError
from everynet.system.wording import with_article

MOST_PIXELS = 2**26
"""Pixels of all frames together: a film is encoded in memory, by some seven bytes for each."""
MOST_SIDE = 16_383  # pixels that WebP has room for
MOST_RATE = 60  # frames a second; a browser slows down what is much faster
STRIP = 12
"""Frames that a strip shows at most."""
GAP = 8  # pixels between them

Pixels = UInt8[np.ndarray, "height width 3"]


class Film:
    """Frames, all of one size, and how many of them are shown in a second.

    A frame is a figure, or an array of uint8: height x width in grey, or height x width x 3. They
    are taken one after the other, in the style of all pictures: where a generator draws figures,
    none is kept, and it may draw on one and the same. The last stays for `hold` frames more.
    """

    frames: UInt8[np.ndarray, "frames height width 3"]

    def __init__(
        self, frames: Iterable[Figure | np.ndarray], rate: float, *, hold: int = 0
    ) -> None:
        if not 0 < rate <= MOST_RATE:
            raise UserError(
                f"rate ({rate}) must be above 0 and at most {MOST_RATE} frames a second, because "
                "no more can be seen; try 10"
            )
        found: list[Pixels] = []
        with drawing():
            for frame in frames:
                found.append(_pixels(frame))
                _check_size(found)
        if not found:
            raise UserError("frames (0) must be one or more, because a film shows something")
        for _ in range(hold):
            found.append(found[-1])
            _check_size(found)
        self.frames, self.rate = np.stack(found), rate

    def webp(self) -> bytes:
        """The bytes of an animated WebP, without loss and in a loop.

        Frames that equal the one before are stored as one that lasts as long as all of them.
        """
        first, *others = map(Image.fromarray, self.frames)
        ends = [round(1000 * frame / self.rate) for frame in range(len(self.frames) + 1)]
        times = [end - start for start, end in pairwise(ends)]
        content = io.BytesIO()
        first.save(
            content, "webp", save_all=True, append_images=others, duration=times, loop=0,
            lossless=True, method=4, minimize_size=True,
        )  # fmt: skip
        return content.getvalue()

    def strip(self) -> bytes:
        """The bytes of a PNG: up to STRIP frames at equal distances, in rows as wide as a page."""
        count, height, width, _ = self.frames.shape
        shown = np.linspace(0, count - 1, min(count, STRIP)).round().astype(int)
        columns = max(1, min(len(shown), (int(WIDTH * DPI) + GAP) // (width + GAP)))
        rows = -(-len(shown) // columns)
        sheet = np.full((rows * (height + GAP), columns * (width + GAP), 3), 255, np.uint8)
        for place, frame in enumerate(self.frames[shown]):
            top, left = place // columns * (height + GAP), place % columns * (width + GAP)
            sheet[top : top + height, left : left + width] = frame
        content = io.BytesIO()
        Image.fromarray(sheet[:-GAP, :-GAP]).save(content, "png", dpi=(DPI, DPI))
        return content.getvalue()


def _pixels(given: object) -> Pixels:
    """The pixels of a frame, in colour."""
    frame = given
    if isinstance(given, Figure):
        frame = np.asarray(Image.open(io.BytesIO(png(given))).convert("RGB"))
    if isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.size:
        colours = frame.ndim == 2 or frame.shape[2:] == (3,)
        if colours and max(frame.shape) <= MOST_SIDE:
            return np.asarray(Image.fromarray(frame).convert("RGB"))
    what = with_article(type(frame).__name__)
    if isinstance(frame, np.ndarray):
        what = f"{' x '.join(map(str, frame.shape))} of {frame.dtype}"
    raise UserError(
        f"a frame ({what}) must be a Figure, or an array of uint8, height x width or height x "
        f"width x 3, with sides from 1 to {MOST_SIDE:,}, because that is what WebP stores"
    )


def _check_size(found: Sequence[Pixels]) -> None:
    """Refuse a frame of another size than the first, and one too many for the memory."""
    first, last = (f"{frame.shape[0]} x {frame.shape[1]}" for frame in (found[0], found[-1]))
    if first != last:
        raise UserError(
            f"frame {len(found) - 1} ({last}) must be as large as the first ({first}), because a "
            "film has one size"
        )
    if len(found) * found[0][..., 0].size > MOST_PIXELS:
        raise UserError(
            f"a film ({len(found):,} frames of {last}) must have at most {MOST_PIXELS:,} pixels in "
            "all, because it is encoded in memory; make fewer frames or smaller ones"
        )
