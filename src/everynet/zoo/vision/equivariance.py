"""Equivariance and invariance under shifts, measured: what a layer keeps, and what breaks it.

    (T_s x)(i)  = x(i - s)                                        (1)  shift by s, cyclic
    y_k(i)      = max(0, sum_cu w_kc(u) x_c(S i + u - F // 2))    (2)  convolution, ReLU, stride S
    p_k(j)      = max of y_k over a window of P x P               (3)  max pooling, stride P
    g_k         = mean of y_k over all places                     (4)  global pooling
    e_f(s)      = |f(T_s x) - T_{s/S} f(x)| / |f(x) - mean f|     (5)  0 where f is equivariant
    v_f(s)      = |f(T_s x) - f(x)| / |f(x) - mean f|             (6)  0 where f is invariant

|.| is the Euclidean norm. A map is equivariant if shifting its input shifts its output, f(T x) = T
f(x), and invariant if shifting its input changes nothing, f(T x) = f(x). A convolution is the first
exactly and is not the second. Where the image does not close on itself, zeros beyond the border
break it there and only there. A stride S keeps it for shifts by multiples of S alone; for others
(5) takes the nearer of the two whole shifts of the output. Pooling makes what follows less
sensitive to small shifts, and global pooling makes it invariant.

Goodfellow, Bengio, Courville (2016), "Deep Learning", sections 9.2 and 9.3; Zhang (2019), "Making
Convolutional Networks Shift-Invariant Again", arXiv:1904.11486, for strides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import conv2d, max_pool2d, pad

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.zoo.vision.photo import photograph
from everynet.zoo.vision.pictures.shifts import shift_grid

Maps = Float[Tensor, "batch channels height width"]


def shift(x: Float[Tensor, "*batch height width"], s: int) -> Float[Tensor, "*batch height width"]:
    """Moved by s pixels down and to the right; what leaves comes in on the other side."""
    return x.roll((s, s), (-2, -1))  # (1)


def conv_relu(
    x: Maps,
    weight: Float[Tensor, "filters channels size size"],
    *,
    stride: int = 1,
    circular: bool = True,
) -> Float[Tensor, "batch filters down across"]:
    """A convolution and ReLU, with circular or with zero padding."""
    edge = weight.shape[-1] // 2
    padded = pad(x, (edge,) * 4, mode="circular" if circular else "constant")
    return conv2d(padded, weight, stride=stride).clamp(min=0)  # (2)


def max_pool(y: Maps, window: int) -> Float[Tensor, "batch channels down across"]:
    """The largest value of each window."""
    return max_pool2d(y, window)  # (3)


def global_mean(y: Maps) -> Float[Tensor, "batch channels 1 1"]:
    """One value for each feature map."""
    return y.mean((2, 3), keepdim=True)  # (4)


def spread(y: Tensor) -> Float[Tensor, ""]:
    """The norm of y less its mean, by which changes are divided."""
    length: Tensor = (y - y.mean()).norm()
    return length


def equivariance_error(
    f: Callable[[Tensor], Tensor], x: Maps, s: int, stride: int = 1, edge: int = 0
) -> float:
    """How far f is from moving with its input; `edge` pixels along the border are left out."""
    y, moved = f(x), f(shift(x, s))
    near = {math.floor(s / stride), math.ceil(s / stride)}
    inside = slice(edge, -edge or None)
    apart = [(moved - shift(y, k))[..., inside, inside].norm() for k in near]
    return float(torch.stack(apart).min() / spread(y))  # (5)


def invariance_error(f: Callable[[Tensor], Tensor], x: Maps, s: int) -> float:
    """How far the output of f is from staying as it was."""
    y = f(x)
    return float((f(shift(x, s)) - y).norm() / spread(y))  # (6)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class PhotoShifts(Simulation):
    """Shift a photo pixel by pixel and see what layers with random filters make of it."""

    meanings: ClassVar[Mapping[str, str]] = {
        "equivariance_error": "error of shifted feature maps with circular padding: 0",
        "off_border_error": "the same with zero padding, away from the border: 0",
        "border_error": "the same at the border, the least: above 0",
        "stride_even_error": "the same with stride 2 for even shifts: 0",
        "stride_odd_error": "the same for odd shifts, the least: above 0",
        "invariance_error": "change of the global mean under shifts: 0",
        "conv_change": "change of feature maps when the image moves by a pixel",
        "pool_ratio": "that change after max pooling 2 x 2, divided by it",
        "pool_ratio_*": "the same after max pooling larger windows",
    }

    photo: str = "china"
    """What is shifted, the middle of it: china, flower or an image file."""
    side: int = 64
    """Its height and width in pixels, a multiple of 8."""
    filters: int = 16
    """Random filters of the layer."""
    taps: int = 5
    """Height and width of a filter in pixels, an odd number."""
    shifts: int = 16
    """The photo is shifted by up to so many pixels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "filters")
        self.require(self.taps >= 3 and self.taps % 2 == 1, "taps", "an odd number from 3 up")
        self.require(self.side >= 16 and self.side % 8 == 0, "side", "a multiple of 8 from 16 up")
        fits = self.taps < self.shifts < self.side - self.taps
        self.require(fits, "shifts", "more than taps and less than side - taps: the middle is seen")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        image = photograph(self.photo, least=self.side)
        top, left = ((n - self.side) // 2 for n in image.shape)
        x = image[top : top + self.side, left : left + self.side][None, None]
        shape = (self.filters, 1, self.taps, self.taps)
        weight = torch.randn(shape, generator=generator, dtype=torch.float64)
        weight = weight - weight.mean((2, 3), keepdim=True)  # contrast, not brightness

        def circular(x: Tensor, stride: int = 1) -> Tensor:
            return conv_relu(x, weight, stride=stride)

        def zeros(x: Tensor) -> Tensor:
            return conv_relu(x, weight, circular=False)

        def equivariant(f: Callable[[Tensor], Tensor], stride: int = 1) -> Tensor:
            return _row(equivariance_error(f, x, s, stride) for s in range(self.shifts + 1))

        def invariant(f: Callable[[Tensor], Tensor]) -> Tensor:
            return _row(invariance_error(f, x, s) for s in range(self.shifts + 1))

        edge = self.taps // 2
        inside = (equivariance_error(zeros, x, s, edge=edge + s) for s in range(edge + 1))
        return {
            "photo": x,
            "weight": weight,
            "stride 1": equivariant(circular),
            "stride 2": equivariant(lambda x: circular(x, 2), 2),
            "stride 4": equivariant(lambda x: circular(x, 4), 4),
            "zeros around": equivariant(zeros),
            "off the border": _row(inside),
            "convolution": invariant(circular),
            "max of 2 x 2": invariant(lambda x: max_pool(circular(x), 2)),
            "max of 4 x 4": invariant(lambda x: max_pool(circular(x), 4)),
            "max of 8 x 8": invariant(lambda x: max_pool(circular(x), 8)),
            "global mean": invariant(lambda x: global_mean(circular(x))),
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        two, one = result["stride 2"], result["convolution"][1]
        return {
            "equivariance_error": float(result["stride 1"].max()),
            "off_border_error": float(result["off the border"].max()),
            "border_error": float(result["zeros around"][1:].min()),
            "stride_even_error": float(two[::2].max()),
            "stride_odd_error": float(two[1::2].min()),
            "invariance_error": float(result["global mean"].max()),
            "conv_change": float(one),
            "pool_ratio": float(result["max of 2 x 2"][1] / one),
            "pool_ratio_4": float(result["max of 4 x 4"][1] / one),
            "pool_ratio_8": float(result["max of 8 x 8"][1] / one),
        }

    def picture_shifted(self, result: Mapping[str, Tensor]) -> Figure:
        """A feature map of a photo, that map shifted, the map of the shifted photo, and the rest.

        Nothing is left with circular padding, the border with zero padding, and all of the map
        with a stride of 2.
        """
        x, weight, s = result["photo"], result["weight"][:1], self.shifts // 2 * 2 - 3  # odd
        rows = {}
        for name, stride, circular in (
            ("circular padding", 1, True),
            ("zero padding", 1, False),
            ("stride 2", 2, True),
        ):
            y, moved = (
                conv_relu(z, weight, stride=stride, circular=circular) for z in (x, shift(x, s))
            )
            rows[name] = (y[0, 0], shift(y, s // stride)[0, 0], moved[0, 0])
        return shift_grid(x[0, 0], shift(x, s)[0, 0], s, weight[0, 0], rows)

    def picture_errors(self, result: Mapping[str, Tensor]) -> Figure:
        """How far layers are from equivariant, left, and from invariant, right, by the shift.

        Stride S is equivariant at multiples of S alone; feature maps change less the more is
        pooled.
        """
        steps = torch.arange(self.shifts + 1)
        layers = ("stride 1", "zeros around", "stride 2", "stride 4")
        pooled = ("convolution", "max of 2 x 2", "max of 4 x 4", "max of 8 x 8", "global mean")
        equivariant = Panel(
            {name: (steps, result[name]) for name in layers}, xlabel="shift / pixels",
            ylabel="|f(Tx) - T f(x)| / spread of f(x)", title="equivariant where 0",
            ylim=(-0.05, 1.9), legend="upper right",
        )  # fmt: skip
        invariant = Panel(
            {name: (steps, result[name]) for name in pooled}, xlabel="shift / pixels",
            ylabel="|f(Tx) - f(x)| / spread of f(x)", title="invariant where 0", ylim=(-0.05, 2.4),
            legend="upper right",
        )  # fmt: skip
        return panels(equivariant, invariant, width=3.25, height=3.4)

    def tiny(self) -> Self:
        return replace(self, side=16, filters=2, taps=3, shifts=6)


def _row(values: Iterable[float]) -> Float[Tensor, " shifts"]:
    return torch.tensor([*values], dtype=torch.float64)


RECIPES = {
    "equivariance": PhotoShifts(
        goal="equivariance_error <= 1e-12 and off_border_error <= 1e-12 and border_error >= 0.05 "
        "and stride_even_error <= 1e-12 and stride_odd_error >= 0.1 "
        "and invariance_error <= 1e-12 and pool_ratio < 1 and pool_ratio_4 < 1",
        covers=("C8",),
    ),
}
