"""Factor analysis: few hidden factors make the columns of a table vary together.

    x = mu + W h + e,   h ~ N(0, I),  e ~ N(0, Psi)                      (1)  model
    p(x) = N(x; mu, C),   C = W W^T + Psi                                (2)  density
    beta = W^T C^-1,   E[h|x] = beta (x - mu)                            (3)  factors of a row
    V    = I - beta W + beta S beta^T                                    (4)  mean of E[h h^T|x]
    W    <- S beta^T V^-1                                                (5)  loadings
    Psi  <- diag(S - W beta S)                                           (6)  noise, W as in (5)
    L    = -1/2 (d log 2 pi + log|C| + tr(C^-1 S))                       (7)  log-likelihood
    L*   = -1/2 (d log 2 pi + sum_{j<=k} log l_j + (d-k) log s2 + d)     (8)  the best of pPCA

x has d columns with the mean mu and the covariance S, W holds k loadings a column and Psi, a
diagonal, the variance that no other column shares. (3) and (4) are the expectations and (5) and (6)
the maximum of EM, which never lowers L. With equal variances, Psi = s2 I, this is probabilistic PCA
(pPCA): EM then takes the mean of (6), and the maximum has the closed form (8), where l_j are the
eigenvalues of S, the largest first, and s2 is the mean of those beyond k.

Rubin, Thayer (1982), "EM algorithms for ML factor analysis", doi:10.1007/BF02293851. (8): Tipping,
Bishop (1999), "Probabilistic Principal Component Analysis", doi:10.1111/1467-9868.00196.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from everynet.data.dataset import Batch, Data, History, Spec
from everynet.nn.estimator import Array, Caller, Learned, check_learned, inputs, unsupervised
from everynet.plot.matrix import heatmap
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Fitting
from everynet.system.errors import UserError
from everynet.zoo.classic.pictures.factors import loadings
from everynet.zoo.classic.rows import covariance, load_rows, require_components, require_varying

LEAST = 1e-8
"""Of a variance of the noise, as a share of that of its column."""


class Factors(NamedTuple):
    """The parameters of the model, W and the diagonal of Psi."""

    w: Float[Tensor, "features components"]
    psi: Float[Tensor, " features"]

    def covariance(self) -> Float[Tensor, "features features"]:
        c: Tensor = self.w @ self.w.T + self.psi.diag()  # (2)
        return c

    def beta(self) -> Float[Tensor, "components features"]:
        """What a centred row is multiplied with to give its factors; C has no need to be built."""
        scaled = self.w / self.psi[:, None]
        inner = torch.eye(self.w.shape[1]).to(self.w) + self.w.T @ scaled
        solved: Tensor = torch.linalg.solve(inner, scaled.T)  # (3), by the Woodbury identity
        return solved

    def log_likelihood(self, s: Float[Tensor, "features features"]) -> float:
        """Of a row, on average."""
        return gaussian_log_likelihood(self.covariance(), s)

    def update(self, s: Float[Tensor, "features features"]) -> Factors:
        """The parameters after one step of EM."""
        beta = self.beta()
        bs = beta @ s
        v = torch.eye(len(beta)).to(s) - beta @ self.w + bs @ beta.T  # (4)
        w = torch.linalg.solve(v, bs).T  # (5)
        psi = (s - w @ bs).diagonal()  # (6)
        return Factors(w, torch.maximum(psi, LEAST * s.diagonal()))


def gaussian_log_likelihood(
    c: Float[Tensor, "features features"], s: Float[Tensor, "features features"]
) -> float:
    """The mean log density of rows with the covariance s, where the model says c."""
    trace = torch.linalg.solve(c, s).trace()
    return -float(len(s) * math.log(2 * math.pi) + torch.logdet(c) + trace) / 2  # (7)


def em(s: Float[Tensor, "features features"], k: int) -> Iterator[Factors]:
    """The iterates of EM, from the k principal directions and half of each variance as noise."""
    scale = s.diagonal().sqrt()
    values, vectors = torch.linalg.eigh(s / scale[:, None] / scale)
    w = vectors[:, -k:].flip(1) * values[-k:].flip(0).clamp(min=1e-12).sqrt()
    factors = Factors(w * scale[:, None] * math.sqrt(0.5), 0.5 * s.diagonal())
    while True:
        yield factors
        factors = factors.update(s)


def ppca_log_likelihood(s: Float[Tensor, "features features"], k: int) -> float:
    """The likelihood of a row that no parameters with equal variances of the noise exceed."""
    d, values = len(s), torch.linalg.eigvalsh(s).flip(0)
    noise = values[k:].mean() if k < d else values[-1]
    logs = values[:k].log().sum() + (d - k) * noise.log()
    return -float(d * math.log(2 * math.pi) + logs + d) / 2  # (8)


class FactorAnalysis(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learns `mean_`, `components_` (W^T) and `noise_variance_`; transforms rows to factors.

    `log_likelihoods_` is L by iteration. Without `n_components` there are as many as columns.
    """

    mean_: Array
    components_: Array
    noise_variance_: Array
    log_likelihoods_: Array
    n_iter_: int

    def __init__(
        self, n_components: int | None = None, tol: float = 1e-6, max_iter: int = 10_000
    ) -> None:
        self.n_components = n_components
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Array, y: Array = None) -> Self:
        """EM until an iteration adds less than `tol` to L."""
        x, form = unsupervised(self, X)
        if self.max_iter < 1:
            raise UserError(f"max_iter ({self.max_iter}) must be at least 1")
        if len(x) < 2:
            raise UserError(f"X (n_samples = {len(x)}) must have 2 rows or more: 1 has no variance")
        k = x.shape[1] if self.n_components is None else self.n_components
        if self.n_components is not None:
            require_components(k, x, columns=True)
        require_varying(x)
        mean, s = covariance(x)
        curve: list[float] = []
        for factors in em(s, k):
            curve.append(factors.log_likelihood(s))
            if len(curve) > 1 and curve[-1] - curve[-2] < self.tol:
                break
            if len(curve) > self.max_iter:
                warnings.warn(
                    f"the log-likelihood still rose by {curve[-1] - curve[-2]:.2g} after "
                    f"{self.max_iter} iterations, above tol ({self.tol}); raise max_iter or tol",
                    ConvergenceWarning,
                    stacklevel=2,
                )
                break
        self.mean_, self.components_ = form.give(mean), form.give(factors.w.T.contiguous())
        self.noise_variance_ = form.give(factors.psi)
        self.log_likelihoods_ = form.give(torch.tensor(curve, dtype=torch.float64))
        self.n_iter_ = len(curve) - 1
        return self

    def factors(self, form: Caller | None = None) -> Factors:
        """What was learned, as tensors."""
        form = form or Caller.of(self.mean_)
        return Factors(form.take(self.components_).T, form.take(self.noise_variance_))

    def transform(self, X: Array) -> Array:
        """The factors that are expected of each row."""
        x, form = inputs(self, X)
        return form.give((x - form.take(self.mean_)) @ self.factors(form).beta().T)  # (3)

    def inverse_transform(self, X: Array) -> Array:
        """The row that is expected of each set of factors."""
        form = Caller.of(X)
        h = form.take(X).to(torch.float64)
        return form.give(form.take(self.mean_) + h @ form.take(self.components_))

    def score_samples(self, X: Array) -> Array:
        """Log p of each row."""
        x, form = inputs(self, X)
        factor = torch.linalg.cholesky(self.factors(form).covariance())
        centred = (x - form.take(self.mean_)).T
        y = torch.linalg.solve_triangular(factor, centred, upper=False)
        constant = x.shape[1] / 2 * math.log(2 * math.pi) + factor.diagonal().log().sum()
        return form.give(-y.square().sum(0) / 2 - constant)

    def score(self, X: Array, y: Array = None) -> float:
        """The mean of log p over rows."""
        return float(torch.as_tensor(self.score_samples(X)).mean())

    def sample(self, n_samples: int = 1, generator: torch.Generator | None = None) -> Array:
        """Rows drawn from the model."""
        form = Caller.of(self.mean_)
        (d, k), host = self.factors().w.shape, Caller(torch.device("cpu"))
        h = torch.randn(n_samples, k, generator=generator, dtype=torch.float64)
        e = torch.randn(n_samples, d, generator=generator, dtype=torch.float64)
        w, psi = self.factors(host)
        return form.give(host.take(self.mean_) + h @ w.T + e * psi.sqrt())  # (1)

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        check_learned(vars(self), {
            "n_features_in_": Learned("int", "features", low=1),
            "mean_": Learned("float64", "features"),
            "components_": Learned("float64", "components features"),
            "noise_variance_": Learned("float64", "features", low=1e-300),
            "log_likelihoods_": Learned("float64", "iterates"),
            "n_iter_": Learned("int", low=1),
        })  # fmt: skip

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class CommonFactors(Fitting[FactorAnalysis]):
    """Explain how the columns of a table vary together by a few factors."""

    takes: ClassVar[tuple[str, ...]] = ("table",)
    meanings: ClassVar[Mapping[str, str]] = {
        "log_likelihood": "the mean log density of a row, its columns standardised",
        "independent": "the same without factors: a variance for each column",
        "ppca": "the same by probabilistic PCA: as many components, one variance for all columns",
        "gain": "the first less the larger of these two",
        "iterations": "the iterations of EM",
        "largest_fall": "the most that an iteration lowered the log-likelihood: rounding",
        "residual": "the largest correlation of two columns that the factors do not explain",
    }

    data: str = "wine"
    """A known table or a csv file."""
    target: str = ""
    """A column of the csv file that is left out, such as a class."""
    components: int = 3
    """Factors."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "components")

    def dataset(self) -> Data:
        return load_rows(self.data, self.target)

    def model(self, data: Data) -> FactorAnalysis:
        return FactorAnalysis(self.components)

    def fit(self, model: FactorAnalysis, data: Data) -> FactorAnalysis:
        return model.fit(data.whole[0])

    def metrics(self, model: FactorAnalysis, batch: Batch) -> dict[str, Tensor]:
        return {"log_likelihood": torch.as_tensor(model.score_samples(batch[0]))}

    def final(
        self, model: FactorAnalysis, data: Data, generator: torch.Generator
    ) -> dict[str, float]:
        (mean, s), (test, _) = covariance(data.whole[0].double()), data.splits["test"]
        about = (test - mean).double()
        others = {
            "independent": s.diagonal().diag(),
            "ppca": ppca_covariance(s, min(self.components, len(s))),
        }
        second = about.T @ about / len(about)
        found = {name: gaussian_log_likelihood(c, second) for name, c in others.items()}
        curve = torch.as_tensor(model.log_likelihoods_)
        return {
            **found,
            "gain": model.score(test) - max(found.values()),
            "iterations": float(model.n_iter_),
            "largest_fall": max(0.0, -float(curve.diff().min())),
            "residual": float(residual_correlation(model, s).abs().max()),
        }

    def picture_loadings(
        self, model: FactorAnalysis, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Loadings of each column (left) and how its variance splits into factors and noise.

        The factors, turned so that few loadings are large (varimax), explain {share:.0f} per cent
        of the variance.
        """
        w, psi = model.factors()
        share = 100 * (1 - psi.sum() / (w.square().sum() + psi.sum()))
        return loadings(varimax(w), psi, data.spec["features"]), {"share": float(share)}

    def picture_likelihood(
        self, model: FactorAnalysis, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Log-likelihood of a training row by iteration of EM, which never falls.

        With noise of its own for each column (blue) it ends at {own:.2f}; with one variance for all
        (orange) EM stays below the closed form of probabilistic PCA (dotted), {equal:.2f}.
        """
        s, curve = covariance(data.whole[0].double())[1], torch.as_tensor(model.log_likelihoods_)
        shown = min(len(curve), 200)
        equal = [value for value, _ in zip(em_ppca(s, len(model.components_)), curve[:shown])]  # noqa: B905
        best, steps = ppca_log_likelihood(s, len(model.components_)), torch.arange(1.0, 1 + shown)
        curves = {
            "factor analysis": (steps, curve[:shown]),
            "one variance for all columns": (steps, torch.tensor(equal, dtype=torch.float64)),
        }
        made = panels(
            Panel(curves, "iteration", "log-likelihood of a row (nats)", log="x",
                  levels={"closed form of probabilistic PCA": best}, legend="lower right"),
        )  # fmt: skip
        return made, {"own": float(curve[-1]), "equal": best}

    def picture_residual(
        self, model: FactorAnalysis, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Correlations of training columns less those of the model: what no factor explains.

        The largest is {worst:.2f}; without factors it would be {before:.2f}.
        """
        s = covariance(data.whole[0].double())[1]
        left = residual_correlation(model, s)
        scale = s.diagonal().sqrt()
        plain = (s / scale[:, None] / scale).fill_diagonal_(0)
        names = data.spec["features"]
        made = heatmap(
            left, xlabel="column", ylabel="column", unit="correlation", signed=True,
            down=names, across=names,
        )  # fmt: skip
        return made, {"worst": float(left.abs().max()), "before": float(plain.abs().max())}

    def predict(
        self, model: FactorAnalysis, inputs: Float[Tensor, "batch features"], spec: Spec
    ) -> Sequence[dict[str, Any]]:
        """The factors of each row, and its log density."""
        h, log_p = (torch.as_tensor(f(inputs)) for f in (model.transform, model.score_samples))
        pairs = zip(h.tolist(), log_p.tolist(), strict=True)
        return [{"factors": row, "log_density": value} for row, value in pairs]

    def sample(
        self, model: FactorAnalysis, spec: Spec, generator: torch.Generator, *, n: int = 500
    ) -> Float[Tensor, "n features"]:
        """Rows drawn from the model."""
        if not 1 <= n <= 1_000_000:
            raise UserError(f"n ({n}) must be from 1 to 1,000,000 rows")
        return torch.as_tensor(model.sample(n, generator))


def ppca_covariance(s: Float[Tensor, "features features"], k: int) -> Tensor:
    """The covariance of probabilistic PCA in closed form."""
    values, vectors = torch.linalg.eigh(s)
    noise = values[:-k].mean() if k < len(s) else values[0]
    spread = torch.cat([noise.expand(len(s) - k), values[len(s) - k :]])
    made: Tensor = (vectors * spread) @ vectors.T
    return made


def em_ppca(s: Float[Tensor, "features features"], k: int) -> Iterator[float]:
    """The likelihood by iteration of EM where all columns have one variance of the noise."""
    factors = next(em(s, k))
    while True:
        factors = Factors(factors.w, factors.psi.mean().expand_as(factors.psi))
        yield factors.log_likelihood(s)
        factors = factors.update(s)


def residual_correlation(
    model: FactorAnalysis, s: Float[Tensor, "features features"]
) -> Float[Tensor, "features features"]:
    """Correlations less those of the model; 0 on the diagonal."""
    scale = s.diagonal().sqrt()
    left = (s - model.factors().covariance()) / scale[:, None] / scale
    return left.fill_diagonal_(0)


def varimax(
    w: Float[Tensor, "features components"], steps: int = 100
) -> Float[Tensor, "features components"]:
    """The loadings turned so that the variance of their squares is largest; C stays as it is."""
    turn = torch.eye(w.shape[1]).to(w)
    for _ in range(steps):
        turned = w @ turn
        u, _, v = torch.linalg.svd(w.T @ (turned**3 - turned * turned.square().mean(0)))
        turn = u @ v
    turned = w @ turn
    order = turned.square().sum(0).argsort(descending=True)
    return turned[:, order] * torch.where(turned.sum(0) < 0, -1.0, 1.0)[order]


RECIPES = {
    "factor-analysis": CommonFactors(goal="gain > 0 and largest_fall <= 1e-9", covers=("M23",)),
}
