"""GoogLeNet: modules that look through small and large filters at once, made cheap by 1 x 1 ones.

    a = max(0, b + sum_c w_c * x_c)                         (1)  convolution, rectified
    r_k = a_k / (1 + 2e-5 sum_{j=k-2}^{k+2} a_j^2)^0.75     (2)  local response normalisation
    m_k(i, j) = max of a_k over 3 x 3 pixels, 2 apart       (3)  pooling halves height and width
    u = [A x, B x, C x, P x]                                (4)  naive inception module
    u = [A x, B B' x, C C' x, D P x]                        (5)  inception module with bottlenecks
    v_k = mean of u_k over all pixels                       (6)  global average
    y = W (d o v) + b                                       (7)  logits, after dropout
    z = W'(d o max(0, W a + b)) + b'                        (8)  logits of an auxiliary head
    L = H(y, t) + 0.3 (H(z_1, t) + H(z_2, t))               (9)  loss, H the cross-entropy

x are the maps that a layer is given; * slides a kernel over a map without flipping it
(cross-correlation), o multiplies element by element, d drops units while training and t is the true
class. A, B and C are (1) with filters of 1 x 1, 3 x 3 and 5 x 5, P the highest of 3 x 3 pixels
around each, and B', C' and D are (1) with filters of 1 x 1, which make few maps of many. The a of
(8) is (1) with 128 maps of 1 x 1, of means over 5 x 5 pixels, 3 apart. The heads, behind modules 4a
and 4d, bring gradients to the lower half of the network; after training they are not used.

On 256 maps of 28 x 28, with 128 maps of 1 x 1, 192 of 3 x 3, 96 of 5 x 5 and bottlenecks of 64,
(4) takes 854,196,224 multiplications for 672 maps and (5) 271,351,808 for 480. The number of
358,055,936 that is sometimes given for (5) counts its 3 x 3 branch, B, twice. Without its heads
the network has 6,998,552 parameters, with them 13,378,280.

Szegedy et al. (2014), "Going Deeper with Convolutions", arXiv:1409.4842, table 1. The numbers of
(2), which the paper does not give, are those of its copy in Caffe. Unlike the paper, weights are
initialised as in He et al. (2015). Unlike the paper, too, the small form for images of 32 x 32 has
a stem without strides, and batch normalisation in every convolution instead of (2) and of heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn

from everynet.data.dataset import Batch, Data, History, Terms
from everynet.data.images.augment import mixed_cross_entropy, mixup
from everynet.nn.conv import ConvNormReLU, ConvReLU, init_he_weights
from everynet.nn.input_checks import require_images
from everynet.nn.layers import activations, layer_table
from everynet.plot import activation_maps
from everynet.system.errors import UserError
from everynet.zoo.vision.classifier import ImageClassification, valid_images
from everynet.zoo.vision.pictures.costs import layer_costs

Maps = Float[Tensor, "batch channels height width"]
OutMaps = Float[Tensor, "batch maps height width"]
Logits = Float[Tensor, "batch classes"]
AFTER_POOL = ("4a", "5a")  # the modules behind a pool
LEAST = 65  # of such images 5 x 5 pixels are left where the heads look


class GoogLeNet(nn.Module):
    """Maps images of `size` x `size` to logits; `width` are the maps of the first layer.

    module   stem      3a        3b        4a        4b ... 4d   4e        5a      5b
    maps     192       256       480       512       512, 528    832       832     1024
    size     28 x 28   28 x 28   28 x 28   14 x 14   14 x 14     14 x 14   7 x 7   7 x 7
    """

    def __init__(
        self,
        in_channels: int,
        classes: int,
        *,
        width: int = 64,
        size: int = 224,
        dropout: float = 0.4,
    ) -> None:
        super().__init__()
        inside = -(-size // 16)  # the size of the maps of modules 4a to 4e
        if inside < 5:
            raise ValueError(
                f"size ({size}) must be at least {LEAST}, because the auxiliary heads take the "
                f"mean of 5 x 5 pixels of maps 16 times smaller; do size={LEAST}"
            )
        norm = nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=1.0)  # torch: 1e-4 / 5 in (2)
        self.pool = nn.MaxPool2d(3, 2, padding=1)
        self.stem = nn.Sequential(
            *(ConvReLU(in_channels, width, 7, 2), self.pool, norm),
            *(ConvReLU(width, width, 1), ConvReLU(width, 3 * width, 3), norm, self.pool),
        )
        self.inception = make_modules(width, Inception)
        self.head1 = AuxiliaryHead(out_maps("4a", width), classes, width, inside)
        self.head2 = AuxiliaryHead(out_maps("4d", width), classes, width, inside)
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(dropout)
        self.output = nn.Linear(16 * width, classes)
        init_he_weights(self)

    def forward(self, x: Float[Tensor, "batch channels size size"]) -> Logits:
        return self.classify(self.module_outputs(x)["5b"])

    def with_heads(
        self, x: Float[Tensor, "batch channels size size"]
    ) -> tuple[Logits, Logits, Logits]:
        """The logits, and those of the two auxiliary heads: for training."""
        u = self.module_outputs(x)
        return self.classify(u["5b"]), self.head1(u["4a"]), self.head2(u["4d"])

    def module_outputs(self, x: Tensor) -> dict[str, Tensor]:
        """The maps u of each module."""
        require_images(self, x)
        u, outputs = self.stem(x), {}  # (1) (2) (3)
        for name, module in self.inception.items():
            if name in AFTER_POOL:
                u = self.pool(u)  # (3)
            u = module(u)  # (5)
            outputs[name] = u
        return outputs

    def classify(self, u: Tensor) -> Tensor:
        """Logits from the maps of the last module."""
        v = self.mean(u).flatten(1)  # (6)
        y: Tensor = self.output(self.drop(v))  # (7)
        return y


class Inception(nn.Module):
    """Maps feature maps to those of three filters and a pool, each behind or before a 1 x 1."""

    conv: ClassVar[type[ConvReLU | ConvNormReLU]] = ConvReLU

    def __init__(self, in_channels: int, one: int, three: Branch, five: Branch, pool: int) -> None:
        super().__init__()
        self.one = self.conv(in_channels, one, 1)
        self.three = nn.Sequential(self.conv(in_channels, three[0], 1), self.conv(*three, 3))
        self.five = nn.Sequential(self.conv(in_channels, five[0], 1), self.conv(*five, 5))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, padding=1), self.conv(in_channels, pool, 1))

    def forward(self, x: Maps) -> OutMaps:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)  # (5)


class AuxiliaryHead(nn.Module):
    """Maps feature maps of `size` x `size` in the middle of the network to logits."""

    def __init__(self, in_channels: int, classes: int, width: int, size: int) -> None:
        super().__init__()
        self.mean = nn.AvgPool2d(5, 3)
        self.conv = ConvReLU(in_channels, 2 * width, 1)
        left = (size - 5) // 3 + 1
        self.dense = nn.Sequential(nn.Linear(2 * width * left**2, 16 * width), nn.ReLU())
        self.drop = nn.Dropout(0.7)
        self.output = nn.Linear(16 * width, classes)

    def forward(self, x: Maps) -> Logits:
        a = self.conv(self.mean(x)).flatten(1)
        h = self.drop(self.dense(a))
        z: Tensor = self.output(h)  # (8)
        return z


class NaiveInception(nn.Module):
    """Maps feature maps to those of three filters, and their own pooled ones, side by side."""

    def __init__(self, in_channels: int, one: int, three: int, five: int) -> None:
        super().__init__()
        self.one = ConvReLU(in_channels, one, 1)
        self.three = ConvReLU(in_channels, three, 3)
        self.five = ConvReLU(in_channels, five, 5)
        self.pool = nn.MaxPool2d(3, 1, padding=1)

    def forward(self, x: Maps) -> OutMaps:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)  # (4)


class NormedInception(Inception):
    """An inception module whose convolutions are normalised."""

    conv: ClassVar[type[ConvReLU | ConvNormReLU]] = ConvNormReLU


class SmallGoogLeNet(nn.Module):
    """Maps images of 32 x 32 and more to logits by normalised modules and no heads."""

    def __init__(
        self, in_channels: int, classes: int, *, width: int = 64, dropout: float = 0.4
    ) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(3, 2, padding=1)
        self.stem = nn.Sequential(
            ConvNormReLU(in_channels, width, 3), self.pool, ConvNormReLU(width, 3 * width, 3)
        )
        self.inception = make_modules(width, NormedInception)
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(dropout)
        self.output = nn.Linear(16 * width, classes)
        init_he_weights(self)

    def forward(self, x: Maps) -> Logits:
        require_images(self, x)
        u = self.stem(x)
        for name, module in self.inception.items():
            u = module(self.pool(u) if name in AFTER_POOL else u)  # (5)
        v = self.mean(u).flatten(1)  # (6)
        y: Tensor = self.output(self.drop(v))  # (7)
        return y


Branch = tuple[int, int]
"""Maps of the bottleneck, and maps after it."""
TABLE: dict[str, tuple[int, Branch, Branch, int]] = {
    "3a": (64, (96, 128), (16, 32), 32),
    "3b": (128, (128, 192), (32, 96), 64),
    "4a": (192, (96, 208), (16, 48), 64),
    "4b": (160, (112, 224), (24, 64), 64),
    "4c": (128, (128, 256), (24, 64), 64),
    "4d": (112, (144, 288), (32, 64), 64),
    "4e": (256, (160, 320), (32, 128), 128),
    "5a": (256, (160, 320), (32, 128), 128),
    "5b": (384, (192, 384), (48, 128), 128),
}
"""Maps of A, (B', B), (C', C) and D of each module, for a width of 64."""
UNIT = 8  # all numbers of the table are multiples of it


def out_maps(name: str, width: int) -> int:
    """The number of maps that a module of the table gives, in a network of this width."""
    one, three, five, pool = TABLE[name]
    return (one + three[1] + five[1] + pool) * width // 64


def make_modules(width: int, kind: type[Inception]) -> nn.ModuleDict:
    """The nine modules of the table, by name."""
    if width < 1 or width % UNIT:
        raise ValueError(
            f"width ({width}) must be a multiple of {UNIT}, because the narrowest bottleneck has "
            f"a quarter of it and another three eighths; do width={max(1, width // UNIT) * UNIT}"
        )
    modules, in_channels = nn.ModuleDict(), 3 * width
    for name, (one, three, five, pool) in TABLE.items():
        modules[name] = kind(
            in_channels,
            one * width // 64,
            (three[0] * width // 64, three[1] * width // 64),
            (five[0] * width // 64, five[1] * width // 64),
            pool * width // 64,
        )
        in_channels = out_maps(name, width)
    return modules


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class SmallGoogLeNetPhotographs(ImageClassification[GoogLeNet | SmallGoogLeNet]):
    """Classify images of about 32 x 32 by normalised inception modules."""

    least: ClassVar[int] = 16  # of which the last pool makes one pixel

    width: int = 16
    """Feature maps of the first layer, from which all others follow; 64 in the paper."""
    dropout: float = 0.4
    """Share of the units before the last layer that are left out of an update."""

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = self.width >= 1 and self.width % UNIT == 0
        self.require(fits, "width", f"a multiple of {UNIT}, as all numbers of the table are")
        self.require(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")

    def model(self, data: Data) -> GoogLeNet | SmallGoogLeNet:
        in_channels, *size = data.spec["shape"]
        if min(size) < self.least:
            raise UserError(
                f"size ({min(size)}) must be at least {self.least}, because the maps of the last "
                f"modules are 8 times smaller; do size={self.least}"
            )
        classes = len(data.spec["classes"])
        return SmallGoogLeNet(in_channels, classes, width=self.width, dropout=self.dropout)

    def activation_layers(self, model: GoogLeNet | SmallGoogLeNet) -> Sequence[str]:
        return ["stem", "inception.3b", "inception.4a", "inception.4e", "inception.5b"]

    def picture_branches(
        self, model: GoogLeNet | SmallGoogLeNet, data: Data, history: History
    ) -> Figure:
        """Feature maps of the four branches of the first module for one validation image.

        The larger a filter, the wider the neighbourhood that each pixel of its maps takes in; the
        pool spreads the brightest pixels.
        """
        names = {"one": "1 x 1", "three": "3 x 3", "five": "5 x 5", "pool": "pool"}
        x = next(iter(data.valid))[0][:1]
        maps = activations(model, x, [f"inception.3a.{branch}" for branch in names])
        branches = {name: maps[f"inception.3a.{branch}"][0] for branch, name in names.items()}
        image = valid_images(data, torch.tensor([0]))[0]
        return activation_maps(image, branches, columns=8, most=16)

    def picture_costs(
        self, model: GoogLeNet | SmallGoogLeNet, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Multiplications of each module, and of a naive module on the same maps.

        With bottlenecks all modules together need {share:.0%} of what naive ones would need.
        """
        return draw_costs(model, data.spec["shape"])

    def tiny(self) -> Self:
        return replace(
            self, data="digits", holdout=True, size=self.least, width=UNIT, steps=4, batch_size=8
        )


