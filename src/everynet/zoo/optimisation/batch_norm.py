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

for each unit or feature map on its own; N is how many values it has in the batch, r the momentum.
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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from everynet.data import load
from everynet.plot.panels import Panel, panels
from everynet.recipes import Pictures, Simulation
from everynet.types import Batch
from everynet.zoo.optimisation.experiment import accuracy, fit, score

Maps = Float[Tensor, "batch units *pixels"]
PerUnit = Float[Tensor, " units"]


class Normalised(NamedTuple):
    """What the forward pass gives and the backward pass needs."""

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
    channels: int, classes: int, widths: tuple[int, ...], generator: torch.Generator, *, norm: bool
) -> nn.Sequential:
    """Convolutions of 3 x 3, each second one halving the image, with He's weights."""
    layers: list[nn.Module] = []
    for number, (before, width) in enumerate(pairwise((channels, *widths))):
        layers.append(nn.Conv2d(before, width, 3, stride=2 - number % 2, padding=1, bias=not norm))
        if norm:
            layers.append(nn.BatchNorm2d(width))
        layers.append(nn.ReLU())
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes)]
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


@dataclass(frozen=True, kw_only=True)
class WithAndWithout(Simulation):
    """Train one convolutional network with and without batch normalisation, at several rates."""

    captions: ClassVar[Mapping[str, str]] = {
        "convergence": (
            "Accuracy on images not trained on, by step and learning rate, without (left) and "
            "with batch normalisation (right), which reaches the dotted line earlier."
        ),
        "drift": (
            "The input of one unit of the last layer over training, median and band, each network "
            "at its own best rate: without the norm (left) it wanders, with it (right) it stays."
        ),
    }

    data: str = "cifar10-small"
    """A known set of images or a folder with a subfolder for each class."""
    widths: tuple[int, ...] = (16, 16, 32, 32, 64)
    """Feature maps of each convolution."""
    rates: tuple[float, ...] = (0.03, 0.1, 0.3)
    """Learning rates that are tried; each network is judged at its best."""
    steps: int = 200
    """Steps of each network."""
    batch_size: int = 64
    """Images in a step."""
    every: int = 10
    """Steps between two looks at the accuracy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(min(self.widths, default=0) >= 1, "widths", "one or more numbers from 1 up")
        self.require(min(self.rates, default=0) > 0, "rates", "one or more positive numbers")
        self.require(self.steps >= 1, "steps", "at least 1")
        self.require(self.batch_size >= 2, "batch_size", "at least 2: one sample has no variance")
        self.require(self.every >= 1, "every", "at least 1")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        data = load(self.data, kind="image", batch_size=1)
        x, y = data.whole
        seen = tuple(torch.cat(parts)[:1000] for parts in zip(*data.valid, strict=True))
        accuracies, spreads = [], []
        seed = int(torch.randint(2**31, (), generator=generator))
        for norm in (False, True):
            for rate in self.rates:
                model = network(
                    x.shape[1], len(data.spec["classes"]), self.widths,
                    torch.Generator().manual_seed(seed), norm=norm,
                )  # fmt: skip
                curve, spread = self.train(model, (x, y), seen, rate, seed)
                accuracies.append(curve)
                spreads.append(spread)
        kinds = (2, len(self.rates))
        curves = torch.stack(accuracies).unflatten(0, kinds)
        best = curves.amax(dim=2).argmax(dim=1)
        quantiles = torch.stack(spreads).unflatten(0, kinds)[torch.arange(2), best]
        return {"accuracy": curves, "quantiles": quantiles, "best": best}

    def train(
        self, model: nn.Sequential, trained: Batch, seen: Batch, rate: float, seed: int
    ) -> tuple[Float[Tensor, " times"], Float[Tensor, "later 3"]]:
        """The accuracy on images not trained on, and what reaches the last rectifier's first map.

        Of the latter, the 15th, 50th and 85th percentile over the last batch before each time.
        """
        rectifier = [layer for layer in model if isinstance(layer, nn.ReLU)][-1]
        inputs: list[Tensor] = []
        rectifier.register_forward_pre_hook(lambda _, given: inputs.append(given[0].detach()))
        shares = torch.tensor([0.15, 0.5, 0.85])
        accuracies, quantiles = [], []
        (x, y), (x_seen, y_seen) = trained, seen

        def watch(step: int) -> None:
            if step % self.every == 0:
                if inputs:
                    quantiles.append(inputs[-1][:, 0].flatten().quantile(shares))
                accuracies.append(score(model, x_seen, y_seen, accuracy))
            inputs.clear()

        fit(
            model, x, y, steps=self.steps, batch_size=min(self.batch_size, len(x)), lr=rate,
            generator=torch.Generator().manual_seed(seed), watch=watch,
        )  # fmt: skip
        return torch.tensor(accuracies, dtype=torch.float64), torch.stack(quantiles)

    def reached(self, curves: Float[Tensor, "rates times"], level: float) -> float:
        """The first step at which any rate has this accuracy; one look past the end if none."""
        there = (curves.amax(dim=0) >= level).nonzero()
        return float(self.every * (int(there[0]) if len(there) else curves.shape[1]))

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        plain, normed = result["accuracy"]
        level = 0.9 * float(plain.max())
        steps_plain, steps_norm = self.reached(plain, level), self.reached(normed, level)
        return {
            "speedup": steps_plain / max(steps_norm, 1),
            "steps_plain": steps_plain,
            "steps_norm": steps_norm,
            "best_plain": float(plain.max()),
            "best_norm": float(normed.max()),
        }

    def pictures(self, result: Mapping[str, Tensor]) -> Pictures:
        names = ("without", "with batch normalisation")
        curves = result["accuracy"]
        times = self.every * torch.arange(float(curves.shape[2]))
        level = 0.9 * float(curves[0].max())
        learning = [
            Panel(
                {f"rate {r:g}": (times, row) for r, row in zip(self.rates, rows, strict=True)},
                levels={"90 % of the best without": level},
                marks={"first there": self.reached(rows, level)},
                xlabel="step",
                ylabel="accuracy on images not trained on",
                title=name,
                ylim=(0, 1.05 * float(curves.max())),
                legend="upper left" if name == names[0] else "none",  # the same colours in both
            )
            for name, rows in zip(names, curves, strict=True)
        ]
        quantiles = result["quantiles"]
        reach = 1.1 * float(quantiles.abs().max())
        drift = [
            Panel(
                {"median, 15 to 85 %": (times[-len(rows) :], rows[:, 1])},
                bands={"median, 15 to 85 %": (rows[:, 0], rows[:, 2])},
                xlabel="step",
                ylabel="input of a unit in the last layer",
                title=f"{name}, rate {self.rates[int(best)]:g}",
                ylim=(-reach, reach),
            )
            for name, rows, best in zip(names, quantiles, result["best"], strict=True)
        ]
        return {"convergence": panels(*learning), "drift": panels(*drift)}

    def tiny(self) -> Self:
        return replace(
            self, data="digits", widths=(4, 4), rates=(0.1,), steps=4, batch_size=8, every=2
        )


# Seeds 0, 1, 2, about 27 s on one CPU thread; accuracies on 1,000 images that were not trained on:
# speedup      2.67   2.4    7.0
# steps_plain  160    120    140
# steps_norm   60     50     20
# best_plain   0.316  0.304  0.303
# best_norm    0.382  0.394  0.407
RECIPES = {
    "batch-norm": WithAndWithout(
        goal="speedup >= 1.5",
        covers=("O18",),
    ),
}
