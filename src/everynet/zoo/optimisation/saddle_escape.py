"""Escape from a saddle: how long each update rule stays where the gradient is nearly zero.

    f(x, y)  = x^2 - y^2                                            (1)  falls along y, level at 0
    y_t      = (1 + 2 k)^t y_0                                      (2)  gradient descent
    0        = r^2 - (1 + b + 2 k) r + b                            (3)  momentum: y_t ~ r^t
    0        = r^2 - (1 + b) (1 + 2 k) r + b (1 + 2 k)              (4)  Nesterov's momentum
    y_t      = (p r^t - q s^t) / (r - s),  p = y_1 - s y_0, q = y_1 - r y_0     (5)  roots r > s
    T        = log(1 / |y_0|) / log(1 + 2 k)                        (6)  descent reaches |y| = 1
    v_t      = (k sigma)^2 ((1 + 2 k)^{2 t} - 1) / ((1 + 2 k)^2 - 1)  (7)  E y_t^2 by noise alone
    P_t      = erfc(1 / sqrt(2 v_t))                                (8)  share gone after t steps
    f(x, y)  = x^2 - y^2 + y^4 / 2                                  (9)  the same with minima at +-1

(x, y) is the point, y_0 its distance from the ridge at first, k the step size, b the momentum,
sigma the standard deviation of the noise on a gradient and y_1 the first step, (1 + 2 k) y_0 for
momentum and (1 + 2 k (1 + b)) y_0 for Nesterov's. Descent needs a number of steps that grows with
the logarithm of how near the ridge it began; momentum needs a fraction of them because its larger
root is larger; rules that divide by the size of the gradient (RMSProp, Adam) hardly care how near.
From a start exactly on the ridge no rule ever leaves without noise: that of mini-batches is enough.

Lee et al. (2016), "Gradient descent converges to minimizers", arXiv:1602.04915; Jin et al.
(2017), "How to escape saddle points efficiently", arXiv:1703.00887; Dauphin et al. (2014),
"Identifying and attacking the saddle point problem", arXiv:1406.2572.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, optim

from everynet.plot.panels import Panel, panels
from everynet.plot.paths import descent_paths
from everynet.recipes.recipe import Simulation
from everynet.zoo.optimisation.gradient_descent import Energy

Rule = Callable[[list[Tensor], float, float], optim.Optimizer]
"""From parameters, step size and momentum to the update rule."""

RULES: dict[str, Rule] = {
    "gradient descent": lambda p, k, b: optim.SGD(p, k, foreach=False),
    "momentum": lambda p, k, b: optim.SGD(p, k, momentum=b, foreach=False),
    "Nesterov": lambda p, k, b: optim.SGD(p, k, momentum=b, nesterov=True, foreach=False),
    "RMSProp": lambda p, k, b: optim.RMSprop(p, k, foreach=False),
    "Adam": lambda p, k, b: optim.Adam(p, k, (b, 0.999), foreach=False),
}


def saddle(point: Float[Tensor, "*batch 2"]) -> Float[Tensor, "*batch"]:
    """A saddle that falls along y without end."""
    return point[..., 0] ** 2 - point[..., 1] ** 2  # (1)


def bounded(point: Float[Tensor, "*batch 2"]) -> Float[Tensor, "*batch"]:
    """The same near the origin, with a minimum on either side."""
    return saddle(point) + point[..., 1] ** 4 / 2  # (9)


def follow(
    energy: Energy,
    rule: Rule,
    starts: Float[Tensor, "n 2"],
    *,
    steps: int,
    lr: float,
    momentum: float,
) -> Float[Tensor, "times n 2"]:
    """The path from each start, step by step; the rules treat every number by itself."""
    with torch.enable_grad():
        point = starts.clone().requires_grad_()
        optimizer = rule([point], lr, momentum)
        path = [starts]
        for _ in range(steps):
            optimizer.zero_grad()
            energy(point).sum().backward()
            optimizer.step()
            path.append(point.detach().clone())
    return torch.stack(path)


def descent(start: float, steps: int, lr: float) -> Float[Tensor, " times"]:
    """The distance y under gradient descent."""
    t = torch.arange(steps + 1, dtype=torch.float64)
    return (1 + 2 * lr) ** t * start  # (2)


def heavy(start: float, steps: int, lr: float, momentum: float) -> Float[Tensor, " times"]:
    """The distance under momentum."""
    r, s = roots(1 + momentum + 2 * lr, momentum)  # (3)
    return two_roots(start, (1 + 2 * lr) * start, r, s, steps)


def nesterov(start: float, steps: int, lr: float, momentum: float) -> Float[Tensor, " times"]:
    """The same for Nesterov's, in torch's variables: the point where the gradient is taken."""
    r, s = roots((1 + momentum) * (1 + 2 * lr), momentum * (1 + 2 * lr))  # (4)
    return two_roots(start, (1 + 2 * lr * (1 + momentum)) * start, r, s, steps)


def roots(total: float, product: float) -> tuple[float, float]:
    """The larger and the smaller of two numbers, from their sum and product."""
    half = math.sqrt(total**2 / 4 - product)
    return total / 2 + half, total / 2 - half


def two_roots(
    start: float, first: float, r: float, s: float, steps: int
) -> Float[Tensor, " times"]:
    """The sequence that begins with two given numbers and is a sum of powers of r and s."""
    t = torch.arange(steps + 1, dtype=torch.float64)
    return ((first - s * start) * r**t - (first - r * start) * s**t) / (r - s)  # (5)


def steps_of_descent(start: float, lr: float) -> float:
    """How long gradient descent stays, as a real number of steps."""
    return math.log(1 / abs(start)) / math.log(1 + 2 * lr)  # (6)


def gone(steps: Float[Tensor, " times"], lr: float, sigma: float) -> Float[Tensor, " times"]:
    """The share of noisy runs that have left the ridge they began on."""
    grown = (1 + 2 * lr) ** (2 * steps) - 1
    v = (lr * sigma) ** 2 * grown / ((1 + 2 * lr) ** 2 - 1)  # (7)
    return torch.erfc(1 / (2 * v).sqrt())  # (8)


def escape_step(y: Float[Tensor, " times *n"]) -> Float[Tensor, "*n"]:
    """The first step with |y| >= 1, or infinity."""
    out = y.abs() >= 1
    first = out.int().argmax(dim=0).double()
    return torch.where(out.any(dim=0), first, math.inf)


@dataclass(frozen=True, kw_only=True)
class SaddleEscape(Simulation):
    """Start a hair off the ridge of a saddle with each rule; and exactly on it, with noise."""

    meanings: ClassVar[Mapping[str, str]] = {
        "steps_*": "steps until a rule has left the saddle",
        "descent_error": "how many steps plain descent is from its formula",
        "path_error": "how far paths are from their closed forms before they leave",
        "slowest_ratio": "steps of the slowest other rule as a part of those of plain descent",
        "noise_error": "how far the median time by noise alone is from its law",
        "left_without_noise": "how far a rule gets from the ridge without noise: not at all",
    }

    lr: float = 0.01
    """Step size of every rule."""
    momentum: float = 0.9
    """b of momentum and Nesterov's; Adam's mean forgets as fast."""
    start: float = 1e-6
    """Distance from the ridge at the start."""
    steps: int = 1_200
    """Updates at most."""
    runs: int = 4_000
    """Noisy runs that begin exactly on the ridge."""
    sigma: float = 1e-3
    """Standard deviation of the noise on a gradient."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.lr < 1, "lr", "above 0 and below 1: above it x diverges too")
        self.require(0 < self.momentum < 1, "momentum", "between 0 and 1")
        self.require(1e-12 <= self.start < 1, "start", "from 1e-12 to below 1")
        self.at_least(1, "steps", "runs")
        self.above(0, "sigma")  # without noise nothing leaves the ridge

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        near = torch.logspace(-9, -1, 9, dtype=torch.float64)
        distances = torch.cat([torch.tensor([self.start, 0.0], dtype=torch.float64), near])
        starts = torch.stack([torch.ones_like(distances), distances], dim=1)
        how = partial(follow, steps=self.steps, lr=self.lr, momentum=self.momentum)
        walks = {name: how(saddle, rule, starts)[..., 1] for name, rule in RULES.items()}
        start = torch.tensor([[1.0, self.start]], dtype=torch.float64)
        paths = [how(bounded, rule, start)[:, 0] for rule in RULES.values()]
        ridge = [torch.zeros(self.runs, dtype=torch.float64)]
        for _ in range(self.steps):
            noise = torch.randn(self.runs, generator=generator, dtype=torch.float64) * self.sigma
            ridge.append(ridge[-1] - self.lr * (-2 * ridge[-1] + noise))
        return {
            "y": torch.stack([walk[:, 0] for walk in walks.values()]),
            "on_ridge": torch.stack([walk[:, 1].abs().max() for walk in walks.values()]),
            "distances": near,
            "escapes": torch.stack([escape_step(walk[:, 2:]) for walk in walks.values()]),
            "paths": torch.stack(paths),
            "noisy": escape_step(torch.stack(ridge)),
        }

    def predicted(self) -> dict[str, Float[Tensor, " times"]]:
        """The distance under each rule that has a closed form."""
        return {
            "gradient descent": descent(self.start, self.steps, self.lr),
            "momentum": heavy(self.start, self.steps, self.lr, self.momentum),
            "Nesterov": nesterov(self.start, self.steps, self.lr, self.momentum),
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        y = dict(zip(RULES, result["y"], strict=True))
        steps = {name: float(escape_step(walk)) for name, walk in y.items()}
        laws = self.predicted()
        before = {name: law.abs() < 1 for name, law in laws.items()}
        errors = [(y[name] / law - 1)[before[name]].abs().max() for name, law in laws.items()]
        plain = steps["gradient descent"]
        times = torch.arange(1, self.steps + 1, dtype=torch.float64)
        middle = float(times[gone(times, self.lr, self.sigma) >= 0.5][:1].sum())
        return {
            **{f"steps_{name.lower().replace(' ', '_')}": took for name, took in steps.items()},
            "descent_error": abs(plain - math.ceil(steps_of_descent(self.start, self.lr))),
            "path_error": float(torch.stack(errors).max()),
            "slowest_ratio": max(took / plain for took in steps.values() if took != plain),
            "noise_error": abs(float(result["noisy"].median()) / max(middle, 1) - 1),
            "left_without_noise": float(result["on_ridge"].max()),
        }

    def picture_paths(self, result: Mapping[str, Tensor]) -> Figure:
        """The way of each rule over a saddle, from a start a hair off its ridge to the star.

        Rules that stay longer at the saddle first follow the ridge down to it; those that scale
        each coordinate leave at once.
        """
        count = min(150, self.steps) + 1
        paths = {n: path[:count] for n, path in zip(RULES, result["paths"], strict=True)}
        return descent_paths(
            bounded,
            paths,
            window=(-0.5, 1.3, -0.2, 1.4),
            minimum=(0.0, 1.0),
            xlabel="x",
            ylabel="y",
        )

    def picture_escape(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Distance from the ridge by step, steps by first distance, and escapes by noise alone.

        All follow the predictions (dashed). Gradient descent takes {slowest:.0f} steps to leave,
        the fastest rule {fastest:.0f}.
        """
        y = dict(zip(RULES, result["y"].abs(), strict=True))
        escapes = dict(zip(RULES, result["escapes"], strict=True))
        t = torch.arange(self.steps + 1, dtype=torch.float64)
        near, every = result["distances"], max(1, self.steps // 40)
        until = {name: min(int((walk < 3).sum()) + 1, len(t)) for name, walk in y.items()}
        line = torch.tensor([steps_of_descent(float(d), self.lr) for d in near])
        share = (result["noisy"] <= t[:, None]).double().mean(dim=1)
        growth = Panel(
            {name: (t[: until[name]], walk[: until[name]]) for name, walk in y.items()},
            guides={
                name: (t[: until[name]], law.abs()[: until[name]])
                for name, law in self.predicted().items()
            },
            levels={"escaped": 1.0},
            xlabel="step",
            ylabel="distance |y| from the ridge",
            title=f"from {self.start:g} off the ridge",
            log="y",
        )
        cost = Panel(
            {name: (near[n.isfinite()], n[n.isfinite()]) for name, n in escapes.items()},
            guides={"predicted": (near, line)},
            xlabel="distance from the ridge at the start",
            ylabel="steps until |y| = 1",
            title="what the distance at the start costs",
            log="x",
        )
        noise = Panel(
            {f"measured, {self.runs:,} runs": (t[::every], share[::every])},
            guides={"predicted": (t[1:], gone(t[1:], self.lr, self.sigma))},
            xlabel="step",
            ylabel="share of runs that have left",
            title=f"from the ridge itself, by noise of {self.sigma:g}",
            scatter=True,
        )
        steps = [float(escape_step(walk)) for walk in y.values()]
        return panels(growth, cost, noise), {"slowest": steps[0], "fastest": min(steps)}

    def tiny(self) -> Self:
        return replace(super().tiny(), lr=0.1, steps=80, runs=50)


RECIPES = {
    "saddle-escape": SaddleEscape(
        goal="descent_error == 0 and slowest_ratio <= 0.5 and path_error <= 1e-9 "
        "and noise_error <= 0.02",
        covers=("O31",),
    ),
}
