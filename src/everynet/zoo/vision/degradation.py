"""Degradation: deeper plain nets fit even their training images worse, residual ones do not.

    e   = share of images whose largest logit is not that of their class   (1)  error
    D   = e(deep) - e(shallow), both on training images                    (2)  degradation: D > 0
    G_l = ||dL / dw_l||                                                    (3)  gradient of layer l
    w   ~ N(0, 2 / (fan_in + fan_out))                                     (4)  Glorot's weights

L is the cross-entropy of a batch and w_l the weights of layer l. A deep net could copy a shallow
one and do nothing with the rest of its layers, so that D > 0 says that training did not find what
is there; it is no overfitting, which would lower e on the training images. A residual block does
nothing where its weights are zero, which is easy to find.

Nor is it that no gradient arrives. Without norms and with (4) a rectifier halves the mean square of
what passes a layer, forwards and backwards, so that all G_l of a plain net of n layers are of the
order of 2^(-n/2) or less, while shortcuts carry both past the layers. With norms that is cured, and
the plain net degrades all the same: there G_1 is not small but large, for each norm divides by the
standard deviation of its input, and the gradient grows towards the first layer where no shortcut
evens it.

He, Zhang, Ren, Sun (2015), "Deep Residual Learning for Image Recognition", arXiv:1512.03385,
section 4.2, Figures 1 and 6; Glorot, Bengio (2010), "Understanding the difficulty of training
deep feedforward neural networks", for (4); Yang et al. (2019), "A Mean Field Theory of Batch
Normalization", arXiv:1902.08129, for gradients that norms make grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet.data.dataset import Data
from everynet.plot import Panel, panels
from everynet.recipes.experiment import Cell, Experiment, Table
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system.seeds import seeded_by
from everynet.zoo.optimisation.few_images import evaluate_in_training
from everynet.zoo.vision.resnet import CifarResNet, CifarResNetImages, PlainNet, PlainNetImages

KINDS: Mapping[str, type[CifarResNetImages]] = {
    "plain": PlainNetImages,
    "residual": CifarResNetImages,
}
NETS: Mapping[str, type[CifarResNet]] = {"plain": PlainNet, "residual": CifarResNet}
CLASSES, IMAGES, SIZE, WIDTH = 10, 32, 16, 8  # where gradients are measured before training


def without_norms(net: nn.Module) -> nn.Module:
    """The same layers with no norms between them, and Glorot's weights."""
    for module in net.modules():
        for name, part in [*module.named_children()]:
            if isinstance(part, nn.BatchNorm2d):
                setattr(module, name, nn.Identity())
            elif isinstance(part, nn.Conv2d):
                out_channels, in_channels, height, width = part.weight.shape
                fans = (in_channels + out_channels) * height * width
                nn.init.normal_(part.weight, std=(2 / fans) ** 0.5)  # (4)
    return net


def gradient_norms(
    net: nn.Module, x: Float[Tensor, "batch channels height width"], y: Int64[Tensor, " batch"]
) -> Float[Tensor, " layers"]:
    """The norm of the gradient of each convolution, first to last, for one batch."""
    weights = [part.weight for part in net.modules() if isinstance(part, nn.Conv2d)]
    with torch.enable_grad():
        found = torch.autograd.grad(cross_entropy(net(x), y), weights)
    return torch.stack([g.norm() for g in found])  # (3)


