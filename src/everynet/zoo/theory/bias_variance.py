"""Bias and variance: two ways to be wrong, of an estimator and of a model.

    bias(t)  = E[t] - theta                                       (1)  of an estimator t of theta
    MSE(t)   = E[(t - theta)^2] = bias(t)^2 + Var(t)              (2)
    E[s^2]   = sigma^2 (m - 1) / d,  s^2 = sum (x - x_bar)^2 / d  (3)  bias 0 for d = m - 1
    b(x)^2   = (E_D[f_D(x)] - h(x))^2                             (4)  bias^2 of a model at x
    v(x)     = E_D[(f_D(x) - E_D[f_D(x)])^2]                      (5)  its variance
    E[(y - f_D(x))^2] = sigma^2 + E_x[b(x)^2] + E_x[v(x)]         (6)  test error

Expectations are over samples: m of them in (3), a training set D in (4) to (6), where y = h(x) +
noise of variance sigma^2 is a sample that is not in D, and f_D the model that was fitted to D. With
d = m, (3) is the estimate of maximum likelihood, too small by the factor (m - 1) / m; d = m + 1 is
still more biased and yet has the least MSE if x is normal. A stiff model has a large bias and
underfits, one of much capacity a large variance and overfits.

Geman, Bienenstock, Doursat (1992), "Neural networks and the bias/variance dilemma",
doi:10.1162/neco.1992.4.1.1; Goodfellow et al. (2016), "Deep Learning", section 5.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float64
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.plot.style import CONTRAST, OURS
from everynet.recipes.recipe import Simulation
from everynet.zoo.theory.capacity import END, fit_polynomial, legendre, noisy_sin


def estimator_bias(estimates: Float64[Tensor, " trials"], theta: float) -> Float64[Tensor, ""]:
    """How far an estimator is off on average."""
    return estimates.mean() - theta  # (1)


def mean_squared_error(estimates: Float64[Tensor, " trials"], theta: float) -> Float64[Tensor, ""]:
    """How far it is off, squared and then averaged."""
    return (estimates - theta).square().mean()


def bias_and_variance(estimates: Float64[Tensor, " trials"], theta: float) -> Float64[Tensor, ""]:
    """The same from its two parts."""
    return estimator_bias(estimates, theta) ** 2 + estimates.var(correction=0)  # (2)


def expected_spread(sigma: float, m: int, divisor: int) -> float:
    """What an estimate of the variance from m samples is on average."""
    return sigma**2 * (m - 1) / divisor  # (3)


class Decomposition(NamedTuple):
    """The parts of the test error at each place."""

    bias_squared: Float64[Tensor, " places"]
    variance: Float64[Tensor, " places"]

    def test_error(self, sigma: float) -> Float64[Tensor, ""]:
        return sigma**2 + self.bias_squared.mean() + self.variance.mean()  # (6)


def decompose_error(
    predictions: Float64[Tensor, "sets places"], truth: Float64[Tensor, " places"]
) -> Decomposition:
    """Bias and variance of a model from what it predicts after training on many sets."""
    mean = predictions.mean(dim=0)
    return Decomposition(
        (mean - truth).square(),  # (4)
        (predictions - mean).square().mean(dim=0),  # (5)
    )


# -------- the network ends here; training and pictures follow --------


DIVISORS = {"m - 1 (no bias)": -1, "m (likelihood)": 0, "m + 1 (least MSE)": 1}
"""What is added to m in the divisor of an estimate of a variance."""


@dataclass(frozen=True, kw_only=True)
class BiasVariance(Simulation):
    """Estimate a variance from few samples, and fit polynomials to bootstrap samples."""

    meanings: ClassVar[Mapping[str, str]] = {
        "identity_error": "largest distance of an MSE from squared bias plus variance; rounding",
        "bias_sigmas": "largest distance of a mean estimate from its formula, in standard errors",
        "shrinkage": "mean estimate with divisor m over the true variance, at the fewest samples",
        "sum_error": "largest relative distance of test errors from noise, bias and variance",
        "best_degree": "degree with the least test error",
        "stiff_share": "bias as a part of bias and variance at the lowest degree",
        "flexible_share": "variance as a part of bias and variance at the highest degree",
    }

    samples: tuple[int, ...] = (3, 5, 10, 20, 50)
    """Numbers m of samples that a variance is estimated from."""
    trials: int = 100_000
    """Estimates of each."""
    degrees: int = 10
    """The highest degree of a polynomial."""
    rows: int = 50
    """Training samples, drawn with replacement from the pool."""
    pool: int = 2000
    """Samples of noisy sin that bootstrap samples are drawn from."""
    sets: int = 300
    """Bootstrap samples that each polynomial is fitted to."""
    sigma: float = 0.3
    """Standard deviation of the noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        some = len(self.samples) >= 1 and min(self.samples, default=0) >= 2
        self.require(some, "samples", "one number or more, each at least 2")
        self.within(2, 30, "degrees")
        self.require(self.rows > self.degrees, "rows", lambda: f"above degrees ({self.degrees})")
        self.at_least(2, "trials", "sets")
        self.at_least(100, "pool")
        self.above(0, "sigma")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        estimates = torch.stack([self.estimate(m, generator) for m in self.samples])
        return {"estimates": estimates, **self.fits(generator)}

    def estimate(self, m: int, generator: torch.Generator) -> Float64[Tensor, "divisors trials"]:
        """The variance of normal samples with deviation 1, by each divisor."""
        x = torch.randn(self.trials, m, generator=generator, dtype=torch.float64)
        squares = (x - x.mean(dim=1, keepdim=True)).square().sum(dim=1)
        return torch.stack([squares / (m + more) for more in DIVISORS.values()])

    def fits(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Predictions by each degree after each bootstrap sample, and the test error counted."""
        x, y = noisy_sin(self.pool, self.sigma, generator)
        at = END * (torch.arange(400, dtype=torch.float64) + 0.5) / 400
        chosen = torch.randint(self.pool, (self.sets, self.rows), generator=generator)
        noise = torch.randn(self.sets, len(at), generator=generator, dtype=torch.float64)
        fresh, predictions = at.sin() + self.sigma * noise, []
        for degree in range(1, self.degrees + 1):
            weights = [fit_polynomial(x[rows], y[rows], degree) for rows in chosen]
            predictions.append(torch.stack(weights) @ legendre(at, degree).T)
        made = torch.stack(predictions)
        return {"at": at, "predictions": made, "errors": (made - fresh).square().mean(dim=(1, 2))}

    def parts(self, result: Mapping[str, Tensor]) -> Float64[Tensor, "degrees 3"]:
        """For each degree the squared bias, the variance and the test error they sum to."""
        truth, rows = result["at"].sin(), []
        for predictions in result["predictions"]:
            found = decompose_error(predictions, truth)
            total = found.test_error(self.sigma)
            rows.append(torch.stack([found.bias_squared.mean(), found.variance.mean(), total]))
        return torch.stack(rows)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        identity, apart = [], []
        for m, by_divisor in zip(self.samples, result["estimates"], strict=True):
            for more, estimates in zip(DIVISORS.values(), by_divisor, strict=True):
                mse = mean_squared_error(estimates, 1.0)
                identity.append(abs(float(mse - bias_and_variance(estimates, 1.0))))
                error = estimates.std() / len(estimates) ** 0.5
                expected = expected_spread(1.0, m, m + more)
                apart.append(abs(float((estimates.mean() - expected) / error)))
        bias, variance, total = self.parts(result).unbind(1)
        return {
            "identity_error": max(identity),
            "bias_sigmas": max(apart),
            "shrinkage": result["estimates"][0, 1].mean().item(),
            "sum_error": (result["errors"] / total - 1).abs().max().item(),
            "best_degree": float(result["errors"].argmin() + 1),
            "stiff_share": (bias[0] / (bias[0] + variance[0])).item(),
            "flexible_share": (variance[-1] / (bias[-1] + variance[-1])).item(),
        }

    def picture_models(self, result: Mapping[str, Tensor]) -> Figure:
        """Polynomials of three degrees after different training sets, with sin dashed.

        Their mean (orange) misses sin at the lowest degree: bias. They differ from each other at
        the highest one: variance.
        """
        at, best = result["at"], int(result["errors"].argmin()) + 1
        shown = []
        for degree in (1, best, self.degrees):
            predictions = result["predictions"][degree - 1]
            curves = {"mean of all": (at, predictions.mean(dim=0))}
            curves |= {f"set {i}": (at, row) for i, row in enumerate(predictions[:12])}
            panel = Panel(
                curves,
                guides={"sin": (at, at.sin())},
                xlabel="x",
                ylabel="f(x)",
                title=f"degree {degree}",
                ylim=(-2.0, 2.0),
                legend="none",
            )
            shown.append(panel)
        made = panels(*shown, columns=3)
        for axes in made.axes:
            mean, *single = axes.lines[:-1]
            mean.set(color=CONTRAST, linewidth=2)
            for line in single:
                line.set(color=OURS, linewidth=0.6, alpha=0.6)
        return made

    def picture_parts(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """The test error by degree with its parts (left), and estimates of a variance (right).

        Noise, squared bias and variance sum to the test error within {error:.1%}; capacity trades
        one for the other. The divisor m makes estimates too small, the more the fewer samples.
        """
        bias, variance, total = self.parts(result).unbind(1)
        degrees, m = torch.arange(1, self.degrees + 1), torch.tensor(self.samples)
        means = result["estimates"].mean(dim=2).unbind(1)
        predicted = [
            torch.tensor([expected_spread(1.0, k, k + more) for k in self.samples])
            for more in DIVISORS.values()
        ]
        made = panels(
            Panel(
                {
                    "test error": (degrees, result["errors"]),
                    "squared bias": (degrees, bias),
                    "variance": (degrees, variance),
                },
                guides={"sum with the noise": (degrees, total)},
                xlabel="degree of the polynomial",
                ylabel="mean squared error",
                title=f"{self.sets} bootstrap samples",
                levels={"noise": self.sigma**2},
                log="y",
                legend="below",
            ),
            Panel(
                {name: (m, mean) for name, mean in zip(DIVISORS, means, strict=True)},
                guides={name: (m, mean) for name, mean in zip(DIVISORS, predicted, strict=True)},
                xlabel="samples m",
                ylabel="mean estimate / variance",
                title="estimates of a variance by divisor",
                log="x",
                legend="below",
            ),
        )
        return made, {"error": self.metrics(result)["sum_error"]}

    def tiny(self) -> Self:
        return replace(self, trials=100, sets=5, pool=200)


RECIPES = {
    "bias-variance": BiasVariance(
        goal="identity_error <= 1e-10 and bias_sigmas <= 4.5 and sum_error <= 0.02 "
        "and stiff_share > 0.9 and flexible_share > 0.9",
        covers=("M14",),
    ),
}
