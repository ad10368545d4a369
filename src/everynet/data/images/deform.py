"""Random changes of whole batches beyond turns and shifts: bending, and the symmetries of a square.

They are used as those of `augment.py` are, and move masks and maps as they move images. Nothing
comes in from outside: where a window reaches over the border, the image goes on in a mirror, and so
does its mask, so that no class is made up.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate

from everynet.data.dataset import Batch
from everynet.data.draws import Draw
from everynet.data.images.augment import Augment, Boxes, Fill, Images, Number, _move
from everynet.data.transfer import constant


@dataclass(frozen=True)
class Symmetry:
    """Each image as a number from 0 to 7 says: 1 mirrors columns, 2 rows, 4 the diagonal."""

    which: Int64[Tensor, " batch"]

    def image(self, x: Images, fill: Fill = None) -> Images:
        return self._of(x)

    def mask(self, x: Shaped[Tensor, "batch height width"]) -> Shaped[Tensor, "batch height width"]:
        return self._of(x)

    def boxes(self, x: Boxes, size: tuple[int, int]) -> Boxes:
        kind, edges = x[..., :1], x[..., 1:]
        for bit, order, mirrored in ((1, [2, 1, 0, 3], [0, 2]), (2, [0, 3, 2, 1], [1, 3])):
            seen = edges[..., order]
            seen[..., mirrored] = 1 - seen[..., mirrored]
            edges = torch.where(self._has(bit, x), seen, edges)
        edges = torch.where(self._has(4, x), edges[..., [1, 0, 3, 2]], edges)
        return torch.cat([kind, torch.where(kind >= 0, edges, x[..., 1:])], -1)

    def _of(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        if height != width:
            raise ValueError(
                f"images ({width}x{height}) must be square, because rows become columns; crop them"
            )
        x = torch.where(self._has(1, x), x.flip(-1), x)
        x = torch.where(self._has(2, x), x.flip(-2), x)
        return torch.where(self._has(4, x), x.mT, x)

    def _has(self, bit: int, x: Tensor) -> Tensor:
        return (self.which & bit > 0).reshape(-1, *[1] * (x.dim() - 1))


@dataclass(frozen=True)
class Bend:
    """Each image at other places, which are in pixels right of and below its centre."""

    places: Float[Tensor, "batch rows columns 2"]

    def image(
        self, x: Images, fill: Fill = None, mode: str = "bilinear"
    ) -> Float[Tensor, "batch channels rows columns"]:
        height, width = x.shape[-2:]
        half = constant((width / 2, height / 2), x.dtype, x.device)
        grid = self.places.to(x) / half  # grid_sample measures in half images
        return grid_sample(x, grid, mode, padding_mode="reflection", align_corners=False)

    def mask(self, x: Shaped[Tensor, "batch height width"]) -> Shaped[Tensor, "batch rows columns"]:
        return self.image(x[:, None].float(), mode="nearest")[:, 0].to(x.dtype)

    def boxes(self, x: Boxes, size: tuple[int, int]) -> Boxes:
        raise ValueError("boxes must stay, because what is bent has no box; turn or move them")


def symmetries() -> Augment:
    """Show each square image in one of the eight ways in which a square comes to lie on itself."""

    def apply(batch: Batch, draw: Draw) -> Batch:
        return _move(Symmetry(draw.integers(0, 7, 1)[0]), batch, draw, None)

    return apply


def bend(
    size: int, degrees: Number = 0.0, scale: Number = 0.0, pixels: Number = 0.0, chance: Number = 1
) -> Augment:
    """A window of `size` x `size` of each image, turned, stretched and, as a whole, bent.

    `pixels` is the standard deviation of how far each of 3 x 3 places, spread over the window, is
    moved; between them it is bicubic. Others than a share of `chance` are cut out as they are.
    """
    if size < 1 or min(degrees, scale, pixels) < 0 or scale >= 1 or not 0 <= chance <= 1:
        raise ValueError(
            f"size ({size}) must be at least 1, degrees ({degrees}), scale ({scale}) and pixels "
            f"({pixels}) at least 0, scale below 1, and chance ({chance}) from 0 to 1"
        )

    def apply(batch: Batch, draw: Draw) -> Batch:
        x = batch[0]
        height, width = x.shape[-2:]
        if size > min(height, width):
            raise ValueError(
                f"size ({size}) must be at most {min(height, width)}, the smaller side of an image"
            )
        turn, stretch, left, top, some = draw.uniform(5).to(x.dtype)
        moved = draw.normal(2, 3, 3).to(x.dtype) * pixels
        bent = (some < chance).to(x.dtype)
        angle = (2 * turn - 1) * bent * (degrees * pi / 180)
        factor = 1 / (1 + (2 * stretch - 1) * bent * scale)
        cos, sin = factor * angle.cos(), factor * angle.sin()
        linear = torch.stack([cos, -sin, sin, cos], 1).reshape(-1, 2, 2)
        at = torch.arange(size, dtype=x.dtype, device=x.device) - (size - 1) / 2
        window = torch.stack(torch.meshgrid(at, at, indexing="xy"), -1).reshape(1, -1, 2)
        room = constant((width - size, height - size), x.dtype, x.device)
        first = ((room + 1) * torch.stack([left, top], 1)).floor().clamp(max=room)
        centre = first - room / 2  # batch 2
        field = interpolate(moved, (size, size), mode="bicubic", align_corners=True)
        field = field * bent[:, None, None, None]
        places = window @ linear.mT + centre[:, None]
        places = places.reshape(-1, size, size, 2) + field.permute(0, 2, 3, 1)
        return _move(Bend(places), batch, draw, None)

    return apply
