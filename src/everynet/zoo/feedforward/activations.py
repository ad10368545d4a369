"""Activation functions: nonlinearities of a unit's weighted sum z, and their derivatives.

    sigmoid(z)    = 1 / (1 + e^-z)                      slope s (1 - s) <= 1/4           (1)
    tanh(z)       = 2 sigmoid(2 z) - 1                  slope 1 - tanh(z)^2 <= 1         (2)
    arctan(z)     = Im log(1 + i z)                     slope 1 / (1 + z^2) <= 1         (3)
    step(z)       = 0 below 0, h at 0, 1 above          slope 0, but none at 0           (4)
    softplus(z)   = max(z, 0) + log(1 + e^-|z|)         slope sigmoid(z) < 1             (5)
    rect(z; a)    = max(0, z) + a min(0, z)             slope 1 above 0, a below         (6)
    softmax(x)_i  = e^{x_i / T} / sum_j e^{x_j / T}     slopes (diag(p) - p p^T) / T     (7)

where s = sigmoid(z), p = softmax(x), T is the temperature and `slope` is the derivative. The first
four saturate: far from 0 they have no slope, and nothing is learned. Rectifiers are unbounded. (6)
is relu for a = 0, leaky for a small a, the absolute value for a = -1, and PReLU where a is learned;
for a > 1 it is not max(a z, z). softplus is written so that no exponential overflows. softmax is
the one-hot argmax as T goes to 0. The value h of the step at 0 is a matter of choice.

Glorot, Bordes and Bengio (2011), "Deep sparse rectifier neural networks", AISTATS 14; He et al.
(2015), "Delving deep into rectifiers", arXiv:1502.01852 (PReLU).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F

from everynet.plot import Panel, panels
from everynet.recipes.recipe import Simulation

FAR = (-1e4, -700.0, 700.0, 1e4)  # where an exponential written without care overflows
Elementwise = Callable[[Float[Tensor, " points"]], Float[Tensor, " points"]]


def sigmoid(z: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
    """The logistic function, without an exponential of a positive number."""
    e = (-z.abs()).exp()
    return torch.where(z >= 0, 1.0, e) / (1 + e)  # (1)


def tanh(z: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
    """A sigmoid between -1 and 1, twice as steep."""
    return 2 * sigmoid(2 * z) - 1  # (2)


def arctan(z: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
    """The angle of the complex number 1 + i z."""
    return torch.complex(torch.ones_like(z), z).log().imag  # (3)


def step(z: Float[Tensor, " points"], at_zero: float) -> Float[Tensor, " points"]:
    """The function of Heaviside."""
    return torch.where(z == 0, at_zero, (z > 0).to(z.dtype))  # (4)


def softplus(z: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
    """A smooth relu."""
    return z.clamp(min=0) + (-z.abs()).exp().log1p()  # (5)


def rectifier(z: Float[Tensor, " points"], a: float) -> Float[Tensor, " points"]:
    """Two straight lines that meet at 0."""
    return z.clamp(min=0) + a * z.clamp(max=0)  # (6)


def softmax(x: Float[Tensor, " classes"], temperature: float) -> Float[Tensor, " classes"]:
    """A distribution over classes; a shift of all x changes nothing."""
    e = ((x - x.max()) / temperature).exp()
    return e / e.sum()  # (7)


class Activation(NamedTuple):
    """The equations above beside the function that networks use."""

    value: Elementwise
    slope: Elementwise
    torch: Elementwise


def table(leak: float, at_zero: float) -> dict[str, Activation]:
    """The activations by name."""

    def two_slopes(a: float, name: Elementwise) -> Activation:
        def slope(z: Tensor) -> Tensor:
            return (z > 0).to(z) + a * (z <= 0).to(z)

        return Activation(partial(rectifier, a=a), slope, name)

    def heaviside(z: Tensor) -> Tensor:
        return torch.heaviside(z.detach(), z.new_tensor(at_zero))  # torch has no slope for it

    return {
        "sigmoid": Activation(sigmoid, lambda z: sigmoid(z) * (1 - sigmoid(z)), torch.sigmoid),
        "tanh": Activation(tanh, lambda z: 1 - tanh(z) ** 2, torch.tanh),
        "arctan": Activation(arctan, lambda z: 1 / (1 + z**2), torch.atan),
        "step": Activation(partial(step, at_zero=at_zero), torch.zeros_like, heaviside),
        "softplus": Activation(softplus, sigmoid, partial(F.softplus, threshold=40)),
        "relu": two_slopes(0.0, torch.relu),
        f"leaky, a = {leak:g}": two_slopes(leak, partial(F.leaky_relu, negative_slope=leak)),
        "absolute value": two_slopes(-1.0, torch.abs),
    }


OF_A_NUMBER: Mapping[str, Elementwise] = {
    "squared": lambda e: F.mse_loss(e, torch.zeros_like(e), reduction="none"),
    "absolute": lambda e: F.l1_loss(e, torch.zeros_like(e), reduction="none"),
    "Huber": lambda e: F.huber_loss(e, torch.zeros_like(e), reduction="none"),
}
OF_A_CLASS: Mapping[str, Elementwise] = {
    "cross-entropy": lambda z: F.binary_cross_entropy_with_logits(
        z, torch.ones_like(z), reduction="none"
    ),
    "hinge": lambda z: F.relu(1 - z),
    "wrong or right": lambda z: (z < 0).to(z.dtype),
}


def measure_slope(function: Elementwise, z: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
    """The derivative by autograd; 0 where there is none."""
    with torch.enable_grad():
        point = z.detach().requires_grad_()
        value = function(point)
        if not value.requires_grad:
            return torch.zeros_like(z)
        (slope,) = torch.autograd.grad(value.sum(), point)
    return slope


@dataclass(frozen=True, kw_only=True)
class Activations(Simulation):
    """Measure every activation and its slope, near 0 and far from it."""

    meanings: ClassVar[Mapping[str, str]] = {
        "sigmoid_slope": "the steepest slope of the sigmoid: a quarter",
        "tanh_slope": "the steepest slope of tanh: one",
        "value_error": "the largest gap between a function and its formula",
        "slope_error": "the largest gap between a slope and its formula",
        "softmax_error": "the largest gap between our softmax and torch's",
        "sum_error": "how far probabilities are from adding up to one",
        "cold_error": "how far a cold softmax is from naming the largest alone",
    }

    leak: float = 0.1
    """The slope of the leaky rectifier below 0."""
    at_zero: float = 0.5
    """The value of the step at 0."""
    logits: tuple[float, ...] = (2.0, 1.0, 0.5, -1.0)
    """Inputs of softmax."""
    points: int = 1201
    """Values of z between -6 and 6 at which each is measured."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(abs(self.leak) < math.inf, "leak", "a number")
        self.within(0, 1, "at_zero")
        unlike = len(set(self.logits)) == len(self.logits) >= 2
        self.require(unlike, "logits", "two numbers or more, none of them twice")
        self.require(all(map(math.isfinite, self.logits)), "logits", "finite")
        odd = self.points >= 3 and self.points % 2 == 1
        self.require(odd, "points", "an odd number from 3 up, so that 0 is among the places")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        z = torch.linspace(-6, 6, self.points, dtype=torch.float64)
        z[self.points // 2] = 0.0
        z = torch.cat([z, torch.tensor(FAR, dtype=torch.float64)])
        found = table(self.leak, self.at_zero).values()
        x = torch.tensor(self.logits, dtype=torch.float64)
        temperatures = torch.logspace(-2, 2, 81, dtype=torch.float64)
        return {
            "z": z,
            "values": torch.stack([f.torch(z) for f in found]),
            "slopes": torch.stack([measure_slope(f.torch, z) for f in found]),
            "value_laws": torch.stack([f.value(z) for f in found]),
            "slope_laws": torch.stack([f.slope(z) for f in found]),
            "temperatures": temperatures,
            "shares": torch.stack([softmax(x, t) for t in temperatures.tolist()]),
            "torch_shares": (x / temperatures[:, None]).softmax(1),
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        steepest = dict(
            zip(table(self.leak, self.at_zero), result["slopes"].amax(1).tolist(), strict=True)
        )
        smooth = result["z"] != 0  # at 0 the step and the rectifiers have no slope
        shares = result["shares"]
        one_hot = F.one_hot(torch.tensor(self.logits).argmax(), len(self.logits))
        return {
            "sigmoid_slope": steepest["sigmoid"],
            "tanh_slope": steepest["tanh"],
            "value_error": _largest(result["values"] - result["value_laws"]),
            "slope_error": _largest((result["slopes"] - result["slope_laws"])[:, smooth]),
            "softmax_error": _largest(shares - result["torch_shares"]),
            "sum_error": _largest(shares.sum(1) - 1),
            "cold_error": _largest(shares[0] - one_hot),
        }

    def picture_activations(self, result: Mapping[str, Tensor]) -> Figure:
        """Eight activations (blue) and their slopes (orange) against the weighted sum z.

        Sigmoid, tanh and arctan go flat on both sides, where the gradient vanishes.
        """
        z, shown = result["z"][: self.points], []
        values, slopes = (result[kind][:, : self.points] for kind in ("values", "slopes"))
        names = table(self.leak, self.at_zero)
        for name, value, slope in zip(names, values, slopes, strict=True):
            steepest = slope.abs().max().item()
            about = f"steepest {steepest:.2g}" if steepest else "flat but for its jump"
            curves = {"value": (z, value), "slope": (z, slope)}
            shown.append(Panel(curves, "z", "", f"{name}: {about}", ylim=(-1.7, 2.4)))
        return panels(*shown, columns=4, height=1.9)

    def picture_softmax(self, result: Mapping[str, Tensor]) -> Figure:
        """The probability that softmax gives each class, against the temperature T.

        When cold the largest input takes all; when hot all go to the dotted even share.
        """
        heat = Panel(
            {
                f"$x_{i + 1}$ = {x:g}": (result["temperatures"], result["shares"][:, i])
                for i, x in enumerate(self.logits)
            },
            log="x",
            levels={f"1 / {len(self.logits)}": 1 / len(self.logits)},
            xlabel="temperature T",
            ylabel="probability of the class",
            title="softmax: one-hot when cold, even when hot",
        )
        return panels(heat, width=5.5)

    def picture_losses(self, result: Mapping[str, Tensor]) -> Figure:
        """Losses above and slopes below, of a number by its error and of a class by its score.

        A loss whose slope is bounded is moved less by an outlier.
        """
        z, above, below = torch.linspace(-3, 3, 601, dtype=torch.float64), [], []
        for losses, xlabel, title, steep in (
            (OF_A_NUMBER, "error", "loss of a number", 3.2),
            (OF_A_CLASS, "score z of the true class", "loss of a class, of two", 1.4),
        ):
            curves = {name: (z, loss(z)) for name, loss in losses.items()}
            slopes = {name: (z, measure_slope(loss, z)) for name, loss in losses.items()}
            above.append(Panel(curves, xlabel, "loss", title, ylim=(-0.2, 4.2), legend="none"))
            below.append(Panel(slopes, xlabel, "slope", ylim=(-steep, steep), legend="below"))
        return panels(*above, *below, height=2.2)


def _largest(errors: Tensor) -> float:
    return errors.abs().max().item()


RECIPES = {
    "activations": Activations(
        goal="sigmoid_slope <= 0.25 and value_error <= 1e-12 and slope_error <= 1e-12"
        " and sum_error <= 1e-12 and cold_error <= 1e-12",
        covers=("O1", "O2", "O3", "O4"),
    ),
}
