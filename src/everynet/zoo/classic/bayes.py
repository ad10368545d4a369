"""Bayesian estimation: a distribution over parameters, and predictions that average over it.

    p(theta|D) = p(D|theta) p(theta) / p(D)                              posterior
    p(x|D)     = integral of p(x|theta) p(theta|D) over theta            prediction

A coin with the prior Beta(a, b) that shows h heads and t tails:

    theta|D ~ Beta(a_n, b_n),   a_n = a + h,   b_n = b + t               (1)  posterior
    p(head|D)   = a_n / (a_n + b_n)                                      (2)  the next flip
    p(k of m|D) = C(m, k) B(a_n + k, b_n + m - k) / B(a_n, b_n)          (3)  k heads of m flips

A line y = b + w x + e, e ~ N(0, 1/beta), with the prior w ~ N(0, I / alpha) and none on b:

    A     = alpha I + beta X^T X,   m = beta A^-1 X^T y                  (4)  w|D ~ N(m, A^-1)
    y|x,D ~ N(b + m x, 1/beta + 1/(n beta) + x^T A^-1 x)                 (5)  prediction
    alpha = gamma / |m|^2,   gamma = d - alpha tr A^-1                   (6)  prior, by the evidence
    beta  = (n - 1 - gamma) / |y - X m|^2                                (7)  noise, by the evidence
    log p(y|X) = 1/2 [d log alpha + (n-1) log(beta / 2 pi) - log|A|
                 - beta |y - X m|^2 - alpha |m|^2]                       (8)  log evidence

Here posterior and prediction have closed forms. B is the beta function; X and y are centred, and
the n rows have d columns. m is the mode of the posterior (MAP) and so the ridge regression with the
penalty alpha / beta. A plug-in prediction takes one theta for certain: its variance, 1/beta, is too
small by what (5) adds. (6) and (7) hold where (8) is largest; they are repeated until they do.

Bayes (1763), "An Essay towards solving a Problem in the Doctrine of Chances",
doi:10.1098/rstl.1763.0053; MacKay (1992), "Bayesian Interpolation",
doi:10.1162/neco.1992.4.3.415; Bishop (2006), "Pattern Recognition and Machine Learning", section 3.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from scipy import stats
from sklearn.base import BaseEstimator, DensityMixin, RegressorMixin
from sklearn.utils import Tags
from torch import Tensor

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec
from everynet.metrics import regressed, summarise_outputs
from everynet.metrics.meanings import NUMBERS, meanings
from everynet.nn.estimator import (
    Array,
    Caller,
    Learned,
    check_learned,
    inputs,
    regression,
    unsupervised,
)
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Fitting
from everynet.recipes.tabular import Tabular
from everynet.system.errors import UserError
from everynet.system.seeds import generator as seeded
from everynet.zoo.classic.pictures.posterior import intervals, lines
from everynet.zoo.classic.rows import load_rows


class BetaBernoulli(DensityMixin, BaseEstimator):
    """Learns `alpha_` and `beta_` of each column of zeros and ones: a coin, a row a flip.

    `binarize` turns numbers above it into 1 and others into 0; without it others are refused.
    """

    alpha_: Array
    beta_: Array

    def __init__(
        self, alpha: float = 1.0, beta: float = 1.0, binarize: float | None = None
    ) -> None:
        self.alpha = alpha
        self.beta = beta
        self.binarize = binarize

    def fit(self, X: Array, y: Array = None) -> Self:
        for name in ("alpha", "beta"):
            if not 0 < getattr(self, name) < math.inf:
                raise UserError(f"{name} ({getattr(self, name)}) must be a positive number; try 1")
        x, form = unsupervised(self, X)
        heads = self._flips(x).sum(0)
        self.alpha_ = form.give(self.alpha + heads)  # (1)
        self.beta_ = form.give(self.beta + len(x) - heads)
        return self

    def probability(self) -> Array:
        """The probability that the next flip of each coin is a head."""
        form, (a, b) = self._posterior()
        return form.give(a / (a + b))  # (2)

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Where theta of each coin is with that probability, as much of it below as above."""
        form, (a, b) = self._posterior()
        tails = ((1 - level) / 2, (1 + level) / 2)
        low, high = (stats.beta(a.cpu(), b.cpu()).ppf(tail) for tail in tails)
        return form.give(low), form.give(high)

    def log_count(self, flips: int) -> Array:
        """The log probability of 0 to `flips` heads in so many flips, coins x counts."""
        form, (a, b) = self._posterior()
        k = torch.arange(flips + 1).to(a)
        ways = math.lgamma(flips + 1) - torch.lgamma(k + 1) - torch.lgamma(flips - k + 1)
        a, b = a[:, None], b[:, None]
        return form.give(ways + log_beta(a + k, b + flips - k) - log_beta(a, b))  # (3)

    def score_samples(self, X: Array) -> Array:
        """The log probability of each row of flips."""
        x, form = inputs(self, X)
        p = form.take(self.probability())
        x = self._flips(x)
        return form.give(torch.where(x > 0, p, 1 - p).log().sum(1))

    def score(self, X: Array, y: Array = None) -> float:
        """The mean log probability of a row."""
        return float(torch.as_tensor(self.score_samples(X)).mean())

    def sample(self, n_samples: int = 1, generator: torch.Generator | None = None) -> Array:
        """Rows of flips, each with the probability of the next one."""
        p = torch.as_tensor(self.probability()).cpu()
        u = torch.rand(n_samples, len(p), generator=generator, dtype=torch.float64)
        return Caller.of(self.alpha_).give((u < p).double())

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        check_learned(vars(self), {
            "n_features_in_": Learned("int", "features", low=1),
            "alpha_": Learned("float64", "features", low=self.alpha),
            "beta_": Learned("float64", "features", low=self.beta),
        })  # fmt: skip

    def _posterior(self) -> tuple[Caller, tuple[Tensor, Tensor]]:
        form = Caller.of(self.alpha_)
        return form, (form.take(self.alpha_), form.take(self.beta_))

    def _flips(self, x: Float[Tensor, "samples features"]) -> Float[Tensor, "samples features"]:
        if self.binarize is not None:
            return (x > self.binarize).to(x)
        for row, column in ((x != 0) & (x != 1)).nonzero()[:1].tolist():
            raise UserError(
                f"X (row {row} holds {x[row, column].item():g}) must hold 0 and 1 alone, tails and "
                "heads; binarize=0.5 turns numbers above 0.5 into 1"
            )
        return x

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.binarize is not None  # else no table but one of flips
        return tags


