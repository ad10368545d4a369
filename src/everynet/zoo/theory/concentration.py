"""Concentration inequalities: how rarely a mean, or what many draws decide, is far from expected.

    P(X >= a)              <= E X / a                             (1)  Markov, X >= 0
    P(|X - E X| >= t)      <= Var X / t^2                         (2)  Chebyshev
    P(m - E m >= t)        <= exp(-2 n t^2 / (b - a)^2)           (3)  Hoeffding
    P(m - E m >= t)        <= exp(-n t^2 / (2 v + 2 c t / 3))     (4)  Bernstein
    P(m - p >= t)          <= exp(-n KL(p + t || p))              (5)  Chernoff
    P(f - E f >= t)        <= exp(-2 t^2 / sum_i c_i^2)           (6)  McDiarmid
    KL(q || p) = q log(q / p) + (1 - q) log((1 - q) / (1 - p))    (7)  of two coins
    n(eps, delta): the least n with P(|m - E m| >= eps) <= delta by two sides of a bound   (8)

m is the mean of n independent draws from [a, b] of variance v that are at most c above their
expectation; in (5) they are 0 or 1, with expectation p. f is any function of n independent draws
that the i-th alone changes by at most c_i: here the number of cells that are hit when n balls fall
into k cells, so that c_i = 1 and E f = k (1 - (1 - 1/k)^n). (3) and (6) know the range alone, (4)
the variance too, (5) the distribution: the rarer the event, the more that is worth. A bound holds
for every distribution of its class and so is far above the tail of most: (1) and (2) fall like a
power of t, the others exponentially.

Hoeffding (1963), "Probability inequalities for sums of bounded random variables", JASA 58,
doi:10.1080/01621459.1963.10500830; McDiarmid (1989), "On the method of bounded differences",
doi:10.1017/CBO9781107359949.008; Boucheron, Lugosi and Massart (2013), "Concentration
Inequalities", chapter 2, doi:10.1093/acprof:oso/9780199535255.001.0001.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.system.wording import unknown

Points = Float[Tensor, "*points"]


def markov(a: Points, mean: float) -> Points:
    """The most that P(X >= a) can be for X >= 0 of this mean."""
    return (mean / a).clamp(max=1)  # (1)


def chebyshev(t: Points, variance: float) -> Points:
    """The most that P(|X - E X| >= t) can be for X of this variance."""
    return (variance / t**2).clamp(max=1)  # (2)


def hoeffding(t: Points, n: int, low: float = 0.0, high: float = 1.0) -> Points:
    """The most that P(m - E m >= t) can be for the mean of n draws from [low, high]."""
    return (-2 * n * t**2 / (high - low) ** 2).exp()  # (3)


def bernstein(t: Points, n: int, variance: float, above: float) -> Points:
    """The same where a draw has this variance and is at most `above` its expectation."""
    return (-n * t**2 / (2 * variance + 2 * above * t / 3)).exp()  # (4)


def chernoff(t: Points, n: int, p: float) -> Points:
    """The same for draws that are 1 with probability p, else 0; p + t must be at most 1."""
    return (-n * coin_divergence(p + t, p)).exp()  # (5)


def mcdiarmid(t: Points, changes: Float[Tensor, " draws"]) -> Points:
    """The most that P(f - E f >= t) can be where draw i changes f by at most changes[i]."""
    return (-2 * t**2 / changes.square().sum()).exp()  # (6)


def coin_divergence(q: Points, p: float) -> Points:
    """KL(q || p) of coins that show heads with probability q and p."""
    return torch.xlogy(q, q / p) + torch.xlogy(1 - q, (1 - q) / (1 - p))  # (7)


BOUNDS = ("hoeffding", "chebyshev", "bernstein")
"""What `sample_size` can count by."""


def sample_size(
    eps: float,
    delta: float,
    bound: str = "hoeffding",
    *,
    low: float = 0.0,
    high: float = 1.0,
    variance: float | None = None,
) -> int:
    """So many draws from [low, high] that their mean is within eps of its expectation.

    It is so with probability 1 - delta at least. Hoeffding's bound knows the range alone; the
    others take a variance, of which (high - low)^2 / 4, the largest there is, stands for an unknown
    one.
    """
    if bound not in BOUNDS:
        raise ValueError(unknown("bound", bound, BOUNDS))
    if not (eps > 0 and 0 < delta < 1 and low < high):
        raise ValueError(
            f"eps ({eps}) must be positive, delta ({delta}) between 0 and 1 and low ({low}) below "
            f"high ({high}), because no number of draws is enough otherwise"
        )
    most = (high - low) ** 2 / 4
    variance = most if variance is None else variance
    if not 0 <= variance <= most:
        raise ValueError(
            f"variance ({variance}) must be from 0 to {most:g}, the largest within [low, high]"
        )
    needed = {
        "hoeffding": (high - low) ** 2 * math.log(2 / delta) / (2 * eps**2),
        "chebyshev": variance / (delta * eps**2),
        "bernstein": math.log(2 / delta) * (2 * variance + 2 * (high - low) * eps / 3) / eps**2,
    }[bound]
    return max(1, math.ceil(needed))  # (8)


def cells_hit(
    balls: int, cells: int, draws: int, generator: torch.Generator
) -> Float[Tensor, " draws"]:
    """How many cells at least one of the balls falls into, in each of so many draws."""
    hit = torch.zeros(draws, cells, dtype=torch.bool)
    hit.scatter_(1, torch.randint(cells, (draws, balls), generator=generator), True)
    return hit.sum(dim=1).double()


# -------- the network ends here; training and pictures follow --------

CHUNK = 100_000  # draws of balls at once, so that they stay below 100 MB
ROUNDING = 1e-9  # of a threshold: a count that equals it reaches it


@dataclass(frozen=True, kw_only=True)
class Concentration(Simulation):
    """Tails of means of coins and of cells hit by balls, beside the bounds that hold for them."""

    meanings: ClassVar[Mapping[str, str]] = {
        "excess": "how far any measured tail is above any bound at most, in standard errors",
        "*_draws": "flips of the last coin whose mean is within eps but for delta, by a bound",
        "coverage": "the least share of means that are within eps after so many draws",
    }

    coins: tuple[float, ...] = (0.5, 0.05)
    """Probabilities of heads of the coins whose means are taken."""
    n: int = 100
    """Flips in a mean."""
    balls: int = 50
    """Balls that fall into cells."""
    cells: int = 50
    """Cells for the balls."""
    draws: int = 1_000_000
    """Means of each coin, and throws of all balls."""
    points: int = 40
    """Deviations at which tails and bounds are compared."""
    eps: float = 0.05
    """Of the sample-size calculator: the deviation of a mean from its expectation."""
    delta: float = 0.05
    """Of the sample-size calculator: the probability of a larger one, at most."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(len(self.coins) >= 1, "coins", "at least one number")
        self.require(all(0 < p < 1 for p in self.coins), "coins", "numbers between 0 and 1")
        self.at_least(1, "n", "balls")
        self.at_least(2, "cells", "points")
        self.within(100, 100_000_000, "draws")
        self.require(0 < self.eps <= 1, "eps", "above 0 and at most 1: a mean of 0s and 1s")
        self.require(0 < self.delta < 1, "delta", "between 0 and 1")

    def sizes(self, p: float) -> dict[str, int]:
        """Flips of a coin that the calculator gives, by the name of the bound."""
        return {
            bound: sample_size(self.eps, self.delta, bound, variance=p * (1 - p))
            for bound in BOUNDS
        }

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        tails, both, coverage = [], [], []
        for p in self.coins:
            away, t = deviations_of_heads(self.n, p, self.draws, generator), self.deviations(p)
            tails.append(share_above(away, self.n * t))
            both.append(share_above(away.abs(), self.n * t))
            coverage.append([self.within_eps(n, p, generator) for n in self.sizes(p).values()])
        parts = [min(CHUNK, self.draws - done) for done in range(0, self.draws, CHUNK)]
        hit = torch.cat([cells_hit(self.balls, self.cells, each, generator) for each in parts])
        expected = self.cells * (1 - (1 - 1 / self.cells) ** self.balls)
        return {
            "tails": torch.stack(tails),  # coins points
            "two_sided": torch.stack(both),
            "cells": share_above(hit - expected, self.cell_deviations()),
            "coverage": torch.tensor(coverage, dtype=torch.float64),  # coins bounds
        }

    def within_eps(self, n: int, p: float, generator: torch.Generator) -> float:
        """The share of means of n flips that are within eps of p."""
        away = deviations_of_heads(n, p, self.draws // 10, generator).abs()
        return 1 - float(share_above(away, torch.tensor([n * self.eps], dtype=torch.float64)))

    def deviations(self, p: float) -> Float[Tensor, " points"]:
        """Deviations t of a mean, up to where about one of a million is left."""
        last = min(5.5 * math.sqrt(p * (1 - p) / self.n), 1 - p)
        return torch.linspace(last / self.points, last, self.points, dtype=torch.float64)

    def cell_deviations(self) -> Float[Tensor, " points"]:
        """The same for the number of cells."""
        last = min(2.7 * math.sqrt(self.balls), self.cells)
        return torch.linspace(last / self.points, last, self.points, dtype=torch.float64)

    def bounds(self, p: float) -> dict[str, Float[Tensor, " points"]]:
        """What each inequality says of the mean of a coin."""
        t, variance = self.deviations(p), p * (1 - p)
        return {
            "Markov": markov(p + t, p),
            "Chebyshev": chebyshev(t, variance / self.n),
            "Hoeffding": hoeffding(t, self.n),
            "Bernstein": bernstein(t, self.n, variance, 1 - p),
            "Chernoff": chernoff(t, self.n, p),
        }

    def cell_bound(self) -> Float[Tensor, " points"]:
        """What McDiarmid's inequality says of the number of cells."""
        changes = torch.ones(self.balls, dtype=torch.float64)
        return mcdiarmid(self.cell_deviations(), changes)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        found = [self.excess(result["cells"], self.cell_bound())]
        for row, p in enumerate(self.coins):
            for name, bound in self.bounds(p).items():
                which = "two_sided" if name == "Chebyshev" else "tails"
                found.append(self.excess(result[which][row], bound))
        sizes = self.sizes(self.coins[-1])
        return {
            "excess": max(found),
            **{f"{bound}_draws": float(n) for bound, n in sizes.items()},
            "coverage": float(result["coverage"].min()),
        }

    def excess(self, tail: Points, bound: Points) -> float:
        """How far above its bound a tail is at most, in standard errors if the bound were true."""
        error = (bound * (1 - bound) / self.draws).sqrt().clamp(min=1 / self.draws)
        return float(((tail - bound) / error).max())

    def picture_tails(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, object]]:
        """How often the mean of {n} coins is t above p, in {draws:,} draws (blue), and five bounds.

        No bound is below the tail. Hoeffding's and Chernoff's nearly agree for a fair coin; for a
        rare event those that know the variance are far lower.
        """
        drawn = []
        for row, p in enumerate(self.coins):
            t = self.deviations(p)
            curves = {"measured": _positive(t, result["tails"][row])}
            curves |= {name: (t, bound) for name, bound in self.bounds(p).items()}
            drawn.append(self._panel(curves, "deviation t of the mean", f"coins with p = {p:g}"))
        return panels(*drawn, height=3.0), {"n": self.n, "draws": self.draws}

    def picture_cells(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, object]]:
        """How often {balls} balls hit t cells more of {cells} than expected, and McDiarmid's bound.

        The bound needs no more than that a ball changes the number by at most one.
        """
        t = self.cell_deviations()
        curves = {"measured": _positive(t, result["cells"])}
        panel = self._panel(curves, "deviation t (cells)", "cells that are hit")
        drawn = panels(replace(panel, guides={"McDiarmid": (t, self.cell_bound())}))
        return drawn, {"balls": self.balls, "cells": self.cells}

    def picture_sample_size(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, object]]:
        """Flips after which a mean is within eps with probability 1 - delta, by three bounds.

        Left by eps at delta = {delta:g}, right by delta at eps = {eps:g}, for a coin with
        p = {p:g}. Chebyshev's price grows as 1 / delta, that of the others as its logarithm.
        """
        p = self.coins[-1]
        near = torch.logspace(-2, -0.5, 20, dtype=torch.float64)
        rare = torch.logspace(-6, -0.5, 20, dtype=torch.float64)

        by_eps = [replace(self, eps=eps).sizes(p) for eps in near.tolist()]
        by_delta = [replace(self, delta=delta).sizes(p) for delta in rare.tolist()]

        def curves(x: Tensor, sizes: list[dict[str, int]]) -> dict[str, tuple[Tensor, Tensor]]:
            return {b.title(): (x, torch.tensor([each[b] for each in sizes])) for b in BOUNDS}

        drawn = panels(
            Panel(
                curves(near, by_eps),
                "deviation eps",
                "flips n",
                f"delta = {self.delta:g}",
                log="xy",
            ),
            Panel(
                curves(rare, by_delta),
                "probability delta",
                "flips n",
                f"eps = {self.eps:g}",
                log="xy",
            ),
        )
        return drawn, {"eps": self.eps, "delta": self.delta, "p": p}

    def _panel(self, curves: Mapping[str, tuple[Tensor, Tensor]], x: str, title: str) -> Panel:
        """A tail and its bounds, down to what so many draws can show."""
        floor = 0.5 / self.draws
        return Panel(curves, x, "probability", title, log="y", ylim=(floor, 2.0))

    def tiny(self) -> Self:
        return replace(super().tiny(), n=20, balls=9, cells=10, draws=500, points=8)


def deviations_of_heads(
    n: int, p: float, draws: int, generator: torch.Generator
) -> Float[Tensor, " draws"]:
    """The heads among n flips of a coin less those expected, so often drawn."""
    flips, each = (torch.full((draws,), number, dtype=torch.float64) for number in (n, p))
    return torch.binomial(flips, each, generator=generator) - n * p


def share_above(
    values: Float[Tensor, " draws"], thresholds: Float[Tensor, " points"]
) -> Float[Tensor, " points"]:
    """The share of values that reach each threshold."""
    below = torch.searchsorted(values.sort().values, thresholds - ROUNDING)
    return 1 - below.double() / len(values)


def _positive(t: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
    """The points of a tail that a logarithmic axis can show."""
    return t[tail > 0], tail[tail > 0]


RECIPES = {
    "concentration": Concentration(goal="excess <= 4 and coverage >= 0.95", covers=("Y2",)),
}
