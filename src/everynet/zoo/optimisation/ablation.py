"""Ablation: change one part of a network at a time, and see what the change alone does.

    h_0 = x,   h_l = pool(f(W_l * h_{l-1} + b_l)),   l = 1..depth   (1)  the network that is varied
    z   = V h_depth + c                                             (2)  logits of the classes
    squared  sum_k (z_k - [k = y])^2                                (3)  losses beside cross-entropy
    hinge    mean over k of max(0, 1 - z_y + z_k), k != y           (4)
    d_s = a_s(changed) - a_s(base)                                  (5)  effect, with seed s
    d   = mean of d_s,   e = sqrt(var d_s / n)                      (6)  and its standard error

x is an image, * a convolution with width filters of kernel_size x kernel_size, f an activation, y
the class, [k = y] is 1 where k is y and else 0, a_s the accuracy on the test set of the network
that was trained with seed s, n the number of seeds. With the same seed two networks see the same
images in the same order, so that (5) compares like with like; what one seed gives may be luck, and
(6) says how much of it. A change is made at the settings of the base: that it does worse there does
not say that it could not do better with others, which is why optimisers have rates of their own.

Meyes, Lu, de Puiseau, Meisen (2019), "Ablation Studies in Artificial Neural Networks",
arXiv:1901.08644; Bouthillier et al. (2021), "Accounting for Variance in Machine Learning
Benchmarks", arXiv:2103.03098, on seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional

from everynet.data.dataset import Batch, Data, Terms
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.training import OPTIMIZERS, Training
from everynet.system.errors import UserError
from everynet.system.seeds import mix
from everynet.system.wording import written
from everynet.zoo.optimisation.few_images import FewImages
from everynet.zoo.optimisation.pictures.ablation import accuracies_by_change

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": functional.gelu,
}
POOLINGS: dict[str, Callable[[], nn.Module]] = {
    "max": lambda: nn.MaxPool2d(2),
    "average": lambda: nn.AvgPool2d(2),
    "stride": nn.Identity,  # the convolution itself moves by two pixels
}


class AblationCNN(nn.Module):
    """Maps images to logits by `depth` convolutions, each of which halves the sides of its maps."""

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        depth: int = 2,
        width: int = 16,
        kernel_size: int = 3,
        activation: str = "relu",
        pooling: str = "max",
    ) -> None:
        super().__init__()
        channels, *sides = shape
        stride = 2 if pooling == "stride" else 1
        self.convs = nn.ModuleList(
            nn.Conv2d(width if n else channels, width, kernel_size, stride, kernel_size // 2)
            for n in range(depth)
        )
        for _ in range(depth):
            sides = [-(-side // 2) if stride == 2 else side // 2 for side in sides]
        if min(sides) < 1:
            raise UserError(
                f"depth ({depth}) must be at most {int(math.log2(min(shape[1:])))}, because every "
                f"layer halves the image, whose sides are {shape[1]} and {shape[2]}"
            )
        self.activation, self.pool = ACTIVATIONS[activation], POOLINGS[pooling]()
        self.head = nn.Linear(width * math.prod(sides), classes)

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch classes"]:
        h = x
        for conv in self.convs:
            h = self.pool(self.activation(conv(h)))  # (1)
        z: Tensor = self.head(h.flatten(1))  # (2)
        return z


def squared(z: Float[Tensor, "batch classes"], y: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
    """The squared error of the logits to 1 for the class and 0 for all others."""
    wanted = functional.one_hot(y, z.shape[1]).to(z.dtype)
    return (z - wanted).square().sum(1).mean()  # (3)


def hinge(z: Float[Tensor, "batch classes"], y: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
    """How far logits of other classes come within 1 of that of the class."""
    margin = (1 - z.gather(1, y[:, None]) + z).clamp(min=0)
    others = 1 - functional.one_hot(y, z.shape[1]).to(z.dtype)
    return (margin * others).mean(1).mean()  # (4)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": functional.cross_entropy,
    "squared": squared,
    "hinge": hinge,
}


def effect(
    changed: Float[Tensor, " seeds"], base: Float[Tensor, " seeds"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """What a change does to the accuracy, and the standard error of that."""
    d = changed - base  # (5)
    return d.mean(), d.std() / math.sqrt(len(d))  # (6)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class AblatedImages(FewImages[AblationCNN]):
    """Classify images by a small convolutional network whose parts are settings."""

    kinds: ClassVar[tuple[str, ...]] = ("image",)

    depth: int = 2
    """Convolutions."""
    width: int = 16
    """Filters of each."""
    kernel_size: int = 3
    """Side of a filter in pixels."""
    activation: str = "relu"
    """relu, tanh, sigmoid or gelu."""
    pooling: str = "max"
    """max, average, or stride: how maps become smaller."""
    loss: str = "cross_entropy"
    """cross_entropy, squared or hinge."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "depth", "width", "kernel_size")
        self.require(self.kernel_size % 2 == 1, "kernel_size", "odd, so that it has a middle")
        for name, known in (
            ("activation", ACTIVATIONS), ("pooling", POOLINGS), ("loss", LOSSES),
        ):  # fmt: skip
            self.one_of(name, known)

    def model(self, data: Data) -> AblationCNN:
        return AblationCNN(
            data.spec["shape"], len(data.spec["classes"]), depth=self.depth, width=self.width,
            kernel_size=self.kernel_size, activation=self.activation, pooling=self.pooling,
        )  # fmt: skip

    def objective(self, model: AblationCNN, batch: Batch) -> Terms:
        x, y = batch
        return {self.loss: LOSSES[self.loss](model(x), y)}