def draw_costs(model: nn.Module, shape: Sequence[int]) -> tuple[Figure, dict[str, float]]:
    """Multiplications of the modules beside those of naive modules, and their share of these."""
    table = layer_table(model, shape)
    bottleneck, naive = [], []
    for name, (one, three, five, _) in TABLE.items():
        rows = [row for row in table if row.name.startswith(f"inception.{name}.")]
        first = model.get_submodule(f"inception.{name}.one.conv")
        assert isinstance(first, nn.Conv2d)
        scale = first.out_channels / one
        out_channels = (first.out_channels, round(three[1] * scale), round(five[1] * scale))
        with torch.device("meta"):
            plain = NaiveInception(first.in_channels, *out_channels)
        on = (first.in_channels, *rows[0].shape[1:])
        bottleneck.append(sum(row.multiplications or 0 for row in rows if row.kind == "Conv2d"))
        naive.append(sum(row.multiplications or 0 for row in layer_table(plain, on)))
    both = {
        "naive": torch.tensor(naive).double(),
        "with bottlenecks": torch.tensor(bottleneck).double(),
    }
    modules = [f"module {name}" for name in TABLE]
    title = f"images of {shape[1]} x {shape[2]}"
    drawn = layer_costs(modules, {"multiplications": both}, title=title)
    return drawn, {"share": sum(bottleneck) / sum(naive)}


