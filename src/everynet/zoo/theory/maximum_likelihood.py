"""Maximum likelihood: the parameters under which the data are least surprising.

    theta_ML = argmax_theta L,  L = (1 / m) sum_i log p(x_i; theta)     (1)
    L(theta) = -H(s) - KL(s | p_theta)                                  (2)  s: shares of the data
    mean     = x_bar,  var = (1 / m) sum_i (x_i - x_bar)^2              (3)  Gaussian
    theta    = x_bar                                                    (4)  Bernoulli
    rate     = 1 / x_bar                                                (5)  exponential
    sum_i log p(y_i | x_i; w) = -m log sigma - (m / 2) log(2 pi)
        - sum_i (w^T x_i - y_i)^2 / (2 sigma^2)                         (6)  linear regression
    theta <- theta - t (d^2 L / d theta^2)^-1 dL / d theta              (7)  Newton's method

By (2) who maximises the likelihood minimises the divergence of the model from the data. (3) to (5)
are the maxima in closed form, which (7) finds without knowing them. Of (6) only the last term
depends on w, so that whatever sigma is, w is that of least squares. t is 1, 1/2, 1/4, .. until L
rises; where the curvature is not that of a maximum, the step goes up the gradient. Newton's
parameters are log var, log rate and the logit of theta: any number is a valid one.

Fisher (1922), "On the mathematical foundations of theoretical statistics",
doi:10.1098/rsta.1922.0009; Goodfellow et al. (2016), "Deep Learning", section 5.5.
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
from everynet.zoo.theory.divergence import entropy, kl_divergence

Samples = Float64[Tensor, " samples"]
Parameters = Float64[Tensor, " parameters"]
LogDensity = Callable[[Tensor, Tensor], Tensor]
"""From samples and parameters to the log density of each sample."""


def gaussian(x: Tensor, theta: Parameters) -> Tensor:
    """Mean and log variance."""
    mean, log_var = theta[0], theta[1]
    return -((x - mean).square() / log_var.exp() + log_var + math.log(2 * math.pi)) / 2


def bernoulli(x: Tensor, theta: Parameters) -> Tensor:
    """The logit of the probability of 1."""
    return x * theta[0] - torch.nn.functional.softplus(theta[0])


def exponential(x: Tensor, theta: Parameters) -> Tensor:
    """The logarithm of the rate."""
    return theta[0] - theta[0].exp() * x


def mean_log_likelihood(
    log_density: LogDensity, x: Samples, theta: Parameters
) -> Float64[Tensor, ""]:
    """How little the data surprise on average."""
    return log_density(x, theta).mean()  # (1)


def likelihood_from_divergence(
    shares: Float64[Tensor, " outcomes"], p: Float64[Tensor, " outcomes"]
) -> Float64[Tensor, ""]:
    """The same for outcomes that were counted."""
    return -entropy(shares) - kl_divergence(shares, p)  # (2)


def fit_gaussian(x: Samples) -> tuple[float, float]:
    """Mean and variance."""
    mean = x.mean()
    return mean.item(), (x - mean).square().mean().item()  # (3)


def fit_bernoulli(x: Samples) -> float:
    """The probability of 1."""
    return x.mean().item()  # (4)


def fit_exponential(x: Samples) -> float:
    """The rate."""
    return 1 / x.mean().item()  # (5)


def regression_log_likelihood(
    w: Parameters,
    x: Float64[Tensor, "samples parameters"],
    y: Samples,
    sigma: float,
) -> Float64[Tensor, ""]:
    """The log likelihood of targets around a linear function of the inputs."""
    squares = (x @ w - y).square().sum()
    constant = len(y) * (math.log(sigma) + math.log(2 * math.pi) / 2)
    return -constant - squares / (2 * sigma**2)  # (6)


def maximise(
    objective: Callable[[Tensor], Tensor], start: Parameters, steps: int = 50
) -> Float64[Tensor, "iterates parameters"]:
    """The start and the iterates of Newton's method, until no step gains more than rounding."""
    gradient = torch.func.grad(objective)
    curvature = torch.func.jacrev(gradient)
    path = [start]
    for _ in range(steps):
        theta = path[-1]
        g, hessian = gradient(theta), curvature(theta)
        peak = bool(torch.linalg.eigvalsh(hessian)[-1] < 0)
        step = torch.linalg.solve(hessian, -g) if peak else g
        size, here = 1.0, objective(theta)
        while not objective(theta + size * step) >= here and size > 1e-10:
            size /= 2
        path.append(theta + size * step)  # (7)
        if step.norm() <= 1e-12 * (1 + theta.norm()):
            break
    return torch.stack(path)


