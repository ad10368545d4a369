"""U-Net, which gives each pixel a class: down to what an image shows, and up again to where.

    a = max(0, b + w * x)                                (1)  3 x 3 convolution, twice at each level
    p(i, j) = max of a(2i + {0, 1}, 2j + {0, 1})         (2)  down: half the side, twice the maps
    u(2i + r, 2j + s) = b + sum_c w_c(r, s) a_c(i, j)    (3)  up: twice the side, half the maps
    m = [crop(a'), u]                                    (4)  skip: maps a' of that level going down
    y_k(i, j) = b_k + sum_c w_kc a_c(i, j)               (5)  logits, one for each class and pixel
    L = -mean over pixels of log softmax(y)_t            (6)  loss; t is the true class of the pixel
    w ~ N(0, 2 / N),  b = 0                              (7)  start; N inputs to a unit

The network of 2015 has no border at (1), so each convolution takes a pixel off every side: an image
of 572 x 572 becomes a map of 388 x 388, of the pixels whose surroundings were all seen, and crop
cuts the middle out of a'. The one that keeps the size sets x into a border of zeros, so that crop
cuts nothing, and normalises each map, without which a narrow network often learns nothing:

    n = w * [0 x 0]                                      (8)  in the place of (1)
    a = max(0, g (n - mean(n)) / std(n) + b)             (9)  batch normalisation, rectifier

A third one keeps the size and normalises nothing, a = max(0, b + n): means over a batch are noise
where exact numbers are to be given and not classes.

Ronneberger, Fischer, Brox (2015), "U-Net: Convolutional Networks for Biomedical Image
Segmentation", arXiv:1505.04597, section 2. Unlike the paper, the pixels of (6) have equal weights,
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
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.images.augment import Augment, affine, compose, flip
from everynet.data.images.standardize import Standardize
from everynet.metrics.segmentation import dice, iou, pixel_confusion
from everynet.nn.input_checks import require_images
from everynet.nn.layers import activations
from everynet.recipes.recipe import Pictures, later
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.zoo.vision.pictures.segmentation import feature_u, segmented, uncertain_pixels

Maps = Float[Tensor, "batch channels height width"]


class Twice(nn.Module):
    """Maps feature maps to others, two pixels smaller on every side."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3)
        self.second = nn.Conv2d(width, width, 3)

    def forward(self, x: Maps) -> Float[Tensor, "batch maps rows columns"]:
        a: Tensor = self.first(x).relu()  # (1)
        a = self.second(a).relu()  # (1)
        return a


class SameTwice(nn.Module):
    """Maps feature maps to others of the same size, normalised."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, padding=1, bias=False)  # the norm has one
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))

    def forward(self, x: Maps) -> Float[Tensor, "batch maps height width"]:
        a: Tensor = x
        for conv, norm in zip((self.first, self.second), self.norms, strict=True):
            n = conv(a)  # (8)
            a = norm(n).relu()  # (9)
        return a


class BorderTwice(nn.Module):
    """Maps feature maps to others of the same size, which stand in a border of zeros."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Maps) -> Float[Tensor, "batch maps height width"]:
        a: Tensor = self.first(x).relu()  # (8) (1)
        a = self.second(a).relu()  # (8) (1)
        return a


