"""Learning-rate schedules under noise: which of them reach the minimum, and where others stop.

    g_t     = lambda theta_t + sigma xi_t                             (1)  gradient with noise
    theta'  = theta_t - k_t g_t                                       (2)  descent with step k_t
    v'      = (1 - k_t lambda)^2 v_t + k_t^2 sigma^2,  v = E theta^2  (3)  mean square, any k_t
    v_inf   = k sigma^2 / (lambda (2 - k lambda))                     (4)  floor of a constant k
    v_t     ~ c^2 sigma^2 / ((2 c lambda - 1) t),  k_t ~ c / t        (5)  harmonic, 2 c lambda > 1
    m_inf   = theta_0 prod_t (1 - k_t lambda)                         (6)  what is left of theta_0
    k_T     = k_0 / 10^n after n times `waits` evaluations   (7)  plateau

theta is the parameter, lambda the curvature, k_t the step size, sigma the size of the noise and
theta_0 the start; a prime is the next step. xi_t has mean 0 and variance 1. (3) follows from (1)
and (2) because xi_t and theta_t are independent, and (4) is where (3) stands still. Robbins and
Monro ask for two things. With sum k_t^2 < inf the noise dies away: a constant step breaks this and
stays at its floor (4), and so does a linear fall to a floor, at that of its last step. With sum k_t
= inf the start is forgotten: steps that fall as 1 / t^2 break this and stop short at (6), however
long they go on. Steps that fall as 1 / t do both, and the mean square falls as 1 / t for ever.

Robbins, Monro (1951), "A stochastic approximation method", doi:10.1214/aoms/1177729586; Chung
(1954), "On a stochastic approximation method", doi:10.1214/aoms/1177728716.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from everynet.data.dataset import History
from everynet.nn.schedules import SCHEDULES, harmonic, warm_up
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.recipes.training import Training

NAMES = ("constant", "linear", "harmonic", "inverse square", "plateau")
"""The schedules that are tried against noise."""


def descend(
    theta: Float[Tensor, " runs"], rate: float, curvature: float, noise: Float[Tensor, " runs"]
) -> Float[Tensor, " runs"]:
    """One step of each run."""
    g = curvature * theta + noise  # (1)
    return theta - rate * g  # (2)


def mean_square(
    rates: Float[Tensor, " steps"], start: float, curvature: float, sigma: float
) -> Float[Tensor, " times"]:
    """The expected square of theta before the first step and after each."""
    values = [start**2]
    for k in rates.tolist():
        values.append((1 - k * curvature) ** 2 * values[-1] + k**2 * sigma**2)  # (3)
    return torch.tensor(values, dtype=torch.float64)


def floor_of(rate: float, curvature: float, sigma: float) -> float:
    """The mean square that a constant rate ends at."""
    return rate * sigma**2 / (curvature * (2 - rate * curvature))  # (4)


def harmonic_law(c: float, step: float, curvature: float, sigma: float) -> float:
    """The mean square at a late step, where the rate is c / step."""
    return c**2 * sigma**2 / ((2 * c * curvature - 1) * step)  # (5)


def left_over(rates: Float[Tensor, " steps"], start: float, curvature: float) -> float:
    """The mean of theta after the last step."""
    return start * float((1 - rates * curvature).prod())  # (6)


@dataclass(frozen=True, kw_only=True)
class NoisyQuadratic(Simulation):
    """Descend a parabola many times with noisy gradients, under each schedule."""

    meanings: ClassVar[Mapping[str, str]] = {
        "floor_error": "how far the floor of a constant step is from its formula",
        "linear_floor_error": "the same of a step that falls to a floor",
        "slope_error": "how far the fall under a harmonic step is from 1 / t",
        "harmonic_error": "how far its size is from its law",
        "stop_error": "how far steps of 1 / t^2 stop from where the formula says",
        "recursion_error": "how far the mean squares are from their recursion, of all schedules",
        "drops": "how often plateau divided the step by ten",
    }

    steps: int = 10_000
    """Updates of each run; `linear` reaches its floor half way and stays there."""
    runs: int = 4_000
    """Runs that the mean square is taken over."""
    lr: float = 0.4
    """First step size."""
    floor: float = 0.05
    """Share of the first step size that `linear` ends at."""
    scale: float = 5.0
    """Updates after which `harmonic` has halved the step size."""
    curvature: float = 1.0
    """Second derivative lambda of the parabola."""
    sigma: float = 1.0
    """Standard deviation of the noise on a gradient."""
    start: float = 10.0
    """Where every run begins; the minimum is at 0."""
    look_every: int = 50
    """Updates between the evaluations that `plateau` goes by."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(20, "steps")
        self.at_least(2, "runs")
        self.at_least(1, "look_every")
        self.above(0, "curvature", "sigma")
        stable = 0 < self.lr * self.curvature < 2
        self.require(stable, "lr", "above 0 and below 2 / curvature: above it descent diverges")
        self.require(0 < self.floor <= 1, "floor", "above 0 and at most 1")
        fast = 2 * self.lr * self.scale * self.curvature > 1
        self.require(fast, "scale", "above 1 / (2 lr curvature): below it 1 / t is too slow")

    def rate(self, name: str, step: int, history: History) -> float:
        """The step size of a schedule; `history` holds the evaluations so far."""
        if name == "harmonic":
            return self.lr * harmonic(step, self.scale)
        if name == "inverse square":
            return self.lr * harmonic(step, self.scale) ** 2
        if name == "linear":
            return self.lr * SCHEDULES[name](min(1.0, 2 * step / self.steps), self.floor)
        if name == "plateau":
            rule: Training = Training(schedule=name, goal="mean_square <= 0", steps=self.steps)
            return self.lr * rule.rate(step, history)  # (7)
        return self.lr

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        theta = {name: torch.full((self.runs,), self.start).double() for name in NAMES}
        errors = {name: [self.start**2] for name in NAMES}
        rates: dict[str, list[float]] = {name: [] for name in NAMES}
        looks: list[dict[str, object]] = []
        plateau = 1.0  # the step size by the plateau rule since the last evaluation
        for step in range(self.steps):
            if step % self.look_every == 0:
                looks.append({"step": step, "valid": {"mean_square": errors["plateau"][-1]}})
                plateau = self.rate("plateau", step, looks)
            noise = torch.randn(self.runs, generator=generator, dtype=torch.float64) * self.sigma
            for name in NAMES:
                rate = plateau if name == "plateau" else self.rate(name, step, looks)
                theta[name] = descend(theta[name], rate, self.curvature, noise)
                rates[name].append(rate)
                errors[name].append(float(theta[name].square().mean()))
        return {
            "rates": torch.tensor([rates[name] for name in NAMES], dtype=torch.float64),
            "errors": torch.tensor([errors[name] for name in NAMES], dtype=torch.float64),
            "last": torch.stack([theta[name] for name in NAMES]),
        }

    def predicted(self, rates: Float[Tensor, " steps"]) -> Float[Tensor, " times"]:
        return mean_square(rates, self.start, self.curvature, self.sigma)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        errors = dict(zip(NAMES, result["errors"], strict=True))
        rates = dict(zip(NAMES, result["rates"], strict=True))
        last = dict(zip(NAMES, result["last"], strict=True))
        late = slice(-self.steps // 4, None)
        floors = {
            name: float(errors[name][late].mean())
            / floor_of(float(rates[name][-1]), self.curvature, self.sigma)
            for name in ("constant", "linear")
        }
        tail = torch.arange(self.steps // 10, self.steps + 1, dtype=torch.float64)
        fall = errors["harmonic"][self.steps // 10 :]
        law = harmonic_law(self.lr * self.scale, 1.0, self.curvature, self.sigma)
        stopped = left_over(rates["inverse square"], self.start, self.curvature)
        relative = [(errors[name] / self.predicted(rates[name]) - 1) for name in NAMES]
        drops = (rates["plateau"][:-1] / rates["plateau"][1:]).log10().round().sum()
        return {
            "floor_error": abs(floors["constant"] - 1),
            "linear_floor_error": abs(floors["linear"] - 1),
            "slope_error": abs(slope(tail, fall) + 1),
            "harmonic_error": abs(float((fall * tail).mean()) / law - 1),
            "stop_error": abs(float(last["inverse square"].mean()) / stopped - 1),
            "recursion_error": float(torch.stack(relative).square().mean().sqrt()),
            "drops": float(drops),
        }

    def picture_mean_square(self, result: Mapping[str, Tensor]) -> Figure:
        """Step sizes (left) and the mean square distance from the minimum they reach (right).

        A constant step stays on its noise floor, a harmonic one goes on falling, and one that falls
        as the inverse square stops short.
        """
        steps = torch.arange(1, self.steps + 2, dtype=torch.float64)
        shown, few = logarithmic(self.steps + 1, 300), logarithmic(self.steps + 1, 30)
        errors = dict(zip(NAMES, result["errors"], strict=True))
        rates = dict(zip(NAMES, result["rates"], strict=True))
        floors = {
            f"floor of step {rate:.2g}": floor_of(rate, self.curvature, self.sigma)
            for rate in (self.lr, self.lr * self.floor)
        }
        sizes = Panel(
            {name: (steps[shown][:-1], rates[name][shown[:-1]]) for name in NAMES},
            xlabel="update",
            ylabel="step size",
            title="the step sizes",
            log="xy",
            legend="below",
        )
        reached = Panel(
            {name: (steps[few], errors[name][few]) for name in NAMES},
            guides={name: (steps[shown], self.predicted(rates[name])[shown]) for name in NAMES},
            levels=floors,
            xlabel="update",
            ylabel="mean square distance from the minimum",
            title="what they reach",
            scatter=True,
            log="xy",
            legend="below",
        )
        return panels(sizes, reached, height=4.2)

    def picture_shapes(self, result: Mapping[str, Tensor]) -> Figure:
        """The factor on the learning rate over a run, for every schedule that a recipe can name.

        It falls early or late, in a line, a curve or steps, or rises first.
        """
        floor, steps = 0.05, 200
        t = torch.arange(steps + 1) / steps
        falling = [SCHEDULES["cosine"](k / steps, floor) for k in range(steps + 1)]
        warm = [warm_up(k, steps // 10) * falling[k] for k in range(steps + 1)]
        factors = {"warm-up, then cosine": warm}
        for name in ("linear", "cosine", "step", "one-cycle"):
            factors[name] = [SCHEDULES[name](k / steps, floor) for k in range(steps + 1)]
        factors["harmonic"] = [harmonic(k, steps / 20) for k in range(steps + 1)]
        panel = Panel(
            {name: (t, torch.tensor(values)) for name, values in factors.items()},
            levels={f"floor, {floor:g}": floor},
            xlabel="fraction of the run",
            ylabel="factor on the learning rate",
        )
        return panels(panel, width=6.5, height=4.0)

    def tiny(self) -> Self:
        return replace(self, steps=400, runs=200, look_every=5)


def logarithmic(count: int, points: int) -> Int[Tensor, " shown"]:
    """Places from 0 to count - 1 that lie evenly on a logarithmic axis."""
    places = torch.logspace(0, math.log10(count), points, dtype=torch.float64)
    kept: Tensor = places.round().long().clamp(1, count).unique()
    return kept - 1


def slope(x: Float[Tensor, " points"], y: Float[Tensor, " points"]) -> float:
    """The power that y goes with in x: least squares on logarithms, weighted to be even there."""
    across, up, weight = x.log(), y.log(), 1 / x
    across = across - (weight * across).sum() / weight.sum()
    return float((weight * across * up).sum() / (weight * across.square()).sum())


RECIPES = {
    "schedules": NoisyQuadratic(
        goal="floor_error <= 0.02 and linear_floor_error <= 0.03 and slope_error <= 0.05 "
        "and stop_error <= 0.02 and drops >= 2",
        covers=("O23",),
    ),
}
