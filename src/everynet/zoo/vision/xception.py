"""Xception: every convolution in two steps, first within each map, then across the maps.

    d_c = w_c * x_c                                      (1)  depthwise: each map has its 3 x 3
    a_k = sum_c u_kc d_c                                 (2)  pointwise: 1 x 1
    n_k = g_k (a_k - mean(a_k)) / std(a_k) + b_k         (3)  batch normalisation
    y = F(x) + S x                                       (4)  module with a skip
    v_k = mean of max(0, n_k) over all pixels            (5)  global average
    z = W v + b                                          (6)  logits, one for each class
    (1) and (2) / convolution = 1 / C_out + 1 / k^2      (7)  multiplications, with k x k filters

x_c are the maps that a layer is given (at first the channels of the image), w_c is a kernel and *
slides it over a map without flipping it (cross-correlation). F is max(0, x) and then (1), (2) and
(3), twice or three times. Where F ends in a pool of 3 x 3 pixels, 2 apart, S is a normalised
convolution of 1 x 1 with stride 2, and the identity elsewhere.

A separable convolution, (1) and (2), is a convolution whose kernel is a product, u_kc w_c: it
assumes that correlations across pixels and across maps can be learned apart. Unlike in an inception
module no rectifier stands between the two. By (7) it needs about a ninth of the work. The 36
convolutions, of which 34 are separable, stand in 14 modules, all but the first and the last with
skips: 4 in the entry flow, 8 in the middle flow, 2 in the exit flow. There are 22,855,952
parameters.

Chollet (2016), "Xception: Deep Learning with Depthwise Separable Convolutions", arXiv:1610.02357,
Figure 5. Unlike the paper, the small form for images of 32 x 32 has no stride in its stem and one
pooling module less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn

from everynet.data.dataset import Data, History
from everynet.nn.conv import init_he_weights
from everynet.nn.input_checks import require_images
from everynet.nn.layers import layer_table
from everynet.system.errors import UserError
from everynet.zoo.vision.classifier import ImageClassification
from everynet.zoo.vision.pictures.costs import layer_costs

Maps = Float[Tensor, "batch channels height width"]


class Xception(nn.Module):
    """Maps images to logits; `width` are the maps of the first layer, `middle` inner modules.

    flow    stem        entry 0   entry 1   entry 2   middle    exit 0    exit 1, 2
    maps    64          128       256       728       728       1024      1536, 2048
    size    147 x 147   74 x 74   37 x 37   19 x 19   19 x 19   10 x 10   10 x 10 (of 299 x 299)
    """

    stride: ClassVar[int] = 2  # of the first layer
    padding: ClassVar[int] = 0  # of the first two
    entry_maps: ClassVar[tuple[int, ...]] = (16, 32, 91)  # in quarters of the width
    exit_maps: ClassVar[tuple[int, int, int]] = (128, 192, 256)

    def __init__(self, in_channels: int, classes: int, *, width: int = 32, middle: int = 8) -> None:
        super().__init__()
        if width < 1 or width % 4:
            raise ValueError(
                f"width ({width}) must be a multiple of 4, because the middle modules have 91 "
                f"quarters as many maps; do width={max(1, width // 4) * 4}"
            )
        entry = [2 * width, *(quarters * width // 4 for quarters in self.entry_maps)]
        inner, (last, *rest) = entry[-1], (quarters * width // 4 for quarters in self.exit_maps)
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, width, 3, self.stride, self.padding, bias=False),
            *(nn.BatchNorm2d(width), nn.ReLU()),
            nn.Conv2d(width, 2 * width, 3, 1, self.padding, bias=False),
            *(nn.BatchNorm2d(2 * width), nn.ReLU()),
        )
        self.entry_flow = nn.Sequential(*(Halving(a, b, b) for a, b in pairwise(entry)))
        self.middle_flow = nn.Sequential(*(Middle(inner) for _ in range(middle)))
        self.exit_flow = nn.Sequential(
            Halving(inner, inner, last), *(Separable(a, b) for a, b in pairwise((last, *rest)))
        )
        self.relu = nn.ReLU()
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.output = nn.Linear(rest[-1], classes)
        init_he_weights(self)

    def forward(self, x: Maps) -> Float[Tensor, "batch classes"]:
        require_images(self, x)
        h = self.stem(x)
        h = self.entry_flow(h)
        h = self.middle_flow(h)
        h = self.exit_flow(h)
        v = self.mean(self.relu(h)).flatten(1)  # (5)
        z: Tensor = self.output(v)  # (6)
        return z


class Separable(nn.Module):
    """Maps feature maps to normalised others of the same size, in two steps; rectified first."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.depthwise = nn.Conv2d(
            in_channels, in_channels, 3, padding=1, groups=in_channels, bias=False
        )
        self.pointwise = nn.Conv2d(in_channels, out_channels, 1, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x: Maps) -> Float[Tensor, "batch maps height width"]:
        d = self.depthwise(self.relu(x))  # (1)
        a = self.pointwise(d)  # (2)
        n: Tensor = self.norm(a)  # (3)
        return n