@dataclass(frozen=True, kw_only=True)
class Degradation(Experiment):
    """Train a shallow and a deep net, with shortcuts and without, and compare."""

    meanings: ClassVar[Mapping[str, str]] = {
        "plain_gap": "training error of the deep plain net less that of the shallow one: above 0",
        "residual_gap": "the same of residual nets",
        "gradient_ratio": (
            "first gradient of the deep residual net by the plain one's, without norms"
        ),
        "gradient_ratio_norms": "the same with norms",
        "error_*": "training error of a net, by its kind and depth",
    }

    data: str = "digits"
    """Images that the networks classify."""
    shallow: int = 20
    """Layers of the shallow nets, 6 n + 2."""
    deep: int = 56
    """Layers of the deep nets, 6 n + 2."""
    width: int = 4
    """Maps of the first stage."""
    steps: int = 400
    """Updates of each net."""
    batch_size: int = 64
    """Images an update sees."""
    lr: float = 0.1
    """Learning rate at its highest, with Nesterov's momentum of 0.9."""
    weight_decay: float = 5e-4
    """L2 decay of all weights."""
    pixels: float = 0.0
    """Training images are moved by up to so many pixels along each axis."""
    mirror: bool = False
    """Half of the training images are seen in a mirror."""
    every: int = 40
    """Updates between two looks at the error."""
    deepest: int = 98
    """Layers of the nets whose gradients are looked at before training, 6 n + 2."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("shallow", "deep", "deepest"):
            depth = getattr(self, name)
            self.require(depth >= 8 and depth % 6 == 2, name, "6 n + 2, such as 8, 20 or 56")
        self.require(self.deep > self.shallow, "deep", f"more than shallow ({self.shallow})")
        self.require(1 <= self.every <= self.steps, "every", f"from 1 to steps ({self.steps})")

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            f"{kind}-{depth}": KINDS[kind](
                data=self.data, depth=depth, width=self.width, steps=self.steps, lr=self.lr,
                batch_size=self.batch_size, weight_decay=self.weight_decay, pixels=self.pixels,
                mirror=self.mirror, warmup=self.steps // 20, eval_every=self.every, seed=self.seed,
            )
            for kind, depth in product(KINDS, (self.shallow, self.deep))
        }  # fmt: skip

    def measure(
        self, cell: str, recipe: Training[Any, Any], state: State[Any, Any], data: Data
    ) -> dict[str, float | Tensor]:
        """The error on the training images as they are, after the training mode's norms."""
        found = evaluate_in_training(recipe, state.model, data.batches("train"))
        return {
            "epoch": state.step / data.steps_per_epoch,
            "error": 1 - found["accuracy"],  # (1)
            "loss": found["cross_entropy"],
        }

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Gradients of very deep nets before training, for noise: with norms, then without."""
        x = torch.randn(IMAGES, 3, SIZE, SIZE, generator=generator).double()
        y = torch.randint(CLASSES, (IMAGES,), generator=generator)
        result: dict[str, Tensor] = {}
        for kind, network in NETS.items():
            with seeded_by(self.seed):
                net = network(3, CLASSES, depth=self.deepest, width=WIDTH).double()
                result[f"{kind}_norms"] = gradient_norms(net, x, y)
                result[f"{kind}_bare"] = gradient_norms(without_norms(net), x, y)
        return result

    def metrics(self, table: Table) -> dict[str, float]:
        ends = {name: float(cell.measured["error"][-1]) for name, cell in table.cells.items()}
        first = {name: float(norms[0]) for name, norms in table.result.items()}
        return {
            "plain_gap": ends[f"plain-{self.deep}"] - ends[f"plain-{self.shallow}"],  # (2)
            "residual_gap": ends[f"residual-{self.deep}"] - ends[f"residual-{self.shallow}"],
            "gradient_ratio": first["residual_bare"] / first["plain_bare"],
            "gradient_ratio_norms": first["residual_norms"] / first["plain_norms"],
            **{f"error_{name.replace('-', '_')}": end for name, end in ends.items()},
        }

    def picture_degradation(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Error by epoch without shortcuts (left) and with them (right); dashes are validation.

        The training error of the deeper net less that of the shallower one is {plain:.1f} points
        in the end on the left and {residual:.1f} on the right.
        """
        highest = max(float(cell.measured["error"][1:].max()) for cell in table.cells.values())
        found = self.metrics(table)
        drawn = panels(
            self.error_panel(table, "plain", "without shortcuts", highest),
            self.error_panel(table, "residual", "with shortcuts", highest),
            width=3.25,
            height=3.0,
        )
        gaps = {kind: 100 * found[f"{kind}_gap"] for kind in KINDS}
        return drawn, gaps

    def error_panel(self, table: Table, kind: str, title: str, highest: float) -> Panel:
        """The errors of one kind of net by epoch, without the one before training."""

        def epochs(cell: Cell) -> Tensor:
            return cell.measured["epoch"][1:]

        cells = {
            f"{depth} layers": table.cells[f"{kind}-{depth}"] for depth in (self.shallow, self.deep)
        }
        return Panel(
            {name: (epochs(c), 100 * c.measured["error"][1:]) for name, c in cells.items()},
            guides={
                name: (epochs(c), 100 * (1 - c.valid["accuracy"][1:])) for name, c in cells.items()
            },
            xlabel="epoch",
            ylabel="error (%)",
            dashes="validation",
            title=title,
            ylim=(0.0, max(1.0, 105 * highest)),
            legend="upper right",
        )

    def picture_gradients(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Size of the gradient of each layer before training, without norms and with them.

        That of the first layer is {bare:.1e} times as large with shortcuts as without where there
        are no norms (left), and {norms:.1e} times with norms (right).
        """
        layers = torch.arange(1, self.deepest)
        found = self.metrics(table)
        drawn = panels(
            *(
                Panel(
                    {kind: (layers, table.result[f"{kind}_{how}"]) for kind in KINDS},
                    xlabel="layer",
                    ylabel="size of its gradient",
                    title=f"{self.deepest} layers, {title}",
                    log="y",
                )
                for how, title in (("bare", "no norms"), ("norms", "with norms"))
            ),
            width=3.25,
            height=3.0,
        )
        return drawn, {"bare": found["gradient_ratio"], "norms": found["gradient_ratio_norms"]}

    def tiny(self) -> Self:
        return replace(
            self, data="digits", shallow=8, deep=14, width=2, steps=4, batch_size=8, every=2,
            deepest=14,
        )  # fmt: skip


RECIPES = {
    "degradation": Degradation(
        goal="plain_gap >= 0.05 and residual_gap <= 0.01 and gradient_ratio >= 1000000",
        covers=("C20",),
    ),
    "degradation-cifar": Degradation(
        data="cifar10", width=16, steps=14_040, batch_size=128, pixels=4.0, mirror=True,
        every=1_404, goal="plain_gap > 0 and residual_gap < 0 and gradient_ratio >= 1000000",
        covers=("C20",),
    ),
}  # fmt: skip
