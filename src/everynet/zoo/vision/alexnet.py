"""AlexNet, the network that made deep learning win: five convolutions, three dense layers.

    a_k = b_k + sum_c w_kc * x_c                               (1)  convolution
    h_k = max(0, a_k)                                          (2)  rectifier
    r_k = h_k / (2 + 1e-4 sum_{j=k-2}^{k+2} h_j^2)^0.75        (3)  local response normalisation
    m_k(i, j) = max of r_k over 3 x 3 pixels, 2 apart          (4)  overlapping pooling
    f = max(0, W (d o m) + b),  d_i 0 or 2 while training      (5)  dense, after dropout
    y = W f + b                                                (6)  logits, one for each class

x are the maps that a layer is given (at first the channels of the image), w_kc a kernel; * slides
it over a map without flipping it (cross-correlation), o multiplies element by element, and d drops
half of the units. (3) lets neighbouring maps compete for large answers at the same pixel.

With one group there are 62,378,344 parameters, 58.6 million of them in (5) and (6), and 1.135
billion multiplications. The paper spread the maps over two GPUs that did not communicate in
convolutions 2, 4 and 5: with two groups c in (1) runs over the maps of k's own half, which leaves
60,965,224.

Krizhevsky, Sutskever, Hinton (2012), "ImageNet Classification with Deep Convolutional Neural
Networks", NIPS 25, doi:10.1145/3065386. Unlike the paper, weights are initialised as in He et al.
(2015), so that thin networks learn too, and the paper's images of 224 x 224 are the 227 x 227 that
its sizes need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from jaxtyping import Float
from torch import Tensor, nn

from everynet.data.dataset import Data
from everynet.nn.conv import init_he_weights
from everynet.nn.input_checks import require_images
from everynet.system.errors import UserError
from everynet.zoo.vision.classifier import ImageClassification


class AlexNet(nn.Module):
    """Maps images of `size` x `size` to logits; `width` are the maps of the first layer.

    layer       c1   pool  c2   pool  c3   c4   c5   pool  f6    f7    output
    maps        96   96    256  256   384  384  256  256   4096  4096  classes
    size        55   27    27   13    13   13   13   6
    """

    kernel_size: ClassVar[int] = 11  # of the first layer, whose stride and padding these are
    stride: ClassVar[int] = 4
    padding: ClassVar[int] = 0

    def __init__(
        self,
        in_channels: int,
        classes: int,
        *,
        groups: int = 1,
        width: int = 96,
        size: int = 227,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if width % (3 * groups):
            raise ValueError(
                f"width ({width}) must be divisible by {3 * groups}, because the second layer has "
                f"8/3 as many maps, in {groups} groups; do width={max(1, width // 6) * 6}"
            )
        self.size = size
        last = self.last_size(size)
        if last < 1:
            raise ValueError(
                f"size ({size}) must be at least {self.least()}, because less is left of an image "
                f"than the last pool takes; do size={self.least()}"
            )
        w1, w2, w3, dense = width, width * 8 // 3, width * 4, width * 128 // 3
        first = nn.Conv2d(in_channels, w1, self.kernel_size, self.stride, self.padding)
        self.c1 = nn.Sequential(first, nn.ReLU())
        self.c2 = nn.Sequential(nn.Conv2d(w1, w2, 5, padding=2, groups=groups), nn.ReLU())
        self.c3 = nn.Sequential(nn.Conv2d(w2, w3, 3, padding=1), nn.ReLU())
        self.c4 = nn.Sequential(nn.Conv2d(w3, w3, 3, padding=1, groups=groups), nn.ReLU())
        self.c5 = nn.Sequential(nn.Conv2d(w3, w2, 3, padding=1, groups=groups), nn.ReLU())
        # torch divides the sum of (3) by its 5 terms, the paper does not
        self.norm = nn.LocalResponseNorm(5, alpha=5 * 1e-4, beta=0.75, k=2.0)
        self.pool = nn.MaxPool2d(3, 2)
        self.f6 = nn.Sequential(nn.Dropout(dropout), nn.Linear(w2 * last**2, dense), nn.ReLU())
        self.f7 = nn.Sequential(nn.Dropout(dropout), nn.Linear(dense, dense), nn.ReLU())
        self.output = nn.Linear(dense, classes)
        init_he_weights(self)

    def forward(
        self, x: Float[Tensor, "batch channels size size"]
    ) -> Float[Tensor, "batch classes"]:
        require_images(self, x, side=self.size)
        h = self.c1(x)  # (1) (2)
        r = self.norm(h)  # (3)
        m = self.pool(r)  # (4)
        h = self.c2(m)  # (1) (2)
        r = self.norm(h)  # (3)
        m = self.pool(r)  # (4)
        h = self.c3(m)  # (1) (2)
        h = self.c4(h)  # (1) (2)
        h = self.c5(h)  # (1) (2)
        m = self.pool(h)  # (4)
        f = self.f6(m.flatten(1))  # (5)
        f = self.f7(f)  # (5)
        y: Tensor = self.output(f)  # (6)
        return y

    @classmethod
    def last_size(cls, size: int) -> int:
        """Height of the maps after the last pool, 0 or less where nothing is left."""
        size = (size + 2 * cls.padding - cls.kernel_size) // cls.stride + 1
        for _ in range(3):
            size = (size - 3) // 2 + 1
        return size

    @classmethod
    def least(cls) -> int:
        """The smallest images, of which one pixel is left."""
        return (15 - 1) * cls.stride + cls.kernel_size - 2 * cls.padding


class SmallAlexNet(AlexNet):
    """AlexNet for images of 32 x 32: a first layer of 5 x 5 filters without a stride."""

    kernel_size: ClassVar[int] = 5
    stride: ClassVar[int] = 1
    padding: ClassVar[int] = 2


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class AlexNetPhotographs(ImageClassification[AlexNet]):
    """Classify images by AlexNet; `width=96 size=227` is the paper's own."""

    network: ClassVar[type[AlexNet]] = AlexNet

    width: int = 12
    """Feature maps of the first layer, from which all others follow; 96 in the paper."""
    groups: int = 1
    """Parts of layers 2, 4 and 5 that do not see each other; 2 in the paper."""
    dropout: float = 0.5
    """Share of the inputs of the dense layers that are left out of an update."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.groups in (1, 2), "groups", "1 or 2")
        unit = 3 * self.groups
        fits = self.width >= 1 and self.width % unit == 0
        self.require(fits, "width", f"a multiple of {unit}, because the second layer has 8/3 of it")
        self.require(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")

    def model(self, data: Data) -> AlexNet:
        in_channels, height, width = data.spec["shape"]
        least = self.network.least()
        if height != width or height < least:
            raise UserError(
                f"size ({self.size}: images of {width}x{height}) must give squares of at least "
                f"{least} pixels, because three pools follow; do size={max(least, height, width)}"
            )
        return self.network(
            in_channels,
            len(data.spec["classes"]),
            groups=self.groups,
            width=self.width,
            size=height,
            dropout=self.dropout,
        )

    def activation_layers(self, model: AlexNet) -> Sequence[str]:
        return ["c1", "c2", "c3", "c4", "c5", "f6", "f7"]

    def tiny(self) -> Self:
        return replace(
            self, data="digits", holdout=True, size=self.network.least(), width=6, steps=4,
            batch_size=8,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SmallAlexNetPhotographs(AlexNetPhotographs):
    """Classify images of about 32 x 32 by AlexNet without its first strides."""

    network: ClassVar[type[AlexNet]] = SmallAlexNet


RECIPES = {
    "alexnet": AlexNetPhotographs(
        data="digits", size=67, pixels=6.0, degrees=10.0, scale=0.1,
        steps=900, batch_size=32, lr=1e-3, optimizer="adamw", weight_decay=0.05,
        schedule="one-cycle", goal="accuracy >= 0.97", covers=("C16",),
    ),
    "alexnet-cifar": SmallAlexNetPhotographs(
        data="cifar10", holdout=False, pixels=4.0, mirror=True, width=48,
        steps=7800, batch_size=256, lr=2e-3, optimizer="adamw", weight_decay=0.05,
        schedule="one-cycle", eval_every=1950, goal="accuracy >= 0.75", covers=("C16",),
    ),
}  # fmt: skip