# -------- the network ends here; training and pictures follow --------


class Family(NamedTuple):
    """A density with its name, where Newton's method starts, and samples of it."""

    log_density: LogDensity
    start: tuple[float, ...]
    sample: Callable[[int, torch.Generator], Tensor]


def normal(count: int, generator: torch.Generator) -> Tensor:
    """Samples of N(0, 1)."""
    return torch.randn(count, generator=generator, dtype=torch.float64)


def uniform(count: int, generator: torch.Generator) -> Tensor:
    """Samples between 0 and 1."""
    return torch.rand(count, generator=generator, dtype=torch.float64)


FAMILIES = {
    "gaussian": Family(gaussian, (0.0, 2.0), lambda n, g: 1.5 + 0.7 * normal(n, g)),
    "bernoulli": Family(bernoulli, (0.0,), lambda n, g: (uniform(n, g) < 0.3).double()),
    "exponential": Family(exponential, (2.0,), lambda n, g: -(1 - uniform(n, g)).log() / 1.7),
}
"""Samples have mean 1.5 and deviation 0.7; probability 0.3; rate 1.7."""


@dataclass(frozen=True, kw_only=True)
class MaximumLikelihood(Simulation):
    """Climb likelihoods by Newton's method, and compare the tops with their closed forms."""

    meanings: ClassVar[Mapping[str, str]] = {
        "gaussian_error": "distance of mean and variance found by Newton's method from (3)",
        "bernoulli_error": "distance of the probability found from the mean of the samples",
        "exponential_error": "distance of the rate found from one over the mean of the samples",
        "regression_error": "largest distance of weights of most likelihood from least squares",
        "divergence_error": "largest distance of mean log-likelihoods from -H - KL, on a grid",
        "tops_apart": "places on the grid between most likelihood, least KL and least squares",
    }

    samples: int = 200
    """Samples of each density, and of the regression."""
    features: int = 4
    """Inputs of the regression."""
    sigma: float = 0.5
    """Standard deviation of its noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(20, "samples")
        self.within(1, 15, "features")
        self.above(0, "sigma")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        result: dict[str, Tensor] = {}
        for name, family in FAMILIES.items():
            x = family.sample(self.samples, generator)
            result[f"{name}.x"], result[f"{name}.path"] = x, self.climb(family, x)
        x = normal(self.samples * self.features, generator).view(self.samples, self.features)
        w = normal(self.features, generator)
        y = x @ w + self.sigma * normal(self.samples, generator)
        path = maximise(
            lambda v: regression_log_likelihood(v, x, y, self.sigma) / len(y), torch.zeros_like(w)
        )
        return {**result, "regression.x": x, "regression.y": y, "regression.path": path}

    def climb(self, family: Family, x: Samples) -> Float64[Tensor, "iterates parameters"]:
        start = torch.tensor(family.start, dtype=torch.float64)
        return maximise(lambda theta: mean_log_likelihood(family.log_density, x, theta), start)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        mean, log_var = result["gaussian.path"][-1].tolist()
        true_mean, true_var = fit_gaussian(result["gaussian.x"])
        probability = result["bernoulli.path"][-1, 0].sigmoid().item()
        rate = result["exponential.path"][-1, 0].exp().item()
        least = torch.linalg.pinv(result["regression.x"]) @ result["regression.y"]
        _, likelihood, divergence = self.coins(result)
        _, climbs, errors = self.slopes(result)
        shares = self.shares(result)
        apart = (likelihood.argmax() - divergence.argmin()).abs() + (
            climbs.argmax() - errors.argmin()
        ).abs()
        return {
            "gaussian_error": max(abs(mean - true_mean), abs(math.exp(log_var) - true_var)),
            "bernoulli_error": abs(probability - fit_bernoulli(result["bernoulli.x"])),
            "exponential_error": abs(rate - fit_exponential(result["exponential.x"])),
            "regression_error": (result["regression.path"][-1] - least).abs().max().item(),
            "divergence_error": (likelihood + divergence + entropy(shares)).abs().max().item(),
            "tops_apart": float(apart),
        }

    def shares(self, result: Mapping[str, Tensor]) -> Float64[Tensor, " 2"]:
        """The shares of 0 and 1 among the Bernoulli samples."""
        ones = result["bernoulli.x"].mean()
        return torch.stack([1 - ones, ones])

    def coins(self, result: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Probabilities of 1 with the mean log-likelihood and the divergence of each."""
        theta, x = torch.linspace(0.02, 0.98, 97, dtype=torch.float64), result["bernoulli.x"]
        likelihood = [mean_log_likelihood(bernoulli, x, t.logit()[None]) for t in theta]
        p = torch.stack([1 - theta, theta], dim=1)
        divergence = kl_divergence(self.shares(result).expand_as(p), p)
        return theta, torch.stack(likelihood), divergence

    def slopes(self, result: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """First weights around the best one, with log-likelihood and mean squared error of each."""
        x, y, best = result["regression.x"], result["regression.y"], result["regression.path"][-1]
        offsets = torch.linspace(-1, 1, 101, dtype=torch.float64)
        weights = best + offsets[:, None] * torch.eye(len(best)).double()[0]
        likelihood = [regression_log_likelihood(w, x, y, self.sigma) for w in weights]
        squares = (weights @ x.T - y).square().mean(dim=1)
        return weights[:, 0], torch.stack(likelihood), squares

    def picture_tops(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Likelihood and what mirrors it: the divergence of a coin, the squares of a regression.

        The top of one is the bottom of the other: at {coin:.3f}, the share of ones, and at the
        weight {weight:.3f} of least squares.
        """
        theta, likelihood, divergence = self.coins(result)
        weight, climb, squares = self.slopes(result)
        ones, best = float(self.shares(result)[1]), float(result["regression.path"][-1, 0])
        made = panels(
            Panel(
                {
                    "mean log-likelihood": (theta, likelihood),
                    "divergence KL(s | p)": (theta, divergence),
                },
                xlabel="probability of 1",
                ylabel="nats",
                title="Bernoulli samples",
                marks={"share of ones": ones},
                ylim=(-2.5, 2.0),
                legend="below",
            ),
            Panel(
                {
                    "mean log-likelihood": (weight, climb / self.samples),
                    "mean squared error": (weight, squares),
                },
                xlabel="first weight",
                ylabel="nats, or squares of y",
                title="linear regression",
                marks={"least squares": best},
                legend="below",
            ),
        )
        return made, {"coin": ones, "weight": best}

    def picture_climb(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Newton's way to the top of a Gaussian's likelihood, and the density found (right).

        The landscape is the mean log-likelihood, red above its value at the start; after {steps}
        steps mean and variance are those in closed form.
        """
        x, path = result["gaussian.x"], result["gaussian.path"]
        mean, log_var = path[-1].tolist()
        across = torch.linspace(mean - 2.2, mean + 2.2, 80, dtype=torch.float64)
        up = torch.linspace(log_var - 1.2, log_var + 3.2, 80, dtype=torch.float64)
        grid = torch.cartesian_prod(up, across).flip(1)
        heights = torch.stack([mean_log_likelihood(gaussian, x, theta) for theta in grid])
        start = mean_log_likelihood(gaussian, x, path[0])
        heights = (heights - start).clamp(min=-3).view(80, 80)
        at = torch.linspace(x.min().item() - 0.5, x.max().item() + 0.5, 200, dtype=torch.float64)
        edges = torch.linspace(x.min().item(), x.max().item(), 15, dtype=torch.float64)
        counts = torch.histogram(x, edges)
        made = panels(
            Panel(
                {"Newton's method": (path[:, 0], path[:, 1])},
                xlabel="mean",
                ylabel="log variance",
                title=f"likelihood of {len(x)} samples",
                heights=(across, up, heights),
                legend="none",
            ),
            Panel(
                {
                    "density of most likelihood": (at, gaussian(at, path[-1]).exp()),
                    "samples, counted": (
                        (edges[1:] + edges[:-1]) / 2,
                        counts.hist / len(x) / edges.diff(),
                    ),
                },
                xlabel="x",
                ylabel="density",
                title="Gaussian samples",
                legend="below",
            ),
        )
        return made, {"steps": len(path) - 1}

    def tiny(self) -> Self:
        return replace(super().tiny(), samples=30, features=2)


RECIPES = {
    "maximum-likelihood": MaximumLikelihood(
        goal="gaussian_error <= 1e-8 and bernoulli_error <= 1e-8 and exponential_error <= 1e-8 "
        "and regression_error <= 1e-8 and divergence_error <= 1e-10 and tops_apart == 0",
        covers=("M17",),
    ),
}
