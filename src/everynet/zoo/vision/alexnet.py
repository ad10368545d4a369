"""AlexNet, the network that made deep learning win: five convolutions, three dense layers.

    a_k = b_k + sum_c w_kc * x_c                               (1)  convolution
    h_k = max(0, a_k)                                          (2)  rectifier
    r_k = h_k / (2 + 1e-4 sum_{j=k-2}^{k+2} h_j^2)^0.75        (3)  local response normalisation
    m_k(i, j) = max of r_k over 3 x 3 pixels, 2 apart          (4)  overlapping pooling
    h = max(0, W (d * m) + b),  d_i 0 or 2 while training      (5)  dense, after dropout
    y = W h + b                                                (6)  logits, one for each class

(3) lets neighbouring maps compete for large answers at the same pixel; it follows the first two
convolutions, (4) both of them and the fifth. Sides go 227-55-27-27-13-13-13-13-6. With one group
there are 62,378,344 parameters, 58.6 million of them in (5) and (6), the first dense layer alone
having 9216 x 4096, and 1.135 billion multiplications. The paper spread the maps over two GPUs that
did not talk in convolutions 2, 4 and 5: with two groups c in (1) runs over the maps of k's own
half, which leaves 60,965,224.

Krizhevsky, Sutskever, Hinton (2012), "ImageNet Classification with Deep Convolutional Neural
Networks", NIPS 25, doi:10.1145/3065386. Unlike the paper, weights start as He et al. (2015) say,
so that thin networks learn too, and the paper's images of 224 x 224 are the 227 x 227 that its
sizes need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from jaxtyping import Float
from torch import Tensor, nn

from everynet.data.dataset import Data
from everynet.nn.conv import he_start
from everynet.nn.input_checks import require_images
from everynet.system.errors import UserError
from everynet.zoo.vision.classifier import ImageClassification


class AlexNet(nn.Module):
    """Maps images of `size` x `size` to logits; `width` are the maps of the first layer."""

    kernel_size: ClassVar[int] = 11  # of the first layer, whose stride and padding these are
    stride: ClassVar[int] = 4
    padding: ClassVar[int] = 0

    def __init__(
        self,
        channels: int = 3,
        classes: int = 1000,
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
        side = self.last_side(size)
        if side < 1:
            raise ValueError(
                f"size ({size}) must be at least {self.least()}, because less is left of an image "
                f"than the last pool takes; do size={self.least()}"
            )
        w1, w2, w3, dense = width, width * 8 // 3, width * 4, width * 128 // 3
        first = nn.Conv2d(channels, w1, self.kernel_size, self.stride, self.padding)
        self.c1 = nn.Sequential(first, nn.ReLU())
        self.c2 = nn.Sequential(nn.Conv2d(w1, w2, 5, padding=2, groups=groups), nn.ReLU())
        self.c3 = nn.Sequential(nn.Conv2d(w2, w3, 3, padding=1), nn.ReLU())
        self.c4 = nn.Sequential(nn.Conv2d(w3, w3, 3, padding=1, groups=groups), nn.ReLU())
        self.c5 = nn.Sequential(nn.Conv2d(w3, w2, 3, padding=1, groups=groups), nn.ReLU())
        # torch divides the sum of (3) by its 5 terms, the paper does not
        self.norm = nn.LocalResponseNorm(5, alpha=5 * 1e-4, beta=0.75, k=2.0)
        self.pool = nn.MaxPool2d(3, 2)
        self.f6 = nn.Sequential(nn.Dropout(dropout), nn.Linear(w2 * side**2, dense), nn.ReLU())
        self.f7 = nn.Sequential(nn.Dropout(dropout), nn.Linear(dense, dense), nn.ReLU())
        self.output = nn.Linear(dense, classes)
        he_start(self)

    def forward(
        self, x: Float[Tensor, "batch channels size size"]
    ) -> Float[Tensor, "batch classes"]:
        require_images(self, x, side=self.size)
        h = self.c1(x)  # (1) (2)
        r = self.norm(h)  # (3)
        m = self.pool(r)  # (4)
        m = self.pool(self.norm(self.c2(m)))  # (1) (2) (3) (4)
        h = self.c5(self.c4(self.c3(m)))  # (1) (2)
        m = self.pool(h).flatten(1)  # (4)
        h = self.f7(self.f6(m))  # (5)
        y: Tensor = self.output(h)  # (6)
        return y

    @classmethod
    def last_side(cls, size: int) -> int:
        """Side of the maps after the last pool, 0 or less where nothing is left."""
        side = (size + 2 * cls.padding - cls.kernel_size) // cls.stride + 1
        for _ in range(3):
            side = (side - 3) // 2 + 1
        return side

    @classmethod
    def least(cls) -> int:
        """The smallest images, of which one pixel is left."""
        return (15 - 1) * cls.stride + cls.kernel_size - 2 * cls.padding


class SmallAlexNet(AlexNet):
    """AlexNet for images of 32 x 32: its first filters look at 5 x 5 pixels and miss none."""

    kernel_size: ClassVar[int] = 5
    stride: ClassVar[int] = 1
    padding: ClassVar[int] = 2


@dataclass(frozen=True, kw_only=True)
class Photographs(ImageClassification[AlexNet]):
    """Tell images apart by AlexNet; `width=96 size=227` is the paper's own."""

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
        channels, height, width = data.spec["shape"]
        least = self.network.least()
        if height != width or height < least:
            raise UserError(
                f"size ({self.size}: images of {width}x{height}) must give squares of at least "
                f"{least} pixels, because three pools follow; do size={max(least, height, width)}"
            )
        return self.network(
            channels,
            len(data.spec["classes"]),
            groups=self.groups,
            width=self.width,
            size=height,
            dropout=self.dropout,
        )

    def drawn(self, model: AlexNet) -> Sequence[str]:
        return ["c1", "c2", "c3", "c4", "c5", "f6", "f7"]

    def tiny(self) -> Self:
        size = self.network.least()
        return replace(super().tiny(), width=6, size=size, holdout=True)


@dataclass(frozen=True, kw_only=True)
class SmallPhotographs(Photographs):
    """Tell images of about 32 x 32 apart by AlexNet without its first strides."""

    network: ClassVar[type[AlexNet]] = SmallAlexNet


# Test accuracy of seeds 0, 1, 2: alexnet on one CPU thread, 45 s (seeds 0 and 1); alexnet-cifar
# on an H200 in bf16, side by side with six other trainings.
# alexnet          0.9749 0.9721
# alexnet-cifar    0.8601 0.8620 0.8602    7,510,218 parameters
RECIPES = {
    "alexnet": Photographs(
        data="digits",
        size=67,
        steps=900,
        batch_size=32,
        lr=1e-3,
        optimizer="adamw",
        weight_decay=0.05,
        schedule="one-cycle",
        pixels=6.0,
        degrees=10.0,
        scale=0.1,
        goal="accuracy >= 0.97",
        covers=("C16",),
    ),
    "alexnet-cifar": SmallPhotographs(
        data="cifar10",
        width=48,
        steps=7800,
        batch_size=256,
        lr=2e-3,
        optimizer="adamw",
        weight_decay=0.05,
        schedule="one-cycle",
        pixels=4.0,
        mirror=True,
        holdout=False,
        eval_every=1950,
        goal="accuracy >= 0.75",
        covers=("C16",),
    ),
}