VARIED = {
    "depth": "depths", "width": "widths", "kernel_size": "kernel_sizes",
    "activation": "activations", "pooling": "poolings", "rows": "data_sizes", "loss": "losses",
    "optimizer": "optimizers",
}  # fmt: skip
"""Each setting of the base that is changed, and the setting that holds its other values."""


@dataclass(frozen=True, kw_only=True)
class Ablation(Experiment):
    """Train a base network and others that differ from it in one setting each, all three times."""

    tests: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = {
        "accuracy": "test accuracy of the base, the mean over seeds",
        "spread": "standard deviation over seeds of the accuracy of the base",
        "largest_gain": "the largest mean difference that a change makes to the accuracy",
        "largest_loss": "the same of the change that does worst",
        "told_apart": "changes whose difference is more than three standard errors from 0",
    }

    data: str = "digits"
    """A known set of images, or a folder with one subfolder of images for each class."""
    rows: int = 1000
    """Training images, chosen by the seed."""
    depth: int = 2
    """Convolutions of the base."""
    width: int = 16
    """Filters of each."""
    kernel_size: int = 3
    """Side of a filter in pixels."""
    activation: str = "relu"
    """relu, tanh, sigmoid or gelu."""
    pooling: str = "max"
    """max, average, or stride."""
    loss: str = "cross_entropy"
    """cross_entropy, squared or hinge."""
    optimizer: str = "adam"
    """Optimiser of the base."""
    lr: float = 5e-3
    """Its learning rate."""
    steps: int = 300
    """Updates of every network."""
    batch_size: int = 50
    """Images an update sees."""
    repeats: int = 3
    """Seeds: other images, other weights."""
    depths: tuple[int, ...] = (1, 3)
    """Other numbers of convolutions."""
    widths: tuple[int, ...] = (4, 64)
    """Other numbers of filters."""
    kernel_sizes: tuple[int, ...] = (1, 5)
    """Other sides of a filter."""
    activations: tuple[str, ...] = ("tanh", "sigmoid")
    """Other activations."""
    poolings: tuple[str, ...] = ("average", "stride")
    """Other ways in which maps become smaller."""
    data_sizes: tuple[int, ...] = (100, 300)
    """Other numbers of training images."""
    losses: tuple[str, ...] = ("squared", "hinge")
    """Other losses."""
    optimizers: tuple[str, ...] = ("sgd", "momentum")
    """Other optimisers."""
    rates: tuple[float, ...] = (0.2, 0.05)
    """The learning rate of each of those."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "repeats", "steps", "batch_size")
        self.above(0, "lr")
        for name, others in VARIED.items():
            base, given = getattr(self, name), getattr(self, others)
            fits = base not in given and len({*given}) == len(given)
            self.require(fits, others, f"values that differ from each other and from {name}={base}")
        alike = len(self.rates) == len(self.optimizers) and all(rate > 0 for rate in self.rates)
        self.require(alike, "rates", f"{len(self.optimizers)} positive numbers, one an optimiser")
        self.require(
            self.batch_size <= min((self.rows, *self.data_sizes)), "batch_size",
            "at most the smallest number of training images",
        )  # fmt: skip
        for name in ("optimizer", "optimizers"):
            values = getattr(self, name)
            known = {*((values,) if name == "optimizer" else values)} <= {*OPTIMIZERS}
            self.require(known, name, f"of {', '.join(OPTIMIZERS)}")
        for recipe in self.trainings().values():  # they refuse the rest by name
            assert recipe.steps == self.steps

    def trainings(self) -> dict[str, AblatedImages]:
        """The base and each change of it by name, with the seed of the run."""
        base = AblatedImages(
            data=self.data, rows=self.rows, depth=self.depth, width=self.width,
            kernel_size=self.kernel_size, activation=self.activation, pooling=self.pooling,
            loss=self.loss, optimizer=self.optimizer, lr=self.lr, steps=self.steps,
            batch_size=self.batch_size, schedule="one-cycle", eval_every=self.steps,
        )  # fmt: skip
        found = {"base": base}
        for name, others in VARIED.items():
            for number, value in enumerate(getattr(self, others)):
                change = {name: value}
                if name == "optimizer":
                    change["lr"] = self.rates[number]
                words = ",".join(f"{n}={written(v)}" for n, v in change.items())
                found[words] = replace(base, **change)
        return found

    def seeds(self) -> list[int]:
        """The seed of each repeat."""
        return [mix(self.seed, repeat) for repeat in range(self.repeats)]

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            f"{name}-{repeat}": replace(recipe, seed=seed)
            for (repeat, seed), (name, recipe) in product(
                enumerate(self.seeds()), self.trainings().items()
            )
        }

    def tried(self, cells: Mapping[str, Training]) -> Sequence[str]:
        """The first cell of every change, because any may ask for what the images do not allow."""
        return [f"{name}-0" for name in self.trainings()]

    def accuracies(self, table: Table) -> dict[str, Tensor]:
        """Test accuracy by change and seed; NaN where a network has diverged."""
        return {
            name: torch.tensor(
                [
                    table.cells[f"{name}-{repeat}"].test.get("accuracy", math.nan)
                    for repeat in range(self.repeats)
                ],
                dtype=torch.float64,
            )
            for name in self.trainings()
        }

    def effects(self, table: Table) -> dict[str, tuple[float, float]]:
        """What each change does to the accuracy, with its standard error."""
        base, *_ = (found := self.accuracies(table)).values()
        return {
            name: (float(d), float(e))
            for name, values in found.items()
            if name != "base"
            for d, e in [effect(values, base)]
        }

    def metrics(self, table: Table) -> dict[str, float]:
        base = self.accuracies(table)["base"]
        found = self.effects(table).values()
        differences = [d for d, _ in found if math.isfinite(d)] or [math.nan]
        return {
            "accuracy": base.mean().item(),
            "spread": base.std().item() if len(base) > 1 else 0.0,
            "largest_gain": max(differences),
            "largest_loss": min(differences),
            "told_apart": float(sum(abs(d) > 3 * e for d, e in found)),
        }

    def page(self, table: Table) -> list[str]:
        """The table of the ablation: a line for the base and for each change."""
        header = ["change", *(f"seed {seed}" for seed in self.seeds())]
        header += ["mean accuracy", "difference", "standard error"]
        lines = [header, ["---"] * len(header)]
        effects = self.effects(table)
        for name, values in self.accuracies(table).items():
            each = [f"{v:.4f}" if math.isfinite(v) else "diverged" for v in values.tolist()]
            line = [name, *each, f"{values.mean():.4f}"]
            d, e = effects.get(name, (math.nan, math.nan))
            lines.append([*line, *(["-", "-"] if name == "base" else [f"{d:+.4f}", f"{e:.4f}"])])
        return ["", "## Accuracy by change", "", *(f"| {' | '.join(line)} |" for line in lines)]

    def picture_ablation(self, table: Table) -> tuple[Figure, dict[str, Any]]:
        """Test accuracy after each change, a dot for each seed and a line at the mean.

        The dotted line is the base at {base:.1%}; {worst} does most harm ({loss:+.1%}) and {best}
        most good ({gain:+.1%}).
        """
        found, effects = self.accuracies(table), self.effects(table)
        known = [name for name, (d, _) in effects.items() if math.isfinite(d)] or ["base"]
        effects["base"] = (0.0, 0.0)
        by_size = sorted(known, key=lambda name: effects[name][0])
        values = {
            "base": float(found["base"].mean()), "worst": by_size[0], "best": by_size[-1],
            "loss": effects[by_size[0]][0], "gain": effects[by_size[-1]][0],
        }  # fmt: skip
        return accuracies_by_change(found), values

    def tiny(self) -> Self:
        return replace(
            self, data="digits", steps=4, rows=40, batch_size=8, repeats=2, width=4, depths=(1,),
            widths=(8,), kernel_sizes=(1,), activations=("tanh",), poolings=("stride",),
            data_sizes=(20,), losses=("squared",), optimizers=("sgd",), rates=(0.1,),
        )  # fmt: skip


RECIPES = {
    "ablation": Ablation(goal="accuracy >= 0.9 and largest_loss <= -0.05", covers=("D4",)),
    "ablation-mnist": Ablation(
        data="mnist", rows=2000, data_sizes=(200, 10000), width=8, widths=(2, 32), steps=400,
        goal="accuracy >= 0.9 and largest_loss <= -0.05", covers=("D4",),
    ),
}  # fmt: skip
