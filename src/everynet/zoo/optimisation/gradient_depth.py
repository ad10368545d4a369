"""Vanishing and exploding gradients: one number says by what factor a layer changes their norm.

    z_l = W_l phi(z_{l-1}),  Var(w) = g / n                          (1)  layer
    delta_{l-1} = (W_l^T delta_l) * phi'(z_{l-1})                    (2)  backward, delta = dE/dz
    m* = E[phi(sqrt(g m*) u)^2],  u ~ N(0, 1)                        (3)  where the signal settles
    chi = g E[phi'(sqrt(g m*) u)^2]                                  (4)  mean squared factor
    ln |delta_{L-k}| = ln |delta_L| + (k / 2) ln chi                 (5)  k layers below the output
    |delta_{l-1}| <= s_max(W_l) |delta_l| / 4                        (6)  logistic: phi' <= 1/4
    Var(w_1 ... w_k) = v^k                                           (7)  of independent weights
    v = V^{1/k}                                                      (8)  so that (7) gives V

z_l are the inputs of the units of layer l, phi is the activation, n the number of inputs of a
layer, s_max the largest singular value, and * the product entry by entry. Below chi = 1 gradients
vanish with depth, above it they explode. A logistic unit loses about a factor of 4 a layer at the
usual scale g = 1, but the size of the weights counts as well: by (6) a layer whose s_max is above 4
need not shrink anything, and with g = 400 gradients explode through saturated logistic units too.
For a ReLU phi'^2 is 1 half of the time, chi = g / 2, and He's g = 2 is the edge; for tanh it is g =
1, where m* = 0.

Hochreiter (1991), "Untersuchungen zu dynamischen neuronalen Netzen", TU Munich; Schoenholz, Gilmer,
Ganguli, Sohl-Dickstein (2016), "Deep Information Propagation", arXiv:1611.01232, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.zoo.optimisation.init_variance import Function, gaussian_mean, variance_map


class Activation(NamedTuple):
    """A function, its derivative, and the scales g it is measured at."""

    phi: Function
    slope: Function
    gains: tuple[float, ...]


def _logistic_slope(z: Tensor) -> Tensor:
    return z.sigmoid() * (1 - z.sigmoid())


ACTIVATIONS: dict[str, Activation] = {
    "sigmoid": Activation(torch.sigmoid, _logistic_slope, (0.25, 1, 2, 400)),
    "tanh": Activation(torch.tanh, lambda z: 1 - z.tanh().square(), (0.25, 1, 2, 16)),
    "ReLU": Activation(torch.relu, lambda z: (z > 0).to(z.dtype), (0.25, 1, 2, 4)),
}
NAMES = {0.25: "small, $g = 1/4$", 1: "Xavier, $g = 1$", 2: "He, $g = 2$"}
SMALLEST, LARGEST = 1e-6, 1e6


@lru_cache(maxsize=256)
def settled(phi: Function, gain: float) -> float:
    """m* of (3), kept within float range where the signal dies or grows for ever."""
    moment = 1.0
    for _ in range(1000):
        before, moment = moment, variance_map(phi, gain, moment)  # (3)
        if abs(moment - before) <= 1e-12 * before or not SMALLEST < moment < LARGEST:
            break
    return min(max(moment, SMALLEST), LARGEST)


def squared_factor(activation: Activation, gain: float) -> float:
    """The factor of a layer on the mean square of the gradient, going down."""
    variance = gain * settled(activation.phi, gain)
    return gain * gaussian_mean(lambda z: activation.slope(z).square(), variance)  # (4)


def forward(
    weights: Sequence[Float[Tensor, "_ _"]], x: Float[Tensor, "rows width"], phi: Function
) -> list[Float[Tensor, "rows _"]]:
    """z_1 .. z_L; the first layer is given x as it is."""
    states = [x @ weights[0].T]
    for weight in weights[1:]:
        states.append(phi(states[-1]) @ weight.T)  # (1)
    return states


def backward(
    weights: Sequence[Float[Tensor, "_ _"]],
    states: Sequence[Float[Tensor, "rows _"]],
    delta: Float[Tensor, "rows width"],
    slope: Function,
) -> list[Float[Tensor, "rows _"]]:
    """delta_L, delta_{L-1} .. delta_1, from that of the output."""
    deltas = [delta]
    for weight, z in zip(weights[:0:-1], states[-2::-1], strict=True):
        deltas.append((deltas[-1] @ weight) * slope(z))  # (2)
    return deltas


def logistic_bound(weight: Float[Tensor, "out into"], norm: float) -> float:
    """The largest norm a gradient of this norm can have below a layer of logistic units."""
    return float(torch.linalg.matrix_norm(weight, 2)) * norm / 4  # (6)


def product_variance(v: float, count: int) -> float:
    """Of the product of `count` independent weights with mean 0 and variance v."""
    return math.pow(v, count)  # (7)


def weight_variance(target: float, count: int) -> float:
    """Of each of `count` weights whose product is to have the variance `target`."""
    return math.pow(target, 1 / count)  # (8)


@dataclass(frozen=True, kw_only=True)
class GradientDepth(Simulation):
    """Send random gradients down deep networks at initialisation, and compare with (5)."""

    meanings: ClassVar[Mapping[str, str]] = {
        "slope_error": (
            "how far the log of the gradient changes from layer to layer otherwise than (5) says"
        ),
        "sigmoid_factor": (
            "by what factor a gradient shrinks in a layer of sigmoids at the usual scale"
        ),
        "sigmoid_explodes": (
            "by how much its log grows in a layer of sigmoids with very large weights"
        ),
        "relu_edge": "how far rectifiers with He's weights are from preserving it, in logs a layer",
    }

    depth: int = 30
    """Layers."""
    width: int = 512
    """Units of every layer, and of the input."""
    nets: int = 5
    """Networks over which the squared norm is averaged."""
    rows: int = 16
    """Inputs of each network, as large as the signal that it settles at."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.within(3, 60, "depth")
        self.at_least(2, "width")
        self.at_least(1, "nets", "rows")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        norms, factors = [], []
        for activation in ACTIVATIONS.values():
            for gain in activation.gains:
                each = [self.norms(activation, gain, generator) for _ in range(self.nets)]
                norms.append(torch.stack(each).square().mean(dim=0).sqrt())
                factors.append(squared_factor(activation, gain))
        kinds = (len(ACTIVATIONS), -1)
        return {
            "norms": torch.stack(norms).unflatten(0, kinds),  # activations gains layers
            "chi": torch.tensor(factors, dtype=torch.float64).unflatten(0, kinds),
        }

    def norms(
        self, activation: Activation, gain: float, generator: torch.Generator
    ) -> Float[Tensor, " layers"]:
        """|delta_L| .. |delta_1| of one network, over the first."""
        size, deviation = (self.width, self.width), math.sqrt(gain / self.width)
        weights = [
            nn.init.normal_(torch.empty(size).double(), std=deviation, generator=generator)
            for _ in range(self.depth)
        ]
        x, delta = torch.randn(2, self.rows, self.width, generator=generator).double()
        states = forward(weights, x * math.sqrt(settled(activation.phi, gain)), activation.phi)
        deltas = backward(weights, states, delta, activation.slope)
        sizes = torch.stack([d.norm() for d in deltas])
        return sizes / sizes[0]

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        slopes = _slopes(result["norms"].log())
        sigmoid = dict(zip(ACTIVATIONS["sigmoid"].gains, slopes[0].tolist(), strict=True))
        return {
            "slope_error": float((slopes - _predicted(result["chi"])).abs().max()),
            "sigmoid_factor": math.exp(-sigmoid[1]),
            "sigmoid_explodes": sigmoid[400],
            "relu_edge": abs(float(slopes[2, 2])),
        }

    def picture_factor(self, result: Mapping[str, Tensor]) -> Figure:
        """The squared factor of a layer on the gradient, against the scale of the weights.

        Points are measured, dashes predicted; only at the dotted 1 does the gradient keep its size.
        """
        gains = torch.logspace(-1, 3, 33, dtype=torch.float64)
        measured = torch.exp(2 * _slopes(result["norms"].log()))
        edge = Panel(
            {
                name: (torch.tensor(activation.gains, dtype=torch.float64), row)
                for (name, activation), row in zip(ACTIVATIONS.items(), measured, strict=True)
            },
            guides={
                name: (gains, torch.tensor([squared_factor(a, g) for g in gains.tolist()]))
                for name, a in ACTIVATIONS.items()
            },
            levels={r"$\chi = 1$": 1},
            xlabel=r"scale of the weights $g = n\,\mathrm{Var}(w)$",
            ylabel=r"squared factor a layer $\chi$",
            title="below 1 gradients vanish, above it they explode",
            log="xy",
            scatter=True,
        )
        return panels(edge, width=5.6)

    def picture_norms(self, result: Mapping[str, Tensor]) -> Figure:
        """The norm of the gradient (logarithmic) against the layers below the output.

        Measured points lie on predicted dashes: each scale of the weights makes the gradient
        vanish, last or explode.
        """
        below = torch.arange(float(self.depth))
        some = slice(None, None, max(1, self.depth // 10))
        drawn: list[Panel] = []
        for kind, (name, activation) in enumerate(ACTIVATIONS.items()):
            labels = [NAMES.get(gain, f"large, $g = {gain:g}$") for gain in activation.gains]
            lines = torch.exp(_predicted(result["chi"][kind])[:, None] * below)  # (5)
            norms = dict(zip(labels, result["norms"][kind], strict=True))
            drawn.append(
                Panel(
                    {label: (below[some], row[some]) for label, row in norms.items()},
                    guides={label: (below, row) for label, row in zip(labels, lines, strict=True)},
                    xlabel="layers below the output",
                    ylabel="" if drawn else "gradient norm / that at the output",
                    title=name,
                    log="y",
                    scatter=True,
                )
            )
        return panels(*drawn)

    def tiny(self) -> Self:
        return replace(super().tiny(), depth=4, width=16, nets=1, rows=2)


def _predicted(chi: Tensor) -> Tensor:
    return chi.log() / 2


def _slopes(values: Float[Tensor, "*kinds layers"]) -> Float[Tensor, "*kinds"]:
    """The slopes of the least-squares lines through one value a layer."""
    layers = torch.arange(values.shape[-1], dtype=values.dtype)
    centred = layers - layers.mean()
    return values @ centred / (centred @ centred)


RECIPES = {
    "gradient-depth": GradientDepth(
        goal="slope_error <= 0.02",
        covers=("O13",),
    ),
}
