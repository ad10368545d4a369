"""U-Net as a solver: the field of a source in one pass, which a plain network sees too little for.

    u(i) = sum_j G(i, j) f(j)               (1)  the field of a source f; G reaches everywhere
    L = mean of |v - u| / |u|               (2)  relative error of the network's v, over samples
    g(i, j) = mean over f of dv(i) / df(j)  (3)  what a network has made of G
    r = 1 + 2 n                             (4)  side of the square that n layers of 3 x 3 see
    9 (n - 2) w^2 + (n + 17) w + 1 = P      (5)  maps w of a plain network with P parameters

Poisson's equation, -(d^2/dx^2 + d^2/dy^2) u = f with u = 0 on the border, is solved exactly in
`sets/poisson.py`, where G is the inverse of the differences: a source in one corner lifts the field
in the other. A U-Net of depth d sees all of a square of 2^d x 4 points, because its lowest maps are
4 x 4; a plain network of the same number of parameters computes ten times as much and sees (4), so
it has to guess what lies outside. Its border of zeros is right here: so is u outside the square.

Ronneberger, Fischer, Brox (2015), "U-Net", arXiv:1505.04597, for the network; Thuerey, Weissenow,
Prantl, Hu (2020), "Deep Learning Methods for Reynolds-Averaged Navier-Stokes Simulations of Airfoil
Flows", arXiv:1810.08217, for U-Nets that stand for a solver.
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

from everynet.data import load
from everynet.data.dataset import Batch, Data, Spec, Terms
from everynet.data.images.deform import symmetries
from everynet.data.sets import poisson
from everynet.plot import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.recipe import Pictures
from everynet.recipes.state import M
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.zoo.vision.pictures.fields import influences, solutions
from everynet.zoo.vision.unet import BorderUNet, start

Maps = Float[Tensor, "batch channels height width"]


class PlainCNN(nn.Module):
    """Maps images to images by layers of 3 x 3 convolutions that keep the size."""

    def __init__(self, channels: int, maps: int, width: int, layers: int) -> None:
        super().__init__()
        if layers < 2:
            raise ValueError(f"layers ({layers}) must be at least 2, because one comes in, one out")
        between = [channels] + [width] * (layers - 1) + [maps]
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(between))
        for layer in self.layers:
            assert isinstance(layer, nn.Conv2d)
            start(layer)

    def forward(self, x: Maps) -> Float[Tensor, "batch maps height width"]:
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        y: Tensor = self.layers[-1](x)
        return y


def as_wide(parameters: int, layers: int) -> int:
    """The maps that give a plain network of so many layers about so many parameters."""
    a, b, c = 9 * (layers - 2), layers + 17, 1 - parameters
    if a == 0:
        return max(1, round(-c / b))
    return max(1, round((math.sqrt(b * b - 4 * a * c) - b) / (2 * a)))  # (5)


def relative_error(v: Maps, u: Maps) -> Float[Tensor, " batch"]:
    """How far v is from u, as a share of u."""
    off: Tensor = (v - u).flatten(1).norm(dim=1) / u.flatten(1).norm(dim=1)  # (2)
    return off


@torch.enable_grad()
def influence(
    model: nn.Module, x: Maps, row: int, column: int
) -> Float[Tensor, "channels height width"]:
    """How much each pixel of the input changes one pixel of the output, the mean of a batch."""
    x = x.detach().requires_grad_()
    (g,) = torch.autograd.grad(model(x)[:, 0, row, column].sum(), x)
    return g.mean(0)  # (3)


@dataclass(frozen=True, kw_only=True)
class Solving(Training[M]):
    """Give the field of a source, by a network that the experiment chooses."""

    data: str = "poisson"
    """A known set, or a folder with inputs and targets in it."""

    def dataset(self) -> Data:
        data = load(
            self.data,
            kind="map",
            batch_size=self.batch_size,
            seed=self.seed,
            augment=symmetries(),
        )
        _, height, width = data.spec["shape"]
        if height != width:
            raise UserError(
                f"data ({self.data}: images of {width}x{height}) must be square, because sources "
                "are turned in training; cut them to squares"
            )
        return data

    def objective(self, model: M, batch: Batch) -> Terms:
        x, u = batch
        return {"relative_l2": relative_error(model(x), u).mean()}

    def metrics(self, model: M, batch: Batch) -> dict[str, Tensor]:
        x, u = batch
        return {"relative_l2": relative_error(model(x), u)}

    def predict(self, model: M, inputs: Tensor, spec: Spec) -> Sequence[dict[str, Any]]:
        """The field of each source."""
        return [{"field": v} for x in inputs.split(64) for v in model(x).cpu()]


@dataclass(frozen=True, kw_only=True)
class ByUNet(Solving[BorderUNet]):
    """Give the field of a source by a U-Net."""

    width: int = 8
    """Feature maps of the uppermost level; each level below has twice as many."""
    depth: int = 3
    """Levels below the uppermost; each halves the image."""

    def model(self, data: Data) -> BorderUNet:
        channels, height, width = data.spec["shape"]
        parts = 2**self.depth
        if height % parts or width % parts:
            raise UserError(
                f"depth ({self.depth}) must be such that images of {width}x{height} can be halved "
                "so often; give a smaller one"
            )
        return BorderUNet(channels, data.spec["target_shape"][0], self.width, self.depth)


@dataclass(frozen=True, kw_only=True)
class ByPlainCNN(Solving[PlainCNN]):
    """Give the field of a source by a plain network, of as many parameters as that U-Net."""

    width: int = 8
    """Feature maps of the uppermost level of the U-Net that it is as large as."""
    depth: int = 3
    """Levels of that U-Net below the uppermost."""
    layers: int = 8
    """Convolutions of 3 x 3, one behind the other."""

    def model(self, data: Data) -> PlainCNN:
        channels, maps = data.spec["shape"][0], data.spec["target_shape"][0]
        like = BorderUNet(channels, maps, self.width, self.depth)
        width = as_wide(parameters(like), self.layers)
        return PlainCNN(channels, maps, width, self.layers)


def parameters(model: nn.Module) -> int:
    """How many numbers a network learns."""
    return sum(p.numel() for p in model.parameters())


@dataclass(frozen=True, kw_only=True)
class PoissonSolver(Experiment):
    """A U-Net and a plain network of as many parameters learn to solve Poisson's equation."""

    tests: ClassVar[bool] = True
    captions: ClassVar[Mapping[str, str]] = {
        "fields": (
            "Sources, their exact fields, and what each network makes of them with its error: the "
            "plain network is off by whole regions, because it cannot see what causes them."
        ),
        "influence": (
            "How much a source anywhere changes the field at the cross: the U-Net has learned, as "
            "far as smooth sources show it, what is exact, and the plain network sees no further."
        ),
        "errors": (
            "Relative error on validation sources as both learn: the U-Net falls below five parts "
            "in a hundred, and the plain network stays where its square of sight leaves it."
        ),
    }
    meanings: ClassVar[Mapping[str, str]] = {
        "relative_l2": "error of the U-Net's field, as a part of its size",
        "relative_l2_cnn": "the same of a plain network with as many weights",
        "advantage": "the second by the first",
        "parameters": "weights of the U-Net",
        "parameters_cnn": "weights of the plain network",
    }

    data: str = "poisson"
    """A known set, or a folder with inputs (sources) and targets (fields) in it."""
    width: int = 8
    """Feature maps of the uppermost level of the U-Net; each level below has twice as many."""
    depth: int = 3
    """Levels of the U-Net below the uppermost; each halves the image."""
    layers: int = 8
    """Layers of the plain network, which gets as many maps as it needs for as many parameters."""
    steps: int = 2000
    """Updates of each network."""
    batch_size: int = 16
    """Sources an update sees."""
    lr: float = 2e-3
    """Learning rate, up and down in one cycle."""
    every: int = 100
    """Updates between two measurements."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("width", "steps", "batch_size", "every"):
            self.require(getattr(self, name) >= 1, name, "at least 1")
        self.require(1 <= self.depth <= 8, "depth", "from 1 to 8")
        self.require(self.layers >= 2, "layers", "at least 2")
        self.require(self.lr > 0, "lr", "a positive number")

    def cells(self) -> dict[str, Training[Any, Any]]:
        both: dict[str, Any] = {
            "data": self.data, "width": self.width, "depth": self.depth, "steps": self.steps,
            "batch_size": self.batch_size, "lr": self.lr, "schedule": "one-cycle",
            "eval_every": self.every, "seed": self.seed,
        }  # fmt: skip
        return {"unet": ByUNet(**both), "cnn": ByPlainCNN(**both, layers=self.layers)}

    def metrics(self, table: Table) -> dict[str, float]:
        unet, cnn = (table.cells[name] for name in ("unet", "cnn"))
        found, plain = (cell.test.get("relative_l2", math.nan) for cell in (unet, cnn))
        sizes = [parameters(cell.network()) for cell in (unet, cnn)]
        return {
            "relative_l2": found,
            "relative_l2_cnn": plain,
            "advantage": plain / found,
            "parameters": float(sizes[0]),
            "parameters_cnn": float(sizes[1]),
        }

    def pictures(self, table: Table) -> Pictures:
        cells = {"U-Net": table.cells["unet"], "plain CNN": table.cells["cnn"]}
        nets = {name: cell.network() for name, cell in cells.items()}
        data = cells["U-Net"].recipe.dataset()
        x, u = next(iter(data.valid))
        with torch.no_grad():
            made = {name: self.in_units(net(x[:3]), data.spec) for name, net in nets.items()}
        f = x[:3, 0].double() * data.spec["std"][0] + data.spec["mean"][0]
        errors = {name: (cell.steps, cell.valid["relative_l2"]) for name, cell in cells.items()}
        return {
            "fields": solutions(f, self.in_units(u[:3], data.spec), made),
            "influence": self.seen(nets, x[:32], data.spec),
            "errors": panels(
                Panel(errors, "updates", "relative error", log="y", levels={"goal": 0.05}),
                width=6.5,
                height=3.2,
            ),
        }

    @staticmethod
    def in_units(y: Tensor, spec: Spec) -> Float[Tensor, "samples side side"]:
        """Fields as the equation has them."""
        u: Tensor = y[:, 0].double() * spec["target_std"] + spec["target_mean"]
        return u

    def seen(self, nets: Mapping[str, nn.Module], x: Tensor, spec: Spec) -> Figure:
        """What the networks look at to give the field at one place, beside what there is to see."""
        side = x.shape[-1]
        place = side * 5 // 8, side * 3 // 8
        unit = spec["target_std"] / spec["std"][0]
        maps = {"exact": poisson.response(*place, side)}  # (1)
        for name, net in nets.items():
            maps[name] = influence(net, x, *place)[0].double() * unit
        return influences(maps, place=place, seen=1 + 2 * self.layers)  # (4)

    def tiny(self) -> Self:
        return replace(
            self, data="poisson:20", width=2, depth=2, layers=3, steps=4, batch_size=4, every=2
        )


# Relative error on test sources, seeds 0, 1, 2, an H200 in tf32, 40 s beside six other trainings:
# U-Net 3.5 %, 4.0 %, 3.3 %; plain network of 0.998 times its weights 30.1 %, 30.0 %, 30.1 %.
RECIPES = {
    "unet-poisson": PoissonSolver(
        goal="relative_l2 <= 0.05 and advantage > 1",
        covers=("C24",),
    ),
}
