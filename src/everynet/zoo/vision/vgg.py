"""VGG, depth from small filters alone: stages of 3 x 3 convolutions, then three dense layers.

    a_k = b_k + sum_c w_kc * x_c                             (1)  convolution, 3 x 3, same size
    h_k = max(0, a_k)                                        (2)  rectifier
    m_k(i, j) = max of h_k over 2 x 2 pixels                 (3)  pooling, after each of five stages
    h = d * max(0, W m + b),  d_i 0 or 2 while training      (4)  dense, twice, with dropout
    y = W h + b                                              (5)  logits, one for each class

Two layers of (1) see 5 x 5 pixels and three see 7 x 7, as one layer of that size would, with 27
instead of 49 weights for each pair of maps and two rectifiers more. Depth is not what makes the
network large: of the 138,357,544 parameters of 16 layers 123.6 million sit in the three dense ones,
and going to 19 layers adds 5.3 million. The convolutions have the work: all but 0.12 of 15.47
billion multiplications.

The small form for images of 32 x 32 has the same stages, normalised, and one dense layer:

    n_k = g_k (a_k - mean(a_k)) / std(a_k) + b_k             (6)  batch normalisation, before (2)

Simonyan, Zisserman (2014), "Very Deep Convolutional Networks for Large-Scale Image Recognition",
arXiv:1409.1556, configurations A, B, D and E. Unlike the paper, a mean over parts of the maps
stands before the dense layers: it leaves what comes of images of 224 x 224 as it is, and lets
others in. Modules are named as in torchvision, so that weights of that layout can be started from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn

from everynet.data.dataset import Data, History
from everynet.nn.conv import he_start
from everynet.nn.input_checks import require_images
from everynet.nn.layers import layer_table
from everynet.recipes.recipe import Pictures
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
    """Maps images of 32 x 32 and more to logits; `width` are the maps of the first stage."""

    def __init__(
        self,
        channels: int = 3,
        classes: int = 1000,
        *,
        depth: int = 16,
        width: int = 64,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(*_stages(channels, depth, width, _plain))
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        dense = 64 * width
        self.classifier = nn.Sequential(
            *(nn.Linear(8 * width * 7 * 7, dense), nn.ReLU(), nn.Dropout(dropout)),  # (4)
            *(nn.Linear(dense, dense), nn.ReLU(), nn.Dropout(dropout)),  # (4)
            nn.Linear(dense, classes),  # (5)
        )
        he_start(self)

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch classes"]:
        require_images(self, x, least=32)
        m = self.features(x)
        y: Tensor = self.classifier(self.avgpool(m).flatten(1))
        return y


class SmallVGG(nn.Module):
    """Maps images of 32 x 32 and more to logits by normalised stages and one dense layer."""

    def __init__(
        self,
        channels: int = 3,
        classes: int = 10,
        *,
        depth: int = 16,
        width: int = 64,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(*_stages(channels, depth, width, _normed))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(8 * width, classes))
        he_start(self)

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch classes"]:
        require_images(self, x, least=32)
        m = self.features(x)
        y: Tensor = self.classifier(self.avgpool(m).flatten(1))
        return y


def _plain(channels: int, width: int) -> Iterator[nn.Module]:
    yield nn.Conv2d(channels, width, 3, padding=1)  # (1)
    yield nn.ReLU()  # (2)


def _normed(channels: int, width: int) -> Iterator[nn.Module]:
    yield nn.Conv2d(channels, width, 3, padding=1, bias=False)  # the norm has one
    yield nn.BatchNorm2d(width)  # (6)
    yield nn.ReLU()


def _stages(
    channels: int, depth: int, width: int, layer: Callable[[int, int], Iterator[nn.Module]]
) -> Iterator[nn.Module]:
    if depth not in STAGES:
        raise ValueError(
            f"depth ({depth}) must be {KNOWN}, because the paper has no other stages; do depth=16"
        )
    for layers, times in zip(STAGES[depth], WIDTHS, strict=True):
        for _ in range(layers):
            yield from layer(channels, times * width)
            channels = times * width
        yield nn.MaxPool2d(2)  # (3)


@dataclass(frozen=True, kw_only=True)
class Photographs(ImageClassification[VGG | SmallVGG]):
    """Tell images apart by VGG; `width=64 size=224` is the paper's own."""

    network: ClassVar[type[VGG | SmallVGG]] = VGG
    captions: ClassVar[Mapping[str, str]] = {
        "activations": ImageClassification.captions["activations"],
        "costs": (
            "Where the weights sit and where the work is in the paper's network: the dense layers "
            "at the foot hold most parameters, the convolutions do nearly all multiplications."
        ),
        "misclassified": ImageClassification.captions["misclassified"],
    }

    depth: int = 11
    """Layers with weights: 11, 13, 16 or 19."""
    width: int = 8
    """Feature maps of the first stage, from which all others follow; 64 in the paper."""
    dropout: float = 0.5
    """Share of the units before a dense layer that are left out of an update."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.depth in STAGES, "depth", f"{KNOWN}; do depth=16")
        self.require(self.width >= 1, "width", "at least 1")
        self.require(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")

    def model(self, data: Data) -> VGG | SmallVGG:
        channels, *sides = data.spec["shape"]
        if min(sides) < LEAST:
            raise UserError(
                f"size ({min(sides)}) must be at least {LEAST}, because five stages halve the "
                f"image; do size={LEAST}"
            )
        classes = len(data.spec["classes"])
        return self.network(
            channels, classes, depth=self.depth, width=self.width, dropout=self.dropout
        )

    def drawn(self, model: VGG | SmallVGG) -> Sequence[str]:
        """What goes into each pool, and the dense layers."""
        stages = [
            f"features.{n - 1}" for n, m in enumerate(model.features) if isinstance(m, nn.MaxPool2d)
        ]
        dense = [f"classifier.{n}" for n, m in enumerate(model.classifier) if type(m) is nn.ReLU]
        return [*stages, *dense]

    def pictures(self, model: VGG | SmallVGG, data: Data, history: History) -> Pictures:
        """Those of every classifier, and what each layer costs."""
        priced = costs(*self.priced(model, data))
        return {**super().pictures(model, data, history), "costs": priced}

    def priced(self, model: VGG | SmallVGG, data: Data) -> tuple[nn.Module, Sequence[int]]:
        """The network whose costs are drawn, and the shape of its images: those of the paper."""
        with torch.device("meta"):
            return VGG(depth=self.depth), (3, 224, 224)

    def tiny(self) -> Self:
        return replace(super().tiny(), depth=11, width=2, size=LEAST, holdout=True)


def costs(model: nn.Module, shape: Sequence[int]) -> Figure:
    """Parameters and multiplications of convolutions and dense layers, for images of this shape."""
    rows = [row for row in layer_table(model, shape) if row.kind in ("Conv2d", "Linear")]
    dense = torch.tensor([row.kind == "Linear" for row in rows])
    found = {
        "parameters": torch.tensor([float(row.parameters) for row in rows]),
        "multiplications": torch.tensor([float(row.multiplications or 0) for row in rows]),
    }
    return layer_costs(
        [row.name for row in rows],
        {
            cost: {"convolutions": values * ~dense, "dense": values * dense}
            for cost, values in found.items()
        },
        title=f"images of {shape[1]} x {shape[2]}",
    )


@dataclass(frozen=True, kw_only=True)
class SmallPhotographs(Photographs):
    """Tell images of about 32 x 32 apart by normalised stages and one dense layer."""

    network: ClassVar[type[VGG | SmallVGG]] = SmallVGG
    captions: ClassVar[Mapping[str, str]] = {
        **Photographs.captions,
        "costs": (
            "Where the weights sit and where the work is: with one dense layer instead of three "
            "the last stages hold most parameters, and all but the last share the multiplications."
        ),
    }

    def priced(self, model: VGG | SmallVGG, data: Data) -> tuple[nn.Module, Sequence[int]]:
        """The network at hand."""
        return model, data.spec["shape"]


# Test accuracy of seeds 0, 1, 2: vgg on one CPU thread, 55 s (seed 0); vgg-cifar on an H200 in
# bf16, side by side with six other trainings.
# vgg          0.9916
# vgg-cifar    0.9119 0.9154 0.9122    2,356,458 parameters
RECIPES = {
    "vgg": Photographs(
        data="digits",
        size=32,
        steps=1200,
        batch_size=32,
        lr=1e-3,
        optimizer="adamw",
        weight_decay=0.05,
        schedule="one-cycle",
        pixels=3.0,
        degrees=10.0,
        scale=0.1,
        goal="accuracy >= 0.97",
        covers=("C17",),
    ),
    "vgg-cifar": SmallPhotographs(
        data="cifar10",
        depth=13,
        width=32,
        dropout=0.2,
        steps=7800,
        batch_size=256,
        lr=0.1,
        optimizer="nesterov",
        weight_decay=5e-4,
        schedule="one-cycle",
        pixels=4.0,
        mirror=True,
        holdout=False,
        eval_every=1950,
        goal="accuracy >= 0.88",
        covers=("C17",),
    ),
}
