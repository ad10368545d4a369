"""ResNet: each block adds a residual to its input, so that doing nothing is easy to learn.

    n(a) = g (a - mean(a)) / std(a) + b                     (1)  batch normalisation of each map
    F(x) = n(w2 * max(0, n(w1 * x)))                        (2)  residual branch: 3 x 3 twice
    F(x) = n(w3 * max(0, n(w2 * max(0, n(w1 * x)))))        (3)  or bottleneck: 1 x 1, 3 x 3, 1 x 1
    y    = max(0, F(x) + s(x))                              (4)  block
    s(x) = x                                                (5)  shortcut where shapes agree
    s(x) = n(w * x), w of 1 x 1, stride 2                   (6)  or else: projection, "option B"
    s(x) = [x(2i, 2j), 0]                                   (7)  or: maps of zeros, "option A"
    y    = max(0, F(x))                                     (8)  the block of a plain net
    w    ~ N(0, 2 / (C k^2))                                (9)  initialisation of C k x k kernels
    r    = ||F(x)|| / ||s(x)||                              (10) how large the residual is

x are the feature maps that a block is given and w, w1, w2, w3 kernels; * slides them over the maps
without flipping them (cross-correlation) and sums over the maps. g and b are a gain and a bias for
each map; mean and std are those of a batch while training and running averages afterwards.

A block with F = 0 gives back any x >= 0 exactly, and before the last max dy/dx = I + F'(x): the
gradient reaches the first layer through I, whatever F does. The gain g of the last norm scales all
of F, and weight decay pulls it to 0: a block that does not help fades away.

`ResNet` is the network for photographs, 18 to 152 layers with shortcuts (6) and torchvision's names
of tensors; `CifarResNet` the one for small images, 6 n + 2 layers with shortcuts (7), which have no
weights; `PlainNet` the same without shortcuts, by (8). Maps and their size, where e is 1 for basic
blocks and 4 for bottlenecks:

                  conv1       maxpool   layer1    layer2    layer3    layer4
    ResNet        64          64        64 e      128 e     256 e     512 e    for images of
                  112 x 112   56 x 56   56 x 56   28 x 28   14 x 14   7 x 7    224 x 224
    CifarResNet   16                    16        32        64                 for images of
                  32 x 32               32 x 32   16 x 16   8 x 8              32 x 32

He, Zhang, Ren, Sun (2015), "Deep Residual Learning for Image Recognition", arXiv:1512.03385,
sections 3 and 4.2; He et al. (2015), "Delving Deep into Rectifiers", arXiv:1502.01852, for (9).
Unlike the paper, and like torchvision, a bottleneck halves the image at its 3 x 3 convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.optim import Optimizer

from everynet.data.dataset import Data, History
from everynet.nn.input_checks import require_images
from everynet.plot import Panel, panels
from everynet.recipes.state import M
from everynet.recipes.training import OPTIMIZERS
from everynet.zoo.vision.classifier import ImageClassification

Maps = Float[Tensor, "batch channels height width"]
OutMaps = Float[Tensor, "batch maps rows columns"]


class ResNet(nn.Module):
    """Maps photographs to logits; its modules are named as torchvision's."""

    def __init__(self, in_channels: int, classes: int, *, depth: int = 50, width: int = 64) -> None:
        super().__init__()
        block, blocks = stages_of(depth)
        e = block.expansion
        self.conv1, self.bn1 = conv(in_channels, width, 7, stride=2), nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = stage(block, width, width, blocks[0])
        self.layer2 = stage(block, e * width, 2 * width, blocks[1], stride=2)
        self.layer3 = stage(block, e * 2 * width, 4 * width, blocks[2], stride=2)
        self.layer4 = stage(block, e * 4 * width, 8 * width, blocks[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(e * 8 * width, classes)
        self.apply(init_weights)

    def forward(self, x: Maps) -> Float[Tensor, "batch classes"]:
        require_images(self, x)
        h = self.bn1(self.conv1(x)).relu_()
        h = self.maxpool(h)
        h = self.layer1(h)
        h = self.layer2(h)
        h = self.layer3(h)
        h = self.layer4(h)
        v = self.avgpool(h).flatten(1)
        y: Tensor = self.fc(v)
        return y


class BasicBlock(nn.Module):
    """Adds to its input a residual of two 3 x 3 convolutions."""

    expansion: ClassVar[int] = 1  # output maps for each of `width`

    def __init__(self, in_channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(in_channels, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3), nn.BatchNorm2d(width)
        self.downsample = self.shortcut(in_channels, width, stride)

    def residual(self, x: Maps) -> OutMaps:
        """The residual branch F(x)."""
        h = self.bn1(self.conv1(x)).relu_()  # (1)
        f: Tensor = self.bn2(self.conv2(h))  # (2)
        return f

    def forward(self, x: Maps) -> OutMaps:
        y = self.residual(x)
        y += self.downsample(x)  # (5) (6), in place: the sum takes no memory of its own
        return y.relu_()  # (4)

    def shortcut(self, in_channels: int, width: int, stride: int) -> nn.Module:
        """The layers of s(x)."""
        return projection(in_channels, width, stride)


class Bottleneck(nn.Module):
    """Adds to its input a residual of a 3 x 3 convolution of few maps, between two of 1 x 1."""

    expansion: ClassVar[int] = 4

    def __init__(self, in_channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        out_channels = self.expansion * width
        self.conv1, self.bn1 = conv(in_channels, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, out_channels, 1), nn.BatchNorm2d(out_channels)
        self.downsample = projection(in_channels, out_channels, stride)

    def residual(self, x: Maps) -> OutMaps:
        """The residual branch F(x)."""
        h = self.bn1(self.conv1(x)).relu_()
        h = self.bn2(self.conv2(h)).relu_()
        f: Tensor = self.bn3(self.conv3(h))  # (3)
        return f

    def forward(self, x: Maps) -> OutMaps:
        y = self.residual(x)
        y += self.downsample(x)  # (5) (6)
        return y.relu_()  # (4)


def conv(in_channels: int, out_channels: int, kernel_size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size but for its stride; the norm behind it has the bias."""
    return nn.Conv2d(in_channels, out_channels, kernel_size, stride, kernel_size // 2, bias=False)


def projection(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """The shortcut of `ResNet`: the identity, or a 1 x 1 convolution where the shape changes."""
    if in_channels == out_channels and stride == 1:
        return nn.Identity()
    return nn.Sequential(conv(in_channels, out_channels, 1, stride), nn.BatchNorm2d(out_channels))


def stage(
    block: type[BasicBlock | Bottleneck | PlainBlock],
    in_channels: int,
    width: int,
    blocks: int,
    stride: int = 1,
) -> nn.Sequential:
    """Blocks of one width, the first of which takes the stride."""
    first = block(in_channels, width, stride)
    return nn.Sequential(first, *(block(block.expansion * width, width) for _ in range(blocks - 1)))


def init_weights(module: nn.Module) -> None:
    """Draw weights that keep the size of a gradient from layer to layer behind rectifiers."""
    if isinstance(module, nn.Conv2d):
        count = module.out_channels * module.kernel_size[0] * module.kernel_size[1]
        nn.init.normal_(module.weight, std=(2 / count) ** 0.5)  # (9)


BLOCKS = {
    **{18: (2, 2, 2, 2), 34: (3, 4, 6, 3)},
    **{50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)},
}
"""The number of blocks in each stage, by depth."""
DEPTHS = f"one of {', '.join(map(str, BLOCKS))}"


def stages_of(depth: int) -> tuple[type[BasicBlock | Bottleneck], tuple[int, ...]]:
    """The kind of block and the number of blocks in each stage."""
    if depth not in BLOCKS:
        raise ValueError(
            f"depth ({depth}) must be {DEPTHS}, because those are the networks of the paper; "
            "CifarResNet has others"
        )
    return BasicBlock if depth < 50 else Bottleneck, BLOCKS[depth]


# ------------------------------------------------------------ small images, and without shortcuts


class CifarBlock(BasicBlock):
    """A basic block with a shortcut that has no weights."""

    def shortcut(self, in_channels: int, width: int, stride: int) -> nn.Module:
        same = in_channels == width and stride == 1
        return nn.Identity() if same else ZeroPadded(in_channels, width, stride)


class ZeroPadded(nn.Module):
    """Every `stride`-th pixel, and maps of zeros behind those there are."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.stride, self.more = stride, out_channels - in_channels

    def forward(self, x: Maps) -> OutMaps:
        s = x[:, :, :: self.stride, :: self.stride]
        return pad(s, (0, 0, 0, 0, 0, self.more))  # (7)


class PlainBlock(nn.Module):
    """Maps feature maps through two 3 x 3 convolutions, without a shortcut."""

    expansion: ClassVar[int] = 1

    def __init__(self, in_channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(in_channels, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3), nn.BatchNorm2d(width)

    def forward(self, x: Maps) -> OutMaps:
        h = self.bn1(self.conv1(x)).relu_()
        y: Tensor = self.bn2(self.conv2(h)).relu_()  # (8)
        return y


class CifarResNet(nn.Module):
    """Maps small images to logits, through three stages of (depth - 2) / 6 blocks."""

    block: ClassVar[type[BasicBlock | PlainBlock]] = CifarBlock

    def __init__(self, in_channels: int, classes: int, *, depth: int = 20, width: int = 16) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if blocks < 1 or rest:
            near = 6 * max(1, round((depth - 2) / 6)) + 2
            raise ValueError(
                f"depth ({depth}) must be 6 n + 2 with n at least 1, because three stages have n "
                f"blocks of two layers each; try {near}"
            )
        self.conv1, self.bn1 = conv(in_channels, width, 3), nn.BatchNorm2d(width)
        self.layer1 = stage(self.block, width, width, blocks)
        self.layer2 = stage(self.block, width, 2 * width, blocks, stride=2)
        self.layer3 = stage(self.block, 2 * width, 4 * width, blocks, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(4 * width, classes)
        self.apply(init_weights)
        for part in self.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.num_batches_tracked = None  # unused, and without it a GPU has less to do

    def forward(self, x: Maps) -> Float[Tensor, "batch classes"]:
        require_images(self, x)
        h = self.bn1(self.conv1(x)).relu_()
        h = self.layer1(h)
        h = self.layer2(h)
        h = self.layer3(h)
        v = self.avgpool(h).flatten(1)
        y: Tensor = self.fc(v)
        return y


class PlainNet(CifarResNet):
    """Maps small images to logits through as many layers, without shortcuts."""

    block: ClassVar[type[BasicBlock | PlainBlock]] = PlainBlock


# -------- the network ends here; training and pictures follow --------


@torch.no_grad()
def residual_sizes(model: nn.Module, x: Maps) -> Float[Tensor, "3 blocks"]:
    """Root mean squares of s(x) and of F(x) over a batch, and their ratio, for each block."""
    sizes: list[Tensor] = []

    def measure(block: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(block, BasicBlock | Bottleneck)
        s = block.downsample(inputs[0]).float().square().mean().sqrt()
        f = block.residual(inputs[0]).float().square().mean().sqrt()
        sizes.append(torch.stack([s, f, f / s.clamp(min=1e-12)]))  # (10)

    blocks = [module for module in model.modules() if isinstance(module, BasicBlock | Bottleneck)]
    handles = [block.register_forward_pre_hook(measure) for block in blocks]
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return torch.stack(sizes, 1).cpu()


@dataclass(frozen=True, kw_only=True)
class ResidualClassification(ImageClassification[M]):
    """Classify images by a network of residual blocks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        enough = self.batch_size >= 2
        self.require(enough, "batch_size", "at least 2, because norms need a spread over a batch")

    def activation_layers(self, model: M) -> Sequence[str]:
        stages = [n for n, part in model.named_children() if isinstance(part, nn.Sequential)]
        return ["conv1", *stages]

    def picture_blocks(
        self, model: M, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Root mean square of shortcut and residual of each block for validation images.

        On the right is the ratio of the two: the residual is the smaller one in {smaller:.0f} of
        {blocks:.0f} blocks.
        """
        s, f, ratio = residual_sizes(model, next(iter(data.valid))[0][:100])
        block = torch.arange(1, len(s) + 1)
        counts = [len(part) for part in model.children() if isinstance(part, nn.Sequential)]
        marks = {f"stage {k + 1}": sum(counts[:k]) + 0.5 for k in range(1, len(counts))}
        drawn = panels(
            Panel(
                {"shortcut, s(x)": (block, s), "residual, F(x)": (block, f)},
                xlabel="block",
                ylabel="root mean square",
                title="shortcut and residual",
                marks=marks,
                ylim=(0.0, 1.3 * float(torch.cat([s, f]).max())),
                legend="lower left",
            ),
            Panel(
                {"F(x) / s(x)": (block, ratio)},
                xlabel="block",
                ylabel="size of F(x) / size of s(x)",
                title="residual by shortcut",
                marks=marks,
                levels={"equally large": 1.0},
                ylim=(0.0, 1.3 * max(1.0, float(ratio.max()))),
                legend="lower left",
            ),
            width=3.25,
            height=2.9,
        )
        return drawn, {"smaller": float((ratio < 1).sum()), "blocks": float(len(s))}


@dataclass(frozen=True, kw_only=True)
class ResNetPhotographs(ResidualClassification[ResNet]):
    """Classify photographs; `start=weights.safetensors` begins from weights of torchvision."""

    depth: int = 18
    """Layers: 18, 34, 50, 101 or 152."""
    width: int = 64
    """Maps of the first layer; the paper and all weights of others have 64."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.depth in BLOCKS, "depth", DEPTHS)
        self.at_least(1, "width")

    def model(self, data: Data) -> ResNet:
        in_channels, classes = data.spec["shape"][0], len(data.spec["classes"])
        return ResNet(in_channels, classes, depth=self.depth, width=self.width)


@dataclass(frozen=True, kw_only=True)
class CifarResNetImages(ResidualClassification[CifarResNet]):
    """Classify small images."""

    network: ClassVar[type[CifarResNet]] = CifarResNet

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
        self.at_least(1, "width")

    def model(self, data: Data) -> CifarResNet:
        in_channels, classes = data.spec["shape"][0], len(data.spec["classes"])
        return self.network(in_channels, classes, depth=self.depth, width=self.width)

    def optimizers(self, model: CifarResNet) -> dict[str, Optimizer]:
        """One, with a decay of gains and biases too, as in the paper."""
        group = {"params": [*model.parameters()], "weight_decay": self.weight_decay}
        return {"main": OPTIMIZERS[self.optimizer]([group], self.lr)}

    def tiny(self) -> Self:
        return replace(super().tiny(), depth=8, holdout=True)


@dataclass(frozen=True, kw_only=True)
class PlainNetImages(CifarResNetImages):
    """Classify small images by as many layers without shortcuts."""

    network: ClassVar[type[CifarResNet]] = PlainNet
    picture_blocks = None  # type: ignore[assignment]  # it has no residuals


RECIPES = {
    "resnet": ResNetPhotographs(
        data="digits", size=32, steps=300, batch_size=32, lr=1e-3, optimizer="adamw",
        weight_decay=0.05, schedule="one-cycle", eval_every=75,
        goal="accuracy >= 0.97", covers=("C20",),
    ),
    "resnet-cifar": CifarResNetImages(
        data="cifar10", holdout=False, pixels=4.0, mirror=True, steps=62_400, warmup=3_120,
        eval_every=1_950, goal="accuracy >= 0.92", covers=("C20",),
    ),
    "resnet-56-cifar": CifarResNetImages(
        data="cifar10", holdout=False, pixels=4.0, mirror=True, depth=56, steps=46_800,
        warmup=2_340, eval_every=1_950, goal="accuracy >= 0.936", covers=("C20",),
    ),
    "plain-cifar": PlainNetImages(
        data="cifar10", holdout=False, pixels=4.0, mirror=True, steps=62_400, warmup=3_120,
        eval_every=1_950, goal="accuracy >= 0.91", covers=("C20",),
    ),
    "resnet-mnist": CifarResNetImages(
        data="mnist", holdout=False, pixels=2.0, degrees=10.0, scale=0.1, width=32, steps=18_720,
        warmup=936, eval_every=2_340, goal="accuracy >= 0.996", covers=("C20",),
    ),
    "resnet-fashion": CifarResNetImages(
        data="fashion-mnist", holdout=False, pixels=2.0, mirror=True, width=32, steps=28_080,
        warmup=1_404, eval_every=2_340, goal="accuracy >= 0.935", covers=("C20",),
    ),
}  # fmt: skip
