"""Batch normalisation: each unit is brought to mean 0 and variance 1 over the batch, then rescaled.

    mu  = mean of a over the batch (and the pixels of a map)           (1)
    s2  = mean of (a - mu)^2                                           (2)  divided by N
    n   = (a - mu) / sqrt(s2 + eps)                                    (3)  normalised
    y   = gamma n + beta                                               (4)  scale and shift, learned
    dE/dgamma = sum of n dE/dy                                         (5)
    dE/dbeta  = sum of dE/dy                                           (6)
    dE/da     = gamma / sqrt(s2 + eps)
                (dE/dy - mean(dE/dy) - n mean(n dE/dy))                (7)  mu and s2 depend on a
    MU <- (1 - r) MU + r mu                                            (8)  running mean
    S2 <- (1 - r) S2 + r s2 N / (N - 1)                                (9)  unbiased
    y   = gamma (a - MU) / sqrt(S2 + eps) + beta                      (10)  after training

for each unit or feature map on its own. a is the input of the norm, y its output, E the loss, N
the number of values of a unit in the batch, r the momentum; MU and S2 are running statistics.
By (7) the gradient has no part along the constant 1 or along n: a step cannot move what the next
normalisation would undo. Scaling the weights in front of it changes nothing but eps, so larger
steps are safe. The inputs of a layer drift while the layers before it learn ("internal covariate
shift"); how much of the gain is due to holding them still is disputed (Santurkar et al. 2018).

Ioffe, Szegedy (2015), "Batch Normalization: Accelerating Deep Network Training by Reducing Internal
Covariate Shift", arXiv:1502.03167; Santurkar et al. (2018), "How Does Batch Normalization Help
Optimization?", arXiv:1805.11604. torch.nn.BatchNorm1d and 2d are these equations; the networks
here use those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, ClassVar, NamedTuple, Self

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.utils import skip_init

from everynet.data.dataset import Data
from everynet.plot.panels import Panel, panels
from everynet.recipes.experiment import Cell, Experiment, Table
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.zoo.optimisation.few_images import FewImages

Maps = Float[Tensor, "batch units *pixels"]
PerUnit = Float[Tensor, " units"]


class Normalised(NamedTuple):
    """The output of the forward pass and what the backward pass needs."""

    y: Maps
    n: Maps
    mean: PerUnit
    variance: PerUnit


def normalize(a: Maps, gamma: PerUnit, beta: PerUnit, eps: float = 1e-5) -> Normalised:
    """Training mode: the statistics are those of the batch."""
    over = _all_but_units(a)
    mu = a.mean(dim=over)  # (1)
    s2 = (a - _wide(mu, a)).square().mean(dim=over)  # (2)
    n = (a - _wide(mu, a)) / _wide((s2 + eps).sqrt(), a)  # (3)
    y = _wide(gamma, a) * n + _wide(beta, a)  # (4)
    return Normalised(y, n, mu, s2)


def backward(
    dy: Maps, done: Normalised, gamma: PerUnit, eps: float = 1e-5
) -> tuple[Maps, PerUnit, PerUnit]:
    """The gradients by a, gamma and beta, from that by y."""
    over = _all_but_units(dy)
    along_n = (dy * done.n).sum(dim=over)  # (5)
    along_one = dy.sum(dim=over)  # (6)
    count = dy.numel() // dy.shape[1]
    rest = dy - _wide(along_one / count, dy) - done.n * _wide(along_n / count, dy)
    da = _wide(gamma / (done.variance + eps).sqrt(), dy) * rest  # (7)
    return da, along_n, along_one


def track(
    running: tuple[PerUnit, PerUnit], done: Normalised, momentum: float = 0.1
) -> tuple[PerUnit, PerUnit]:
    """The running mean and variance after one more batch."""
    mean, variance = running
    count = done.y.numel() // done.y.shape[1]
    unbiased = done.variance * count / (count - 1)
    mean = (1 - momentum) * mean + momentum * done.mean  # (8)
    variance = (1 - momentum) * variance + momentum * unbiased  # (9)
    return mean, variance


def infer(
    a: Maps, running: tuple[PerUnit, PerUnit], gamma: PerUnit, beta: PerUnit, eps: float = 1e-5
) -> Maps:
    """Evaluation mode: a sample's answer does not depend on its batch."""
    mean, variance = (_wide(value, a) for value in running)
    return _wide(gamma, a) * (a - mean) / (variance + eps).sqrt() + _wide(beta, a)  # (10)


