"""Random changes to a batch of images: where it lies, its colour, what is hidden, what is mixed.

Each factory returns a function of a batch and a `Draw`, which holds all its random numbers:
`load("mnist", kind="image", batch_size=128, augment=compose(shift(2), rotate(10)))`. What moves an
image moves its mask, map or boxes alike (`Draw.parts` says which tensor is what); labels stay, and
no image looks at another. A sample whose last box would leave the image is not moved, and a smaller
crop that would lose it is moved until it shows the middle of the first. Pixels that
come in from outside are `fill`: one number, one a channel (`images.black(spec)`), or, where none is
given, the lowest value that each channel has in the image: the blank paper of a digit. In a mask
and in a map they are 0.

`mixup` alone looks at two rows: an objective calls it, with `mixed_cross_entropy` as its loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import zip_longest
from math import inf, pi
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor
from torch.distributions import Beta
from torch.nn.functional import cross_entropy, grid_sample

from everynet.data.dataset import Batch
from everynet.data.draws import Draw
from everynet.data.transfer import constant

Augment = Callable[[Batch, Draw], Batch]
Number = int | float  # spelled out, because the tests check types to the letter
Fill = Number | Sequence[Number] | None
Images = Float[Tensor, "batch channels height width"]
Boxes = Float[Tensor, "batch boxes 5"]
"""Class (-1 where there is no box), left, top, right and bottom as parts of width and height."""


def _level(x: Shaped[Tensor, "batch channels height width"], fill: Fill) -> Tensor:
    if fill is None:
        return x.amin((2, 3))[..., None, None]
    values = tuple(fill) if isinstance(fill, Sequence) else (fill,)
    return constant(values, x.dtype, x.device)[:, None, None]


# ------------------------------------------------------------------------------------- the moves


@runtime_checkable
class Move(Protocol):
    """One way to move images, which also moves what is drawn on them."""

    def image(self, x: Images, fill: Fill) -> Images:
        """Images, between pixels if need be."""
        ...

    def mask(self, x: Shaped[Tensor, "batch height width"]) -> Shaped[Tensor, "batch rows columns"]:
        """A class for each pixel: the nearest, never a mean."""
        ...

    def boxes(self, x: Boxes, size: tuple[int, int]) -> Boxes:
        """Boxes on images of that height and width."""
        ...


def _move(move: Move, batch: Batch, draw: Draw, fill: Fill) -> Batch:
    """Every tensor of a batch moved as its part of `draw.parts` asks.

    A sample that had boxes and would have none left stays as it is.
    """
    size = (batch[0].shape[-2], batch[0].shape[-1])
    moved = []
    for tensor, part in zip_longest(batch, draw.parts[: len(batch)], fillvalue="label"):
        assert isinstance(tensor, Tensor)  # there are never more parts than tensors
        match part:
            case "image":
                tensor = move.image(tensor, fill)  # noqa: PLW2901 -- the moved one
            case "map":
                tensor = move.image(tensor, 0)  # noqa: PLW2901
            case "mask":
                tensor = move.mask(tensor)  # noqa: PLW2901
            case "boxes":
                tensor = move.boxes(tensor, size)  # noqa: PLW2901
        moved.append(tensor)
    parts = draw.parts[: len(batch)]
    if "boxes" not in parts or moved[0].shape != batch[0].shape:  # `crop` sees to it
        return tuple(moved)
    at = parts.index("boxes")
    had, left = ((boxes[..., 0] >= 0).any(1) for boxes in (batch[at], moved[at]))
    return tuple(
        a if a is b else torch.where((had & ~left).reshape(-1, *[1] * (a.dim() - 1)), b, a)
        for b, a in zip(batch, moved, strict=True)
    )


def _kept(kinds: Tensor, edges: Float[Tensor, "batch boxes 4"]) -> Boxes:
    """Boxes cut at the border of the image; one that has left it is none."""
    edges = edges.clamp(0, 1)
    gone = (edges[..., 2] <= edges[..., 0]) | (edges[..., 3] <= edges[..., 1])
    kinds = torch.where(gone, -torch.ones_like(kinds), kinds)
    return torch.cat([kinds[..., None], torch.where(gone[..., None], 0.0, edges)], -1)


@dataclass(frozen=True)
class Window:
    """The window of each image that begins at (top, left), which may lie outside the image."""

    top: Int64[Tensor, " batch"]
    left: Int64[Tensor, " batch"]
    size: tuple[int, int]
    border: int
    """No window goes further out of the image than so many pixels."""

    def image(
        self, x: Shaped[Tensor, "batch channels height width"], fill: Fill
    ) -> Shaped[Tensor, "batch channels rows columns"]:
        wide = self._bordered(x, fill)
        image, channel, row, _ = wide.stride()
        first = torch.arange(len(x), device=x.device) * image + (self.left + self.border)
        first = first + (self.top + self.border) * row
        # A window wherever one can begin, none of them copied: those asked for are, each at once.
        last = (wide.shape[1] - 1) * channel + (self.size[0] - 1) * row + self.size[1]
        shape = (wide.numel() - last + 1, wide.shape[1], *self.size)
        return wide.as_strided(shape, (1, channel, row, 1)).index_select(0, first)

    def _bordered(self, x: Tensor, fill: Fill) -> Tensor:
        if not self.border:
            return x.contiguous()
        batch, channels, height, width = x.shape
        inside = [slice(self.border, self.border + side) for side in (height, width)]
        wide = x.new_empty(batch, channels, height + 2 * self.border, width + 2 * self.border)
        wide.copy_(_level(x, fill))
        wide[:, :, *inside] = x
        return wide

    def mask(self, x: Shaped[Tensor, "batch height width"]) -> Shaped[Tensor, "batch rows columns"]:
        return self.image(x[:, None], 0)[:, 0]

    def boxes(self, x: Boxes, size: tuple[int, int]) -> Boxes:
        scale = constant((size[1], size[0]) * 2, x.dtype, x.device)
        origin = torch.stack([self.left, self.top] * 2, 1)[:, None].to(x)  # batch 1 4
        new = constant((self.size[1], self.size[0]) * 2, x.dtype, x.device)
        return _kept(x[..., 0], (x[..., 1:] * scale - origin) / new)


@dataclass(frozen=True)
class Mirror:
    """The images marked in `which`, left and right exchanged; the others as they are."""

    which: Bool[Tensor, " batch"]

    def image(self, x: Images, fill: Fill = None) -> Images:
        seen = x.flip(-1)  # a weight of 0 or 1 takes the one or the other, and is faster than where
        return torch.lerp(x, seen, self.which[:, None, None, None].to(x.dtype), out=seen)

    def mask(self, x: Shaped[Tensor, "batch height width"]) -> Shaped[Tensor, "batch height width"]:
        return torch.where(self.which[:, None, None], x.flip(-1), x)

    def boxes(self, x: Boxes, size: tuple[int, int]) -> Boxes:
        kind, left, top, right, bottom = x.unbind(-1)
        seen = torch.stack([kind, 1 - right, top, 1 - left, bottom], -1)
        return torch.where(self.which[:, None, None] & (kind >= 0)[..., None], seen, x)


@dataclass(frozen=True)
class Affine:
    """Each image seen through an affine map; the matrix takes output to input places.

    Places are measured in pixels from the centre of the image.
    """

    matrix: Float[Tensor, "batch 2 3"]

    def image(self, x: Images, fill: Fill, mode: str = "bilinear") -> Images:
        grid = self._places(x)
        if fill == 0:  # what lies outside is 0 for torch, too
            return _sampled(x, grid, mode)
        level = _level(x, fill)
        return _sampled(x - level, grid, mode).add_(level)

    def _places(self, x: Tensor) -> Float[Tensor, "batch height width 2"]:
        """Where each pixel of the output lies in the input, in halves of the image.

        Not as a matrix product, which would be less precise in tf32 and bf16.
        """
        height, width = x.shape[-2:]
        half = constant((width / 2, height / 2), x.dtype, x.device)
        across, down = (
            torch.arange(side, dtype=x.dtype, device=x.device) - (side - 1) / 2
            for side in (width, height)
        )
        a, b, offset = (self.matrix.to(x) / half[:, None])[:, :, None, None].unbind(-1)
        rows = torch.addcmul(offset, b, down[:, None])  # batch 2 height 1
        return torch.addcmul(rows, a, across).permute(0, 2, 3, 1)

    def mask(self, x: Shaped[Tensor, "batch height width"]) -> Shaped[Tensor, "batch height width"]:
        return self.image(x[:, None].float(), 0, "nearest")[:, 0].to(x.dtype)

    def boxes(self, x: Boxes, size: tuple[int, int]) -> Boxes:
        scale = constant((size[1], size[0]), x.dtype, x.device)
        left, top, right, bottom = x[..., 1:].unbind(-1)
        corners = torch.stack([left, top, right, top, left, bottom, right, bottom], -1).unflatten(
            -1, (4, 2)
        )  # batch boxes corners 2
        linear, offset = self.matrix[:, :, :2].to(x), self.matrix[:, :, 2].to(x)
        places = (corners - 0.5) * scale - offset[:, None, None]
        back = torch.linalg.inv(linear)[:, None, None] @ places[..., None]
        found = back[..., 0] / scale + 0.5
        return _kept(x[..., 0], torch.cat([found.amin(2), found.amax(2)], -1))


def _sampled(x: Tensor, grid: Tensor, mode: str) -> Tensor:
    return grid_sample(x, grid, mode, padding_mode="zeros", align_corners=False)


# ------------------------------------------------------------------------------- random changes


def shift(pixels: int, fill: Fill = None) -> Augment:
    """Move each image by up to `pixels` whole pixels along both axes."""
    if pixels < 0:
        raise ValueError(f"pixels ({pixels}) must be at least 0")

    def apply(batch: Batch, draw: Draw) -> Batch:
        down, right = draw.integers(-pixels, pixels, 2)
        size = (batch[0].shape[2], batch[0].shape[3])
        return _move(Window(-down, -right, size, pixels), batch, draw, fill)

    return apply


def crop(size: int, padding: int = 0, fill: Fill = None) -> Augment:
    """A random `size` x `size` window of each image, after a border of `padding` pixels."""
    if size < 1 or padding < 0:
        raise ValueError(f"size ({size}) must be at least 1 and padding ({padding}) at least 0")

    def apply(batch: Batch, draw: Draw) -> Batch:
        room = [side + 2 * padding - size for side in batch[0].shape[2:]]
        if min(room) < 0:
            raise ValueError(
                f"size ({size}) must be at most {size + min(room)}, the side of the padded image"
            )
        top, left = (draw.integers(-padding, free - padding, 1)[0] for free in room)
        window = Window(top, left, (size, size), padding)
        parts, whole = draw.parts[: len(batch)], (batch[0].shape[2], batch[0].shape[3])
        if "boxes" in parts and whole != window.size:
            window = _show_a_box(window, batch[parts.index("boxes")], whole)
        return _move(window, batch, draw, fill)

    return apply


def _show_a_box(window: Window, boxes: Boxes, size: tuple[int, int]) -> Window:
    """Windows that lost all boxes of their image, moved until they show the middle of the first."""
    had, left = ((kept[..., 0] >= 0).any(1) for kept in (boxes, window.boxes(boxes, size)))
    first = (boxes[..., 0] >= 0).long().argmax(1)[:, None, None].expand(-1, 1, 4)
    ends = boxes[..., 1:].gather(1, first)[:, 0].unflatten(1, (2, 2))  # batch ends axes
    middle = ends.mean(1).clamp(0, 1).T
    moved = []
    for start, place, pixels, side in zip(
        (window.left, window.top), middle, size[::-1], window.size[::-1], strict=True
    ):
        pixel = (place * pixels).long().clamp(max=pixels - 1)
        moved.append(torch.where(had & ~left, start.clamp(pixel - side + 1, pixel), start))
    return replace(window, left=moved[0], top=moved[1])


def flip(chance: Number = 0.5) -> Augment:
    """Exchange left and right of each image with this chance."""
    if not 0 <= chance <= 1:
        raise ValueError(f"chance ({chance}) must be from 0 to 1")

    def apply(batch: Batch, draw: Draw) -> Batch:
        return _move(Mirror(draw.uniform(1)[0] < chance), batch, draw, None)

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

    def apply(batch: Batch, draw: Draw) -> Batch:
        numbers = (2 * draw.uniform(6) - 1).to(batch[0].dtype)
        turn, slant, across, down, right, below = numbers
        angle = turn * (degrees * pi / 180)
        cos, sin, slant = angle.cos(), angle.sin(), slant * shear
        across, down = 1 / (1 + scale * across), 1 / (1 + scale * down)
        linear = torch.stack(
            [across * cos, across * (sin + slant * cos), -down * sin, down * (cos - slant * sin)]
        )
        linear = linear.T.reshape(-1, 2, 2)  # batch to from
        offset = torch.stack([right, below], 1)[:, :, None] * pixels
        move = Affine(torch.cat([linear, linear @ -offset], 2))
        return _move(move, batch, draw, fill)

    return apply


def rotate(degrees: Number, fill: Fill = None) -> Augment:
    """Turn each image about its centre by up to `degrees` either way."""
    return affine(degrees, fill=fill)


def noise(std: Number) -> Augment:
    """Add normal noise to each pixel of the images alone."""
    if std < 0:
        raise ValueError(f"std ({std}) must be at least 0")

    def apply(batch: Batch, draw: Draw) -> Batch:
        x, *rest = batch
        return (x + std * draw.normal(*x.shape[1:]).to(x), *rest)

    return apply


def colour(
    brightness: Number = 0.0, contrast: Number = 0.0, saturation: Number = 0.0, black: Fill = None
) -> Augment:
    """Brighten, harden and tint the images alone, each by a factor within 1 +- what is given.

        y = k + b (x - k)                 brightness b, seen from the black k
        z = m + c (y - m)                 contrast c, seen from the mean m of each channel of y
        w = g + s (z - g)                 saturation s, seen from the mean g of the channels of z

    Contrast and saturation change places without a difference. Nothing is cut off, because
    standardised images have no ends. `black` is as `fill` is: the darkest where none is given.
    """
    if not (0 <= brightness <= 1 and 0 <= contrast <= 1 and 0 <= saturation <= 1):
        raise ValueError(
            f"brightness ({brightness}), contrast ({contrast}) and saturation ({saturation}) must "
            "be from 0 to 1, because each factor is within 1 +- what is given"
        )

    def apply(batch: Batch, draw: Draw) -> Batch:
        x, *rest = batch
        factors = 1 + (2 * draw.uniform(3) - 1).to(x.dtype) * constant(
            ((brightness,), (contrast,), (saturation,)), x.dtype, x.device
        )
        b, c, s = factors[:, :, None, None, None]
        if brightness:
            x = torch.lerp(_level(x, black), x, b)
        if contrast:
            x = torch.lerp(x.mean((2, 3), keepdim=True), x, c)
        if saturation:
            x = torch.lerp(x.mean(1, keepdim=True), x, s)
        return (x, *rest)

    return apply


def cutout(side: int, fill: Fill = 0) -> Augment:
    """Hide a square of the images alone, centred anywhere: near the border part of it is outside.

    What is hidden is `fill`: 0 is the mean of standardised images. DeVries, Taylor (2017),
    "Improved Regularization of Convolutional Neural Networks with Cutout", arXiv:1708.04552.
    """
    if side < 1:
        raise ValueError(f"side ({side}) must be at least 1")

    def hidden(centre: Tensor, pixels: int) -> Tensor:
        away = torch.arange(pixels, device=centre.device) - (centre[:, None] - side // 2)
        return (away >= 0) & (away < side)

    def apply(batch: Batch, draw: Draw) -> Batch:
        x, *rest = batch
        height, width = x.shape[2:]
        rows = hidden(draw.integers(0, height - 1, 1)[0], height)
        columns = hidden(draw.integers(0, width - 1, 1)[0], width)
        square = rows[:, None, :, None] & columns[:, None, None, :]
        return (torch.where(square, _level(x, fill), x), *rest)

    return apply


def compose(*augments: Augment) -> Augment:
    """One after another, in the order given."""

    def apply(batch: Batch, draw: Draw) -> Batch:
        return reduce(lambda so_far, augment: augment(so_far, draw), augments, batch)

    return apply


# ------------------------------------------------------------------------ pairs, in an objective


def mixup(
    x: Float[Tensor, " batch *shape"], spread: Number
) -> tuple[Float[Tensor, " batch *shape"], Float[Tensor, " batch"]]:
    """Each row mixed with the one as far from the other end of the batch, and its own weight w.

        mixed_i = w_i x_i + (1 - w_i) x_(n-1-i),    w_i ~ Beta(spread, spread)

    Batches are in random order, so the partner is a random one. The weights come from torch's
    default generator on the device of the batch, which the trainer seeds for each update. Zhang,
    Cisse, Dauphin, Lopez-Paz (2017), "mixup: Beyond Empirical Risk Minimization",
    arXiv:1710.09412.
    """
    if not 0 < spread < inf:
        raise ValueError(f"spread ({spread}) must be a positive number; leave mixup out for none")
    shape = x.new_full((len(x),), spread)
    own = Beta(shape, shape, validate_args=False).sample()
    return torch.lerp(x.flip(0), x, own.reshape(-1, *[1] * (x.dim() - 1))), own


def mixed_cross_entropy(
    logits: Float[Tensor, "batch classes *places"],
    y: Int64[Tensor, " batch *places"],
    own: Float[Tensor, " batch"],
    smoothing: Number = 0.0,
) -> Float[Tensor, ""]:
    """The mean loss of mixed rows: w_i that of their own class, 1 - w_i that of the partner's.

    `smoothing` is the share of a label that is spread over all classes.
    """
    first, second = (
        cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)
        for labels in (y, y.flip(0))
    )
    own = own.to(first).reshape(-1, *[1] * (first.dim() - 1))
    return torch.lerp(second, first, own).mean()
