"""VGG, depth from small filters alone: stages of 3 x 3 convolutions, then three dense layers.

    a_k = b_k + sum_c w_kc * x_c                             (1)  convolution, 3 x 3, same size
    h_k = max(0, a_k)                                        (2)  rectifier
    m_k(i, j) = max of h_k over 2 x 2 pixels                 (3)  pooling, after each of five stages
    f = d o max(0, W m + b),  d_i 0 or 2 while training      (4)  dense, twice, with dropout
    y = W f + b                                              (5)  logits, one for each class

x_c are the maps that a layer is given (at first the channels of the image), w_kc is a kernel; *
slides it over a map without flipping it (cross-correlation), o multiplies element by element, and d
drops half of the units. Two layers of (1) see 5 x 5 pixels and three see 7 x 7, as one layer of
that size would, with 27 instead of 49 weights for each pair of maps and two rectifiers more. Of the
138,357,544 parameters of 16 layers 123.6 million sit in the three dense ones, and going to 19
layers adds 5.3 million; of 15.47 billion multiplications all but 0.12 are the convolutions'.

The small form for images of 32 x 32 has the same stages, normalised, and one dense layer:

    n_k = g_k (a_k - mean(a_k)) / std(a_k) + b_k             (6)  batch normalisation, before (2)

Simonyan, Zisserman (2014), "Very Deep Convolutional Networks for Large-Scale Image Recognition",
arXiv:1409.1556, configurations A, B, D and E. Unlike the paper, a mean over parts of the maps
stands before the dense layers: it leaves maps of 7 x 7, those of images of 224 x 224, as they are,
and lets others in. Modules are named as in torchvision, so that weights of that layout can be
loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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

STAGES = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""Convolutions of the five stages, by the number of all layers that have weights."""
WIDTHS = (1, 2, 4, 8, 8)
"""Feature maps of the stages, in those of the first."""
LEAST = 32  # of which five pools leave one pixel
KNOWN = "11, 13, 16 or 19"