def _all_but_units(a: Tensor) -> tuple[int, ...]:
    return (0, *range(2, a.dim()))


def _wide(values: PerUnit, like: Tensor) -> Tensor:
    """A value for each unit, in a shape that broadcasts over the batch and the pixels."""
    return values.view(-1, *[1] * (like.dim() - 2))


def network(
    in_channels: int, classes: int, widths: tuple[int, ...], *, norm: bool
) -> nn.Sequential:
    """Convolutions of 3 x 3, each second one halving the image, with He's weights.

    Nothing else is drawn, so that the same seed gives both networks the same ones.
    """
    layers: list[nn.Module] = []
    for number, (maps, width) in enumerate(pairwise((in_channels, *widths))):
        shape = {"kernel_size": 3, "stride": 2 - number % 2, "padding": 1, "bias": not norm}
        layers.append(skip_init(nn.Conv2d, maps, width, **shape))
        if norm:
            layers.append(nn.BatchNorm2d(width))
        layers.append(nn.ReLU())
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), skip_init(nn.Linear, widths[-1], classes)]
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class BatchNormImages(FewImages[nn.Sequential]):
    """Classify images by convolutions, with or without batch normalisation."""

    widths: tuple[int, ...] = (16, 16, 32, 32, 64)
    norm: bool = False
    optimizer: str = "sgd"

    kinds: ClassVar[tuple[str, ...]] = ("image",)

    def model(self, data: Data) -> nn.Sequential:
        channels, classes = data.spec["shape"][0], len(data.spec["classes"])
        return network(channels, classes, self.widths, norm=self.norm)


def last_inputs(
    model: nn.Sequential, x: Float[Tensor, "batch channels height width"]
) -> Float[Tensor, "batch rows columns"]:
    """Inputs of the first unit of the last rectifier; the network stays as it was."""
    inputs: list[Tensor] = []
    twin = deepcopy(model).train()  # in training mode it moves its running statistics
    rectifier = [layer for layer in twin if isinstance(layer, nn.ReLU)][-1]
    rectifier.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    twin(x)
    return inputs[0][:, 0]


def best(cell: Cell) -> float:
    """The highest accuracy of a network on validation images."""
    return float(cell.valid["accuracy"].max())


KINDS = {"plain": "without", "norm": "with batch normalisation"}
SHARES = (0.15, 0.5, 0.85)  # quantiles that are drawn


