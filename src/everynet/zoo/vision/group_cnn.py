"""Group-equivariant CNN: each filter looks in four directions, so a turned image is nothing new.

    y_k(r, p)  = sum_{c,q} w_kc(R^-r (q - p)) x_c(q)               (1)  lifting, r = 0, 1, 2, 3
    z_k(r, p)  = sum_{c,s,q} w_kc(s - r, R^-r (q - p)) y_c(s, q)   (2)  convolution on the group
    m_k(r, p)  = max of z_k(r, .) over 2 x 2 pixels                (3)  none in the last block
    n_k = g_k (m_k - mean(m_k)) / std(m_k) + b_k                   (4)  over all r and p alike
    h_k = max(0, n_k)                                              (5)  rectifier
    v_k = mean over r and p of h_k(r, p)                           (6)  group pooling
    y = W v + b                                                    (7)  logits, one for each class
    (T h)_k(r, p) = h_k(r - 1, R^-1 p)                             (8)  what becomes of the maps

R turns the plane by 90 degrees; p, q are pixels; r and s count quarter turns, modulo 4. The group
p4 is all pairs of a quarter turn and a shift. Where the image is turned, the maps behind each of
(1) to (5) go over into (8): each is turned, and stands in the next place. So (6) and (7) do not
change at all. A filter has its four turns for the weights of one: for as many weights as a plain
network with twice the maps, there are twice as many maps.

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
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import conv2d

from everynet.data.dataset import Data
from everynet.data.images.augment import Affine
from everynet.data.images.standardize import Standardize
from everynet.nn.input_checks import require_images
from everynet.plot import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.recipe import Pictures
from everynet.recipes.state import M, State
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.seeds import generator, mix
from everynet.zoo.vision.classifier import ImageClassification
from everynet.zoo.vision.cnn import CNN
from everynet.zoo.vision.pictures.equivariance import turned_maps

Images = Float[Tensor, "batch channels height width"]
OnGroup = Float[Tensor, "batch maps 4 height width"]
TURNS = 5  # of the images of a split, among what is drawn from a seed
ANGLES = torch.linspace(0, 360, 37)
PROBED = 200  # validation images whose answers are compared before and after a turn
WHEELED = 25  # of which those are turned through all angles


class Lifting(nn.Module):
    """Maps images to maps on the group: the answers of each filter in four directions."""

    def __init__(self, channels: int, width: int, size: int = 3) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, channels, size, size))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def forward(self, x: Images) -> OnGroup:
        width, channels, *size = self.weight.shape
        four = [self.weight.rot90(r, (2, 3)) for r in range(4)]
        kernels = torch.stack(four, 1).reshape(4 * width, channels, *size)
        y = conv2d(x, kernels, padding=size[0] // 2)  # (1)
        return y.reshape(len(x), width, 4, *y.shape[2:])


class GroupConv(nn.Module):
    """Maps maps on the group to others, joining all directions."""

    def __init__(self, channels: int, width: int, size: int = 3) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, channels, 4, size, size))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def forward(self, y: OnGroup) -> Float[Tensor, "batch {self.weight.shape[0]} 4 height width"]:
        width, channels, _, *size = self.weight.shape
        four = [self.weight.roll(r, 2).rot90(r, (3, 4)) for r in range(4)]
        kernels = torch.stack(four, 1).reshape(4 * width, 4 * channels, *size)
        z = conv2d(y.flatten(1, 2), kernels, padding=size[0] // 2)  # (2)
        return z.reshape(len(y), width, 4, *z.shape[2:])


class GroupBlock(nn.Module):
    """Maps what `conv` takes to `width` maps on the group, half as high and wide if it pools."""

    def __init__(self, conv: Lifting | GroupConv, width: int, *, pools: bool) -> None:
        super().__init__()
        self.conv = conv
        self.pool = nn.MaxPool3d((1, 2, 2)) if pools else nn.Identity()
        self.norm = nn.BatchNorm3d(width)
        self.relu = nn.ReLU()

    def forward(self, x: Float[Tensor, "batch ..."]) -> OnGroup:
        m = self.pool(self.conv(x))  # (3)
        n = self.norm(m)  # (4)
        h: Tensor = self.relu(n)  # (5)
        return h


class GroupCNN(nn.Module):
    """Maps square images to logits that stay the same where the image is turned by 90 degrees.

    One block for each of `widths`; all but the last halve the image, whose side they must divide.
    """

    def __init__(self, channels: int, classes: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        convs: list[Lifting | GroupConv] = [Lifting(channels, widths[0])]
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
        v = self.blocks(x).mean((2, 3, 4))  # (6)
        y: Tensor = self.output(v)  # (7)
        return y


def turned(h: OnGroup) -> OnGroup:
    """The maps of an image that was turned by 90 degrees, from those of the image."""
    return h.roll(1, 2).rot90(1, (3, 4))  # (8)


def turned_by(
    x: Float[Tensor, "batch channels height width"], degrees: Float[Tensor, " batch"]
) -> Float[Tensor, "batch channels height width"]:
    """Images turned about their centre, each by its own angle, counterclockwise."""
    angle = degrees.to(x) * (math.pi / 180)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    matrix = torch.stack([cos, -sin, zero, sin, cos, zero], 1).reshape(-1, 2, 3)
    return Affine(matrix).image(x, None)


def around(model: nn.Module, x: Images, y: Int[Tensor, " batch"]) -> Float[Tensor, "batch angles"]:
    """The probability of the true class of each image as it is turned through all angles."""
    wheel = [model(turned_by(x, angle.expand(len(x)))).softmax(1) for angle in ANGLES]
    return torch.stack([p.gather(1, y[:, None])[:, 0] for p in wheel], 1)


@dataclass(frozen=True, kw_only=True)
class AnyWayUp(ImageClassification[M]):
    """Name the class of an image that may be turned by any angle."""

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
            drawn = torch.rand(len(x), generator=generator(TURNS, number))
            pieces = zip(x.split(1000), drawn.split(1000), strict=True)
            made = torch.cat([turned_by(some.float(), 360 * angle) for some, angle in pieces])
            splits[part] = (made if x.is_floating_point() else made.round().to(x.dtype), y)
        return replace(data, splits=splits)


@dataclass(frozen=True, kw_only=True)
class OnTheGroup(AnyWayUp[GroupCNN]):
    """By a network that knows of quarter turns."""

    def model(self, data: Data) -> GroupCNN:
        channels, height, width = data.spec["shape"]
        parts = 2 ** (len(self.widths) - 1)
        if height != width or height % parts:
            nearest = max(parts, round(max(height, width) / parts) * parts)
            raise UserError(
                f"size ({self.size}: images of {width}x{height}) must give squares whose side is "
                f"divisible by {parts}, because a turn must take pixels to pixels in each of "
                f"{len(self.widths)} blocks; do size={nearest}"
            )
        return GroupCNN(channels, len(data.spec["classes"]), self.widths)


@dataclass(frozen=True, kw_only=True)
class OnThePlane(AnyWayUp[CNN]):
    """By a plain network with as many weights."""

    def model(self, data: Data) -> CNN:
        channels, classes = data.spec["shape"][0], len(data.spec["classes"])
        return CNN(channels, classes, tuple(2 * width for width in self.widths))


KINDS: dict[str, type[AnyWayUp[Any]]] = {"group": OnTheGroup, "plain": OnThePlane}
NAMES = {"group": "p4 network", "plain": "plain network"}


@dataclass(frozen=True, kw_only=True)
class AgainstPlain(Experiment):
    """A p4 network and a plain one of as many weights, on images turned by any angle."""

    tests: ClassVar[bool] = True
    captions: ClassVar[Mapping[str, str]] = {
        "maps": (
            "An image and the same turned by 90 degrees: the four maps of a p4 filter are turned "
            "with it and each moves to the next place (same frame), those of a plain network "
            "become others."
        ),
        "accuracy": (
            "Left, accuracy on turned validation images as training goes on; right, how sure each "
            "network is of the true class as an image is turned: p4 repeats itself every 90."
        ),
    }
    meanings: ClassVar[Mapping[str, str]] = {
        "accuracy": "test accuracy of the group-equivariant network, the mean of the repeats",
        "accuracy_plain": "the same of a plain network of about as many weights",
        "gain": "the first less the second, in points",
        "change": "how far its answers change when the image is turned by 90 degrees: rounding",
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
        self.require(self.repeats >= 1, "repeats", "at least 1")

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

    def pictures(self, table: Table) -> Pictures:
        cells = {kind: table.cells[f"{kind}-0"] for kind in KINDS}
        data = cells["group"].recipe.dataset()
        group, plain = (cell.network() for cell in cells.values())
        some = tuple(part[:WHEELED] for part in next(iter(data.valid)))
        both = torch.cat([some[0][:1], some[0][:1].rot90(1, (2, 3))])
        assert isinstance(group, GroupCNN)
        assert isinstance(plain, CNN)
        with torch.no_grad():
            lifted, flat = group.blocks[0](both), plain.blocks[0](both)
            sure = {NAMES["group"]: around(group, *some), NAMES["plain"]: around(plain, *some)}
        odd = int((sure[NAMES["plain"]].amax(1) - sure[NAMES["plain"]].amin(1)).argmax())
        strong = int(lifted[0].flatten(1).std(1).argmax())
        busy = flat[0].flatten(1).std(1).argsort(descending=True)[:4].sort().values
        curves = {
            NAMES[kind]: 100
            * torch.stack(
                [table.cells[f"{kind}-{r}"].valid["accuracy"][1:] for r in range(self.repeats)]
            )
            for kind in KINDS
        }
        steps = cells["group"].steps[1:]
        return {
            "maps": turned_maps(
                Standardize.of(data.spec).to_data_units(both),
                {
                    f"p4: filter {strong + 1} in four directions": lifted[:, strong],
                    "plain: four filters": flat[:, busy],
                },
                moves=(True, False),
            ),
            "accuracy": panels(
                Panel(
                    {name: (steps, rows.mean(0)) for name, rows in curves.items()},
                    "updates",
                    "accuracy on validation images (%)",
                    f"{data.spec['name']}, turned by any angle",
                    bands={name: (rows.amin(0), rows.amax(0)) for name, rows in curves.items()},
                    legend="lower right",
                ),
                Panel(
                    {name: (ANGLES, rows[odd]) for name, rows in sure.items()},
                    "turn (degrees)",
                    "probability of the true class",
                    f"class {data.spec['classes'][int(some[1][odd])]}, where plain varies most",
                    ylim=(-0.03, 1.03),
                ),
                width=3.25,
                height=2.9,
            ),
        }

    def tiny(self) -> Self:
        return replace(self, data="digits", size=0, widths=(2, 2), steps=4, batch_size=8, repeats=1)


# Test accuracy, means of three networks each, seed 0, p4 and plain: group-cnn on two CPU threads,
# 105 s, 0.926 and 0.893; group-cnn-mnist on an H200 in fp32, 0.966 and 0.959. Turned by 90 degrees,
# in fp32, the answers of p4 change by 6e-7 and 9e-7 at most, those of the plain ones by 0.78, 0.75.
RECIPES = {
    "group-cnn": AgainstPlain(
        goal="gain > 0 and change <= 1e-5",
        covers=("C9",),
    ),
    "group-cnn-mnist": AgainstPlain(
        data="mnist",
        size=28,
        widths=(10, 20, 20),
        steps=4000,
        batch_size=128,
        goal="gain > 0 and change <= 1e-5",
        covers=("C9",),
    ),
}
