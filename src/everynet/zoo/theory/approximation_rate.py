"""Barron's theorem: the error of one hidden layer falls as 1 / sqrt(width), in any dimension.

    y(x)  = c_0 + sum_k c_k H(w_k . x - t_k),  k = 1 .. N       (1)  one hidden layer, H a step
    f(x)  = exp(-s^2 |x|^2 / 2) = E cos(v . x),  v ~ N(0, s^2)  (2)  target, |x| <= 1
    C     = E |v| = sqrt(2) s Gamma((d+1)/2) / Gamma(d/2)       (3)  its Barron constant
    f(x)  = 1 - E 2 C sin(t) H(w . x - t)                       (4)  an average of hidden units
    c_k   = -2 C sin(t_k) / N,  c_0 = 1                         (5)  N of them, drawn at random
    (E |y - f|^2)^(1/2) <= 2 C / sqrt(N)                        (6)  Barron's bound
    p     = slope of log error against log N                    (7)  -1/2 by (5), or steeper

x is a point of the unit ball of R^d, N the width, H(z) = 1 for z > 0, else 0, and errors are root
mean squares over x. In (4) w is drawn with a density proportional to |v| times that of v, and t
evenly between 0 and |w|: cos z = 1 minus the integral of sin t over all t < |z|, on either side.
What is drawn at random as in (5) misses by the standard deviation of a mean of N terms, each at
most 2 C: so some network does as well, and d enters C alone. Least squares on the same hidden units
does better, and learning the units too. A sum of N fixed functions cannot: for all functions of a
given C together its error is at least of order C / (d N^(1/d)).

Barron (1993), "Universal approximation bounds for superpositions of a sigmoidal function", IEEE
Transactions on Information Theory 39, doi:10.1109/18.256500.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation

Points = Float[Tensor, "points axes"]
RIDGE = 1e-9  # of the mean square


class StepNetwork(NamedTuple):
    """One hidden layer of steps: its parameters, and the function they make."""

    w: Float[Tensor, "axes units"]
    t: Float[Tensor, " units"]
    c: Float[Tensor, " units"]
    c_0: Float[Tensor, ""]

    def hidden(self, x: Points) -> Float[Tensor, "points units"]:
        return (x @ self.w > self.t).double()

    def __call__(self, x: Points) -> Float[Tensor, " points"]:
        return self.c_0 + self.hidden(x) @ self.c  # (1)


def target(x: Points, s: float) -> Float[Tensor, " points"]:
    """The bell that is approximated."""
    return (-(s**2) * x.square().sum(dim=1) / 2).exp()  # (2)


def barron_constant(axes: int, s: float) -> float:
    """The mean length of the frequencies of the bell."""
    log = math.lgamma((axes + 1) / 2) - math.lgamma(axes / 2)
    return math.sqrt(2) * s * math.exp(log)  # (3)


def draw_units(
    axes: int, width: int, s: float, generator: torch.Generator
) -> tuple[Float[Tensor, "axes units"], Float[Tensor, " units"]]:
    """Hidden weights and thresholds as (4) has them.

    |v| times the density of a normal v in d dimensions is the length of one in d + 1.
    """
    w = torch.randn(axes, width, generator=generator, dtype=torch.float64)
    longer = torch.randn(axes + 1, width, generator=generator, dtype=torch.float64)
    w = s * w / w.norm(dim=0) * longer.norm(dim=0)
    t = torch.rand(width, generator=generator, dtype=torch.float64) * w.norm(dim=0)
    return w, t


def draw_network(axes: int, width: int, s: float, generator: torch.Generator) -> StepNetwork:
    """A network whose units are drawn at random, each with the output weight of the average."""
    w, t = draw_units(axes, width, s, generator)
    units = -2 * barron_constant(axes, s) * t.sin()  # (4)
    return StepNetwork(w, t, units / width, torch.ones((), dtype=torch.float64))  # (5)


def fit_output(network: StepNetwork, x: Points, y: Float[Tensor, " points"]) -> StepNetwork:
    """The network with the output weights that least squares gives at these points.

    A trace of a ridge decides between units that part the points alike.
    """
    h = torch.cat([network.hidden(x), torch.ones_like(x[:, :1])], dim=1)
    ridge = RIDGE * len(x) * torch.eye(h.shape[1], dtype=h.dtype)
    c = torch.linalg.solve(h.T @ h + ridge, h.T @ y)
    return network._replace(c=c[:-1], c_0=c[-1])


def error_bound(widths: Float[Tensor, " widths"], constant: float) -> Float[Tensor, " widths"]:
    """The most that the root mean square error has to be."""
    return 2 * constant / widths.sqrt()  # (6)


def rate(widths: Float[Tensor, " widths"], errors: Float[Tensor, " widths"]) -> float:
    """The power of the width that the error goes with, by a line through the logarithms."""
    x, y = widths.log(), errors.log()
    x = x - x.mean()
    return float(x @ y / x.square().sum())  # (7)


# -------- the network ends here; training and pictures follow --------


def draw_points(axes: int, count: int, generator: torch.Generator) -> Points:
    """Points in the unit ball, as many near its middle as near its rim."""
    x = torch.randn(count, axes, generator=generator, dtype=torch.float64)
    radius = torch.rand(count, 1, generator=generator, dtype=torch.float64)
    points: Tensor = radius * x / x.norm(dim=1, keepdim=True)
    return points


@dataclass(frozen=True, kw_only=True)
class BarronRate(Simulation):
    """Approximate a bell by more and more hidden units, in several dimensions."""

    meanings: ClassVar[Mapping[str, str]] = {
        "fitted_slope": "power of the width with fitted output weights, the largest of dimensions",
        "fitted_slope_*": "the same in so many dimensions",
        "drawn_slope_error": "how far that of drawn networks is from -1/2, at most",
        "share_of_bound": "the largest error of drawn networks as a share of Barron's bound",
    }

    axes: tuple[int, ...] = (1, 2, 5)
    """Dimensions d of the inputs."""
    widths: tuple[int, ...] = (32, 64, 128, 256, 512)
    """Hidden units N, rising."""
    s: float = 1.0
    """Standard deviation of the frequencies of the bell: its narrowness."""
    points: int = 4_000
    """Points that are fitted, and half as many others where errors are measured."""
    fits: int = 4
    """Networks of each width whose output weights are fitted."""
    drawn: int = 100
    """Networks of each width that are drawn alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rising = list(self.widths) == sorted(set(self.widths))
        self.require(len(self.widths) >= 2 and rising, "widths", "two numbers or more, rising")
        self.require(self.widths[0] >= 1, "widths", "positive")
        self.require(self.widths[-1] <= 4_000, "widths", "at most 4000: a fit takes its cube")
        self.require(len(self.axes) >= 1, "axes", "at least one number")
        self.require(all(1 <= d <= 1_000 for d in self.axes), "axes", "from 1 to 1000")
        self.above(0, "s")
        self.at_least(1, "fits", "drawn")
        self.require(
            self.points >= 2 * self.widths[-1],
            "points",
            lambda: f"at least {2 * self.widths[-1]}, two for each output weight that is fitted",
        )

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        errors = [
            [self.measure(axes, width, generator) for width in self.widths] for axes in self.axes
        ]
        radius = torch.linspace(-1, 1, 401, dtype=torch.float64)
        line = radius[:, None] * torch.eye(1, self.axes[0], dtype=torch.float64)
        x = draw_points(self.axes[0], self.points, generator)
        lines = []
        for width in (self.widths[0], self.widths[-1]):
            network = draw_network(self.axes[0], width, self.s, generator)
            fitted = fit_output(network, x, target(x, self.s))
            lines.append(torch.stack([fitted(line), network(line)]))
        return {
            "errors": torch.tensor(errors, dtype=torch.float64),  # axes widths (fitted, drawn)
            "radius": radius,
            "truth": target(line, self.s),
            "lines": torch.stack(lines),  # narrow and wide, fitted and drawn, places
        }

    def measure(self, axes: int, width: int, generator: torch.Generator) -> tuple[float, float]:
        """Root mean square errors at other points, of fitted and of drawn networks."""
        x = draw_points(axes, self.points, generator)
        others = draw_points(axes, self.points // 2, generator)
        y, truth = target(x, self.s), target(others, self.s)
        drawn = [draw_network(axes, width, self.s, generator) for _ in range(self.drawn)]
        fitted = [
            fit_output(draw_network(axes, width, self.s, generator), x, y) for _ in range(self.fits)
        ]
        both = [
            torch.stack([(net(others) - truth).square().mean() for net in nets]).mean().sqrt()
            for nets in (fitted, drawn)
        ]
        return float(both[0]), float(both[1])

    def sizes(self) -> Float[Tensor, " widths"]:
        return torch.tensor(self.widths, dtype=torch.float64)

    def bounds(self) -> Float[Tensor, "axes widths"]:
        """Barron's bound for each dimension and width."""
        constants = [barron_constant(axes, self.s) for axes in self.axes]
        return torch.stack([error_bound(self.sizes(), c) for c in constants])

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        fitted, drawn = result["errors"].unbind(dim=2)
        slopes = {d: rate(self.sizes(), e) for d, e in zip(self.axes, fitted, strict=True)}
        return {
            "fitted_slope": max(slopes.values()),
            **{f"fitted_slope_{d}": slope for d, slope in slopes.items()},
            "drawn_slope_error": max(abs(rate(self.sizes(), each) + 0.5) for each in drawn),
            "share_of_bound": float((drawn / self.bounds()).max()),
        }

    def picture_error(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, str]]:
        """Root mean square error by width, both logarithmic, in {axes} dimensions.

        Drawn networks (orange) keep below Barron's bound and parallel to it in any dimension: slope
        -1/2. With fitted output weights (blue) the slopes are {slopes}.
        """
        drawn = []
        for d, errors, bound in zip(self.axes, result["errors"], self.bounds(), strict=True):
            curves = {"fitted": (self.sizes(), errors[:, 0]), "drawn": (self.sizes(), errors[:, 1])}
            guides = {r"bound $2 C / \sqrt{N}$": (self.sizes(), bound)}
            drawn.append(Panel(curves, "width N", "error", f"d = {d}", guides=guides, log="xy"))
        metrics = self.metrics(result)
        slopes = (f"{metrics[f'fitted_slope_{d}']:.2f}" for d in self.axes)
        values = {"axes": ", ".join(map(str, self.axes)), "slopes": ", ".join(slopes)}
        return panels(*drawn), values

    def picture_networks(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, object]]:
        """A drawn network (orange) along a line through the ball in {axes} dimensions, and a bell.

        Its steps scatter around the bell (dashed), less so where they are many. With their heights
        fitted (blue) they follow it.
        """
        radius, drawn = result["radius"], []
        for width, (fitted, by_chance) in zip(
            (self.widths[0], self.widths[-1]), result["lines"], strict=True
        ):
            drawn.append(
                Panel(
                    {"fitted": (radius, fitted), "drawn": (radius, by_chance)},
                    "place along the line", "y(x)", f"N = {width}",
                    guides={"f": (radius, result["truth"])},
                )
            )  # fmt: skip
        return panels(*drawn), {"axes": self.axes[0]}

    def tiny(self) -> Self:
        return replace(super().tiny(), axes=(1, 3), widths=(2, 4), points=40, fits=1, drawn=2)


RECIPES = {
    "approximation-rate": BarronRate(
        goal="fitted_slope <= -0.5 and drawn_slope_error <= 0.05 and share_of_bound <= 1",
        covers=("Y1",),
    ),
}
