"""U-Net, which gives each pixel a class: down to what an image shows, and up again to where.

    n = w * x                                            (1)  3 x 3 convolution, zero padding of 1
    a = max(0, g (n - mean(n)) / std(n) + b)             (2)  batch normalisation, ReLU
    p(i, j) = max of a(2i + {0, 1}, 2j + {0, 1})         (3)  down: max pooling, 2 x 2
    u(2i + r, 2j + s) = b + sum_c w_c(r, s) a_c(i, j)    (4)  up: transposed convolution, 2 x 2
    m = [crop(a'), u]                                    (5)  skip connection: a' of the way down
    y_k(i, j) = b_k + sum_c w_kc a_c(i, j)               (6)  1 x 1 convolution: logits of a pixel
    L = -mean over pixels of log softmax(y)_t            (7)  loss; t is the true class of the pixel
    w ~ N(0, 2 / N),  b = 0                              (8)  initialisation; N inputs to a unit
    a = max(0, b + w * x)                                (9)  (1) and (2) of 2015, without padding

`*` is a convolution summed over the feature maps of x, [ , ] puts feature maps one behind the
other, and w, g and b are learned, other ones in each layer. Every level applies (1) and (2) twice:

    level    feature maps    depth 3, 64 x 64 image    2015: depth 4, 572 x 572 image
    0        width           64 x 64                   568 x 568 down, 388 x 388 up
    1        2 width         32 x 32                   280 x 280 down, 196 x 196 up
    2        4 width         16 x 16                   136 x 136 down, 100 x 100 up
    3        8 width         8 x 8, the bottom         64 x 64 down, 52 x 52 up
    4        16 width                                  28 x 28, the bottom

The recipes pad, so that crop cuts nothing, and normalise, without which a narrow network often
learns nothing. The network of 2015 does neither: each convolution takes a pixel off every edge,
which leaves the pixels whose surroundings were all seen, and crop cuts the middle out of a'. A
third one pads and does not normalise, because means over a batch are noise where exact numbers are
to be given and not classes.

Ronneberger, Fischer, Brox (2015), "U-Net: Convolutional Networks for Biomedical Image
Segmentation", arXiv:1505.04597, section 2. Unlike the paper, the pixels of (7) have equal weights,
there is no dropout at the bottom, and images are turned and moved instead of bent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, max_pool2d

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.images.augment import Augment, affine, compose, flip
from everynet.data.images.standardize import Standardize
from everynet.metrics.segmentation import dice, iou, pixel_confusion
from everynet.nn.input_checks import require_images
from everynet.nn.layers import activations
from everynet.recipes.recipe import later
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.zoo.vision.pictures.segmentation import feature_u, mask_grid, uncertain_pixels

Maps = Float[Tensor, "batch channels height width"]


class UNet(nn.Module):
    """Maps images to logits of all their pixels; height and width are divisible by 2^depth."""

    def __init__(
        self, in_channels: int = 1, classes: int = 2, *, width: int = 64, depth: int = 4
    ) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        upwards = widths[-2::-1]
        downwards = pairwise([in_channels, *widths[:-1]])
        self.down = nn.ModuleList(self.block(before, maps) for before, maps in downwards)
        self.pool = nn.MaxPool2d(2)
        self.bottom = self.block(widths[-2], widths[-1])
        self.upsample = nn.ModuleList(nn.ConvTranspose2d(2 * maps, maps, 2, 2) for maps in upwards)
        self.up = nn.ModuleList(self.block(2 * maps, maps) for maps in upwards)
        self.output = nn.Conv2d(width, classes, 1)
        self.apply(init_weights)

    def block(self, in_channels: int, out_channels: int) -> nn.Module:
        """What each level applies to its feature maps."""
        return DoubleConv(in_channels, out_channels)

    def forward(self, x: Maps) -> Float[Tensor, "batch classes rows columns"]:
        require_images(self, x)
        skips = []
        for block in self.down:
            a = block(x)
            skips.append(a)
            require_even(a)
            x = self.pool(a)  # (3)
        x = self.bottom(x)
        for upsample, block in zip(self.upsample, self.up, strict=True):
            u = upsample(x)  # (4)
            m = torch.cat([center_crop(skips.pop(), u), u], 1)  # (5)
            x = block(m)
        y: Tensor = self.output(x)  # (6)
        return y


class DoubleConv(nn.Module):
    """Maps feature maps to others of the same size, by two normalised convolutions."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        pairs = [(in_channels, out_channels), (out_channels, out_channels)]
        self.convs = nn.ModuleList(nn.Conv2d(*pair, 3, padding=1, bias=False) for pair in pairs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(out_channels) for _ in range(2))

    def forward(self, x: Maps) -> Float[Tensor, "batch maps height width"]:
        a: Tensor = x
        for conv, norm in zip(self.convs, self.norms, strict=True):
            n = conv(a)  # (1)
            a = norm(n).relu()  # (2)
        return a


