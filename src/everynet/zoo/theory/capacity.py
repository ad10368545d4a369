"""Capacity: what a model can fit, and how far from the training samples that still holds.

    y       = sin(x) + noise,  noise ~ N(0, sigma^2)            (1)  where samples come from
    f(x)    = sum_k w_k P_k(x),  k = 0..d                       (2)  a polynomial of degree d
    J       = (1 / n) sum_i (f(x_i) - y_i)^2                    (3)  least for w on training samples
    E       = E_x[(f(x) - sin(x))^2] + sigma^2                  (4)  of f on samples never seen
    e(t)    = (1 - Phi(t + D / 2) + Phi(t - D / 2)) / 2         (5)  of two Gaussians cut at t
    e*      = min_t e(t) = e(0) = Phi(-D / 2)                   (6)  Bayes error

P_k are Legendre polynomials, nearly orthogonal where powers of x are nearly alike. The training
error J can only fall with the degree d, which is the capacity; the test error (4) falls while the
model is too stiff (underfitting) and rises when it follows the noise (overfitting). No model is
below sigma^2: that part of (4) is left to who knows sin. Likewise of two classes, normal with
deviation 1 and means -D / 2 and D / 2: (5) is the share of mistakes of a threshold t, and no
classifier makes fewer than (6). The best threshold for n samples is fitted to their noise, so that
its errors on them are fewer than e*, and on all others more.

Vapnik (1995), "The nature of statistical learning theory", doi:10.1007/978-1-4757-2440-0;
Goodfellow et al. (2016), "Deep Learning", section 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float64, Int64
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation

END = 8.0
"""Samples lie between 0 and here, where sin has no symmetry that half of all degrees miss."""


def noisy_sin(
    rows: int, sigma: float, generator: torch.Generator
) -> tuple[Float64[Tensor, " rows"], Float64[Tensor, " rows"]]:
    """Samples, one at a random place in each of as many equal parts of [0, END]."""
    place = torch.arange(rows) + torch.rand(rows, generator=generator, dtype=torch.float64)
    x = END * place / rows
    noise = torch.randn(rows, generator=generator, dtype=torch.float64)
    return x, x.sin() + sigma * noise  # (1)


def legendre(x: Float64[Tensor, " rows"], degree: int) -> Float64[Tensor, "rows terms"]:
    """P_0 .. P_d on [0, END], by Bonnet's recursion."""
    z = 2 * x / END - 1
    terms = [torch.ones_like(z), z]
    for k in range(1, degree):
        terms.append(((2 * k + 1) * z * terms[k] - k * terms[k - 1]) / (k + 1))
    return torch.stack(terms[: degree + 1], dim=1)


def fit_polynomial(
    x: Float64[Tensor, " rows"], y: Float64[Tensor, " rows"], degree: int
) -> Float64[Tensor, " terms"]:
    """The weights of least squared error."""
    weights: Tensor = torch.linalg.lstsq(legendre(x, degree), y[:, None], driver="gelsd").solution
    return weights[:, 0]


def polynomial(
    w: Float64[Tensor, " terms"], x: Float64[Tensor, " rows"]
) -> Float64[Tensor, " rows"]:
    """Its value at each place."""
    return legendre(x, len(w) - 1) @ w  # (2)


def training_error(
    w: Float64[Tensor, " terms"], x: Float64[Tensor, " rows"], y: Float64[Tensor, " rows"]
) -> Float64[Tensor, ""]:
    """The mean squared error on the samples it was fitted to."""
    return (polynomial(w, x) - y).square().mean()  # (3)


