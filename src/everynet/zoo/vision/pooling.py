"""Pooling: each window of a map becomes one number, its largest or its mean.

    N'        = floor((N - F) / S) + 1                          (1)  windows along an axis
    y(m)      = max of x(S m + u) over u in F x F               (2)  max pooling
    dL/dx(i)  = sum of dL/dy(m) over m whose largest is at i    (3)  its gradient
    y(m)      = mean of x(S m + u) over u in F x F              (4)  average pooling
    dL/dx(i)  = sum of dL/dy(m) / F^2 over m that see i         (5)  its gradient
    y         = mean, or max, of x over all of the map          (6)  global pooling

m, i and u are places in the plane, F is the height and width of a window and S the stride. Every
channel is pooled by itself, so their number stays. Where two values of a window are equal, (3)
sends the gradient to the first by rows, as torch does on the CPU; to share it would be as right,
because a maximum has no derivative there.

Zhou, Chellappa (1988), "Computation of optical flow using a neural network",
doi:10.1109/ICNN.1988.23914, for (2); LeCun et al. (1998), "Gradient-based learning applied to
document recognition", doi:10.1109/5.726791, for (4); Lin, Chen, Yan (2013), "Network In Network",
arXiv:1312.4400, for (6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import (
    adaptive_avg_pool2d,
    adaptive_max_pool2d,
    avg_pool2d,
    max_pool2d,
)

from everynet.recipes.recipe import Simulation
from everynet.zoo.vision.convolution import farthest, tensor
from everynet.zoo.vision.photo import photograph
from everynet.zoo.vision.pictures.convolution import pooled_photos, pooling_windows


def max_pool(
    x: Float[Tensor, "batch channels height width"], window: int, stride: int
) -> tuple[Float[Tensor, "batch channels down across"], Int[Tensor, "batch channels down across"]]:
    """The largest value of each window, and the pixel (counted by rows) where it was first."""
    y, first = windows(x, window, stride).flatten(4).max(4)  # (2)
    down, across = (torch.arange(n) * stride for n in y.shape[2:])
    rows, columns = down[:, None] + first // window, across + first % window
    return y, rows * x.shape[3] + columns


def max_pool_gradient(
    x: Float[Tensor, "batch channels height width"],
    dy: Float[Tensor, "batch channels down across"],
    places: Int[Tensor, "batch channels down across"],
) -> Float[Tensor, "batch channels height width"]:
    """The gradient of each window at the pixel that was its largest."""
    dx = torch.zeros_like(x).flatten(2)
    return dx.scatter_add(2, places.flatten(2), dy.flatten(2)).view_as(x)  # (3)


def average_pool(
    x: Float[Tensor, "batch channels height width"], window: int, stride: int
) -> Float[Tensor, "batch channels down across"]:
    """The mean of each window; one window as large as the image is global pooling."""
    return windows(x, window, stride).mean((4, 5))  # (4)


def average_pool_gradient(
    x: Float[Tensor, "batch channels height width"],
    dy: Float[Tensor, "batch channels down across"],
    window: int,
    stride: int,
) -> Float[Tensor, "batch channels height width"]:
    """The gradient of each window, shared by its pixels."""
    dx = torch.zeros_like(x)
    last = [stride * (n - 1) + 1 for n in dy.shape[2:]]
    for i, j in product(range(window), repeat=2):  # the places of a window, one after the other
        dx[:, :, i : i + last[0] : stride, j : j + last[1] : stride] += dy / window**2  # (5)
    return dx


def global_pool(
    x: Float[Tensor, "batch channels height width"],
) -> tuple[Float[Tensor, "batch channels"], Float[Tensor, "batch channels"]]:
    """The mean and the largest value of each map."""
    return x.mean((2, 3)), x.amax((2, 3))  # (6)


def windows(
    x: Float[Tensor, "batch channels height width"], window: int, stride: int
) -> Float[Tensor, "batch channels down across {window} {window}"]:
    """Every window of every map."""
    if not 1 <= window <= min(x.shape[2:]):
        raise ValueError(
            f"window ({window}) must be from 1 to that of the image ({x.shape[2]} x {x.shape[3]}), "
            "because a window lies within it"
        )
    if stride < 1:
        raise ValueError(f"stride ({stride}) must be at least 1")
    return x.unfold(2, window, stride).unfold(3, window, stride)  # (1)


# -------- the network ends here; training and pictures follow --------

NUMBERS = ((1.0, 5.0, 2.0, 2.0), (3.0, 0.0, 2.0, 1.0), (4.0, 1.0, 0.0, 7.0), (2.0, 6.0, 3.0, 7.0))
"""With equal ones: the largest of the second window is there three times, of the last twice."""
CROP = (128, 208)  # pixels of the photo that are pooled


@dataclass(frozen=True, kw_only=True)
class PoolingByHand(Simulation):
    """Hold pooling and its gradient beside torch's, and pool a photo."""

    meanings: ClassVar[Mapping[str, str]] = {
        "value_error": "largest difference of pooling by hand from torch's: rounding",
        "gradient_error": "the same of its gradients",
        "global_error": "the same of global pooling",
    }

    photo: str = "china"
    """What is pooled: china, flower or an image file."""
    sides: tuple[int, ...] = (2, 4, 8)
    """Heights and widths of the windows that it is pooled by, in pixels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(1 <= len(self.sides) <= 5, "sides", "one to five numbers")
        fits = 1 <= min(self.sides) <= max(self.sides) <= min(CROP)
        self.require(fits, "sides", f"from 1 to {min(CROP)}")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        image = photograph(self.photo, least=max(CROP))
        top, left = ((n - cut) // 2 for n, cut in zip(image.shape, CROP, strict=True))
        crop = image[top : top + CROP[0], left : left + CROP[1]]
        x = tensor(NUMBERS)[None]
        largest, places = max_pool(x, 2, 2)
        dy = torch.ones_like(largest)
        values, gradients = beside_torch(generator)
        wide = torch.randn(2, 3, 6, 5, generator=generator, dtype=torch.float64)
        whole = torch.stack(global_pool(wide))
        theirs = torch.stack([adaptive_avg_pool2d(wide, 1), adaptive_max_pool2d(wide, 1)])
        return {
            "crop": crop,
            "numbers": x[0, 0],
            "pooled": torch.stack([largest, average_pool(x, 2, 2)])[:, 0, 0],
            "routed": torch.stack(
                [max_pool_gradient(x, dy, places), average_pool_gradient(x, dy, 2, 2)]
            )[:, 0, 0],
            "value_errors": tensor(*values),
            "gradient_errors": tensor(*gradients),
            "global_errors": (whole - theirs.flatten(2).view_as(whole)).abs(),
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        return {
            name.removesuffix("s"): float(result[name].max())
            for name in ("value_errors", "gradient_errors", "global_errors")
        }

    def picture_gradient(self, result: Mapping[str, Tensor]) -> Figure:
        """Windows of four numbers, their largest or their mean, and the gradient that goes back.

        A gradient of 1 goes to the largest alone, the first of equal ones, or a quarter of it to
        each.
        """
        return pooling_windows(result["numbers"], result["pooled"], result["routed"])

    def picture_photo(self, result: Mapping[str, Tensor]) -> Figure:
        """A photo pooled by larger and larger windows, by the maximum, top, and the mean, bottom.

        The maximum keeps and thickens what is bright, and the mean blurs.
        """
        crop = result["crop"][None, None]
        images = {
            "maximum": [max_pool(crop, window, window)[0][0, 0] for window in self.sides],
            "mean": [average_pool(crop, window, window)[0, 0] for window in self.sides],
        }
        return pooled_photos(crop[0, 0], images)


def beside_torch(generator: torch.Generator) -> tuple[list[float], list[float]]:
    """How far values and gradients are from torch's, on whole numbers, of which some are equal."""
    values, gradients = [], []
    for window, stride in product((1, 2, 3), repeat=2):
        x = (2 * torch.randn(2, 3, 8, 7, generator=generator, dtype=torch.float64)).round()
        given = x.clone().requires_grad_()
        with torch.enable_grad():
            theirs = (max_pool2d(given, window, stride), avg_pool2d(given, window, stride))
        largest, places = max_pool(x, window, stride)
        dy = torch.randn(largest.shape, generator=generator, dtype=torch.float64)
        ours = (
            (largest, max_pool_gradient(x, dy, places)),
            (average_pool(x, window, stride), average_pool_gradient(x, dy, window, stride)),
        )
        for (value, gradient), reference in zip(ours, theirs, strict=True):
            values.append(farthest(value, reference.detach()))
            (expected,) = torch.autograd.grad(reference, given, dy)
            gradients.append(farthest(gradient, expected))
    return values, gradients


RECIPES = {
    "pooling": PoolingByHand(
        goal="value_error <= 1e-12 and gradient_error <= 1e-12 and global_error <= 1e-12",
        covers=("C6",),
    ),
}
