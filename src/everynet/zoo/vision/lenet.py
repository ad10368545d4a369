"""LeNet-5, the convolutional network that reads digits: filters, pooling, then a small MLP.

    h_k = tanh(b_k + sum_c w_kc * x_c)                   (1)  feature map; c runs over the maps of x
    s_k(i, j) = mean of h_k(2i + {0, 1}, 2j + {0, 1})    (2)  pooling halves each side
    h = tanh(W x + b)                                    (3)  full layer
    y = W h + b                                          (4)  logits, one for each class

x are the maps that a layer is given (at first the channels of the image), w_kc is a kernel of 5 x 5
and * slides it over a map without flipping it (cross-correlation). The network of 1998 differs in
four places, and has 60,000 weights to learn instead of 61,706:

    f(a) = 1.7159 tanh(2 a / 3)                          (5)  squashing: f(1) = 1, f(-1) = -1
    s_k = f(g_k mean(h_k) + b_k)                         (6)  pooling with gain and bias for a map
    h_k = f(b_k + sum_{c in T_k} w_kc * x_c)             (7)  map k sees row k of a table of maps
    y_i = -sum_j (h_j - c_ij)^2                          (8)  distance to a fixed code of +1 and -1

LeCun, Bottou, Bengio, Haffner (1998), "Gradient-based learning applied to document recognition",
doi:10.1109/5.726791, section II. Unlike the paper, the codes of (8) are random instead of small
images of the characters, and the loss is the cross-entropy of the logits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import conv2d

from everynet.data.dataset import Data
from everynet.nn.input_checks import require_images
from everynet.system.seeds import generator
from everynet.zoo.vision.classifier import ImageClassification


class LeNet(nn.Module):
    """Maps images of 32 x 32 to logits, with every map of C3 joined to every map of S2.

    layer    c1        s2        c3        s4      c5    f6   output
    maps     6         6         16        16      120   84   classes
    size     28 x 28   14 x 14   10 x 10   5 x 5
    """

    def __init__(self, in_channels: int, classes: int) -> None:
        super().__init__()
        self.c1 = nn.Sequential(nn.Conv2d(in_channels, 6, 5), nn.Tanh())
        self.s2 = nn.AvgPool2d(2)
        self.c3 = nn.Sequential(nn.Conv2d(6, 16, 5), nn.Tanh())
        self.s4 = nn.AvgPool2d(2)
        self.c5 = nn.Sequential(nn.Linear(16 * 5 * 5, 120), nn.Tanh())
        self.f6 = nn.Sequential(nn.Linear(120, 84), nn.Tanh())
        self.output = nn.Linear(84, classes)

    def forward(self, x: Float[Tensor, "batch channels 32 32"]) -> Float[Tensor, "batch classes"]:
        require_images(self, x, side=32)
        h = self.c1(x)  # (1)
        h = self.s2(h)  # (2)
        h = self.c3(h)  # (1)
        h = self.s4(h)  # (2)
        h = self.c5(h.flatten(1))  # (3)
        h = self.f6(h)  # (3)
        y: Tensor = self.output(h)  # (4)
        return y


TABLE = (
    *((0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 5), (4, 5, 0), (5, 0, 1)),
    *((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 0), (4, 5, 0, 1), (5, 0, 1, 2)),
    *((0, 1, 3, 4), (1, 2, 4, 5), (0, 2, 3, 5), (0, 1, 2, 3, 4, 5)),
)
"""The maps of S2 that each of the 16 maps of C3 sees: 60 kernels instead of 96."""


class SparseLeNet(nn.Module):
    """Maps images of 32 x 32 to logits as the network of 1998 did, with 60,000 weights."""

    def __init__(self, in_channels: int, classes: int) -> None:
        super().__init__()
        self.c1 = nn.Sequential(nn.Conv2d(in_channels, 6, 5), Squash())
        self.s2 = nn.Sequential(GainPool(6), Squash())
        self.c3 = nn.Sequential(TableConv(TABLE, 5), Squash())
        self.s4 = nn.Sequential(GainPool(16), Squash())
        self.c5 = nn.Sequential(nn.Linear(16 * 5 * 5, 120), Squash())
        self.f6 = nn.Sequential(nn.Linear(120, 84), Squash())
        self.output = CodeDistance(84, classes)

    def forward(self, x: Float[Tensor, "batch channels 32 32"]) -> Float[Tensor, "batch classes"]:
        require_images(self, x, side=32)
        h = self.c1(x)
        h = self.s2(h)
        h = self.c3(h)
        h = self.s4(h)
        h = self.c5(h.flatten(1))
        h = self.f6(h)
        y: Tensor = self.output(h)
        return y


class Squash(nn.Module):
    """An odd sigmoid through (1, 1), where its curvature is largest."""

    def forward(self, a: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return 1.7159 * torch.tanh(2 / 3 * a)  # (5)


class GainPool(nn.Module):
    """Averages squares of 2 x 2, then scales and shifts each map."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mean = nn.AvgPool2d(2)
        self.gain = nn.Parameter(torch.ones(channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(
        self, h: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch channels half_height half_width"]:
        s: Tensor = self.gain * self.mean(h) + self.bias  # (6)
        return s


class TableConv(nn.Module):
    """A convolution that has kernels only for the pairs of maps in a table."""

    pairs: Tensor

    def __init__(self, table: tuple[tuple[int, ...], ...], kernel_size: int) -> None:
        super().__init__()
        pairs = torch.tensor([(k, c) for k, row in enumerate(table) for c in row]).T
        self.register_buffer("pairs", pairs, persistent=False)
        full = nn.Conv2d(max(map(max, table)) + 1, len(table), kernel_size)
        self.shape = full.weight.shape
        self.weight = nn.Parameter(full.weight.detach()[*pairs])  # pairs height width
        self.bias = full.bias

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch maps rows columns"]:
        kernels = self.weight.new_zeros(self.shape).index_put(tuple(self.pairs), self.weight)
        return conv2d(x, kernels, self.bias)  # (7)


class CodeDistance(nn.Module):
    """Scores each class by how near its code of +1 and -1 is; the codes are not learned."""

    codes: Tensor

    def __init__(self, units: int, classes: int) -> None:
        super().__init__()
        bits = torch.randint(0, 2, (classes, units), generator=generator(1998, classes))
        self.register_buffer("codes", 2.0 * bits - 1.0)

    def forward(self, h: Float[Tensor, "batch units"]) -> Float[Tensor, "batch classes"]:
        return -(h[:, None] - self.codes).square().sum(2)  # (8)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class LeNetImages(ImageClassification[LeNet]):
    """Classify images of 32 x 32."""

    size: int = 32
    """Side of the images in pixels, to which others are brought."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.size == 32, "size", "32, because two 5 x 5 filters and two pools leave 5")

    def model(self, data: Data) -> LeNet:
        return LeNet(data.spec["shape"][0], len(data.spec["classes"]))


@dataclass(frozen=True, kw_only=True)
class SparseLeNetImages(LeNetImages):
    """Classify images of 32 x 32 by the network of 1998."""

    def model(self, data: Data) -> SparseLeNet:  # type: ignore[override]  # the same calls
        return SparseLeNet(data.spec["shape"][0], len(data.spec["classes"]))


RECIPES = {
    "lenet": LeNetImages(
        data="digits", pixels=2.0, degrees=10.0, scale=0.1,
        steps=1600, batch_size=32, lr=3e-3, optimizer="adamw", weight_decay=0.3,
        schedule="one-cycle", goal="accuracy >= 0.985", covers=("C15",),
    ),
    "lenet-1998": SparseLeNetImages(
        data="digits", pixels=2.0, degrees=10.0, scale=0.1,
        steps=3200, batch_size=32, lr=1e-3, schedule="one-cycle",
        goal="accuracy >= 0.965", covers=("C15",),
    ),
    "lenet-mnist": LeNetImages(
        data="mnist", pixels=2.0, steps=3368, batch_size=128, lr=3e-3, schedule="one-cycle",
        goal="accuracy >= 0.988", covers=("C15",),
    ),
    "lenet-fashion": LeNetImages(
        data="fashion-mnist", mirror=True, steps=4210, batch_size=128, lr=3e-3,
        schedule="one-cycle", goal="accuracy >= 0.89", covers=("C15",),
    ),
}  # fmt: skip
