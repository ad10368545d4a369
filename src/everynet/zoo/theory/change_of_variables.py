"""Change of variables: how a density changes when its variable is stretched.

    p_x(x)       = p_y(g(x)) |det J(x)|,  J = dg / dx                      (1)  density of x
    log p_x(x)   = log p_y(g(x)) + log |det J(x)|                          (2)  as it is computed
    x = e^y:       p_x(x) = N(log x; 0, 1) / x                             (3)  lognormal
    x = A y + b:   p_x(x) = N(x; b, A A^T)                                 (4)  a turned Gaussian
    x = (y_1, e^{y_1 / 2} y_2):  p_x(x) = N(x_1; 0, 1) N(x_2; 0, e^{x_1})  (5)  funnel

y has the known density p_y, here a normal one with independent coordinates, and y = g(x) has an
inverse. A small volume dx around x is one of |det J| dx around y with as much probability. Without
the factor what is left does not sum to 1: of (3) it sums to E[e^y] = e^(1/2), of (4) to |det A|.
Nor does it with the length of J, the root of the sum of its squares, in the place of |det J|.

Jacobi (1841), "De determinantibus functionalibus", doi:10.1515/crll.1841.22.319; Neal (2003),
"Slice sampling", doi:10.1214/aos/1056562461 for (5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float64
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation

Points = Float64[Tensor, "points dim"]
Map = Callable[[Tensor], Tensor]
"""From one point to another of as many coordinates, written with functions of torch."""


def standard_normal(y: Points) -> Float64[Tensor, " points"]:
    """The log density of independent normal coordinates."""
    return -(y.square() + math.log(2 * math.pi)).sum(dim=1) / 2


def jacobians(g: Map, x: Points) -> Float64[Tensor, "points dim dim"]:
    """The derivatives of each coordinate of g by each of x, at each point."""
    found: Tensor = torch.func.vmap(torch.func.jacrev(g))(x)
    return found


def log_density(
    g: Map, x: Points, log_p_y: Callable[[Tensor], Tensor] = standard_normal
) -> Float64[Tensor, " points"]:
    """The log density of x where y = g(x) has a known one."""
    volume: Tensor = torch.linalg.slogdet(jacobians(g, x)).logabsdet
    return log_p_y(torch.func.vmap(g)(x)) + volume  # (2)


def density(g: Map, x: Points) -> Float64[Tensor, " points"]:
    """The density of x where y = g(x) is standard normal."""
    determinant: Tensor = torch.linalg.det(jacobians(g, x))
    return standard_normal(torch.func.vmap(g)(x)).exp() * determinant.abs()  # (1)


def without_factor(g: Map, x: Points) -> Float64[Tensor, " points"]:
    """What is left without |det J|, which is no density."""
    return standard_normal(torch.func.vmap(g)(x)).exp()


def with_length(g: Map, x: Points) -> Float64[Tensor, " points"]:
    """The same with the length of J in the place of |det J|, which is no density either."""
    return without_factor(g, x) * jacobians(g, x).square().sum(dim=(1, 2)).sqrt()


def normal_density(z: Tensor, variance: Tensor | float = 1.0) -> Tensor:
    """The density of a normal number with mean 0."""
    variance = torch.as_tensor(variance, dtype=z.dtype)
    return (-z.square() / (2 * variance)).exp() / (2 * math.pi * variance).sqrt()


def lognormal(x: Float64[Tensor, "points 1"]) -> Float64[Tensor, " points"]:
    """The density of e^y."""
    return normal_density(x[:, 0].log()) / x[:, 0]  # (3)


def affine_gaussian(
    a: Float64[Tensor, "dim dim"], b: Float64[Tensor, " dim"], x: Points
) -> Float64[Tensor, " points"]:
    """The density of A y + b."""
    covariance = a @ a.T  # (4)
    apart = x - b
    square: Tensor = (apart @ torch.linalg.inv(covariance) * apart).sum(dim=1)
    scale: Tensor = (2 * math.pi) ** len(b) * torch.linalg.det(covariance)
    return (-square / 2).exp() / scale.sqrt()


def funnel(x: Float64[Tensor, "points 2"]) -> Float64[Tensor, " points"]:
    """The density whose second coordinate is as wide as the first one says."""
    return normal_density(x[:, 0]) * normal_density(x[:, 1], x[:, 0].exp())  # (5)


# -------- the network ends here; training and pictures follow --------


class Change(NamedTuple):
    """A map from y to x with its inverse, the density in closed form, and the window to look at."""

    forward: Map
    g: Map
    closed_form: Callable[[Tensor], Tensor]
    window: tuple[float, float, float, float]


def funnel_change() -> Change:
    """The funnel."""
    return Change(
        lambda y: torch.stack([y[0], (y[0] / 2).exp() * y[1]]),
        lambda x: torch.stack([x[0], (-x[0] / 2).exp() * x[1]]),
        funnel,
        (-8.0, 8.0, -60.0, 60.0),
    )


@dataclass(frozen=True, kw_only=True)
class ChangeOfVariables(Simulation):
    """Map normal numbers in three ways, and compare densities with closed forms and samples."""

    meanings: ClassVar[Mapping[str, str]] = {
        "lognormal_error": "largest relative error of the density of e^y",
        "affine_error": "largest relative error of the density of A y + b",
        "funnel_error": "largest relative error of the density of the funnel",
        "integral_error": "how far the integrals of the three densities are from 1",
        "naive_integral": "integral for e^y without the factor; the root of e is predicted",
        "naive_error": "how far that and its like for A y + b are from their closed forms",
        "length_integral": "integral for A y + b with the length of J in the place of its volume",
        "counted_sigmas": "largest distance of counted from predicted samples, in standard errors",
    }

    matrix: tuple[float, ...] = (1.2, 0.9, -0.3, 0.8)
    """A of x = A y + b, by rows."""
    offset: tuple[float, ...] = (0.5, -0.5)
    """And b."""
    samples: int = 200_000
    """Normal numbers that are mapped and counted."""
    points: int = 300
    """Places along each side of the grid that densities are summed on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        finite = all(map(math.isfinite, self.matrix + self.offset))
        self.require(len(self.matrix) == 4 and finite, "matrix", "four finite numbers, by rows")
        self.require(len(self.offset) == 2 and finite, "offset", "two finite numbers")
        a, b, c, d = self.matrix
        self.require(
            abs(a * d - b * c) > 0.05,
            "matrix",
            "a matrix with an inverse (|determinant| above 0.05): else A y + b has no density",
        )
        self.at_least(1000, "samples")
        self.at_least(100, "points")

    def affine(self) -> Change:
        """A y + b, its inverse and density, and a window of eight standard deviations."""
        a = torch.tensor(self.matrix, dtype=torch.float64).view(2, 2)
        b, back = torch.tensor(self.offset, dtype=torch.float64), torch.linalg.inv(a)
        reach = 8 * (a @ a.T).diag().sqrt()
        (left, bottom), (right, top) = (b - reach).tolist(), (b + reach).tolist()
        return Change(
            lambda y: a @ y + b,
            lambda x: back @ (x - b),
            lambda x: affine_gaussian(a, b, x),
            (left, right, bottom, top),
        )

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        y = torch.randn(self.samples, 1, generator=generator, dtype=torch.float64)
        edges = torch.linspace(0, 6, 61, dtype=torch.float64)
        z = torch.linspace(-9, 9, 20 * self.points + 1, dtype=torch.float64)
        x = z.exp()[:, None]  # so that the long tail is summed as well
        correct, naive = density(torch.log, x), without_factor(torch.log, x)
        affine, funnels = self.affine(), funnel_change()
        return {
            "edges": edges,
            "counts": torch.histogram(y[:, 0].exp(), edges).hist,
            "lognormal": torch.stack([correct, lognormal(x)]),
            "line": torch.stack([torch.trapezoid(p, x[:, 0]) for p in (correct, naive)]),
            "affine": torch.stack(self.on_grid(affine)),
            "affine_sums": self.integrals(affine),
            "funnel": torch.stack(self.on_grid(funnels)),
            "funnel_sums": self.integrals(funnels),
        }

    def on_grid(self, change: Change) -> list[Float64[Tensor, " points"]]:
        """The density by (1) and in closed form, where it is not lost in rounding."""
        _, _, x = grid(change.window, 81)
        found, expected = density(change.g, x), change.closed_form(x)
        seen = expected > 1e-200
        return [found[seen], expected[seen]]

    def integrals(self, change: Change) -> Float64[Tensor, " 3"]:
        """The integrals of the density, and of what is none without the factor or with a length."""
        across, up, x = grid(change.window, self.points)
        cell = (across[1] - across[0]) * (up[1] - up[0])
        sums = [f(change.g, x).sum() * cell for f in (density, without_factor, with_length)]
        return torch.stack(sums)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        a, b, c, d = self.matrix
        right, naive = result["line"].tolist()
        affine, without, length = result["affine_sums"].tolist()
        errors = [relative(*result[name]) for name in ("lognormal", "affine", "funnel")]
        sums = (right, affine, result["funnel_sums"][0].item())
        expected = self.samples * self.shares(result["edges"])
        apart = (result["counts"] - expected) / expected.clamp(min=1).sqrt()
        return {
            "lognormal_error": errors[0],
            "affine_error": errors[1],
            "funnel_error": errors[2],
            "integral_error": max(abs(total - 1) for total in sums),
            "naive_integral": naive,
            "naive_error": max(abs(naive - math.exp(0.5)), abs(without - abs(a * d - b * c))),
            "length_integral": length,
            "counted_sigmas": apart.abs().max().item(),
        }

    def shares(self, edges: Float64[Tensor, " edges"]) -> Float64[Tensor, " bins"]:
        """The probability of each bin by the density, with Simpson's rule in the bins."""
        fine = torch.linspace(0, 1, 21, dtype=torch.float64)
        x = (edges[:-1, None] + edges.diff()[:, None] * fine).clamp(min=1e-9)
        p = density(torch.log, x.view(-1, 1)).view(x.shape)
        weights = torch.tensor([1.0, *[4.0, 2.0] * 9, 4.0, 1.0], dtype=torch.float64)
        return p @ weights * edges.diff() / 60

    def picture_stretched(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Samples of e^y counted (blue), their density (dashed), and that without the factor.

        Where e^y pulls numbers apart the density must fall. Without the factor the area below is
        {naive:.3f} in the place of 1.
        """
        edges, x = result["edges"], torch.linspace(0.01, 6, 400, dtype=torch.float64)[:, None]
        middle, share = (edges[1:] + edges[:-1]) / 2, result["counts"] / self.samples
        made = panels(
            Panel(
                {
                    "counted": (middle[1::3], (share / edges.diff())[1::3]),
                    "p(g(x)), without the factor": (x[:, 0], without_factor(torch.log, x)),
                },
                guides={"p(g(x)) |dg/dx|": (x[:, 0], density(torch.log, x))},
                xlabel="$x = e^y$",
                ylabel="density",
                title="y is normal",
            )
        )
        return made, {"naive": result["line"][1].item()}

    def picture_areas(self, result: Mapping[str, Tensor]) -> Figure:
        """Lines of whole y_1 (blue) and y_2 (orange) under two maps, over the density of x (red).

        Each cell keeps its probability, so that the density is high where cells are small: alike
        everywhere for A y + b, and more and more in the neck of the funnel.
        """
        affine, funnels = self.affine(), funnel_change()
        whole = Change(lambda y: y, lambda x: x, lambda x: standard_normal(x).exp(), (-3, 3, -3, 3))
        left, right, bottom, top = affine.window
        shown = [
            net(whole, "$y$, normal", 3.2),
            net(affine, "$x = A y + b$", 0.2 * max(right - left, top - bottom)),
            net(funnels, "funnel", 4.5),
        ]
        return panels(*shown, columns=3)

    def tiny(self) -> Self:
        return replace(super().tiny(), samples=5000, points=150)


def grid(
    window: tuple[float, float, float, float], points: int
) -> tuple[Tensor, Tensor, Float64[Tensor, "points 2"]]:
    """The sides of a grid of so many points a side over a window, and all of its points."""
    left, right, bottom, top = window
    across = torch.linspace(left, right, points, dtype=torch.float64)
    up = torch.linspace(bottom, top, points, dtype=torch.float64)
    y, x = torch.meshgrid(up, across, indexing="ij")
    return across, up, torch.stack([x.flatten(), y.flatten()], dim=1)


def relative(found: Tensor, expected: Tensor) -> float:
    """The largest relative error."""
    return (found / expected - 1).abs().max().item()


def net(change: Change, title: str, reach: float) -> Panel:
    """The lines on which a coordinate of y is a whole number, over the density of x."""
    middle = change.forward(torch.zeros(2, dtype=torch.float64)).tolist()
    left, right, bottom, top = (at + side * reach for at in middle for side in (-1, 1))
    across, up, x = grid((left, right, bottom, top), 90)
    along, gap = torch.linspace(-3, 3, 61, dtype=torch.float64), torch.full((2, 1), math.nan)
    lines: dict[str, list[Tensor]] = {"$y_1$ whole": [], "$y_2$ whole": []}
    for k in range(-3, 4):
        still = torch.full_like(along, k)
        for y, some in zip(((still, along), (along, still)), lines.values(), strict=True):
            some += [torch.stack([change.forward(point) for point in torch.stack(y, dim=1)]).T, gap]
    curves = {}
    for name, some in lines.items():
        first, second = torch.cat(some, dim=1)
        outside = (first < left) | (first > right) | (second < bottom) | (second > top)
        curves[name] = (first.masked_fill(outside, math.nan), second.masked_fill(outside, math.nan))
    heights = (across, up, change.closed_form(x).view(len(up), len(across)))
    return Panel(curves, "$x_1$", "$x_2$", title, heights=heights, legend="none")


RECIPES = {
    "change-of-variables": ChangeOfVariables(
        goal="lognormal_error <= 1e-10 and affine_error <= 1e-10 and funnel_error <= 1e-10 "
        "and integral_error <= 1e-3 and naive_integral >= 1.6 and counted_sigmas <= 4.5",
        covers=("M6",),
    ),
}
