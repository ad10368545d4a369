"""U-Net as a solver: the field of a source in one pass, which a plain network sees too little for.

    u(i) = sum_j G(i, j) f(j)               (1)  the field of a source f; G reaches everywhere
    L = mean of |v - u| / |u|               (2)  relative error of the network's v, over samples
    g(i, j) = mean over f of dv(i) / df(j)  (3)  influence: what a network has learned of G
    r = 1 + 2 n                             (4)  receptive field of n layers of 3 x 3, in pixels
    9 (n - 2) w^2 + (n + 17) w + 1 = P      (5)  maps w of a plain network with P parameters

Poisson's equation, -(d^2/dx^2 + d^2/dy^2) u = f with u = 0 on the border, is solved exactly in
`sets/poisson.py`, where G is the inverse of the differences: a source in one corner lifts the field
in the other. i and j are pixels, and |.| is the Euclidean norm over all of them. A U-Net of depth d
sees all of a square of 2^d x 4 pixels, because its lowest feature maps are 4 x 4; a plain network
of the same number of parameters computes ten times as much and sees (4), so it has to guess what
lies outside. Zero padding is right here: so is u outside the square.

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
from everynet.recipes.state import M
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.zoo.vision.pictures.fields import influences, solutions
from everynet.zoo.vision.unet import UNetWithoutNorm, init_weights

Maps = Float[Tensor, "batch channels height width"]
NAMES = {"unet": "U-Net", "cnn": "plain CNN"}
"""Cells of the experiment with their names in pictures."""


class PlainCNN(nn.Module):
    """Maps images to images by layers of 3 x 3 convolutions that keep the size."""

    def __init__(self, in_channels: int, out_channels: int, *, width: int, layers: int) -> None:
        super().__init__()
        if layers < 2:
            raise ValueError(f"layers ({layers}) must be at least 2, because one comes in, one out")
        maps = [in_channels] + [width] * (layers - 1) + [out_channels]
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(maps))
        self.apply(init_weights)

    def forward(self, x: Maps) -> Float[Tensor, "batch maps height width"]:
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        y: Tensor = self.layers[-1](x)
        return y


def width_for(parameters: int, layers: int) -> int:
    """The width at which a plain network of so many layers has about so many parameters."""
    a, b, c = 9 * (layers - 2), layers + 17, 1 - parameters
    if a == 0:
        return max(1, round(-c / b))
    return max(1, round((math.sqrt(b * b - 4 * a * c) - b) / (2 * a)))  # (5)


def relative_error(v: Maps, u: Maps) -> Float[Tensor, " batch"]:
    """The Euclidean distance of v from u, as a share of the norm of u."""
    error: Tensor = (v - u).flatten(1).norm(dim=1) / u.flatten(1).norm(dim=1)  # (2)
    return error


@torch.enable_grad()
def influence(
    model: nn.Module, x: Maps, row: int, column: int
) -> Float[Tensor, "channels height width"]:
    """How much each pixel of the input changes one pixel of the output, the mean of a batch."""
    x = x.detach().requires_grad_()
    (g,) = torch.autograd.grad(model(x)[:, 0, row, column].sum(), x)
    return g.mean(0)  # (3)


def parameters(model: nn.Module) -> int:
    """The number of parameters of a network."""
    return sum(p.numel() for p in model.parameters())


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Solving(Training[M]):
    """Give the field of a source, by a network that the experiment chooses."""

    data: str = "poisson"
    """A known set, or a folder with inputs and targets in it."""

    def dataset(self) -> Data:
        data = load(
            self.data, kind="map", batch_size=self.batch_size, seed=self.seed, augment=symmetries()
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
class ByUNet(Solving[UNetWithoutNorm]):
    """Give the field of a source by a U-Net."""

    width: int = 8
    """Feature maps of the uppermost level; each level below has twice as many."""
    depth: int = 3
    """Levels below the uppermost; each halves the image."""

    def model(self, data: Data) -> UNetWithoutNorm:
        channels, height, width = data.spec["shape"]
        parts = 2**self.depth
        if height % parts or width % parts:
            raise UserError(
                f"depth ({self.depth}) must be such that images of {width}x{height} can be halved "
                "so often; give a smaller one"
            )
        return UNetWithoutNorm(
            channels, data.spec["target_shape"][0], width=self.width, depth=self.depth
        )


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
        like = UNetWithoutNorm(channels, maps, width=self.width, depth=self.depth)
        width = width_for(parameters(like), self.layers)
        return PlainCNN(channels, maps, width=width, layers=self.layers)


@dataclass(frozen=True, kw_only=True)
class PoissonSolver(Experiment):
    """A U-Net and a plain network of as many parameters learn to solve Poisson's equation."""

    tests: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = {
        "relative_l2": "relative error of the U-Net's field on test sources",
        "relative_l2_cnn": "the same of a plain network with as many parameters",
        "advantage": "relative error of the plain network divided by that of the U-Net",
        "parameters": "parameters of the U-Net",
        "parameters_cnn": "parameters of the plain network",
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
        self.at_least(1, "width", "steps", "batch_size", "every")
        self.within(1, 8, "depth")
        self.at_least(2, "layers")
        self.above(0, "lr")

    def cells(self) -> dict[str, Training[Any, Any]]:
        both: dict[str, Any] = {
            "data": self.data, "width": self.width, "depth": self.depth, "steps": self.steps,
            "batch_size": self.batch_size, "lr": self.lr, "schedule": "one-cycle",
            "eval_every": self.every, "seed": self.seed,
        }  # fmt: skip
        return {"unet": ByUNet(**both), "cnn": ByPlainCNN(**both, layers=self.layers)}

    def metrics(self, table: Table) -> dict[str, float]:
        unet, cnn = (table.cells[name] for name in ("unet", "cnn"))
        error, plain = (cell.test.get("relative_l2", math.nan) for cell in (unet, cnn))
        sizes = [parameters(cell.network()) for cell in (unet, cnn)]
        return {
            "relative_l2": error,
            "relative_l2_cnn": plain,
            "advantage": plain / error,
            "parameters": float(sizes[0]),
            "parameters_cnn": float(sizes[1]),
        }

    def picture_fields(self, table: Table) -> Figure:
        """Validation sources, their exact fields, and each network's field with its error.

        Errors of the plain network spread over whole regions, because it cannot see what causes
        the field there.
        """
        nets, data = _networks(table), table.cells["unet"].recipe.dataset()
        x, u = (part[:3] for part in next(iter(data.valid)))

        def in_units(y: Tensor) -> Float[Tensor, "samples height width"]:
            field: Tensor = y[:, 0].double() * data.spec["target_std"] + data.spec["target_mean"]
            return field

        with torch.no_grad():
            fields = {name: in_units(net(x)) for name, net in nets.items()}
        f = x[:, 0].double() * data.spec["std"][0] + data.spec["mean"][0]
        return solutions(f, in_units(u), fields)

    def picture_influence(self, table: Table) -> Figure:
        """How much a source anywhere changes the field at the cross: exact, and of the networks.

        The exact influence reaches everywhere; the plain network sees nothing outside of its
        dashed receptive field.
        """
        data = table.cells["unet"].recipe.dataset()
        x, _ = next(iter(data.valid))
        return self._influence(_networks(table), x[:32], data.spec)

    def _influence(self, nets: Mapping[str, nn.Module], x: Maps, spec: Spec) -> Figure:
        size = x.shape[-1]
        place = size * 5 // 8, size * 3 // 8
        unit = spec["target_std"] / spec["std"][0]
        maps = {"exact": poisson.response(*place, size)}  # (1)
        for name, net in nets.items():
            maps[name] = influence(net, x, *place)[0].double() * unit
        return influences(maps, place=place, receptive_field=1 + 2 * self.layers)  # (4)

    def picture_errors(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Relative error on validation sources during training.

        The U-Net ends at {unet:.1%} and the plain network, whose receptive field is too small, at
        {cnn:.1%}.
        """
        errors = {name: table.cells[name].valid["relative_l2"] for name in NAMES}
        curves = {NAMES[name]: (table.cells[name].steps, values) for name, values in errors.items()}
        panel = Panel(curves, "updates", "relative error", log="y", levels={"goal": 0.05})
        last = {name: float(values[-1]) for name, values in errors.items()}
        return panels(panel, width=6.5, height=3.2), last

    def tiny(self) -> Self:
        return replace(super().tiny(), data="poisson:20", depth=2, every=2)


def _networks(table: Table) -> dict[str, nn.Module]:
    """The trained networks by the names that pictures give them."""
    return {title: table.cells[name].network() for name, title in NAMES.items()}


RECIPES = {
    "unet-poisson": PoissonSolver(goal="relative_l2 <= 0.05 and advantage > 1", covers=("C24",)),
}