class UNet(nn.Module):
    """Maps images to logits of the pixels whose surroundings are all in the image."""

    block: ClassVar[type[Twice | SameTwice | BorderTwice]] = Twice

    def __init__(
        self, channels: int = 1, classes: int = 2, width: int = 64, depth: int = 4
    ) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        going_up = widths[-2::-1]
        self.down = nn.ModuleList(
            self.block(before, after) for before, after in pairwise([channels, *widths[:-1]])
        )
        self.pool = nn.MaxPool2d(2)
        self.bottom = self.block(widths[-2], widths[-1])
        self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * maps, maps, 2, 2) for maps in going_up)
        self.up = nn.ModuleList(self.block(2 * maps, maps) for maps in going_up)
        self.output = nn.Conv2d(width, classes, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                start(module)

    def forward(self, x: Maps) -> Float[Tensor, "batch classes rows columns"]:
        require_images(self, x)
        skips = []
        for twice in self.down:
            a = twice(x)
            skips.append(a)
            _check_even(a)
            x = self.pool(a)  # (2)
        x = self.bottom(x)
        for grow, twice in zip(self.grow, self.up, strict=True):
            u = grow(x)  # (3)
            m = torch.cat([cropped(skips.pop(), u), u], 1)  # (4)
            x = twice(m)
        y: Tensor = self.output(x)  # (5)
        return y


class SameUNet(UNet):
    """Maps images to logits of all their pixels."""

    block: ClassVar[type[Twice | SameTwice | BorderTwice]] = SameTwice


class BorderUNet(UNet):
    """Maps images to real numbers for all their pixels."""

    block: ClassVar[type[Twice | SameTwice | BorderTwice]] = BorderTwice


def cropped(
    a: Float[Tensor, "batch channels height width"], u: Float[Tensor, "batch maps rows columns"]
) -> Float[Tensor, "batch channels rows columns"]:
    """The middle of `a`, as high and wide as `u`."""
    rows, columns = u.shape[2:]
    top, left = (a.shape[2] - rows) // 2, (a.shape[3] - columns) // 2
    return a[:, :, top : top + rows, left : left + columns]


def _check_even(a: Tensor) -> None:
    height, width = a.shape[2:]
    if height % 2 or width % 2:
        raise ValueError(
            f"maps of {height} x {width} must have even sides, because pooling halves them; give "
            "the network other images (572 x 572 for four levels without border)"
        )


def start(module: nn.Conv2d | nn.ConvTranspose2d) -> None:
    """Weights so spread that a rectified layer gives what it gets, on average of squares."""
    # With stride 2 and 2 x 2 weights each pixel above comes from one pixel below.
    pixels = 1 if isinstance(module, nn.ConvTranspose2d) else math.prod(module.kernel_size)
    nn.init.normal_(module.weight, std=math.sqrt(2 / (module.in_channels * pixels)))  # (7)
    if module.bias is not None:
        nn.init.zeros_(module.bias)


@dataclass(frozen=True, kw_only=True)
class Segmentation(Training[SameUNet]):
    """Give each pixel of an image its class."""

    captions: ClassVar[dict[str, str]] = {
        "masks": "What the network makes of images that it was not trained on: the pixels that it "
        "gets wrong lie on the edges of shapes and where two of them touch.",
        "skips": "Going down, maps become small and say what is there; going up, the skips bring "
        "back the detail that says exactly where.",
        "uncertainty": "The network is least sure on the outlines of shapes and where two of them "
        "touch, and most sure of the ground.",
    }
    meanings: ClassVar[Mapping[str, str]] = {
        "dice": (
            "overlap of found and true pixels, 2 x both / sum, the mean of all classes but the "
            "first"
        ),
        "iou": "both by either, the mean of all classes but the first",
        "accuracy": "the share of pixels whose class was named",
        "cross_entropy": "nats of surprise at the class of a pixel, the mean",
    }

    data: str = "shapes"
    """A known set, or a folder with images and masks in it."""
    holdout: bool = True
    """Keep a tenth of training to choose weights; false trains on all but a published test."""
    size: int = 0
    """Side of the images in pixels, to which others are brought; 0 leaves them as they are."""
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
        self.require(self.size >= 0, "size", "at least 0")
        self.require(self.width >= 1, "width", "at least 1")
        self.require(1 <= self.depth <= 8, "depth", "from 1 to 8")
        self.require(0 <= self.degrees < math.inf, "degrees", "a number from 0 up")
        self.require(0 <= self.pixels < math.inf, "pixels", "a number from 0 up")

    def augment(self) -> Augment | None:
        """What is done to training images and masks at random."""
        steps = [flip()] if self.mirror else []
        if self.degrees or self.pixels:
            steps.append(affine(self.degrees, self.pixels))
        return compose(*steps) if steps else None

    def dataset(self) -> Data:
        return load(
            self.data,
            kind="mask",
            batch_size=self.batch_size,
            seed=self.seed,
            holdout=self.holdout,
            size=self.size,
            strict=self.strict,
            augment=self.augment(),
        )

    def model(self, data: Data) -> SameUNet:
        channels, height, width = data.spec["shape"]
        parts = 2**self.depth
        if height % parts or width % parts:
            nearest = max(parts, round(max(height, width) / parts) * parts)
            raise UserError(
                f"size ({self.size}: images of {width}x{height}) must be divisible by {parts}, "
                f"because each of depth ({self.depth}) levels halves the image; do size={nearest}"
            )
        return SameUNet(channels, len(data.spec["classes"]), self.width, self.depth)

    def objective(self, model: SameUNet, batch: Batch) -> Terms:
        x, t = batch
        return {"cross_entropy": cross_entropy(model(x), t)}  # (6)

    def metrics(self, model: SameUNet, batch: Batch) -> dict[str, Tensor]:
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

    last_weights: ClassVar[bool] = True

    def pictures(self, model: SameUNet, data: Data, history: History) -> Pictures:
        """Masks beside the truth, the maps down and up the U, and where it is unsure."""
        classes = data.spec["classes"]
        x, t = (part[:6] for part in next(iter(data.valid)))
        probabilities = model(x).softmax(1).cpu()
        names = [f"down.{n}" for n in range(self.depth)] + ["bottom"]
        names += [f"up.{n}" for n in range(self.depth)]
        most = max(range(len(t)), key=lambda row: len(t[row].unique()))  # classes in one image
        seen = activations(model, x[most : most + 1], names)
        maps = [values[0].cpu() for values in seen.values()]
        down, bottom, up = maps[: self.depth], maps[self.depth], maps[self.depth + 1 :]
        images = Standardize.of(data.spec).to_data_units(x.cpu().float())
        predicted, t = probabilities.argmax(1), t.cpu()
        return {
            "masks": segmented(images, t, predicted, classes),
            "skips": feature_u(
                images[most], down, bottom, up, predicted=predicted[most], classes=classes
            ),
            "uncertainty": uncertain_pixels(images, probabilities, t),
        }

    def predict(self, model: SameUNet, inputs: Tensor, spec: Spec) -> Sequence[dict[str, Any]]:
        """The class of each pixel, and the share of the pixels that each class has."""
        classes = spec["classes"]
        masks = torch.cat([model(x).argmax(1).cpu() for x in inputs.split(16)])
        return [
            {
                "mask": mask,
                "classes": {
                    name: (mask == k).double().mean().item() for k, name in enumerate(classes)
                },
            }
            for mask in masks
        ]

    def tiny(self) -> Self:
        few, small = min(self.steps, 4), min(self.batch_size, 8)
        return replace(self, steps=few, batch_size=small, width=4, depth=2, data="shapes:40")


# Of the test images, one CPU thread, seeds 0, 1, 2; about 50 seconds of that thread each.
# unet    Dice 0.976 0.974 0.982    IoU 0.954 0.949 0.965    accuracy 0.995 0.995 0.996
RECIPES = {
    "unet": Segmentation(
        steps=1000,
        batch_size=8,
        lr=1e-2,
        schedule="one-cycle",
        mirror=True,
        degrees=20.0,
        pixels=4.0,
        goal="dice >= 0.95",
        covers=("C23",),
    ),
}