@dataclass(frozen=True, kw_only=True)
class GoogLeNetPhotographs(SmallGoogLeNetPhotographs):
    """Classify images by GoogLeNet with its heads; `width=64 size=224` is the paper's own."""

    least: ClassVar[int] = LEAST

    def model(self, data: Data) -> GoogLeNet | SmallGoogLeNet:
        in_channels, height, width = data.spec["shape"]
        if height != width or height < self.least:
            raise UserError(
                f"size ({self.size}: images of {width}x{height}) must give squares of at least "
                f"{self.least} pixels, because the heads take the mean of 5 x 5 pixels of maps 16 "
                f"times smaller; do size={max(self.least, height, width)}"
            )
        classes = len(data.spec["classes"])
        return GoogLeNet(in_channels, classes, width=self.width, size=height, dropout=self.dropout)

    def objective(self, model: GoogLeNet | SmallGoogLeNet, batch: Batch) -> Terms:
        assert isinstance(model, GoogLeNet)
        x, t = batch
        loss: Callable[[Tensor, Tensor], Tensor] = self.loss
        if self.mixup:
            x, own = mixup(x, self.mixup)
            loss = partial(mixed_cross_entropy, own=own, smoothing=self.smoothing)
        y, z1, z2 = model.with_heads(x)
        heads = 0.3 * (loss(z1, t) + loss(z2, t))
        return {"cross_entropy": loss(y, t), "heads": heads}  # (9)


RECIPES = {
    "googlenet": GoogLeNetPhotographs(
        data="digits", size=65, pixels=6.0, degrees=10.0, scale=0.1, width=8,
        steps=700, batch_size=32, lr=2e-3, optimizer="adamw", weight_decay=0.05,
        schedule="one-cycle", goal="accuracy >= 0.96", covers=("C14", "C18", "C19"),
    ),
    "googlenet-cifar": SmallGoogLeNetPhotographs(
        data="cifar10", holdout=False, pixels=4.0, mirror=True, width=32, dropout=0.2,
        steps=7800, batch_size=256, lr=0.1, optimizer="nesterov", weight_decay=5e-4,
        schedule="one-cycle", eval_every=1950, goal="accuracy >= 0.88", covers=("C18", "C19"),
    ),
}  # fmt: skip