class PlainDoubleConv(nn.Module):
    """Maps feature maps to others by two convolutions; without padding two pixels smaller."""

    def __init__(self, in_channels: int, out_channels: int, *, padding: int) -> None:
        super().__init__()
        pairs = [(in_channels, out_channels), (out_channels, out_channels)]
        self.convs = nn.ModuleList(nn.Conv2d(*pair, 3, padding=padding) for pair in pairs)

    def forward(self, x: Maps) -> Float[Tensor, "batch maps rows columns"]:
        a: Tensor = x
        for conv in self.convs:
            a = conv(a).relu()  # (9)
        return a


class OriginalUNet(UNet):
    """The network of 2015: maps images to logits of pixels whose surroundings are all inside."""

    def block(self, in_channels: int, out_channels: int) -> nn.Module:
        return PlainDoubleConv(in_channels, out_channels, padding=0)


class UNetWithoutNorm(UNet):
    """Maps images to real numbers for all their pixels."""

    def block(self, in_channels: int, out_channels: int) -> nn.Module:
        return PlainDoubleConv(in_channels, out_channels, padding=1)


def center_crop(
    a: Float[Tensor, "batch channels height width"], u: Float[Tensor, "batch maps rows columns"]
) -> Float[Tensor, "batch channels rows columns"]:
    """The middle of `a`, as high and wide as `u`."""
    rows, columns = u.shape[2:]
    top, left = (a.shape[2] - rows) // 2, (a.shape[3] - columns) // 2
    return a[:, :, top : top + rows, left : left + columns]


def require_even(a: Maps) -> None:
    """Refuse feature maps that pooling cannot halve."""
    height, width = a.shape[2:]
    if height % 2 or width % 2:
        raise ValueError(
            f"maps of {height} x {width} must have an even height and width, because pooling "
            "halves them; give other images (572 x 572 for four levels without padding)"
        )


