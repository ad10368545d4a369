"""Group-equivariant CNN: each filter looks in four directions, so a turned image is nothing new.

    z_k(r, p)  = sum_{c,q} w_kc(R^-r (q - p)) x_c(q)               (1)  lifting, r = 0, 1, 2, 3
    z_k(r, p)  = sum_{c,s,q} w_kc(s - r, R^-r (q - p)) h_c(s, q)   (2)  convolution on the group
    m_k(r, p)  = max of z_k(r, .) over 2 x 2 pixels                (3)  none in the last block
    n_k = g_k (m_k - mean(m_k)) / std(m_k) + b_k                   (4)  over all r and p alike
    h_k = max(0, n_k)                                              (5)  rectifier
    v_k = mean over r and p of h_k(r, p)                           (6)  group pooling
    y = W v + b                                                    (7)  logits, one for each class
    (T h)_k(r, p) = h_k(r - 1, R^-1 p)                             (8)  maps of the turned image

x are the channels of the image and h the maps of the block before, on the group; w are weights. R
turns the plane by 90 degrees; p, q are pixels; r and s count quarter turns, modulo 4. The group p4
is all pairs of a quarter turn and a shift. Where the image is turned by R, the maps behind each of
(1) to (5) become (8): each is turned, and stands in the next place. So (6) and (7) do not change at
all. A filter has its four turns for the weights of one: for as many weights as a plain network with
twice the maps, there are twice as many maps.

Cohen, Welling (2016), "Group Equivariant Convolutional Networks", arXiv:1602.07576, sections 4 to
6. Unlike the paper, whose network of rotated digits has seven layers, this one has a mean over
all pixels before its logits.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import conv2d

from everynet.data.dataset import Data
from everynet.data.images.augment import Affine
from everynet.data.images.standardize import Standardize
from everynet.nn.input_checks import require_images
from everynet.plot import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.state import M, State
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.seeds import generator, mix
from everynet.zoo.vision.classifier import ImageClassification
from everynet.zoo.vision.cnn import CNN
from everynet.zoo.vision.pictures.equivariance import turned_maps

Images = Float[Tensor, "batch channels height width"]
OnGroup = Float[Tensor, "batch maps 4 height width"]


class GroupCNN(nn.Module):
    """Maps square images to logits that stay the same where the image is turned by 90 degrees.

    One block for each of `widths`; all but the last halve the image, whose size they must divide.
    For images of 20 x 20 and widths of (8, 16, 16):

    block    0               1             2
    maps     8 x 4 turns     16 x 4 turns  16 x 4 turns
    size     10 x 10         5 x 5         5 x 5
    """

    def __init__(self, in_channels: int, classes: int, *, widths: tuple[int, ...]) -> None:
        super().__init__()
        convs: list[Lifting | GroupConv] = [Lifting(in_channels, widths[0])]
        convs += [GroupConv(before, width) for before, width in pairwise(widths)]
        last = len(widths) - 1
        self.blocks = nn.Sequential(
            *(
                GroupBlock(conv, width, pools=number < last)
                for number, (conv, width) in enumerate(zip(convs, widths, strict=True))
            )
        )
        self.output = nn.Linear(widths[-1], classes)

    def forward(self, x: Images) -> Float[Tensor, "batch classes"]:
        require_images(self, x)
        parts = 2 ** (len(self.blocks) - 1)
        if x.shape[2] != x.shape[3] or x.shape[2] % parts:
            raise ValueError(
                f"images of {x.shape[2]} x {x.shape[3]} must be square with a side divisible by "
                f"{parts}, because a turn about the centre must take pixels to pixels in every "
                "block; give other images or fewer widths"
            )
        h = self.blocks(x)
        v = h.mean((2, 3, 4))  # (6)
        y: Tensor = self.output(v)  # (7)
        return y


class GroupBlock(nn.Module):
    """Maps what `conv` takes to `width` maps on the group, half as high and wide if it pools."""

    def __init__(self, conv: Lifting | GroupConv, width: int, *, pools: bool) -> None:
        super().__init__()
        self.conv = conv
        self.pool = nn.MaxPool3d((1, 2, 2)) if pools else nn.Identity()
        self.norm = nn.BatchNorm3d(width)
        self.relu = nn.ReLU()

    def forward(self, x: Float[Tensor, "batch ..."]) -> OnGroup:
        z = self.conv(x)
        m = self.pool(z)  # (3)
        n = self.norm(m)  # (4)
        h: Tensor = self.relu(n)  # (5)
        return h


class Lifting(nn.Module):
    """Maps images to maps on the group: the answers of each filter in four directions."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int = 3) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, kernel_size, kernel_size))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def forward(self, x: Images) -> OnGroup:
        out_channels, in_channels, *size = self.weight.shape
        four = [self.weight.rot90(r, (2, 3)) for r in range(4)]
        kernels = torch.stack(four, 1).reshape(4 * out_channels, in_channels, *size)
        z = conv2d(x, kernels, padding=size[0] // 2)  # (1)
        return z.reshape(x.shape[0], out_channels, 4, *z.shape[2:])


class GroupConv(nn.Module):
    """Maps maps on the group to others, joining all directions."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int = 3) -> None:
        super().__init__()
        shape = (out_channels, in_channels, 4, kernel_size, kernel_size)
        self.weight = nn.Parameter(torch.empty(shape))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def forward(self, h: OnGroup) -> Float[Tensor, "batch {self.weight.shape[0]} 4 height width"]:
        out_channels, in_channels, _, *size = self.weight.shape
        four = [self.weight.roll(r, 2).rot90(r, (3, 4)) for r in range(4)]
        kernels = torch.stack(four, 1).reshape(4 * out_channels, 4 * in_channels, *size)
        z = conv2d(h.flatten(1, 2), kernels, padding=size[0] // 2)  # (2)
        return z.reshape(h.shape[0], out_channels, 4, *z.shape[2:])


def turn_maps(h: OnGroup) -> OnGroup:
    """The maps of an image that was turned by 90 degrees, from those of the image."""
    return h.roll(1, 2).rot90(1, (3, 4))  # (8)


# -------- the network ends here; training and pictures follow --------

TURNS = 5  # of the images of a split, among what is drawn from a seed
ANGLES = torch.linspace(0, 360, 37)
PROBED = 200  # validation images whose logits are compared before and after a turn
WHEELED = 25  # of which those are turned through all angles


def rotate(x: Images, degrees: Float[Tensor, " batch"]) -> Images:
    """Rotate images about their centre, each by its own angle, counterclockwise."""
    angle = degrees.to(x) * (math.pi / 180)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    matrix = torch.stack([cos, -sin, zero, sin, cos, zero], 1).reshape(-1, 2, 3)
    return Affine(matrix).image(x, None)


def rotate_once(x: Tensor, angles: Float[Tensor, " batch"]) -> Tensor:
    """Rotate the images of a split, in the type they have; large splits piece by piece."""
    pieces = zip(x.split(1000), angles.split(1000), strict=True)
    rotated = torch.cat([rotate(some.float(), angle) for some, angle in pieces])
    return rotated if x.is_floating_point() else rotated.round().to(x.dtype)


@dataclass(frozen=True, kw_only=True)
class RotatedImages(ImageClassification[M]):
    """Classify images that may be turned by any angle."""

    degrees: float = 180.0
    """Training images are turned by up to so many degrees, anew each time."""
    widths: tuple[int, ...] = (8, 16, 16)
    """Maps of the blocks."""

    def dataset(self) -> Data:
        """Validation and test images are turned once, each by an angle that belongs to it."""
        data = super().dataset()
        splits = dict(data.splits)
        for number, part in enumerate(("valid", "test")):
            x, y = splits[part]
            angles = 360 * torch.rand(len(x), generator=generator(TURNS, number))
            splits[part] = (rotate_once(x, angles), y)
        return replace(data, splits=splits)


@dataclass(frozen=True, kw_only=True)
class GroupCNNImages(RotatedImages[GroupCNN]):
    """Classify rotated images by a network that is equivariant to quarter turns."""

    def model(self, data: Data) -> GroupCNN:
        in_channels, height, width = data.spec["shape"]
        parts = 2 ** (len(self.widths) - 1)
        if height != width or height % parts:
            nearest = max(parts, round(max(height, width) / parts) * parts)
            raise UserError(
                f"size ({self.size}: images of {width}x{height}) must give squares whose side is "
                f"divisible by {parts}, because a turn must take pixels to pixels in each of "
                f"{len(self.widths)} blocks; do size={nearest}"
            )
        return GroupCNN(in_channels, len(data.spec["classes"]), widths=self.widths)


@dataclass(frozen=True, kw_only=True)
class PlainCNNImages(RotatedImages[CNN]):
    """Classify rotated images by a plain network with as many weights."""

    def model(self, data: Data) -> CNN:
        in_channels, classes = data.spec["shape"][0], len(data.spec["classes"])
        return CNN(in_channels, classes, widths=tuple(2 * width for width in self.widths))


KINDS: dict[str, type[RotatedImages[Any]]] = {"group": GroupCNNImages, "plain": PlainCNNImages}
NAMES = {"group": "p4 network", "plain": "plain network"}


@dataclass(frozen=True, kw_only=True)
class GroupVersusPlain(Experiment):
    """A p4 network and a plain one of as many weights, on images turned by any angle."""

    tests: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = {
        "accuracy": "test accuracy of the group-equivariant network, the mean of the repeats",
        "accuracy_plain": "the same of a plain network of about as many weights",
        "gain": "the first less the second, in points",
        "change": "largest change of its probabilities under a turn by 90 degrees: rounding",
        "change_plain": "the same of the plain network",
        "weights_ratio": "weights of the plain network by those of the other",
    }

    data: str = "strokes:4000"
    """A known set of square images, or a folder with one subfolder of images for each class."""
    size: int = 20
    """Side of the images in pixels, to which others are brought; 0 leaves them as they are."""
    widths: tuple[int, ...] = (8, 16, 16)
    """Maps of the blocks of the p4 network; the plain one has twice as many."""
    steps: int = 600
    """Updates of each network."""
    batch_size: int = 64
    """Images an update sees."""
    lr: float = 1e-2
    """Learning rate, with Adam and one cycle."""
    repeats: int = 3
    """Networks of each kind, from other weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(min(self.widths, default=0) >= 1, "widths", "one or more numbers from 1 up")
        self.at_least(1, "repeats")

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            f"{kind}-{repeat}": KINDS[kind](
                data=self.data, size=self.size, widths=self.widths, steps=self.steps, lr=self.lr,
                batch_size=self.batch_size, schedule="one-cycle",
                eval_every=max(1, self.steps // 6), seed=mix(self.seed, repeat),
            )
            for repeat, kind in product(range(self.repeats), KINDS)
        }  # fmt: skip

    def measure(
        self, cell: str, recipe: Training[Any, Any], state: State[Any, Any], data: Data
    ) -> dict[str, float | Tensor]:
        """The number of weights, and how far probabilities move where images are turned by 90.

        In float64, because on a GPU products are rounded to fewer digits than the law has.
        """
        exact = copy.deepcopy(state.model).double().eval()
        x = next(iter(data.valid))[0][:PROBED].to(next(exact.parameters()))
        with torch.autocast(x.device.type, enabled=False):
            before, after = (exact(some).softmax(1) for some in (x, x.rot90(1, (2, 3))))
        return {
            "parameters": float(sum(p.numel() for p in state.model.parameters())),
            "change": (after - before).abs().max(),
        }

    def metrics(self, table: Table) -> dict[str, float]:
        found: dict[str, dict[str, float]] = {}
        for kind in KINDS:
            cells = [table.cells[f"{kind}-{repeat}"] for repeat in range(self.repeats)]
            found[kind] = {
                "accuracy": sum(c.test.get("accuracy", math.nan) for c in cells) / self.repeats,
                "change": max(float(cell.measured["change"][-1]) for cell in cells),
                "parameters": float(cells[0].measured["parameters"][-1]),
            }
        group, plain = found["group"], found["plain"]
        return {
            "accuracy": group["accuracy"],
            "accuracy_plain": plain["accuracy"],
            "gain": 100 * (group["accuracy"] - plain["accuracy"]),
            "change": group["change"],
            "change_plain": plain["change"],
            "weights_ratio": plain["parameters"] / group["parameters"],
        }

    def picture_maps(self, table: Table) -> Figure:
        """Feature maps of an image, and of the same image turned by 90 degrees.

        The four maps of a p4 filter are turned with the image and each moves to the next place,
        in the same frame; those of a plain network become others.
        """
        group, plain, data = self.networks(table)
        x = next(iter(data.valid))[0][:1]
        both = torch.cat([x, x.rot90(1, (2, 3))])
        with torch.no_grad():
            lifted, flat = group.blocks[0](both), plain.blocks[0](both)
        strong = int(lifted[0].flatten(1).std(1).argmax())
        busy = flat[0].flatten(1).std(1).argsort(descending=True)[:4].sort().values
        return turned_maps(
            Standardize.of(data.spec).to_data_units(both),
            {
                f"p4: filter {strong + 1} in four directions": lifted[:, strong],
                "plain: four filters": flat[:, busy],
            },
            moves=(True, False),
        )

    def picture_accuracy(self, table: Table) -> Figure:
        """Accuracy on rotated validation images by update (left), with the spread over repeats.

        Right, the probability of the true class as one image is turned: that of the p4 network
        repeats itself every 90 degrees.
        """
        group, plain, data = self.networks(table)
        x, y = (part[:WHEELED] for part in next(iter(data.valid)))
        sure = {}
        for name, network in zip(NAMES.values(), (group, plain), strict=True):
            with torch.no_grad():
                wheel = [network(rotate(x, a.expand(len(x)))).softmax(1) for a in ANGLES]
            sure[name] = torch.stack([p.gather(1, y[:, None])[:, 0] for p in wheel], 1)
        varied = int((sure[NAMES["plain"]].amax(1) - sure[NAMES["plain"]].amin(1)).argmax())
        curves = {}
        for kind, name in NAMES.items():
            cells = [table.cells[f"{kind}-{repeat}"] for repeat in range(self.repeats)]
            curves[name] = 100 * torch.stack([cell.valid["accuracy"][1:] for cell in cells])
        steps = cells[0].steps[1:]
        return panels(
            Panel(
                {name: (steps, rows.mean(0)) for name, rows in curves.items()},
                "updates",
                "accuracy on validation images (%)",
                f"{data.spec['name']}, turned by any angle",
                bands={name: (rows.amin(0), rows.amax(0)) for name, rows in curves.items()},
                legend="lower right",
            ),
            Panel(
                {name: (ANGLES, rows[varied]) for name, rows in sure.items()},
                "turn (degrees)",
                "probability of the true class",
                f"class {data.spec['classes'][int(y[varied])]}, where plain varies most",
                ylim=(-0.03, 1.03),
            ),
            width=3.25,
            height=2.9,
        )

    def networks(self, table: Table) -> tuple[GroupCNN, CNN, Data]:
        """The first network of each kind, and the data."""
        group, plain = (table.cells[f"{kind}-0"].network() for kind in KINDS)
        assert isinstance(group, GroupCNN)
        assert isinstance(plain, CNN)
        return group, plain, table.cells["group-0"].recipe.dataset()

    def tiny(self) -> Self:
        return replace(super().tiny(), data="digits", size=0, widths=(2, 2))


RECIPES = {
    "group-cnn": GroupVersusPlain(goal="gain > 0 and change <= 1e-5", covers=("C9",)),
    "group-cnn-mnist": GroupVersusPlain(
        data="mnist", size=28, widths=(10, 20, 20), steps=4000, batch_size=128,
        goal="gain > 0 and change <= 1e-5", covers=("C9",),
    ),
}  # fmt: skip