class VGG(nn.Module):
    """Maps images of 32 x 32 and more to logits; `width` are the maps of the first stage.

    stage    1           2         3         4         5       dense         output
    maps     64          128       256       512       512     4096, twice   classes
    size     112 x 112   56 x 56   28 x 28   14 x 14   7 x 7   (behind the pool, for 224 x 224)
    """

    def __init__(
        self,
        in_channels: int,
        classes: int,
        *,
        depth: int = 16,
        width: int = 64,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(*_stages(in_channels, depth, width, normed=False))
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        dense = 64 * width
        self.classifier = nn.Sequential(
            *(nn.Linear(8 * width * 7 * 7, dense), nn.ReLU(), nn.Dropout(dropout)),
            *(nn.Linear(dense, dense), nn.ReLU(), nn.Dropout(dropout)),
            nn.Linear(dense, classes),
        )
        init_he_weights(self)

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch classes"]:
        require_images(self, x, least=LEAST)
        m = self.features(x)  # (1) (2) (3)
        f = self.avgpool(m).flatten(1)
        *dense, output = self.classifier
        for layer in dense:
            f = layer(f)  # (4)
        y: Tensor = output(f)  # (5)
        return y


class SmallVGG(nn.Module):
    """Maps images of 32 x 32 and more to logits by normalised stages and one dense layer."""

    def __init__(
        self,
        in_channels: int,
        classes: int,
        *,
        depth: int = 16,
        width: int = 64,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(*_stages(in_channels, depth, width, normed=True))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(8 * width, classes))
        init_he_weights(self)

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch classes"]:
        require_images(self, x, least=LEAST)
        m = self.features(x)  # (1) (6) (2) (3)
        v = self.avgpool(m).flatten(1)
        y: Tensor = self.classifier(v)  # (5)
        return y


def _stages(in_channels: int, depth: int, width: int, *, normed: bool) -> Iterator[nn.Module]:
    """The layers of the five stages, one after the other."""
    if depth not in STAGES:
        raise ValueError(
            f"depth ({depth}) must be {KNOWN}, because the paper has no other stages; do depth=16"
        )
    for layers, times in zip(STAGES[depth], WIDTHS, strict=True):
        for _ in range(layers):
            # a norm has the bias
            yield nn.Conv2d(in_channels, times * width, 3, padding=1, bias=not normed)
            if normed:
                yield nn.BatchNorm2d(times * width)
            yield nn.ReLU()
            in_channels = times * width
        yield nn.MaxPool2d(2)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class VGGPhotographs(ImageClassification[VGG | SmallVGG]):
    """Classify images by VGG; `width=64 size=224` is the paper's own."""

    network: ClassVar[type[VGG | SmallVGG]] = VGG

    depth: int = 11
    """Layers with weights: 11, 13, 16 or 19."""
    width: int = 8
    """Feature maps of the first stage, from which all others follow; 64 in the paper."""
    dropout: float = 0.5
    """Share of the units before a dense layer that are left out of an update."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.depth in STAGES, "depth", f"{KNOWN}; do depth=16")
        self.at_least(1, "width")
        self.require(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")

    def model(self, data: Data) -> VGG | SmallVGG:
        in_channels, *size = data.spec["shape"]
        if min(size) < LEAST:
            raise UserError(
                f"size ({min(size)}) must be at least {LEAST}, because five stages halve the "
                f"image; do size={LEAST}"
            )
        classes = len(data.spec["classes"])
        return self.network(
            in_channels, classes, depth=self.depth, width=self.width, dropout=self.dropout
        )

    def activation_layers(self, model: VGG | SmallVGG) -> Sequence[str]:
        """The last layer of each stage, and the dense layers."""
        stages = [
            f"features.{n - 1}" for n, m in enumerate(model.features) if isinstance(m, nn.MaxPool2d)
        ]
        dense = [f"classifier.{n}" for n, m in enumerate(model.classifier) if type(m) is nn.ReLU]
        return [*stages, *dense]

    def picture_costs(
        self, model: VGG | SmallVGG, data: Data, history: History
    ) -> tuple[Figure, dict[str, float | str]]:
        """Parameters and multiplications of each layer of {which} network.

        The dense layers hold {dense:.0%} of the parameters, the convolutions do {convolutions:.0%}
        of the multiplications.
        """
        if self.network is SmallVGG:
            drawn, shares = draw_costs(model, data.spec["shape"])
            return drawn, {**shares, "which": "this"}
        with torch.device("meta"):
            published = VGG(3, 1000, depth=self.depth)
        drawn, shares = draw_costs(published, (3, 224, 224))
        return drawn, {**shares, "which": "the paper's"}

    def tiny(self) -> Self:
        return replace(super().tiny(), depth=11, size=LEAST, holdout=True)


def draw_costs(model: nn.Module, shape: Sequence[int]) -> tuple[Figure, dict[str, float]]:
    """What each layer costs for images of this shape, and the shares of the two kinds of layers."""
    rows = [row for row in layer_table(model, shape) if row.kind in ("Conv2d", "Linear")]
    dense = torch.tensor([row.kind == "Linear" for row in rows])
    parameters = torch.tensor([float(row.parameters) for row in rows])
    products = torch.tensor([float(row.multiplications or 0) for row in rows])
    drawn = layer_costs(
        [row.name for row in rows],
        {
            cost: {"convolutions": values * ~dense, "dense": values * dense}
            for cost, values in (("parameters", parameters), ("multiplications", products))
        },
        title=f"{type(model).__name__}, images of {shape[1]} x {shape[2]}",
    )
    shares = {
        "dense": float(parameters[dense].sum() / parameters.sum()),
        "convolutions": float(products[~dense].sum() / products.sum()),
    }
    return drawn, shares


@dataclass(frozen=True, kw_only=True)
class SmallVGGPhotographs(VGGPhotographs):
    """Classify images of about 32 x 32 by normalised stages and one dense layer."""

    network: ClassVar[type[VGG | SmallVGG]] = SmallVGG


RECIPES = {
    "vgg": VGGPhotographs(
        data="digits", size=32, pixels=3.0, degrees=10.0, scale=0.1,
        steps=1200, batch_size=32, lr=1e-3, optimizer="adamw", weight_decay=0.05,
        schedule="one-cycle", goal="accuracy >= 0.97", covers=("C17",),
    ),
    "vgg-cifar": SmallVGGPhotographs(
        data="cifar10", holdout=False, pixels=4.0, mirror=True, depth=13, width=32, dropout=0.2,
        steps=7800, batch_size=256, lr=0.1, optimizer="nesterov", weight_decay=5e-4,
        schedule="one-cycle", eval_every=1950, goal="accuracy >= 0.88", covers=("C17",),
    ),
}  # fmt: skip