def init_weights(module: nn.Module) -> None:
    """He's initialisation: a ReLU layer keeps the mean square of its input."""
    if not isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        return
    # With stride 2 and 2 x 2 weights each output pixel comes from one input pixel.
    pixels = 1 if isinstance(module, nn.ConvTranspose2d) else math.prod(module.kernel_size)
    nn.init.normal_(module.weight, std=math.sqrt(2 / (module.in_channels * pixels)))  # (8)
    if module.bias is not None:
        nn.init.zeros_(module.bias)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Segmentation(Training[UNet]):
    """Give each pixel of an image its class."""

    last_weights: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = {
        "dice": "overlap, 2 x intersection / sum of both, the mean of all classes but the first",
        "iou": "intersection over union, the mean of all classes but the first",
        "accuracy": "the share of pixels whose predicted class is right",
        "cross_entropy": "cross-entropy of a pixel's class in nats, the mean",
    }

    data: str = "shapes"
    """A known set, or a folder with images and masks in it."""
    holdout: bool = True
    """Keep a tenth of training to choose weights; false trains on all but a published test."""
    size: int = 0
    """Height and width in pixels to which images are resized; 0 leaves them as they are."""
    strict: bool = later(False)
    """Refuse a file that is no image or cannot be read, instead of skipping and counting it."""
    width: int = 8
    """Feature maps of the uppermost level; each level below has twice as many."""
    depth: int = 3
    """Levels below the uppermost; each halves the image."""
    mirror: bool = False
    """Half of the training images are seen in a mirror, with their masks."""
    degrees: float = 0.0
    """Training images are turned by up to so many degrees, with their masks."""
    pixels: float = 0.0
    """Training images are moved by up to so many pixels along each axis, with their masks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "size", "degrees", "pixels")
        self.at_least(1, "width")
        self.within(1, 8, "depth")

    def augment(self) -> Augment | None:
        """What is done to training images and masks at random."""
        steps = [flip()] if self.mirror else []
        if self.degrees or self.pixels:
            steps.append(affine(self.degrees, self.pixels))
        return compose(*steps) if steps else None

    def dataset(self) -> Data:
        return load(
            self.data, kind="mask", batch_size=self.batch_size, seed=self.seed,
            holdout=self.holdout, size=self.size, strict=self.strict, augment=self.augment(),
        )  # fmt: skip

    def model(self, data: Data) -> UNet:
        channels, height, width = data.spec["shape"]
        parts = 2**self.depth
        if height % parts or width % parts:
            nearest = max(parts, round(max(height, width) / parts) * parts)
            raise UserError(
                f"size ({self.size}: images of {width}x{height}) must be divisible by {parts}, "
                f"because each of depth ({self.depth}) levels halves the image; do size={nearest}"
            )
        classes = len(data.spec["classes"])
        return UNet(channels, classes, width=self.width, depth=self.depth)

    def objective(self, model: UNet, batch: Batch) -> Terms:
        x, t = batch
        return {"cross_entropy": cross_entropy(model(x), t)}  # (7)

    def metrics(self, model: UNet, batch: Batch) -> dict[str, Tensor]:
        x, t = batch
        y = model(x)
        return {
            "confusion": pixel_confusion(y.argmax(1), t, y.shape[1]).flatten(1),
            "cross_entropy": cross_entropy(y, t, reduction="none").mean((1, 2)),
        }

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        """Dice and IoU from the pixels of all images together, the mean of all but class 0."""
        images = len(outputs["cross_entropy"])
        classes = math.isqrt(len(outputs["confusion"]) // images)
        confusion = outputs["confusion"].reshape(images, classes, classes).sum(0)
        return {
            "dice": dice(confusion)[1:].mean().item(),
            "iou": iou(confusion)[1:].mean().item(),
            "accuracy": (confusion.diagonal().sum() / confusion.sum()).item(),
            "cross_entropy": outputs["cross_entropy"].double().mean().item(),
        }

    def _validation(self, model: UNet, data: Data) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Six validation images as the network and as we see them, their masks and predictions."""
        x, t = (part[:6] for part in next(iter(data.valid)))
        images = Standardize.of(data.spec).to_data_units(x.cpu().float())
        return x, images, t.cpu(), model(x).softmax(1).cpu()

    def picture_masks(
        self, model: UNet, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Validation images, their true and predicted masks, and wrong pixels in red.

        Of the wrong pixels {share:.0%} lie within two pixels of an outline.
        """
        _, images, t, probabilities = self._validation(model, data)
        predicted = probabilities.argmax(1)
        high, low = (max_pool2d(sign * t.double(), 5, 1, 2) for sign in (1, -1))
        wrong, outline = predicted != t, high != -low  # more than one class within two pixels
        share = float((wrong & outline).sum() / wrong.sum().clamp(min=1))
        return mask_grid(images, t, predicted, data.spec["classes"]), {"share": share}

    def picture_skips(self, model: UNet, data: Data, history: History) -> Figure:
        """Feature maps of each level on the way down, left, and on the way up, right.

        Going down, maps become small and say what is there; going up, skip connections bring back
        the detail that says exactly where.
        """
        x, images, t, probabilities = self._validation(model, data)
        names = [f"down.{n}" for n in range(self.depth)] + ["bottom"]
        names += [f"up.{n}" for n in range(self.depth)]
        most = max(range(len(t)), key=lambda row: len(t[row].unique()))  # classes in one image
        maps = [a[0].cpu() for a in activations(model, x[most : most + 1], names).values()]
        return feature_u(
            images[most], maps[: self.depth], maps[self.depth], maps[self.depth + 1 :],
            predicted=probabilities[most].argmax(0), classes=data.spec["classes"],
        )  # fmt: skip

    def picture_uncertainty(self, model: UNet, data: Data, history: History) -> Figure:
        """Entropy of the predicted class of each pixel, below images with their true outlines.

        Bright pixels are uncertain: look along the outlines and where two of them meet.
        """
        _, images, t, probabilities = self._validation(model, data)
        return uncertain_pixels(images, probabilities, t)

    def predict(self, model: UNet, inputs: Tensor, spec: Spec) -> Sequence[dict[str, Any]]:
        """The class of each pixel."""
        return [{"mask": mask} for x in inputs.split(16) for mask in model(x).argmax(1).cpu()]

    def tiny(self) -> Self:
        return replace(super().tiny(), depth=2, data="shapes:40")


RECIPES = {
    "unet": Segmentation(
        steps=1000, batch_size=8, lr=1e-2, schedule="one-cycle",
        mirror=True, degrees=20.0, pixels=4.0,
        goal="dice >= 0.95",
        covers=("C23",),
    ),
}  # fmt: skip