class Middle(nn.Module):
    """Maps feature maps to as many others of the same size: three separable layers and a skip."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(Separable(width, width) for _ in range(3)))

    def forward(self, x: Maps) -> Maps:
        f = self.layers(x)
        y: Tensor = f + x  # (4)
        return y


class Halving(nn.Module):
    """Maps feature maps to others half as high and wide: two separable layers, pool and skip."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(Separable(in_channels, hidden), Separable(hidden, out_channels))
        self.pool = nn.MaxPool2d(3, 2, padding=1)
        self.skip = nn.Conv2d(in_channels, out_channels, 1, 2, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x: Maps) -> Float[Tensor, "batch maps rows columns"]:
        f = self.pool(self.layers(x))
        y: Tensor = f + self.norm(self.skip(x))  # (4)
        return y


class SmallXception(Xception):
    """Xception for images of 32 x 32: no stride at first, and one pooling module less."""

    stride: ClassVar[int] = 1
    padding: ClassVar[int] = 1
    entry_maps: ClassVar[tuple[int, ...]] = (16, 32)
    exit_maps: ClassVar[tuple[int, int, int]] = (64, 96, 128)


def share(out_channels: int, kernel_size: int = 3) -> float:
    """Multiplications of a separable convolution, in those of a convolution of the same shape."""
    return 1 / out_channels + 1 / kernel_size**2  # (7)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class XceptionPhotographs(ImageClassification[Xception]):
    """Classify images by Xception; `width=32 middle=8 size=299` is the paper's own."""

    network: ClassVar[type[Xception]] = Xception

    width: int = 8
    """Feature maps of the first layer, from which all others follow; 32 in the paper."""
    middle: int = 2
    """Modules of the middle flow; 8 in the paper."""

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = self.width >= 1 and self.width % 4 == 0
        self.require(fits, "width", "a multiple of 4, because the middle has 91 quarters of it")
        self.at_least(0, "middle")

    def model(self, data: Data) -> Xception:
        in_channels, *size = data.spec["shape"]
        least = self.network.stride * 2 ** (len(self.network.entry_maps) + 1)  # and the exit flow
        if min(size) < least:
            raise UserError(
                f"size ({min(size)}) must be at least {least}, because the network halves the "
                f"image so often; do size={least}"
            )
        classes = len(data.spec["classes"])
        return self.network(in_channels, classes, width=self.width, middle=self.middle)

    def activation_layers(self, model: Xception) -> Sequence[str]:
        return ["stem", "entry_flow.0", "entry_flow.1", "middle_flow", "exit_flow"]

    def picture_costs(
        self, model: Xception, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Multiplications of each separable layer, and of a convolution of the same shape.

        All separable layers together need {share:.0%} of what whole convolutions would need.
        """
        return draw_costs(model, data.spec["shape"])

    def tiny(self) -> Self:
        return replace(super().tiny(), middle=1, size=32, holdout=True)


def draw_costs(model: nn.Module, shape: Sequence[int]) -> tuple[Figure, dict[str, float]]:
    """Multiplications of separable layers and of whole convolutions, and the share of the two."""
    rows = {row.name: row for row in layer_table(model, shape)}
    layers = [name for name, module in model.named_modules() if isinstance(module, Separable)]
    pairs = [(rows[f"{name}.depthwise"], rows[f"{name}.pointwise"]) for name in layers]
    work = torch.tensor([sum(row.multiplications or 0 for row in pair) for pair in pairs]).double()
    whole = work / torch.tensor([share(pointwise.shape[0]) for _, pointwise in pairs]).double()
    names = [name.replace("_flow.", " ").replace("layers.", "") for name in layers]
    kinds = {"convolutions of 3 x 3": whole, "separable": work}
    title = f"images of {shape[1]} x {shape[2]}"
    drawn = layer_costs(names, {"multiplications": kinds}, title=title)
    return drawn, {"share": float(work.sum() / whole.sum())}


@dataclass(frozen=True, kw_only=True)
class SmallXceptionPhotographs(XceptionPhotographs):
    """Classify images of about 32 x 32 by Xception without its first stride."""

    network: ClassVar[type[Xception]] = SmallXception


RECIPES = {
    "xception": XceptionPhotographs(
        data="digits", size=48, pixels=5.0, degrees=10.0, scale=0.1, width=4,
        steps=800, batch_size=32, lr=3e-3, optimizer="adamw", weight_decay=0.05,
        schedule="one-cycle", goal="accuracy >= 0.97", covers=("C22",),
    ),
    "xception-cifar": SmallXceptionPhotographs(
        data="cifar10", holdout=False, pixels=4.0, mirror=True, width=24, middle=4,
        steps=5850, batch_size=256, lr=0.1, optimizer="nesterov", weight_decay=5e-4,
        schedule="one-cycle", eval_every=1950, goal="accuracy >= 0.90", covers=("C22",),
    ),
}  # fmt: skip