def expected_error(w: Float64[Tensor, " terms"], sigma: float) -> Float64[Tensor, ""]:
    """The expected squared error on a new sample, by the midpoint rule over x."""
    x = END * (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    return (polynomial(w, x) - x.sin()).square().mean() + sigma**2  # (4)


def threshold_error(t: Float64[Tensor, "*shape"], distance: float) -> Float64[Tensor, "*shape"]:
    """The share of mistakes of who says 1 above t, of two equally frequent classes."""
    missed: Tensor = torch.special.ndtr(t - distance / 2)
    false_alarms: Tensor = 1 - torch.special.ndtr(t + distance / 2)
    return (false_alarms + missed) / 2  # (5)


def bayes_error(distance: float) -> float:
    """The least share of mistakes that any classifier makes."""
    return float(torch.special.ndtr(torch.tensor(-distance / 2, dtype=torch.float64)))  # (6)


def best_threshold(
    x: Float64[Tensor, " rows"], labels: Int64[Tensor, " rows"]
) -> tuple[float, float]:
    """The threshold with the fewest mistakes on these samples, and their share."""
    values, order = x.sort()
    above = labels[order].double()
    mistakes = torch.cat([torch.zeros(1).double(), (2 * above - 1).cumsum(0)]) + (1 - above).sum()
    cut = int(mistakes.argmin())  # so many samples lie below it
    middle = values[max(cut - 1, 0) : cut + 1].mean()
    return float(middle), float(mistakes[cut]) / len(x)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class PolynomialCapacity(Simulation):
    """Fit polynomials of every degree to noisy samples, and cut two classes by a threshold."""

    meanings: ClassVar[Mapping[str, str]] = {
        "training_rises": "degrees at which the training error rose, over all sets; 0 predicted",
        "turns": "how often the mean test error turns from falling to rising or back; U has 1",
        "best_degree": "degree with the least mean test error",
        "underfit_ratio": "mean test error of degree 1 over the least",
        "overfit_ratio": "mean test error of the highest degree over the least",
        "least_excess": "least mean test error less the variance of the noise",
        "bayes_gap": "relative distance of the fewest mistakes from the Bayes error",
        "bayes_error": "share of mistakes that no classifier is below",
    }

    degrees: int = 15
    """The highest degree."""
    rows: int = 30
    """Training samples in each set."""
    sigma: float = 0.3
    """Standard deviation of the noise."""
    sets: int = 100
    """Training sets that errors are averaged over."""
    distance: float = 2.0
    """D: between the means of two classes whose standard deviation is 1."""
    samples: int = 4_000_000
    """Samples of both classes that the last threshold is fitted to."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.within(3, 40, "degrees")
        self.require(self.rows > self.degrees, "rows", lambda: f"above degrees ({self.degrees})")
        self.above(0, "sigma", "distance")
        self.at_least(1, "sets")
        self.at_least(1000, "samples")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        drawn = [noisy_sin(self.rows, self.sigma, generator) for _ in range(self.sets)]
        training, test = [], []
        for x, y in drawn:
            fits = [fit_polynomial(x, y, degree) for degree in range(1, self.degrees + 1)]
            training.append(torch.stack([training_error(w, x, y) for w in fits]))
            test.append(torch.stack([expected_error(w, self.sigma) for w in fits]))
        return {
            "x": drawn[0][0],
            "y": drawn[0][1],
            "training": torch.stack(training),
            "test": torch.stack(test),
            **self.thresholds(generator),
        }

    def thresholds(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Mistakes of the best threshold on its own samples and on all others, by their number."""
        sizes, rows = [*(10**k for k in range(1, 6) if 10**k < self.samples), self.samples], []
        for size in sizes:
            trials = [self.cut(size, generator) for _ in range(20 if size <= 10_000 else 1)]
            rows.append(torch.tensor(trials, dtype=torch.float64).mean(dim=0))
        own, others = torch.stack(rows).unbind(1)
        return {"sizes": torch.tensor(sizes), "own": own, "others": others}

    def cut(self, size: int, generator: torch.Generator) -> tuple[float, float]:
        labels = torch.randint(2, (size,), generator=generator)
        x = torch.randn(size, generator=generator, dtype=torch.float64)
        t, share = best_threshold(x + self.distance * (labels - 0.5), labels)
        return share, float(threshold_error(torch.tensor(t, dtype=torch.float64), self.distance))

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        test, least = result["test"].mean(dim=0), bayes_error(self.distance)
        rises = result["training"].diff(dim=1) > 1e-12
        return {
            "training_rises": float(rises.sum()),
            "turns": float((test.diff().sign().diff() != 0).sum()),
            "best_degree": float(test.argmin() + 1),
            "underfit_ratio": (test[0] / test.min()).item(),
            "overfit_ratio": (test[-1] / test.min()).item(),
            "least_excess": test.min().item() - self.sigma**2,
            "bayes_gap": abs(result["own"][-1].item() / least - 1),
            "bayes_error": least,
        }

    def picture_errors(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Training and test error by degree (left), and mistakes by number of samples (right).

        More capacity always lowers the training error; the test error is least at degree {best}.
        Neither test curve passes below its floor, the noise or the Bayes error {bayes:.4f}.
        """
        degrees, sizes = torch.arange(1, self.degrees + 1), result["sizes"]
        made = panels(
            Panel(
                {
                    "training samples": (degrees, result["training"].mean(0)),
                    "samples never seen": (degrees, result["test"].mean(0)),
                },
                xlabel="degree of the polynomial",
                ylabel="mean squared error",
                title="noisy sin",
                levels={"variance of the noise": self.sigma**2},
                log="y",
            ),
            Panel(
                {
                    "training samples": (sizes, result["own"]),
                    "samples never seen": (sizes, result["others"]),
                },
                xlabel="training samples",
                ylabel="share of mistakes",
                title="two Gaussians, best threshold",
                levels={"Bayes error": bayes_error(self.distance)},
                log="x",
            ),
        )
        best = int(result["test"].mean(dim=0).argmin()) + 1
        return made, {"best": best, "bayes": bayes_error(self.distance)}

    def picture_fits(self, result: Mapping[str, Tensor]) -> Figure:
        """One training set (points) and the polynomials of three degrees, with sin dashed.

        The straight line is too stiff, the one of least mean test error follows sin, and the
        highest degree follows the noise.
        """
        x, y = result["x"], result["y"]
        at = torch.linspace(0, END, 400, dtype=torch.float64)
        best = int(result["test"].mean(dim=0).argmin()) + 1
        shown = [
            Panel(
                {
                    "polynomial": (at, polynomial(fit_polynomial(x, y, degree), at)),
                    "training samples": (x, y),
                },
                guides={"sin": (at, at.sin())},
                xlabel="x",
                ylabel="y",
                title=f"degree {degree}",
                ylim=(-2.0, 2.0),
                legend="none",
            )
            for degree in (1, best, self.degrees)
        ]
        made = panels(*shown, columns=3)
        for axes in made.axes:  # samples are points, not a way
            axes.lines[1].set(linestyle="none", marker="o", markersize=3)
        return made

    def tiny(self) -> Self:
        return replace(super().tiny(), sets=3, samples=2000)


RECIPES = {
    "capacity": PolynomialCapacity(
        goal="training_rises == 0 and turns == 1 and underfit_ratio >= 2 and overfit_ratio >= 2 "
        "and bayes_gap <= 0.005",
        covers=("M12",),
    ),
}