@dataclass(frozen=True, kw_only=True)
class BatchNormExperiment(Experiment):
    """Train one convolutional network with and without batch normalisation, at several rates."""

    meanings: ClassVar[Mapping[str, str]] = {
        "speedup": (
            "how many times fewer updates normalisation needs to nine tenths of the plain best"
        ),
        "steps_plain": "updates to nine tenths of the plain best, without normalisation",
        "steps_norm": "the same with normalisation",
        "best_plain": "the best accuracy of the plain networks",
        "best_norm": "the best accuracy of the normalised networks",
    }

    data: str = "cifar10-small"
    """A known set of images or a folder with a subfolder for each class."""
    widths: tuple[int, ...] = (16, 16, 32, 32, 64)
    """Feature maps of each convolution."""
    rates: tuple[float, ...] = (0.03, 0.1, 0.3)
    """Learning rates that are tried; each network counts with its best."""
    steps: int = 200
    """Steps of each network."""
    batch_size: int = 64
    """Images in a step."""
    every: int = 10
    """Steps between two evaluations of the accuracy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(min(self.widths, default=0) >= 1, "widths", "one or more numbers from 1 up")
        self.require(min(self.rates, default=0) > 0, "rates", "one or more positive numbers")
        self.at_least(1, "steps", "every")
        self.at_least(2, "batch_size")  # one sample has no variance

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            f"{kind}-{rate:g}": BatchNormImages(
                data=self.data, widths=self.widths, norm=kind == "norm", lr=rate, seed=self.seed,
                steps=self.steps, batch_size=self.batch_size, eval_every=self.every,
            )
            for kind, rate in product(KINDS, self.rates)
        }  # fmt: skip

    def measure(
        self, cell: str, recipe: Training[Any, Any], state: State[Any, Any], data: Data
    ) -> dict[str, float | Tensor]:
        """Quantiles of the input of a unit of the last layer, always over the same batch."""
        inputs = last_inputs(state.model, data.train(0)[0]).flatten()
        return {"quantiles": inputs.quantile(inputs.new_tensor(SHARES))}

    def by_rate(self, table: Table, kind: str) -> dict[float, Cell]:
        """The networks of a kind by their rates."""
        return {rate: table.cells[f"{kind}-{rate:g}"] for rate in self.rates}

    def reached(self, cells: Iterable[Cell], level: float) -> float:
        """The first step at which one has this accuracy; one evaluation past the end if none."""
        above = [cell.steps[cell.valid["accuracy"] >= level] for cell in cells]
        first = [int(steps[0]) for steps in above if len(steps)]
        return float(min(first, default=self.steps + self.every))

    def metrics(self, table: Table) -> dict[str, float]:
        plain, normed = (self.by_rate(table, kind).values() for kind in KINDS)
        best_plain, best_norm = max(map(best, plain)), max(map(best, normed))
        steps_plain, steps_norm = (self.reached(c, 0.9 * best_plain) for c in (plain, normed))
        return {
            "speedup": steps_plain / max(steps_norm, 1),
            "steps_plain": steps_plain,
            "steps_norm": steps_norm,
            "best_plain": best_plain,
            "best_norm": best_norm,
        }

    def best_plain_rate(self, table: Table) -> float:
        """The learning rate that suits the networks without the norm best."""
        plain = self.by_rate(table, "plain")
        return max(plain, key=lambda rate: best(plain[rate]))

    def picture_convergence(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Accuracy on validation images by step and learning rate, without and with the norm.

        The dotted line, 90 per cent of the best accuracy without the norm, is reached after
        {plain:.0f} steps without it (left) and {norm:.0f} with it (right).
        """
        level = 0.9 * best(self.by_rate(table, "plain")[self.best_plain_rate(table)])
        top = 1.05 * max(map(best, table.cells.values()))
        first = {k: self.reached(self.by_rate(table, k).values(), level) for k in KINDS}
        drawn = (
            Panel(
                {
                    f"rate {rate:g}": (cell.steps, cell.valid["accuracy"])
                    for rate, cell in self.by_rate(table, kind).items()
                },
                *("step", "accuracy on images not trained on", title),
                levels={"90 % of the best without": level},
                marks={"first there": first[kind]},
                ylim=(0, top),
            )
            for kind, title in KINDS.items()
        )
        return panels(*drawn), first

    def picture_drift(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """The input of one unit of the last layer over training: median, and 15 to 85 per cent.

        Over the same images and at one rate the median moves over a range of {plain:.2g} without
        the norm (left) and of {norm:.2g} with it (right).
        """
        rate = self.best_plain_rate(table)
        cells = {kind: table.cells[f"{kind}-{rate:g}"] for kind in KINDS}
        top = 1.1 * max(float(cell.measured["quantiles"].abs().max()) for cell in cells.values())
        drawn, moved = [], {}
        for kind, cell in cells.items():
            low, median, high = cell.measured["quantiles"].T
            moved[kind] = float(median.max() - median.min())
            drawn.append(
                Panel(
                    {"median, 15 to 85 %": (cell.steps, median)},
                    *("step", "input of a unit in the last layer", f"{KINDS[kind]}, rate {rate:g}"),
                    bands={"median, 15 to 85 %": (low, high)},
                    ylim=(-top, top),
                )
            )
        return panels(*drawn), moved

    def tiny(self) -> Self:
        return replace(super().tiny(), data="digits", widths=(4, 4), rates=(0.1,), every=2)


RECIPES = {
    "batch-norm": BatchNormExperiment(
        goal="speedup >= 1.5",
        covers=("O18",),
    ),
}
