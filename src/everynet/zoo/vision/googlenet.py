"""GoogLeNet: modules that look through small and large filters at once, made cheap by 1 x 1 ones.

    a = max(0, b + sum_c w_c * x_c)                         (1)  convolution, rectified
    r_k = a_k / (1 + 2e-5 sum_{j=k-2}^{k+2} a_j^2)^0.75     (2)  local response normalisation
    m_k(i, j) = max of a_k over 3 x 3 pixels, 2 apart       (3)  pooling halves each side
    u = [A x, B x, C x, P x]                                (4)  naive inception module
    u = [A x, B B' x, C C' x, D P x]                        (5)  inception module with bottlenecks
    v_k = mean of u_k over all pixels                       (6)  global average
    y = W (d * v) + b                                       (7)  logits, after dropout
    z = W'(d * max(0, W a + b)) + b'                        (8)  logits of an auxiliary head
    L = H(y, t) + 0.3 (H(z_1, t) + H(z_2, t))               (9)  loss, H the cross-entropy

A, B and C are (1) with filters of 1 x 1, 3 x 3 and 5 x 5, P the highest of 3 x 3 pixels around
each, and B', C' and D are (1) with filters of 1 x 1, which make few maps of many. The a of (8) is
(1) with 128 maps of 1 x 1, of means over 5 x 5 pixels, 3 apart. The heads, behind modules 4a and
4d, bring gradients to the lower half; after training they are not asked any more.

On 256 maps of 28 x 28, with 128 maps of 1 x 1, 192 of 3 x 3, 96 of 5 x 5 and bottlenecks of 64,
(4) takes 854,196,224 multiplications for 672 maps and (5) 271,351,808 for 480. The figure of
358,055,936 that is sometimes given for (5) counts its 3 x 3 branch, B, twice. Without its heads
the network has 6,998,552 parameters, with them 13,378,280.

Szegedy et al. (2014), "Going Deeper with Convolutions", arXiv:1409.4842, table 1. The numbers of
(2), which the paper does not give, are those of its copy in Caffe. Unlike the paper, weights start
as He et al. (2015) say. Unlike the paper, too, the small form for images of 32 x 32 has a stem
without strides, and batch normalisation in every convolution instead of (2) and of heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn

from everynet.data.dataset import Batch, Data, History, Terms
from everynet.data.images.augment import mixed_cross_entropy, mixup
from everynet.data.images.standardize import Standardize
from everynet.nn.conv import ConvNormReLU, ConvReLU, he_start
from everynet.nn.input_checks import require_images
from everynet.nn.layers import activations, layer_table
from everynet.plot import activation_maps
from everynet.recipes.recipe import Pictures
from everynet.system.errors import UserError
from everynet.zoo.vision.classifier import ImageClassification
from everynet.zoo.vision.pictures.costs import layer_costs

Maps = Float[Tensor, "batch channels height width"]
Logits = Float[Tensor, "batch classes"]
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
"""Maps of A, (B', B), (C', C) and D of each module; 4a and 5a stand behind a pool."""


class NaiveInception(nn.Module):
    """Maps feature maps to those of three filters, and their own pooled ones, side by side."""

    def __init__(self, channels: int, one: int, three: int, five: int) -> None:
        super().__init__()
        self.one = ConvReLU(channels, one, 1)
        self.three = ConvReLU(channels, three, 3)
        self.five = ConvReLU(channels, five, 5)
        self.pool = nn.MaxPool2d(3, 1, padding=1)

    def forward(self, x: Maps) -> Float[Tensor, "batch maps height width"]:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)  # (4)


class Inception(nn.Module):
    """Maps feature maps to those of three filters and a pool, each behind or before a 1 x 1."""

    conv: ClassVar[type[ConvReLU | ConvNormReLU]] = ConvReLU

    def __init__(self, channels: int, one: int, three: Branch, five: Branch, pool: int) -> None:
        super().__init__()
        self.one = self.conv(channels, one, 1)
        self.three = nn.Sequential(self.conv(channels, three[0], 1), self.conv(*three, 3))
        self.five = nn.Sequential(self.conv(channels, five[0], 1), self.conv(*five, 5))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, padding=1), self.conv(channels, pool, 1))

    def forward(self, x: Maps) -> Float[Tensor, "batch maps height width"]:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)  # (5)


class NormedInception(Inception):
    """An inception module whose convolutions are normalised."""

    conv: ClassVar[type[ConvReLU | ConvNormReLU]] = ConvNormReLU


class Head(nn.Module):
    """Maps feature maps of `side` x `side` in the middle of the network to logits."""

    def __init__(self, channels: int, classes: int, width: int, side: int) -> None:
        super().__init__()
        self.mean = nn.AvgPool2d(5, 3)
        self.conv = ConvReLU(channels, 2 * width, 1)
        left = (side - 5) // 3 + 1
        self.dense = nn.Sequential(nn.Linear(2 * width * left**2, 16 * width), nn.ReLU())
        self.drop = nn.Dropout(0.7)
        self.output = nn.Linear(16 * width, classes)

    def forward(self, x: Maps) -> Float[Tensor, "batch classes"]:
        a = self.conv(self.mean(x)).flatten(1)
        z: Tensor = self.output(self.drop(self.dense(a)))  # (8)
        return z


class GoogLeNet(nn.Module):
    """Maps images of `size` x `size` to logits; `width` are the maps of the first layer."""

    def __init__(
        self,
        channels: int = 3,
        classes: int = 1000,
        *,
        width: int = 64,
        size: int = 224,
        dropout: float = 0.4,
    ) -> None:
        super().__init__()
        side = -(-size // 16)
        if side < 5:
            raise ValueError(
                f"size ({size}) must be at least {LEAST}, because the auxiliary heads take the "
                f"mean of 5 x 5 pixels of maps 16 times smaller; do size={LEAST}"
            )
        norm = nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=1.0)  # torch: 1e-4 / 5 in (2)
        self.pool = nn.MaxPool2d(3, 2, padding=1)  # (3)
        self.stem = nn.Sequential(
            *(ConvReLU(channels, width, 7, 2), self.pool, norm),  # (1) (2)
            *(ConvReLU(width, width, 1), ConvReLU(width, 3 * width, 3), norm, self.pool),
        )
        self.inception = _modules(width, Inception)
        self.head1 = Head(maps(TABLE["4a"], width), classes, width, side)
        self.head2 = Head(maps(TABLE["4d"], width), classes, width, side)
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(dropout)
        self.output = nn.Linear(16 * width, classes)
        he_start(self)

    def forward(
        self, x: Float[Tensor, "batch channels size size"]
    ) -> Float[Tensor, "batch classes"]:
        return self._answer(self._through(x)["5b"])

    def with_heads(
        self, x: Float[Tensor, "batch channels size size"]
    ) -> tuple[
        Float[Tensor, "batch classes"],
        Float[Tensor, "batch classes"],
        Float[Tensor, "batch classes"],
    ]:
        """The logits, and those of the two auxiliary heads: for training."""
        u = self._through(x)
        return self._answer(u["5b"]), self.head1(u["4a"]), self.head2(u["4d"])

    def _through(self, x: Tensor) -> dict[str, Tensor]:
        """What each module gives."""
        require_images(self, x)
        h, made = self.stem(x), {}
        for name, module in self.inception.items():
            h = module(self.pool(h) if name in AFTER_POOL else h)
            made[name] = h
        return made

    def _answer(self, u: Tensor) -> Tensor:
        v = self.mean(u).flatten(1)  # (6)
        y: Tensor = self.output(self.drop(v))  # (7)
        return y


class SmallGoogLeNet(nn.Module):
    """Maps images of 32 x 32 and more to logits by normalised modules and no heads."""

    def __init__(
        self,
        channels: int = 3,
        classes: int = 10,
        *,
        width: int = 64,
        dropout: float = 0.4,
    ) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(3, 2, padding=1)
        self.stem = nn.Sequential(
            ConvNormReLU(channels, width, 3), self.pool, ConvNormReLU(width, 3 * width, 3)
        )
        self.inception = _modules(width, NormedInception)
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(dropout)
        self.output = nn.Linear(16 * width, classes)
        he_start(self)

    def forward(self, x: Maps) -> Float[Tensor, "batch classes"]:
        require_images(self, x)
        h = self.stem(x)
        for name, module in self.inception.items():
            h = module(self.pool(h) if name in AFTER_POOL else h)
        y: Tensor = self.output(self.drop(self.mean(h).flatten(1)))
        return y


AFTER_POOL = ("4a", "5a")
LEAST = 65  # of which 5 x 5 are left where the heads look
UNIT = 8  # all numbers of the table are multiples of it


def maps(row: tuple[int, Branch, Branch, int], width: int) -> int:
    """Maps that a module of this row of the table gives, in a network of this width."""
    one, three, five, pool = row
    return (one + three[1] + five[1] + pool) * width // 64


def _modules(width: int, kind: type[Inception]) -> nn.ModuleDict:
    if width < 1 or width % UNIT:
        raise ValueError(
            f"width ({width}) must be a multiple of {UNIT}, because the narrowest bottleneck has "
            f"a quarter of it and another three eighths; do width={max(1, width // UNIT) * UNIT}"
        )
    made, channels = nn.ModuleDict(), 3 * width
    for name, row in TABLE.items():
        one, three, five, pool = row
        made[name] = kind(
            channels,
            one * width // 64,
            (three[0] * width // 64, three[1] * width // 64),
            (five[0] * width // 64, five[1] * width // 64),
            pool * width // 64,
        )
        channels = maps(row, width)
    return made


@dataclass(frozen=True, kw_only=True)
class SmallPhotographs(ImageClassification[GoogLeNet | SmallGoogLeNet]):
    """Tell images of about 32 x 32 apart by normalised inception modules."""

    least: ClassVar[int] = 16  # of which the last pool makes one pixel
    captions: ClassVar[Mapping[str, str]] = {
        "branches": (
            "What the four branches of the first module give for one image: the larger a filter, "
            "the wider the neighbourhood that each answer takes in, and the pool spreads what is "
            "brightest."
        ),
        "costs": (
            "Multiplications of each module on the maps that it is given: with bottlenecks "
            "(orange) it needs a part of what the naive module (blue) would need."
        ),
        "misclassified": ImageClassification.captions["misclassified"],
    }

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
        channels, *sides = data.spec["shape"]
        if min(sides) < self.least:
            raise UserError(
                f"size ({min(sides)}) must be at least {self.least}, because the maps of the last "
                f"modules are 8 times smaller; do size={self.least}"
            )
        classes = len(data.spec["classes"])
        return SmallGoogLeNet(channels, classes, width=self.width, dropout=self.dropout)

    def drawn(self, model: GoogLeNet | SmallGoogLeNet) -> Sequence[str]:
        return ["stem", "inception.3b", "inception.4a", "inception.4e", "inception.5b"]

    def pictures(self, model: GoogLeNet | SmallGoogLeNet, data: Data, history: History) -> Pictures:
        """Those of every classifier, what the branches of a module give, and what modules cost."""
        pictures = super().pictures(model, data, history)
        seen = next(iter(data.valid))[0][:1]
        names = {"one": "1 x 1", "three": "3 x 3", "five": "5 x 5", "pool": "pool"}
        given = activations(model, seen, [f"inception.3a.{branch}" for branch in names])
        branches = {name: given[f"inception.3a.{branch}"][0] for branch, name in names.items()}
        image = Standardize.of(data.spec).to_data_units(seen.cpu().float())[0]
        image = image if len(image) in (1, 3) else image.mean(0, keepdim=True)
        return {
            **pictures,
            "branches": activation_maps(image, branches, columns=8, most=16),
            "costs": costs(model, data.spec["shape"]),
        }

    def tiny(self) -> Self:
        return replace(super().tiny(), width=UNIT, size=self.least, holdout=True)


def costs(model: nn.Module, shape: Sequence[int]) -> Figure:
    """Multiplications of the modules of a network beside those of naive modules."""
    table = layer_table(model, shape)
    bottleneck, naive = [], []
    for name, (_, three, five, _) in TABLE.items():
        rows = [row for row in table if row.name.startswith(f"inception.{name}.")]
        made = model.get_submodule(f"inception.{name}.one.conv")
        assert isinstance(made, nn.Conv2d)
        scale = made.out_channels / TABLE[name][0]
        outputs = (made.out_channels, round(three[1] * scale), round(five[1] * scale))
        with torch.device("meta"):
            plain = NaiveInception(made.in_channels, *outputs)
        given = (made.in_channels, *rows[0].shape[1:])
        bottleneck.append(sum(row.multiplications or 0 for row in rows if row.kind == "Conv2d"))
        naive.append(sum(row.multiplications or 0 for row in layer_table(plain, given)))
    both = {
        "naive": torch.tensor(naive).double(),
        "with bottlenecks": torch.tensor(bottleneck).double(),
    }
    modules = [f"module {name}" for name in TABLE]
    return layer_costs(
        modules, {"multiplications": both}, title=f"images of {shape[1]} x {shape[2]}"
    )


@dataclass(frozen=True, kw_only=True)
class Photographs(SmallPhotographs):
    """Tell images apart by GoogLeNet with its heads; `width=64 size=224` is the paper's own."""

    least: ClassVar[int] = LEAST

    def model(self, data: Data) -> GoogLeNet | SmallGoogLeNet:
        channels, height, width = data.spec["shape"]
        if height != width or height < self.least:
            raise UserError(
                f"size ({self.size}: images of {width}x{height}) must give squares of at least "
                f"{self.least} pixels, because the heads take the mean of 5 x 5 pixels of maps 16 "
                f"times smaller; do size={max(self.least, height, width)}"
            )
        classes = len(data.spec["classes"])
        return GoogLeNet(channels, classes, width=self.width, size=height, dropout=self.dropout)

    def objective(self, model: GoogLeNet | SmallGoogLeNet, batch: Batch) -> Terms:
        assert isinstance(model, GoogLeNet)
        x, t = batch
        loss: Callable[[Tensor, Tensor], Tensor] = self.loss
        if self.mixup:
            x, own = mixup(x, self.mixup)
            loss = partial(mixed_cross_entropy, own=own, smoothing=self.smoothing)
        y, first, second = model.with_heads(x)
        heads = 0.3 * (loss(first, t) + loss(second, t))
        return {"cross_entropy": loss(y, t), "heads": heads}  # (9)


# Test accuracy, seed 0: googlenet on one CPU thread, 84 s; googlenet-cifar on an H200 in bf16, side
# by side with eight other trainings.
# googlenet          0.9721
# googlenet-cifar    0.9180    1,501,402 parameters
RECIPES = {
    "googlenet": Photographs(
        data="digits",
        size=65,
        width=8,
        steps=700,
        batch_size=32,
        lr=2e-3,
        optimizer="adamw",
        weight_decay=0.05,
        schedule="one-cycle",
        pixels=6.0,
        degrees=10.0,
        scale=0.1,
        goal="accuracy >= 0.96",
        covers=("C14", "C18", "C19"),
    ),
    "googlenet-cifar": SmallPhotographs(
        data="cifar10",
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
        covers=("C18", "C19"),
    ),
}
