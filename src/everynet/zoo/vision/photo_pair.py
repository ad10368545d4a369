"""Two pictures of the user in one shape: the first keeps its proportions, the second is cut to it.

Pictures are made smaller, averaging over what falls together, and never larger.
"""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn.functional import interpolate

from everynet.data.images import decode as picture
from everynet.data.loading import samples
from everynet.system.errors import UserError
from everynet.system.wording import shown

LEAST, MOST = 32, 2048
"""Pixels along a side: the deep layers of a network see nothing in fewer."""

Image = Float[Tensor, "1 channels height width"]


def read(content: Path, style: Path, size: int, channels: int) -> tuple[Image, Image]:
    """Content and style, pixels from 0 to 1, `size` of them along the longer side.

    An empty path takes a photograph that is built in.
    """
    first, kept = _opened(content, "content", "china")
    high, wide = kept.shape[1:]
    if max(high, wide) < size:
        raise UserError(
            f"content ({first}, {wide}x{high}) must have at least {size} pixels along its longer "
            f"side, because pictures are not enlarged; do size={max(high, wide)}"
        )
    height, width = (round(side * size / max(high, wide)) for side in (high, wide))
    if min(height, width) < LEAST:
        raise UserError(
            f"content ({first}, {wide}x{high}) must keep {LEAST} pixels along its shorter side at "
            f"size {size}, because deep layers see nothing in fewer; cut it or do a larger size"
        )
    second, taken = _opened(style, "style", "flower")
    if taken.shape[1] < height or taken.shape[2] < width:
        raise UserError(
            f"style ({second}, {taken.shape[2]}x{taken.shape[1]}) must have at least "
            f"{width}x{height} pixels, because it is cut to the shape of the content and pictures "
            "are not enlarged; do a smaller size"
        )
    return covering(kept, channels, height, width), covering(taken, channels, height, width)


def _opened(path: Path, setting: str, instead: str) -> tuple[str, UInt8[Tensor, "channels h w"]]:
    """The name and the pixels of the user's picture, or of a photograph that is built in."""
    if path == Path():
        return instead, samples(instead, kind="image").parts["train"][0][0]
    try:
        pixels = picture.read(path)
    except UserError as error:
        raise UserError(f"{setting} must be a picture that can be read: {error}") from None
    return shown(path), torch.from_numpy(pixels.copy()).permute(2, 0, 1)


def covering(
    pixels: UInt8[Tensor, "colours h w"], channels: int, height: int, width: int
) -> Float[Tensor, "1 {channels} {height} {width}"]:
    """A picture from 0 to 1, made smaller while it covers height x width: the middle of it."""
    if len(pixels) > channels:
        grey = picture.luma(pixels.permute(1, 2, 0).numpy())
        pixels = torch.from_numpy(grey).permute(2, 0, 1)
    x = pixels.expand(channels, -1, -1)[None].float() / 255
    factor = max(height / x.shape[2], width / x.shape[3])
    sides = max(height, round(factor * x.shape[2])), max(width, round(factor * x.shape[3]))
    x = interpolate(x, sides, mode="bilinear", antialias=True).clamp(0, 1)
    top, left = (sides[0] - height) // 2, (sides[1] - width) // 2
    return x[:, :, top : top + height, left : left + width].contiguous()