def log_beta(a: Float[Tensor, "*shape"], b: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The logarithm of the beta function B(a, b)."""
    return torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)


class BayesianRegression(RegressorMixin, BaseEstimator):
    """Learns the posterior of a line: `coef_` (m), `covariance_` (A^-1) and `intercept_`.

    `alpha` is the precision of the prior and `beta` that of the noise; the evidence chooses those
    that are None (`alpha_`, `beta_`).
    """

    coef_: Array
    covariance_: Array
    intercept_: float
    intercept_variance_: float
    mean_: Array
    alpha_: float
    beta_: float

    def __init__(self, alpha: float | None = None, beta: float | None = None) -> None:
        self.alpha = alpha
        self.beta = beta

    def fit(self, X: Array, y: Array) -> Self:
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UserError(f"{name} ({value}) must be a positive number, or None to choose it")
        x, targets, form = regression(self, X, y)
        centre, mean = x.mean(0), targets.mean()
        x, targets = x - centre, targets - mean
        alpha, beta = choose_precisions(x, targets, self.alpha, self.beta)
        m, inverse = posterior(x, targets, alpha, beta)
        self.coef_, self.covariance_ = form.give(m), form.give(inverse)
        self.mean_, self.intercept_ = form.give(centre), float(mean - centre @ m)
        self.intercept_variance_ = 1 / (len(x) * beta)
        self.alpha_, self.beta_ = alpha, beta
        return self

    def predict(self, X: Array, return_std: bool = False) -> Array:
        """The mean of each prediction, and with `return_std` its standard deviation too."""
        x, form = inputs(self, X)
        mean = x @ form.take(self.coef_) + self.intercept_
        if not return_std:
            return form.give(mean)
        x = x - form.take(self.mean_)
        spread = ((x @ form.take(self.covariance_)) * x).sum(1)
        variance = 1 / self.beta_ + self.intercept_variance_ + spread  # (5)
        return form.give(mean), form.give(variance.sqrt())

    def interval(self, X: Array, level: float = 0.95) -> tuple[Array, Array]:
        """Where y of each row is with that probability."""
        form, (mean, std) = Caller.of(X), map(torch.as_tensor, self.predict(X, return_std=True))
        reach = float(stats.norm.ppf((1 + level) / 2))
        return form.give(mean - reach * std), form.give(mean + reach * std)

    def sample_lines(
        self, n: int, generator: torch.Generator | None = None
    ) -> tuple[Float[Tensor, "n features"], Float[Tensor, " n"]]:
        """Weights and intercepts drawn from the posterior."""
        host = Caller(torch.device("cpu"))
        m, inverse = host.take(self.coef_), host.take(self.covariance_)
        noise = torch.randn(n, len(m) + 1, generator=generator, dtype=torch.float64)
        w = m + noise[:, 1:] @ torch.linalg.cholesky(inverse).T
        height = self.intercept_ + host.take(self.mean_) @ m  # of the line above the mean of x
        height = height + math.sqrt(self.intercept_variance_) * noise[:, 0]
        return w, height - w @ host.take(self.mean_)

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        positive = Learned("float", low=1e-300)
        check_learned(vars(self), {
            "n_features_in_": Learned("int", "features", low=1),
            "coef_": Learned("float64", "features"),
            "covariance_": Learned("float64", "features features"),
            "mean_": Learned("float64", "features"),
            "intercept_": Learned("float"),
            **dict.fromkeys(("intercept_variance_", "alpha_", "beta_"), positive),
        })  # fmt: skip
        if torch.linalg.cholesky_ex(torch.as_tensor(self.covariance_)).info.item():
            raise ValueError("covariance_ must be positive definite, because it was learned")


def posterior(
    x: Float[Tensor, "samples features"], y: Float[Tensor, " samples"], alpha: float, beta: float
) -> tuple[Float[Tensor, " features"], Float[Tensor, "features features"]]:
    """M and A^-1 of centred rows."""
    a = alpha * torch.eye(x.shape[1]).to(x) + beta * x.T @ x
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(a))
    m: Tensor = beta * inverse @ (x.T @ y)  # (4)
    return m, inverse


def log_evidence(
    x: Float[Tensor, "samples features"],
    y: Float[Tensor, " samples"],
    alpha: Float[Tensor, ""],
    beta: Float[Tensor, ""],
) -> Float[Tensor, ""]:
    """The log probability of centred targets, whatever the weights."""
    n, d = x.shape
    a = alpha * torch.eye(d).to(x) + beta * x.T @ x
    m = beta * torch.linalg.solve(a, x.T @ y)
    error = beta * (y - x @ m).square().sum() + alpha * m.square().sum()
    logs = d * alpha.log() + (n - 1) * (beta / (2 * math.pi)).log() - torch.logdet(a)
    value: Tensor = (logs - error) / 2  # (8)
    return value


def choose_precisions(
    x: Float[Tensor, "samples features"],
    y: Float[Tensor, " samples"],
    alpha: float | None,
    beta: float | None,
    most: int = 5000,
) -> tuple[float, float]:
    """Alpha and beta where they are given; else those of the largest evidence, in bounds."""
    values, vectors = torch.linalg.eigh(x.T @ x)
    values, q, n = values.clamp(min=0), vectors.T @ (x.T @ y), len(x)
    variance = float(y.square().mean().clamp(min=1e-12))
    one, other = (
        alpha or float(values.mean().clamp(min=1e-12)) / (n * variance),
        beta or 1 / variance,
    )
    for _ in range(most):
        m = other * q / (one + other * values)
        gamma = float((other * values / (one + other * values)).sum())
        error = float(y.square().sum() - 2 * m @ q + values @ m.square())
        before = (one, other)
        if alpha is None:
            one = min(max(gamma / max(float(m.square().sum()), 1e-300), 1e-12), 1e12)  # (6)
        if beta is None:
            free = max(n - 1 - gamma, 1e-3)
            other = free / max(error, 1e-12 * n * variance)  # (7)
        if all(abs(a / b - 1) < 1e-10 for a, b in zip(before, (one, other), strict=True)):
            break
    return one, other


# -------- the network ends here; training and pictures follow --------

NEXT = 10  # flips that are predicted
COINS = 10_000  # drawn from the prior to see how often an interval holds theta
LEVELS = tuple(level / 20 for level in range(1, 20))


@dataclass(frozen=True, kw_only=True)
class Coin(Fitting[BetaBernoulli]):
    """Learn the bias of a coin from a few flips, and how sure one may be of it."""

    meanings: ClassVar[Mapping[str, str]] = {
        "log_loss": "the mean negative log probability of a row of flips, in nats",
        "probability": "the probability of a head (of the first coin)",
        "low": "the lower end of the interval that holds the bias with 95 % probability",
        "high": "the upper end",
        "coverage": "of 10,000 coins of the prior, the share whose interval holds the bias",
        "variance_ratio": "variance of the heads in ten flips, by that if the bias were certain",
    }

    data: str = ""
    """A csv file of zeros and ones, a coin a column and a flip a row; empty is a coin made here."""
    bias: float = 0.7
    """The probability of a head of that coin."""
    flips: int = 20
    """Flips that it is learned from."""
    alpha: float = 1.0
    """Of the prior Beta(alpha, beta): as if so many heads less 1 had been seen."""
    beta: float = 1.0
    """The same for tails."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.within(0, 1, "bias")
        self.at_least(1, "flips")
        self.above(0, "alpha", "beta")

    def dataset(self) -> Data:
        if self.data:
            return as_flips(load_rows(self.data, "", varying=False))
        draw = seeded(self.seed, 1)
        splits = {
            part: ((torch.rand(count, 1, generator=draw) < self.bias).double(), torch.zeros(count))
            for part, count in (("train", self.flips), ("valid", 1000), ("test", 1000))
        }
        spec = {
            "name": f"a coin of bias {self.bias:g}", "kind": "table", "task": "density",
            "shape": [1], "features": ["flip"], "mean": [0.0], "std": [1.0], "classes": [],
            "split": "all flips are drawn anew",
        }  # fmt: skip
        digest = hashlib.sha256(b"".join(x.numpy().tobytes() for x, _ in splits.values()))
        return Data(splits, spec, 1, self.seed, digest.hexdigest())

    def model(self, data: Data) -> BetaBernoulli:
        return BetaBernoulli(self.alpha, self.beta)

    def fit(self, model: BetaBernoulli, data: Data) -> BetaBernoulli:
        return model.fit(data.whole[0])

    def metrics(self, model: BetaBernoulli, batch: Batch) -> dict[str, Tensor]:
        return {"log_loss": -torch.as_tensor(model.score_samples(batch[0]))}

    def final(
        self, model: BetaBernoulli, data: Data, generator: torch.Generator
    ) -> dict[str, float]:
        low, high = (float(end[0]) for end in model.interval())
        k, p = torch.arange(NEXT + 1), torch.as_tensor(model.log_count(NEXT))[0].exp()
        mean = float(torch.as_tensor(model.probability())[0])
        variance = float(p @ k.double().square() - (p @ k.double()).square())
        return {
            "probability": mean,
            "low": low,
            "high": high,
            "coverage": self._coverage(generator, data.rows("train")),
            "variance_ratio": variance / (NEXT * mean * (1 - mean)),
        }

    def _coverage(self, generator: torch.Generator, flips: int) -> float:
        u = torch.rand(COINS, generator=generator, dtype=torch.float64)
        theta = torch.as_tensor(stats.beta(self.alpha, self.beta).ppf(u.numpy()))
        heads = torch.binomial(torch.full_like(theta, flips), theta, generator=generator)
        coins = BetaBernoulli(self.alpha, self.beta)
        coins.alpha_, coins.beta_ = self.alpha + heads, self.beta + flips - heads
        low, high = coins.interval()
        return float(((low <= theta) & (theta <= high)).double().mean())

    def picture_posterior(
        self, model: BetaBernoulli, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """The posterior of the bias, of the first coin flip by flip or else of each coin.

        At the end the bias of the first is between {low:.2f} and {high:.2f} with 95 % probability.
        """
        x, names = data.whole[0], data.spec["features"]
        at = torch.linspace(0.001, 0.999, 400, dtype=torch.float64)
        if len(names) > 1:
            coins = enumerate(names[:8])
            curves = {name: (at, self._density(at, x[:, i])) for i, name in coins}
        else:
            counts = sorted({min(n, len(x)) for n in (0, 1, 3, 10, len(x))})
            curves = {f"{n} flips": (at, self._density(at, x[:n, 0])) for n in counts}
        top = torch.stack([density.max() for _, density in curves.values()]).max().reshape(1)
        line = torch.full((2,), self.bias), torch.cat([torch.zeros(1), top])
        known = {"true bias": line} if not self.data else {}
        low, high = (float(end[0]) for end in model.interval())
        made = panels(Panel(curves, "bias: probability of a head", "density", guides=known))
        return made, {"low": low, "high": high}

    def _density(self, at: Tensor, flips: Float[Tensor, " flips"]) -> Tensor:
        heads = float(flips.sum())
        law = stats.beta(self.alpha + heads, self.beta + len(flips) - heads)
        return torch.as_tensor(law.pdf(at.numpy()))

    def picture_prediction(
        self, model: BetaBernoulli, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """How many of the next ten flips of the first coin are heads, by two predictions.

        Averaged over the posterior (blue) the number is less certain than with the mean bias taken
        for the truth (orange): its variance is {ratio:.2f} times as large.
        """
        k = torch.arange(NEXT + 1)
        p, mean = torch.as_tensor(model.log_count(NEXT))[0].exp(), float(model.probability()[0])
        plug_in = torch.as_tensor(stats.binom(NEXT, mean).pmf(k.numpy()))
        variance = float(p @ k.double().square() - (p @ k.double()).square())
        curves = {"averaged over the posterior": (k, p), "with the mean bias": (k, plug_in)}
        made = panels(Panel(curves, "heads in ten flips", "probability"))
        return made, {"ratio": variance / (NEXT * mean * (1 - mean))}

    def predict(
        self, model: BetaBernoulli, inputs: Float[Tensor, "batch features"], spec: Spec
    ) -> Sequence[dict[str, Any]]:
        """The probability of each row of flips."""
        found = torch.as_tensor(model.score_samples(inputs)).exp()
        return [{"probability": value} for value in found.tolist()]

    def sample(
        self, model: BetaBernoulli, spec: Spec, generator: torch.Generator, *, n: int = 10
    ) -> Float[Tensor, "n features"]:
        """Flips."""
        if not 1 <= n <= 1_000_000:
            raise UserError(f"n ({n}) must be from 1 to 1,000,000 flips")
        return torch.as_tensor(model.sample(n, generator))


def as_flips(data: Data) -> Data:
    """The columns as they are in the file, not standardised."""
    mean, std = (torch.tensor(data.spec[key], dtype=torch.float64) for key in ("mean", "std"))
    splits: dict[str, Batch] = {}
    for part, (x, y) in data.splits.items():
        whole = (x * std + mean).round()
        near = (x * std + mean - whole).abs() < 1e-6
        splits[part] = (torch.where(near, whole, x * std + mean), y)
    plain = {"mean": [0.0] * len(mean), "std": [1.0] * len(mean)}
    return replace(data, splits=splits, spec={**data.spec, **plain})


@dataclass(frozen=True, kw_only=True)
class RegressionWithIntervals(Tabular, Fitting[BayesianRegression]):
    """Predict a number from a row of a table, with an interval that holds it."""

    meanings: ClassVar[Mapping[str, str]] = meanings(*NUMBERS) | {
        "coverage": "the share of targets inside of the interval of 95 % probability",
        "log_density": "the mean log density of a target, in nats",
        "plug_in": "the same with the mean of the posterior taken for the truth",
        "variance_ratio": "the least variance of a prediction, by that of the noise alone",
        "alpha": "the precision of the prior",
        "noise": "the standard deviation of the noise, in the units of the target",
    }

    data: str = "diabetes"
    """A known set or a csv file whose target is a number."""
    alpha: float = 0.0
    """Precision of the prior; 0 is what the evidence chooses."""
    beta: float = 0.0
    """Precision of the noise; 0 is what the evidence chooses."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "alpha", "beta")

    def dataset(self) -> Data:
        data = load(self.data, kind="table", batch_size=1, **self.columns)
        if data.spec["task"] != "regression":
            raise UserError(
                f"data ({self.data}) must have a number as its target, because a line is fitted; "
                "for classes try logistic or softmax-regression"
            )
        return data

    def model(self, data: Data) -> BayesianRegression:
        return BayesianRegression(self.alpha or None, self.beta or None)

    def fit(self, model: BayesianRegression, data: Data) -> BayesianRegression:
        return model.fit(*data.whole)

    def metrics(self, model: BayesianRegression, batch: Batch) -> dict[str, Tensor]:
        x, y = batch
        mean, std = map(torch.as_tensor, model.predict(x, return_std=True))
        low, high = map(torch.as_tensor, model.interval(x))
        plug_in = torch.full_like(std, model.beta_**-0.5)
        return {
            **regressed(mean, y),
            "coverage": ((low <= y) & (y <= high)).double(),
            "log_density": torch.distributions.Normal(mean, std).log_prob(y),
            "plug_in": torch.distributions.Normal(mean, plug_in).log_prob(y),
        }

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        return summarise_outputs(outputs)

    def final(
        self, model: BayesianRegression, data: Data, generator: torch.Generator
    ) -> dict[str, float]:
        std = torch.as_tensor(model.predict(data.splits["test"][0], return_std=True)[1])
        ratio = float(std.square().min()) * model.beta_
        return {"variance_ratio": ratio, "alpha": model.alpha_, "noise": model.beta_**-0.5}

    def picture_lines(
        self, model: BayesianRegression, data: Data, history: History
    ) -> tuple[Figure, dict[str, object]]:
        """Lines drawn from the posterior after more and more rows, with {column} alone.

        The shaded band holds a new target with 95 % probability. With all rows {share:.0f} per cent
        of its variance are noise, the rest is doubt about the line.
        """
        x, y = (part.double() for part in data.whole)
        column = int(torch.as_tensor(model.coef_).abs().argmax())
        x = x[:, column : column + 1]
        chosen = BayesianRegression().fit(x, y)
        draw, at = seeded(self.seed, 2), torch.linspace(float(x.min()), float(x.max()), 60)[:, None]
        steps = []
        for n in sorted({min(n, len(x)) for n in (3, 10, 40, len(x))}):
            some = BayesianRegression(chosen.alpha_, chosen.beta_).fit(x[:n], y[:n])
            w, b = some.sample_lines(20, draw)
            drawn = b + at.double() @ w.T
            steps.append((x[:n, 0], y[:n], drawn, some.interval(at.double())))
        name = data.spec["features"][column]
        spread = torch.as_tensor(some.predict(at.double(), return_std=True)[1])
        share = 100 / (some.beta_ * float(spread.square().mean()))
        return lines(at[:, 0], steps, f"{name}, standardised"), {"column": name, "share": share}

    def picture_intervals(
        self, model: BayesianRegression, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Validation targets (points) and their intervals, in the order of the prediction (left).

        {inside:.0f} per cent are inside, red ones are not. The share inside is at most {off:.0f}
        points from the level of the interval (right): of {count} rows chance alone moves it.
        """
        x, y = data.splits["valid"]
        mean, std = map(torch.as_tensor, model.predict(x, return_std=True))
        reach = torch.as_tensor(stats.norm.ppf([(1 + level) / 2 for level in LEVELS]))
        away = ((y - mean) / std).abs()
        shares = (away[:, None] <= reach).double().mean(0)
        inside = float((away <= stats.norm.ppf(0.975)).double().mean())
        made = intervals(mean, 1.959964 * std, y, torch.tensor(LEVELS), shares)
        off = 100 * float((shares - torch.tensor(LEVELS)).abs().max())
        return made, {"inside": 100 * inside, "off": off, "count": len(y)}

    def predict(
        self,
        model: BayesianRegression,
        inputs: Float[Tensor, "batch features"],
        spec: Spec,
        *,
        level: float = 0.95,
    ) -> Sequence[dict[str, Any]]:
        """A number for each row, and the interval that holds it with the probability `level`."""
        if not 0 < level < 1:
            raise UserError(f"level ({level}) must be between 0 and 1, a probability; try 0.95")
        mean, (low, high) = model.predict(inputs), model.interval(inputs, level)
        each = zip(mean.tolist(), low.tolist(), high.tolist(), strict=True)
        return [{"value": value, "low": a, "high": b} for value, a, b in each]


RECIPES = {
    "coin": Coin(
        goal="coverage >= 0.94 and coverage <= 0.96 and variance_ratio > 1", covers=("M16",)
    ),
    "bayesian-regression": RegressionWithIntervals(
        goal="r2 >= 0.45 and coverage >= 0.9 and variance_ratio > 1", covers=("M16",)
    ),
}
