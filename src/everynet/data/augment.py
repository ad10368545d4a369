"""Changes to a batch of images that keep its labels: shift, flip, crop, rotate and noise.

Each factory returns a function of a batch and a generator, and all its random numbers come from
that generator: `load("mnist", batch_size=128, augment=compose(shift(2), rotate(10)))`. Pixels
that come in from outside are `fill`: one number, one a channel (`images.black(spec)`), or, where
none is given, the lowest value that each channel has in the batch: the blank paper of a digit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import pi

import torch
from jaxtyping import Bool, Float, Int64
from torch import Generator, Tensor
from torch.nn.functional import affine_grid, grid_sample

from everynet.types import Batch

Augment = Callable[[Batch, Generator], Batch]
Number = int | float  # spelled out, because the tests check types to the letter
Fill = Number | Sequence[Number] | None
Images = Float[Tensor, "batch channels height width"]


def _level(x: Images, fill: Fill) -> Float[Tensor, "levels 1 1"]:
    if fill is None:
        return x.amin((0, 2, 3))[:, None, None]
    return torch.as_tensor(fill, dtype=x.dtype, device=x.device).reshape(-1, 1, 1)


def _uniform(random: Generator, x: Images, *shape: int) -> Tensor:
    """Numbers from -1 to 1, the same ones on every device."""
    numbers = torch.rand(*shape, generator=random, device=random.device)
    return (2 * numbers - 1).to(x)


def windows(
    x: Images,
    top: Int64[Tensor, " batch"],
    left: Int64[Tensor, " batch"],
    size: tuple[int, int],
    fill: Fill = None,
) -> Float[Tensor, "batch channels rows columns"]:
    """The window of each image that begins at (top, left), which may lie outside the image."""
    batch, channels, height, width = x.shape
    rows = top[:, None] + torch.arange(size[0], device=x.device)  # batch rows
    columns = left[:, None] + torch.arange(size[1], device=x.device)  # batch columns
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[
        :, None, :
    ]
    pixel = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None, :]
    pixel = pixel.reshape(batch, 1, -1).expand(-1, channels, -1)
    taken = x.reshape(batch, channels, -1).gather(2, pixel)
    taken = taken.reshape(batch, channels, *size)
    return torch.where(inside[:, None], taken, _level(x, fill))


def mirrored(x: Images, which: Bool[Tensor, " batch"]) -> Images:
    """The images marked in `which`, left and right exchanged; the others as they are."""
    return torch.where(which[:, None, None, None], x.flip(-1), x)


def transformed(x: Images, matrix: Float[Tensor, "batch 2 3"], fill: Fill = None) -> Images:
    """Each image seen through an affine map, bilinear; the matrix takes output to input places.

    Places are measured in pixels from the centre of the image.
    """
    height, width = x.shape[-2:]
    half = torch.tensor([width / 2, height / 2], dtype=x.dtype, device=x.device)
    scale = torch.cat([half, half.new_ones(1)])  # affine_grid measures in half images
    grid = affine_grid(matrix * scale / half[:, None], list(x.shape), align_corners=False)
    level = _level(x, fill)
    return grid_sample(x - level, grid, padding_mode="zeros", align_corners=False) + level


def shift(pixels: int, fill: Fill = None) -> Augment:
    """Move each image by up to `pixels` whole pixels along both axes."""
    if pixels < 0:
        raise ValueError(f"pixels ({pixels}) must be at least 0")

    def apply(batch: Batch, random: Generator) -> Batch:
        x, *rest = batch
        by = torch.randint(-pixels, pixels + 1, (2, len(x)), generator=random, device=random.device)
        down, right = by.to(x.device)
        return (windows(x, -down, -right, (x.shape[2], x.shape[3]), fill), *rest)

    return apply


def crop(size: int, padding: int = 0, fill: Fill = None) -> Augment:
    """A random `size` x `size` window of each image, after a border of `padding` pixels."""
    if size < 1 or padding < 0:
        raise ValueError(f"size ({size}) must be at least 1 and padding ({padding}) at least 0")

    def apply(batch: Batch, random: Generator) -> Batch:
        x, *rest = batch
        room = [side + 2 * padding - size for side in x.shape[2:]]
        if min(room) < 0:
            raise ValueError(
                f"size ({size}) must be at most {size + min(room)}, the side of the padded image"
            )
        top, left = (
            torch.randint(
                -padding, free - padding + 1, (len(x),), generator=random, device=random.device
            ).to(x.device)
            for free in room
        )
        return (windows(x, top, left, (size, size), fill), *rest)

    return apply


def flip(chance: Number = 0.5) -> Augment:
    """Exchange left and right of each image with this chance."""
    if not 0 <= chance <= 1:
        raise ValueError(f"chance ({chance}) must be from 0 to 1")

    def apply(batch: Batch, random: Generator) -> Batch:
        x, *rest = batch
        which = torch.rand(len(x), generator=random, device=random.device) < chance
        return (mirrored(x, which.to(x.device)), *rest)

    return apply


def affine(
    degrees: Number = 0.0,
    pixels: Number = 0.0,
    scale: Number = 0.0,
    shear: Number = 0.0,
    fill: Fill = None,
) -> Augment:
    """Turn, move, stretch and slant each image about its centre, each by up to what is given.

    `scale` and `shear` are fractions: 0.1 stretches each axis by up to a tenth.
    """
    if min(degrees, pixels, scale, shear) < 0 or scale >= 1:
        raise ValueError(
            f"degrees ({degrees}), pixels ({pixels}), scale ({scale}) and shear ({shear}) must be "
            "at least 0, and scale below 1"
        )

    def apply(batch: Batch, random: Generator) -> Batch:
        x, *rest = batch
        turn, slant, across, down, right, below = _uniform(random, x, 6, len(x))
        angle = turn * (degrees * pi / 180)
        cos, sin, slant = angle.cos(), angle.sin(), slant * shear
        across, down = 1 / (1 + scale * across), 1 / (1 + scale * down)
        linear = torch.stack(
            [across * cos, across * (sin + slant * cos), -down * sin, down * (cos - slant * sin)]
        )
        linear = linear.T.reshape(-1, 2, 2)  # batch to from
        offset = torch.stack([right, below], 1)[:, :, None] * pixels
        return (transformed(x, torch.cat([linear, linear @ -offset], 2), fill), *rest)

    return apply


def rotate(degrees: Number, fill: Fill = None) -> Augment:
    """Turn each image about its centre by up to `degrees` either way."""
    return affine(degrees, fill=fill)


def noise(std: Number) -> Augment:
    """Add normal noise to each pixel."""
    if std < 0:
        raise ValueError(f"std ({std}) must be at least 0")

    def apply(batch: Batch, random: Generator) -> Batch:
        x, *rest = batch
        numbers = torch.randn(x.shape, generator=random, device=random.device).to(x)
        return (x + std * numbers, *rest)

    return apply


def compose(*augments: Augment) -> Augment:
    """One after another, in the order given."""

    def apply(batch: Batch, random: Generator) -> Batch:
        return reduce(lambda so_far, augment: augment(so_far, random), augments, batch)

    return apply
