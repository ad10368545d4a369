"""Equivariance and invariance under shifts, measured: what a layer keeps, and what breaks it.

    (T_s x)(i)  = x(i - s)                                        (1)  shift by s, round the border
    y_k(i)      = max(0, sum_cu w_kc(u) x_c(S i + u - F // 2))    (2)  layer, rectified, stride S
    p_k(j)      = max of y_k over a window of P x P               (3)  max pooling, stride P
    g_k         = mean of y_k over all places                     (4)  global pooling
    e_f(s)      = |f(T_s x) - T_{s/S} f(x)| / |f(x) - mean f|     (5)  0 where f is equivariant
    v_f(s)      = |f(T_s x) - f(x)| / |f(x) - mean f|             (6)  0 where f is invariant

A map is equivariant if shifting its input shifts its output, f(T x) = T f(x), and invariant if
shifting its input changes nothing, f(T x) = f(x). A convolution is the first exactly and is not the
second. Where the image does not close on itself, zeros beyond the border break it there and only
there. A stride S keeps it for shifts by multiples of S alone; for others (5) takes the nearer of
the two whole shifts of the output. Pooling makes what follows less sensitive to small shifts, and
global pooling makes it invariant.

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
from everynet.recipes.recipe import Pictures, Simulation
from everynet.zoo.vision.photo import photograph
from everynet.zoo.vision.pictures.shifts import shifted

Maps = Float[Tensor, "batch channels height width"]


def shift(x: Float[Tensor, "*batch height width"], s: int) -> Float[Tensor, "*batch height width"]:
    """Moved by s pixels down and to the right; what leaves comes in on the other side."""
    return x.roll((s, s), (-2, -1))  # (1)


def layer(
    x: Maps,
    weight: Float[Tensor, "filters channels taps taps"],
    *,
    stride: int = 1,
    closed: bool = True,
) -> Float[Tensor, "batch filters down across"]:
    """A rectified convolution; the image closes on itself, or has zeros around it."""
    edge = weight.shape[-1] // 2
    wider = pad(x, (edge,) * 4, mode="circular" if closed else "constant")
    return conv2d(wider, weight, stride=stride).clamp(min=0)  # (2)


def pool(y: Maps, side: int) -> Float[Tensor, "batch channels down across"]:
    """The largest value of each window."""
    return max_pool2d(y, side)  # (3)


def global_mean(y: Maps) -> Float[Tensor, "batch channels 1 1"]:
    """One value for each map."""
    return y.mean((2, 3), keepdim=True)  # (4)


def spread(y: Tensor) -> Float[Tensor, ""]:
    """The length of y less its mean, in which changes are measured."""
    length: Tensor = (y - y.mean()).norm()
    return length


def broken(f: Callable[[Tensor], Tensor], x: Maps, s: int, stride: int = 1, edge: int = 0) -> float:
    """How far f is from moving with its input; `edge` places along the border are not looked at."""
    y, moved = f(x), f(shift(x, s))
    near = {math.floor(s / stride), math.ceil(s / stride)}
    inside = slice(edge, -edge or None)
    apart = [(moved - shift(y, k))[..., inside, inside].norm() for k in near]
    return float(torch.stack(apart).min() / spread(y))  # (5)


def changed(f: Callable[[Tensor], Tensor], x: Maps, s: int) -> float:
    """How far the output of f is from staying as it was."""
    y = f(x)
    return float((f(shift(x, s)) - y).norm() / spread(y))  # (6)


@dataclass(frozen=True, kw_only=True)
class Shifts(Simulation):
    """Shift a photo pixel by pixel and see what layers with random filters make of it."""

    captions: ClassVar[Mapping[str, str]] = {
        "shifted": (
            "The map of a photo, that map shifted, the map of the shifted photo, and what is "
            "left: nothing for a closed image, the border for zeros, all of it for a stride of 2."
        ),
        "errors": (
            "Left how far a shifted photo is from giving a shifted map, which stride S does at "
            "multiples of S alone; right how far maps change, less the more is pooled."
        ),
    }
    meanings: ClassVar[Mapping[str, str]] = {
        "equivariance_error": (
            "how far a convolution of a shifted image is from the shifted maps: 0"
        ),
        "off_border_error": "the same with zeros around, away from the border: 0",
        "border_error": "the same at the border, the least: above 0",
        "stride_even_error": "the same with stride 2 for even shifts: 0",
        "stride_odd_error": "the same for odd shifts, the least: above 0",
        "invariance_error": "how far the global mean changes under shifts: 0",
        "conv_change": "how far maps change when the image moves by a pixel",
        "pool_ratio": "the same after pooling 2 x 2, as a part of it",
        "pool_ratio_*": "the same after pooling larger windows",
    }

    photo: str = "china"
    """What is shifted, the middle of it: china, flower or an image file."""
    side: int = 64
    """Pixels of its sides, a multiple of 8."""
    filters: int = 16
    """Random filters of the layer."""
    taps: int = 5
    """Side of a filter in pixels, an odd number."""
    shifts: int = 16
    """The photo is shifted by up to so many pixels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.filters >= 1, "filters", "at least 1")
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

        def closed(x: Tensor, stride: int = 1) -> Tensor:
            return layer(x, weight, stride=stride)

        def bordered(x: Tensor) -> Tensor:
            return layer(x, weight, closed=False)

        steps = range(self.shifts + 1)
        edge = self.taps // 2
        return {
            "photo": x,
            "weight": weight,
            "stride 1": _row(broken(closed, x, s) for s in steps),
            "stride 2": _row(broken(lambda x: closed(x, 2), x, s, 2) for s in steps),
            "stride 4": _row(broken(lambda x: closed(x, 4), x, s, 4) for s in steps),
            "zeros around": _row(broken(bordered, x, s) for s in steps),
            "off the border": _row(broken(bordered, x, s, edge=edge + s) for s in range(edge + 1)),
            "convolution": _row(changed(closed, x, s) for s in steps),
            **{
                f"max of {p} x {p}": _row(
                    changed(lambda x, p=p: pool(closed(x), p), x, s)  # type: ignore[misc]
                    for s in steps
                )
                for p in (2, 4, 8)
            },
            "global mean": _row(changed(lambda x: global_mean(closed(x)), x, s) for s in steps),
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

    def pictures(self, result: Mapping[str, Tensor]) -> Pictures:
        steps = torch.arange(self.shifts + 1)
        broke = ("stride 1", "zeros around", "stride 2", "stride 4")
        change = ("convolution", *(f"max of {p} x {p}" for p in (2, 4, 8)), "global mean")
        return {
            "shifted": self.strips(result),
            "errors": panels(
                Panel(
                    {name: (steps, result[name]) for name in broke},
                    xlabel="shift / pixels",
                    ylabel="|f(Tx) - T f(x)| / spread of f(x)",
                    title="equivariant where 0",
                    ylim=(-0.05, 1.9),
                    legend="upper right",
                ),
                Panel(
                    {name: (steps, result[name]) for name in change},
                    xlabel="shift / pixels",
                    ylabel="|f(Tx) - f(x)| / spread of f(x)",
                    title="invariant where 0",
                    ylim=(-0.05, 2.4),
                    legend="upper right",
                ),
                width=3.25,
                height=3.4,
            ),
        }

    def strips(self, result: Mapping[str, Tensor]) -> Figure:
        """One map under three kinds of layer, for a shift by an odd number of pixels."""
        x, weight, s = result["photo"], result["weight"][:1], self.shifts // 2 * 2 - 3
        rows = {}
        for name, stride, closed in (
            ("closed on itself", 1, True),
            ("zeros around", 1, False),
            ("stride 2", 2, True),
        ):
            y, moved = (layer(z, weight, stride=stride, closed=closed) for z in (x, shift(x, s)))
            rows[name] = (y[0, 0], shift(y, s // stride)[0, 0], moved[0, 0])
        return shifted(x[0, 0], shift(x, s)[0, 0], s, weight[0, 0], rows)

    def tiny(self) -> Self:
        return replace(self, side=16, filters=2, taps=3, shifts=6)


def _row(values: Iterable[float]) -> Float[Tensor, " shifts"]:
    return torch.tensor([*values], dtype=torch.float64)


# Seeds 0, 1, 2 on china: pool_ratio 0.74, 0.75, 0.72 (flower 0.83, 0.84, 0.83), pool_ratio_8 0.38,
# 0.40, 0.39; border_error 0.89, 0.89, 0.80; stride_odd_error 1.16, 1.17, 1.26; what must be 0 is
# below 1e-15.
RECIPES = {
    "equivariance": Shifts(
        goal="equivariance_error <= 1e-12 and off_border_error <= 1e-12 and border_error >= 0.05 "
        "and stride_even_error <= 1e-12 and stride_odd_error >= 0.1 "
        "and invariance_error <= 1e-12 and pool_ratio < 1 and pool_ratio_4 < 1",
        covers=("C8",),
    ),
}
