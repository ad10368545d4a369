"""A small convolutional network of today: four blocks, each halving the image, then a mean.

    a_k = sum_c w_kc * x_c                                  (1)  convolution, 3 x 3, same size
    m_k(i, j) = max of a_k over 2 x 2 pixels                (2)  pooling; none in the last block
    n_k = g_k (m_k - mean(m_k)) / std(m_k) + b_k            (3)  batch normalisation
    h_k = max(0, n_k)                                       (4)  rectifier
    v_k = mean of h_k over all pixels                       (5)  global average
    y = W v + b                                             (6)  logits, one for each class

x_c are the maps that a block is given (at first the channels of the image), w_kc a kernel, and *
slides it over a map without flipping it (cross-correlation). The mean and standard deviation of (3)
are taken over the pixels of a batch while training, and are running averages afterwards. Pooling
comes before (3) and (4), which gives the same as after them where g_k > 0, since both rise with m,
and saves three quarters of their work. With the global average the same weights take images of any
size.

Springenberg, Dosovitskiy, Brox, Riedmiller (2014), "Striving for Simplicity: The All
Convolutional Net", arXiv:1412.6806; Ioffe, Szegedy (2015), "Batch Normalization",
arXiv:1502.03167; Lin, Chen, Yan (2013), "Network In Network", arXiv:1312.4400 for (5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from everynet.data.dataset import Data
from everynet.nn.input_checks import require_images
from everynet.zoo.vision.classifier import ImageClassification, check_halvings


class CNN(nn.Module):
    """Maps images to logits through one block for each of `widths`; all but the last halve them.

    For images of 32 x 32 and widths of (16, 32, 64, 64):

    layer    block 0   block 1   block 2   block 3   mean   output
    maps     16        32        64        64        64     classes
    size     16 x 16   8 x 8     4 x 4     4 x 4     1 x 1
    """

    def __init__(self, in_channels: int, classes: int, *, widths: tuple[int, ...]) -> None:
        super().__init__()
        last = len(widths) - 1
        self.blocks = nn.Sequential(
            *(
                ConvBlock(before, width, pools=number < last)
                for number, (before, width) in enumerate(pairwise((in_channels, *widths)))
            )
        )
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.output = nn.Linear(widths[-1], classes)

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch classes"]:
        require_images(self, x)
        h = self.blocks(x)
        v = self.mean(h).flatten(1)  # (5)
        y: Tensor = self.output(v)  # (6)
        return y


class ConvBlock(nn.Module):
    """Maps images to feature maps, half as high and wide where it pools."""

    def __init__(self, in_channels: int, out_channels: int, *, pools: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            in_channels, out_channels, 3, padding=1, bias=False
        )  # the norm has one
        self.pool = nn.MaxPool2d(2) if pools else nn.Identity()
        self.norm = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU()

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch maps rows columns"]:
        a = self.conv(x)  # (1)
        m = self.pool(a)  # (2)
        n = self.norm(m)  # (3)
        h: Tensor = self.relu(n)  # (4)
        return h


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class CNNPhotographs(ImageClassification[CNN]):
    """Classify images of any size."""

    widths: tuple[int, ...] = (16, 32, 64, 64)
    """Feature maps of the blocks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(min(self.widths, default=0) >= 1, "widths", "one or more numbers from 1 up")

    def model(self, data: Data) -> CNN:
        check_halvings(data.spec, self.widths, "block")
        return CNN(data.spec["shape"][0], len(data.spec["classes"]), widths=self.widths)

    def activation_layers(self, model: CNN) -> Sequence[str]:
        return [f"blocks.{number}" for number in range(len(model.blocks))]


RECIPES = {
    "cnn-mnist": CNNPhotographs(
        data="mnist", pixels=2.0, degrees=10.0, scale=0.1,
        steps=2526, batch_size=128, lr=1e-2, optimizer="adamw", weight_decay=0.05,
        schedule="one-cycle", goal="accuracy >= 0.994", covers=("C21",),
    ),
    "cnn-cifar": CNNPhotographs(
        data="cifar10-small", pixels=3.0, mirror=True, widths=(32, 64, 128, 128),
        steps=2800, batch_size=64, lr=1e-2, optimizer="adamw", weight_decay=0.05,
        schedule="one-cycle", goal="accuracy >= 0.76", covers=("C21",),
    ),
}  # fmt: skip
