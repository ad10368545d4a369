"""ResNet, a network whose blocks say what to add to their input, so that doing nothing is easy.

    n(a) = g (a - mean(a)) / std(a) + b                     (1)  norm over a batch, for each map
    F(x) = n(w2 * max(0, n(w1 * x)))                        (2)  what a block adds: two of 3 x 3
    F(x) = n(w3 * max(0, n(w2 * max(0, n(w1 * x)))))        (3)  or 1 x 1, 3 x 3, 1 x 1: bottleneck
    y    = max(0, s(x) + F(x))                              (4)  block
    s(x) = x                                                (5)  shortcut where sizes agree
    s(x) = n(w * x), w of 1 x 1, stride 2                   (6)  or else: projection, "option B"
    s(x) = [x(2i, 2j), 0]                                   (7)  or: maps of zeros, "option A"
    y    = max(0, F(x))                                     (8)  the block of a plain net
    w    ~ N(0, 2 / N)                                      (9)  start; N = outputs k^2 of a unit
    a    = ||F(x)|| / ||s(x)||                              (10) how much a block adds

A block with F = 0 gives back any x >= 0 exactly, and before the last max dy/dx = I + F'(x): what
comes back from above goes through I to the first layer, whatever F does. The gain g of the last
norm scales all of F, and weight decay pulls it to 0: a block that does not help fades away.

`ResNet` is the network for photographs, 18 to 152 layers with shortcuts (6) and the names and
weights of torchvision; `CifarResNet` the one for small images, 6 n + 2 layers with shortcuts (7),
which have no weights; `PlainNet` the same without shortcuts, by (8).

He, Zhang, Ren, Sun (2015), "Deep Residual Learning for Image Recognition", arXiv:1512.03385,
sections 3 and 4.2; He et al. (2015), "Delving Deep into Rectifiers", arXiv:1502.01852, for (9).
Unlike the paper, and like torchvision, a bottleneck halves the image at its 3 x 3 convolution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.optim import Optimizer

from everynet.data.dataset import Data, History
from everynet.nn.input_checks import require_images
from everynet.recipes.recipe import Pictures
from everynet.recipes.state import M
from everynet.recipes.training import OPTIMIZERS
from everynet.zoo.vision.classifier import ImageClassification
from everynet.zoo.vision.pictures.residual import block_sizes

Maps = Float[Tensor, "batch channels height width"]
Made = Float[Tensor, "batch maps rows columns"]


def conv(channels: int, width: int, side: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size but for its stride; the norm behind it has the bias."""
    return nn.Conv2d(channels, width, side, stride, side // 2, bias=False)


def projection(channels: int, width: int, stride: int) -> nn.Module:
    """The shortcut of `ResNet`."""
    if channels == width and stride == 1:
        return nn.Identity()  # (5)
    return nn.Sequential(conv(channels, width, 1, stride), nn.BatchNorm2d(width))  # (6)


class Subsampled(nn.Module):
    """Every other pixel, and maps of zeros behind those there are: a shortcut without weights."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.stride, self.more = stride, width - channels

    def forward(self, x: Maps) -> Made:
        seen = x[:, :, :: self.stride, :: self.stride]
        return pad(seen, (0, 0, 0, 0, 0, self.more))  # (7)


class Basic(nn.Module):
    """Adds what two convolutions make of the maps."""

    expansion: ClassVar[int] = 1  # maps of the output for each of `width`

    def __init__(self, channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(channels, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3), nn.BatchNorm2d(width)
        self.downsample = self.shortcut(channels, width, stride)

    def shortcut(self, channels: int, width: int, stride: int) -> nn.Module:
        """What is added to."""
        return projection(channels, width, stride)

    def residual(self, x: Maps) -> Made:
        """What is added."""
        h = self.bn1(self.conv1(x)).relu_()  # (1)
        f: Tensor = self.bn2(self.conv2(h))  # (2)
        return f

    def forward(self, x: Maps) -> Made:
        return self.residual(x).add_(self.downsample(x)).relu_()  # (4)


class Bottleneck(nn.Module):
    """Adds what a 3 x 3 convolution makes of fewer maps, between two of 1 x 1."""

    expansion: ClassVar[int] = 4

    def __init__(self, channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        wide = self.expansion * width
        self.conv1, self.bn1 = conv(channels, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, wide, 1), nn.BatchNorm2d(wide)
        self.downsample = projection(channels, wide, stride)

    def residual(self, x: Maps) -> Made:
        """What is added."""
        h = self.bn1(self.conv1(x)).relu_()
        h = self.bn2(self.conv2(h)).relu_()
        f: Tensor = self.bn3(self.conv3(h))  # (3)
        return f

    def forward(self, x: Maps) -> Made:
        return self.residual(x).add_(self.downsample(x)).relu_()  # (4)


class SmallBlock(Basic):
    """Adds what two convolutions make of the maps, with a shortcut that has no weights."""

    def shortcut(self, channels: int, width: int, stride: int) -> nn.Module:
        same = channels == width and stride == 1
        return nn.Identity() if same else Subsampled(channels, width, stride)


class PlainBlock(SmallBlock):
    """Maps the maps to what two convolutions make of them, without a shortcut."""

    def forward(self, x: Maps) -> Made:
        return self.residual(x).relu_()  # (8)


def stage(
    block: type[Basic | Bottleneck], channels: int, width: int, blocks: int, stride: int
) -> nn.Sequential:
    """Blocks of one width, the first of which takes the stride."""
    made: list[nn.Module] = [block(channels, width, stride)]
    made += [block(block.expansion * width, width) for _ in range(blocks - 1)]
    return nn.Sequential(*made)


def start(module: nn.Module) -> None:
    """Random weights that keep the size of a gradient from layer to layer behind rectifiers."""
    if isinstance(module, nn.Conv2d):
        count = module.out_channels * module.kernel_size[0] * module.kernel_size[1]
        nn.init.normal_(module.weight, std=(2 / count) ** 0.5)  # (9)


STAGES: Mapping[int, tuple[type[Basic | Bottleneck], tuple[int, int, int, int]]] = {
    18: (Basic, (2, 2, 2, 2)),
    34: (Basic, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
    101: (Bottleneck, (3, 4, 23, 3)),
    152: (Bottleneck, (3, 8, 36, 3)),
}
"""The block and the number of blocks in each stage, by depth."""


class ResNet(nn.Module):
    """Maps photographs to logits; its modules are named as torchvision's."""

    def __init__(
        self, depth: int = 50, channels: int = 3, classes: int = 1000, width: int = 64
    ) -> None:
        super().__init__()
        if depth not in STAGES:
            raise ValueError(
                f"depth ({depth}) must be one of {', '.join(map(str, STAGES))}, because those are "
                "the networks of the paper; CifarResNet has others"
            )
        block, blocks = STAGES[depth]
        wide = [block.expansion * width * 2**number for number in range(4)]
        self.conv1, self.bn1 = conv(channels, width, 7, 2), nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = stage(block, width, width, blocks[0], 1)
        self.layer2 = stage(block, wide[0], 2 * width, blocks[1], 2)
        self.layer3 = stage(block, wide[1], 4 * width, blocks[2], 2)
        self.layer4 = stage(block, wide[2], 8 * width, blocks[3], 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(wide[3], classes)
        self.apply(start)

    def forward(self, x: Maps) -> Float[Tensor, "batch classes"]:
        require_images(self, x)
        h = self.maxpool(self.bn1(self.conv1(x)).relu_())
        h = self.layer4(self.layer3(self.layer2(self.layer1(h))))
        y: Tensor = self.fc(self.avgpool(h).flatten(1))
        return y


class CifarResNet(nn.Module):
    """Maps small images to logits, through three stages of (depth - 2) / 6 blocks."""

    block: ClassVar[type[Basic]] = SmallBlock

    def __init__(
        self, depth: int = 20, channels: int = 3, classes: int = 10, width: int = 16
    ) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if blocks < 1 or rest:
            near = 6 * max(1, round((depth - 2) / 6)) + 2
            raise ValueError(
                f"depth ({depth}) must be 6 n + 2 with n at least 1, because three stages have n "
                f"blocks of two layers each; try {near}"
            )
        self.conv1, self.bn1 = conv(channels, width, 3), nn.BatchNorm2d(width)
        self.layer1 = stage(self.block, width, width, blocks, 1)
        self.layer2 = stage(self.block, width, 2 * width, blocks, 2)
        self.layer3 = stage(self.block, 2 * width, 4 * width, blocks, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(4 * width, classes)
        self.apply(start)
        for part in self.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.num_batches_tracked = None  # nobody asks: on a GPU a kernel less for each

    def forward(self, x: Maps) -> Float[Tensor, "batch classes"]:
        require_images(self, x)
        h = self.bn1(self.conv1(x)).relu_()
        h = self.layer3(self.layer2(self.layer1(h)))
        y: Tensor = self.fc(self.avgpool(h).flatten(1))
        return y


class PlainNet(CifarResNet):
    """Maps small images to logits through as many layers, with no way around any of them."""

    block: ClassVar[type[Basic]] = PlainBlock


# ------------------------------------------------------------------------------------- recipes


@torch.no_grad()
def added(model: nn.Module, x: Maps) -> Float[Tensor, "3 blocks"]:
    """Of each block: the size of what it is given and of what it adds, and the share of the two.

    Sizes are root mean squares over a batch.
    """
    sizes: list[Tensor] = []

    def look(block: nn.Module, given: tuple[Tensor, ...]) -> None:
        assert isinstance(block, Basic | Bottleneck)
        s, f = (
            part.float().square().mean().sqrt()
            for part in (block.downsample(given[0]), block.residual(given[0]))
        )
        sizes.append(torch.stack([s, f, f / s.clamp(min=1e-12)]))  # (10)

    blocks = [module for module in model.modules() if isinstance(module, Basic | Bottleneck)]
    handles = [block.register_forward_pre_hook(look) for block in blocks]
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return torch.stack(sizes, 1).cpu()


@dataclass(frozen=True, kw_only=True)
class Residual(ImageClassification[M]):
    """Tell images apart by a network of residual blocks."""

    captions: ClassVar[Mapping[str, str]] = {
        "blocks": (
            "Left the size of what each block is given and of what it adds for validation images, "
            "right the ratio: below 1 a block corrects its input more than it replaces it."
        ),
        **{n: ImageClassification.captions[n] for n in ("activations", "misclassified", "filters")},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        enough = self.batch_size >= 2
        self.require(enough, "batch_size", "at least 2, because norms need a spread over a batch")

    def stages(self, model: M) -> dict[str, nn.Sequential]:
        """The stages of blocks by name."""
        return {n: part for n, part in model.named_children() if isinstance(part, nn.Sequential)}

    def drawn(self, model: M) -> Sequence[str]:
        return ["conv1", *self.stages(model)]

    def pictures(self, model: M, data: Data, history: History) -> Pictures:
        """Also what each block adds, for a hundred images."""
        x = next(iter(data.valid))[0][:100]
        counts = [len(part) for part in self.stages(model).values()]
        drawn = block_sizes(*added(model, x), stages=counts)
        return {**super().pictures(model, data, history), "blocks": drawn}


@dataclass(frozen=True, kw_only=True)
class Photographs(Residual[ResNet]):
    """Tell photographs apart; `start=weights.safetensors` begins from weights of torchvision."""

    depth: int = 18
    """Layers: 18, 34, 50, 101 or 152."""
    width: int = 64
    """Maps of the first layer; the paper and all weights of others have 64."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.depth in STAGES, "depth", f"one of {', '.join(map(str, STAGES))}")
        self.require(self.width >= 1, "width", "at least 1")

    def model(self, data: Data) -> ResNet:
        return ResNet(self.depth, data.spec["shape"][0], len(data.spec["classes"]), self.width)

    def tiny(self) -> Self:
        return replace(super().tiny(), width=4, size=0)


@dataclass(frozen=True, kw_only=True)
class SmallImages(Residual[CifarResNet]):
    """Tell small images apart."""

    depth: int = 20
    """Layers: 6 n + 2."""
    width: int = 16
    """Maps of the first stage; the other two have twice and four times as many."""
    batch_size: int = 128
    """Samples an update sees, over all processes."""
    lr: float = 0.1
    """Learning rate, before the schedule's factor."""
    optimizer: str = "nesterov"
    """sgd, momentum, nesterov, adagrad, rmsprop, adam, adamw or lion."""
    schedule: str = "cosine"
    """constant, linear, cosine, step, one-cycle or plateau."""
    weight_decay: float = 5e-4
    """L2 decay of all weights; that of gains lets a block fade away."""

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = self.depth >= 8 and self.depth % 6 == 2
        self.require(fits, "depth", "6 n + 2, such as 8, 14, 20, 32, 44, 56 or 110")
        self.require(self.width >= 1, "width", "at least 1")

    def model(self, data: Data) -> CifarResNet:
        return CifarResNet(self.depth, data.spec["shape"][0], len(data.spec["classes"]), self.width)

    def optimizers(self, model: CifarResNet) -> dict[str, Optimizer]:
        """One, with a decay of gains and biases too, as in the paper."""
        group = {"params": [*model.parameters()], "weight_decay": self.weight_decay}
        return {"main": OPTIMIZERS[self.optimizer]([group], self.lr)}

    def tiny(self) -> Self:
        return replace(super().tiny(), depth=8, width=4, holdout=True)


@dataclass(frozen=True, kw_only=True)
class WithoutShortcuts(SmallImages):
    """Tell small images apart by as many layers without shortcuts."""

    captions: ClassVar[Mapping[str, str]] = ImageClassification.captions

    def model(self, data: Data) -> PlainNet:
        return PlainNet(self.depth, data.spec["shape"][0], len(data.spec["classes"]), self.width)

    def pictures(self, model: CifarResNet, data: Data, history: History) -> Pictures:
        """Nothing is added to anything here: the pictures of any network for images."""
        return ImageClassification.pictures(self, model, data, history)


# Test accuracy of seeds 0, 1, 2. resnet on one CPU thread, 70 s; the others on an H200 in bf16,
# with --compile (resnet-mnist, seed 0, without), side by side with six to eight other trainings;
# alone a step of resnet-cifar takes 1.64 ms there, so that all of it is 102 s.
# resnet             0.9889 0.9833 0.9889
# resnet-cifar       0.9268 0.9217 0.9267    mean error 7.49 %; 8.75 % in the paper, with less decay
# resnet-56-cifar    0.9405                  error 5.95 %; 6.97 % in the paper
# plain-cifar        0.9184
# resnet-mnist       0.9974 0.9970 0.9977
# resnet-fashion     0.9522 0.9502
RECIPES = {
    "resnet": Photographs(
        data="digits",
        size=32,
        steps=300,
        batch_size=32,
        lr=1e-3,
        optimizer="adamw",
        weight_decay=0.05,
        schedule="one-cycle",
        eval_every=75,
        goal="accuracy >= 0.97",
        covers=("C20",),
    ),
    "resnet-cifar": SmallImages(
        data="cifar10",
        holdout=False,
        steps=62_400,
        warmup=3_120,
        pixels=4.0,
        mirror=True,
        eval_every=1_950,
        goal="accuracy >= 0.92",
        covers=("C20",),
    ),
    "resnet-56-cifar": SmallImages(
        depth=56,
        data="cifar10",
        holdout=False,
        steps=46_800,
        warmup=2_340,
        pixels=4.0,
        mirror=True,
        eval_every=1_950,
        goal="accuracy >= 0.936",
        covers=("C20",),
    ),
    "plain-cifar": WithoutShortcuts(
        data="cifar10",
        holdout=False,
        steps=62_400,
        warmup=3_120,
        pixels=4.0,
        mirror=True,
        eval_every=1_950,
        goal="accuracy >= 0.91",
        covers=("C20",),
    ),
    "resnet-mnist": SmallImages(
        width=32,
        data="mnist",
        holdout=False,
        steps=18_720,
        warmup=936,
        pixels=2.0,
        degrees=10.0,
        scale=0.1,
        eval_every=2_340,
        goal="accuracy >= 0.996",
        covers=("C20",),
    ),
    "resnet-fashion": SmallImages(
        width=32,
        data="fashion-mnist",
        holdout=False,
        steps=28_080,
        warmup=1_404,
        pixels=2.0,
        mirror=True,
        eval_every=2_340,
        goal="accuracy >= 0.935",
        covers=("C20",),
    ),
}
