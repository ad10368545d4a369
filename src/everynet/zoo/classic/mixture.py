"""A mixture of Gaussians, learned by expectation and maximisation (EM).

    p(x)    = sum_k pi_k N(x; mu_k, Sigma_k)                              (1)  density
    log N   = -1/2 |L_k^-1 (x - mu_k)|^2 - log|L_k| - d/2 log 2 pi        (2)  L_k L_k^T = Sigma_k
    r_ik    = pi_k N(x_i; mu_k, Sigma_k) / p(x_i)                         (3)  responsibility
    pi_k    = n_k / n,   n_k = sum_i r_ik                                 (4)  weight
    mu_k    = (1/n_k) sum_i r_ik x_i                                      (5)  mean
    Sigma_k = (1/n_k) sum_i r_ik (x_i - mu_k) (x_i - mu_k)^T              (6)  covariance
    BIC     = m log n - 2 sum_i log p(x_i)                                (7)  m free parameters

x_i is row i of n with d columns, k one of K components, |L| the determinant of a Cholesky factor.
E finds (3) with the parameters as they are, M sets (4) to (6) with the responsibilities as they
are: neither can lower the likelihood, so that it never falls, but where it ends depends on the
start, which is the groups of k-means here. The likelihood has no upper bound: a component that
shrinks onto a few rows, or onto a plane, would raise it for ever. It is refused by its number.

Dempster, Laird, Rubin (1977), "Maximum Likelihood from Incomplete Data via the EM Algorithm",
J. R. Stat. Soc. B 39, doi:10.1111/j.2517-6161.1977.tb01600.x. The start: Arthur, Vassilvitskii
(2007), "k-means++: The Advantages of Careful Seeding". (7): Schwarz (1978), "Estimating the
Dimension of a Model", doi:10.1214/aos/1176344136.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from torch import Tensor
from torch.nn.functional import one_hot

from everynet.data.dataset import Batch, Data, History, Spec
from everynet.nn.estimator import Array, Caller, Learned, check_learned, inputs, unsupervised
from everynet.plot.film import Film
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Fitting
from everynet.recipes.tabular import Columns
from everynet.system.errors import UserError
from everynet.system.seeds import mix
from everynet.zoo.classic.pictures.density import ellipse_frames, steps_of_em
from everynet.zoo.classic.rows import load_rows, require_components, require_varying

COLLAPSED = 1e-10
"""The least variance along a direction, as a share of that of the columns."""
NEGLIGIBLE = 1e-20
"""Of the largest responsibility of a component: what is less changes no digit of a sum."""
CACHED = 2**19
"""Numbers that are made of a chunk of rows on the CPU: they stay in its cache."""


@dataclass(frozen=True)
class Gaussians:
    """The parameters of a mixture, with what EM does to them."""

    weights: Float[Tensor, " components"]
    means: Float[Tensor, "components features"]
    covariances: Float[Tensor, "components features features"]

    def log_joint(self, x: Float[Tensor, "samples features"]) -> Float[Tensor, "samples k"]:
        """Log pi_k N(x_i; mu_k, Sigma_k)."""
        factor = torch.linalg.cholesky(self.covariances)
        unit = torch.eye(x.shape[1]).to(x).expand_as(factor)
        inverse = torch.linalg.solve_triangular(factor, unit, upper=False)
        half_log = factor.diagonal(dim1=1, dim2=2).log().sum(1)
        constant = self.weights.log() - half_log - x.shape[1] / 2 * math.log(2 * math.pi)
        shift = (inverse @ self.means[:, :, None]).flatten()
        made = []
        for rows in x.split(self._chunk(x)):
            y = (rows @ inverse.flatten(0, 1).T).sub_(shift).view(len(rows), *self.means.shape)
            made.append(constant - torch.linalg.vector_norm(y, dim=2).square_() / 2)  # (2)
        return torch.cat(made)

    def maximised(
        self, x: Float[Tensor, "samples features"], r: Float[Tensor, "samples components"]
    ) -> Gaussians:
        """The parameters that are likeliest with these responsibilities."""
        weights, means, covariances = r.mean(0), [], []  # (4)
        for r_k, old in zip(r.T.contiguous(), self.means, strict=True):
            used = r_k > NEGLIGIBLE * r_k.max()
            share, rows = r_k[used], x[used]
            n_k = share.sum().clamp(min=1e-300)
            mu = old + share @ (rows - old) / n_k  # (5)
            rows = rows - mu
            means.append(mu)
            covariances.append((share[:, None] * rows).T @ rows / n_k)  # (6)
        return Gaussians(weights, torch.stack(means), torch.stack(covariances))

    def update(self, x: Float[Tensor, "samples features"]) -> tuple[float, Gaussians]:
        """The mean of log p(x_i), and the parameters that EM finds next."""
        log_joint = self.log_joint(x)
        log_p = log_joint.logsumexp(1, keepdim=True)  # (1)
        return log_p.mean().item(), self.maximised(x, (log_joint - log_p).exp_())  # (3)

    def _chunk(self, x: Tensor) -> int:
        return max(1, (CACHED if x.is_cpu else 2**28) // self.means.numel())

    @staticmethod
    def of_groups(
        x: Float[Tensor, "samples features"], group: Int[Tensor, " samples"], k: int
    ) -> Gaussians:
        """The parameters where each row belongs to one group alone."""
        about = x.mean(0).expand(k, -1)
        unknown = Gaussians(x.new_zeros(k), about, x.new_zeros(k, x.shape[1], x.shape[1]))
        return unknown.maximised(x, one_hot(group, k).to(x))

    def with_ridge(self, reg_covar: float, scale: Float[Tensor, " features"]) -> Gaussians:
        """The same with `reg_covar` added to variances; a covariance without inverse is refused.

        Rows are measured in the standard deviations of the columns, `scale`.
        """
        unit = torch.eye(len(scale)).to(scale)
        covariances = self.covariances + reg_covar * unit
        least = torch.linalg.eigvalsh(covariances / (scale[:, None] * scale))[:, 0]
        least = torch.where(self.weights > 0, least, 0.0)
        for k in (~(least > COLLAPSED)).nonzero()[:1, 0].tolist():
            raise UserError(
                f"component {k} collapses: its covariance has no inverse, because it holds "
                f"{100 * float(self.weights[k]):.2g} % of the rows and they lie on a point, a line "
                "or a plane; give fewer n_components, another random_state, or reg_covar=1e-3, or "
                "leave out columns that follow from others"
            )
        return Gaussians(self.weights, self.means, covariances)


def k_means(
    x: Float[Tensor, "samples features"], k: int, generator: torch.Generator, most: int = 30
) -> Int[Tensor, " samples"]:
    """The group of each row by k-means from centres drawn by k-means++."""
    first = int(torch.randint(len(x), (), generator=generator))
    centres, near = x[first : first + 1], (x - x[first]).square().sum(1)
    for _ in range(k - 1):
        chance = (near / near.max().clamp(min=1e-300)).cpu() + 1e-12
        row = int(torch.multinomial(chance, 1, generator=generator))
        centres = torch.cat([centres, x[row : row + 1]])
        near = torch.minimum(near, (x - x[row]).square().sum(1))
    group = nearest(x, centres)
    for _ in range(most):
        chosen = one_hot(group, k).to(x)
        count = chosen.sum(0)[:, None]
        centres = torch.where(count > 0, chosen.T @ x / count.clamp(min=1), centres)
        before, group = group, nearest(x, centres)
        if torch.equal(before, group):
            break
    return group


def nearest(
    x: Float[Tensor, "samples features"], centres: Float[Tensor, "components features"]
) -> Int[Tensor, " samples"]:
    """The number of the centre that is nearest to each row."""
    shifted, centred = centres - centres.mean(0), x - centres.mean(0)
    return (shifted.square().sum(1) / 2 - centred @ shifted.T).argmin(1)


class GaussianMixture(DensityMixin, BaseEstimator):
    """Learns `weights_`, `means_` and `covariances_`; `log_likelihoods_` is the mean by iteration.

    EM begins with the groups of k-means, drawn `n_init` times (`start_` is the one that was best),
    or of the rows nearest to each of `means_init`.
    """

    weights_: Array
    means_: Array
    covariances_: Array
    log_likelihoods_: Array
    n_iter_: int
    start_: int

    def __init__(  # noqa: PLR0917 -- those of scikit-learn's
        self,
        n_components: int = 1,
        tol: float = 1e-6,
        max_iter: int = 1000,
        reg_covar: float = 0.0,
        n_init: int = 1,
        means_init: Array = None,
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.tol = tol
        self.max_iter = max_iter
        self.reg_covar = reg_covar
        self.n_init = n_init
        self.means_init = means_init
        self.random_state = random_state

    def fit(self, X: Array, y: Array = None) -> Self:
        """EM until an iteration adds less than `tol` to the mean log-likelihood of a row.

        Of `n_init` starts the one that ends highest counts; those in which a component collapses
        are left out, unless all do.
        """
        x, form = unsupervised(self, X)
        for name in ("max_iter", "n_init"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} ({getattr(self, name)}) must be at least 1")
        best: tuple[list[float], Gaussians] | None = None
        refusal: UserError | None = None
        for start in range(self.n_init if self.means_init is None else 1):
            try:
                curve, learned = self._climb(x, start)
            except UserError as collapsed:
                refusal = collapsed
                continue
            if best is None or curve[-1] > best[0][-1]:
                best, self.start_ = (curve, learned), start
        if best is None:
            assert refusal is not None
            raise refusal
        curve, learned = best
        if len(curve) > self.max_iter:
            warnings.warn(
                f"the log-likelihood still rose by {curve[-1] - curve[-2]:.2g} after "
                f"{self.max_iter} iterations, above tol ({self.tol}); raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.weights_, self.means_ = form.give(learned.weights), form.give(learned.means)
        self.covariances_ = form.give(learned.covariances)
        self.log_likelihoods_ = form.give(torch.tensor(curve, dtype=torch.float64))
        self.n_iter_ = len(curve) - 1
        return self

    def _climb(self, x: Tensor, start: int) -> tuple[list[float], Gaussians]:
        """EM from one start: the mean log-likelihood by iteration, and where it ends."""
        curve: list[float] = []
        for value, current in self.iterates(x, start):  # noqa: B007 -- the last one is given
            curve.append(value)
            risen = len(curve) > 1 and curve[-1] - curve[-2] < self.tol
            if risen or len(curve) > self.max_iter:
                break
        return curve, current

    def iterates(
        self, x: Float[Tensor, "samples features"], start: int = 0
    ) -> Iterator[tuple[float, Gaussians]]:
        """The mean log-likelihood and the parameters by iteration, those of the start first."""
        if not 0 <= self.reg_covar < math.inf:
            raise UserError(f"reg_covar ({self.reg_covar}) must be 0 or a positive number")
        if len(x) < 2:
            raise UserError(f"X (n_samples = {len(x)}) must have 2 rows or more: 1 has no variance")
        require_components(self.n_components, x, columns=False)
        require_varying(x)
        scale = x.std(0, correction=0)
        current = Gaussians.of_groups(x, self._groups(x, scale, start), self.n_components)
        while True:
            current = current.with_ridge(self.reg_covar, scale)
            value, following = current.update(x)
            yield value, current
            current = following

    def _groups(self, x: Tensor, scale: Tensor, start: int) -> Int[Tensor, " samples"]:
        if self.means_init is not None:
            given = torch.as_tensor(self.means_init).to(x)
            wanted = (self.n_components, x.shape[1])
            if given.shape != wanted:
                raise UserError(
                    f"means_init {tuple(given.shape)} must be {wanted}, a mean for each component"
                )
            return nearest(x, given)
        draw = torch.Generator().manual_seed(mix(self.random_state, start))
        return k_means((x - x.mean(0)) / scale, self.n_components, draw)

    def gaussians(self, form: Caller | None = None) -> Gaussians:
        """What was learned, as tensors."""
        form = form or Caller.of(self.means_)
        return Gaussians(*(form.take(v) for v in (self.weights_, self.means_, self.covariances_)))

    def score_samples(self, X: Array) -> Array:
        """Log p of each row."""
        log_joint, form = self._log_joint(X)
        return form.give(log_joint.logsumexp(1))

    def score(self, X: Array, y: Array = None) -> float:
        """The mean of log p over rows."""
        return float(torch.as_tensor(self.score_samples(X)).mean())

    def predict_proba(self, X: Array) -> Array:
        """The responsibility of each component for each row."""
        log_joint, form = self._log_joint(X)
        return form.give(log_joint.softmax(1))

    def predict(self, X: Array) -> Array:
        """The number of the component that most likely made each row."""
        log_joint, form = self._log_joint(X)
        return form.give(log_joint.argmax(1))

    def bic(self, X: Array) -> float:
        """The Bayesian information criterion: the least is the best number of components."""
        log_p = torch.as_tensor(self.score_samples(X))
        k, d = self.n_components, self.n_features_in_
        free = k - 1 + k * d + k * d * (d + 1) // 2
        return float(free * math.log(len(log_p)) - 2 * log_p.sum())  # (7)

    def sample(
        self, n_samples: int = 1, generator: torch.Generator | None = None
    ) -> tuple[Array, Array]:
        """Rows drawn from p, and the component of each."""
        form = Caller.of(self.means_)
        learned = self.gaussians(Caller(torch.device("cpu")))
        component = torch.multinomial(
            learned.weights, n_samples, replacement=True, generator=generator
        )
        noise = torch.randn(
            n_samples, learned.means.shape[1], generator=generator, dtype=torch.float64
        )
        factor = torch.linalg.cholesky(learned.covariances)
        rows = learned.means[component]
        for k in range(len(factor)):
            rows[component == k] += noise[component == k] @ factor[k].T
        return form.give(rows), form.give(component)

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        check_learned(vars(self), {
            "n_features_in_": Learned("int", "features", low=1),
            "weights_": Learned("float64", "components", low=0, high=1),
            "means_": Learned("float64", "components features"),
            "covariances_": Learned("float64", "components features features"),
            "log_likelihoods_": Learned("float64", "iterates"),
            "n_iter_": Learned("int", low=1),
            "start_": Learned("int", low=0, high=self.n_init - 1),
        })  # fmt: skip
        learned = self.gaussians()
        if torch.linalg.cholesky_ex(learned.covariances).info.any():
            raise ValueError("covariances_ must be positive definite, because they were learned")
        if (
            abs(float(learned.weights.sum()) - 1) > 1e-6
            or len(learned.weights) != self.n_components
        ):
            raise ValueError(f"weights_ must be {self.n_components} shares whose sum is 1")

    def _log_joint(self, X: Array) -> tuple[Float[Tensor, "samples components"], Caller]:
        x, form = inputs(self, X)
        return self.gaussians(form).log_joint(x), form


# -------- the network ends here; training and pictures follow --------

MOST = 6  # components that the picture of their number tries
RATE, HOLD = 4.0, 6  # frames of a film in a second, frames of its end


@dataclass(frozen=True, kw_only=True)
class Clusters(Columns, Fitting[GaussianMixture]):
    """Describe the rows of a table by a few Gaussians, without a look at their classes."""

    takes: ClassVar[tuple[str, ...]] = ("table",)
    meanings: ClassVar[Mapping[str, str]] = {
        "log_likelihood": "the mean log density of a row, its columns standardised",
        "gaussian": "the same with one Gaussian",
        "gain": "the first less the second",
        "iterations": "the iterations of EM",
        "largest_fall": "the most that an iteration lowered the log-likelihood: rounding",
        "rand_index": "agreement of components and classes of all rows beyond chance, 1 if equal",
    }

    data: str = "iris"
    """A known table or a csv file."""
    components: int = 3
    """Gaussians."""
    starts: int = 10
    """Starts of EM, of which the one that ends highest counts."""
    reg_covar: float = 0.0
    """What is added to every variance, so that no component collapses; then EM may lower p."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "components", "starts")
        self.at_least(0, "reg_covar")

    def dataset(self) -> Data:
        return load_rows(self.data, self.columns)

    def model(self, data: Data) -> GaussianMixture:
        return self._mixture(self.components, self.starts)

    def _mixture(self, components: int, starts: int = 2) -> GaussianMixture:
        return GaussianMixture(
            components, reg_covar=self.reg_covar, n_init=starts, random_state=self.seed
        )

    def fit(self, model: GaussianMixture, data: Data) -> GaussianMixture:
        return model.fit(data.whole[0])

    def metrics(self, model: GaussianMixture, batch: Batch) -> dict[str, Tensor]:
        return {"log_likelihood": torch.as_tensor(model.score_samples(batch[0]))}

    def final(
        self, model: GaussianMixture, data: Data, generator: torch.Generator
    ) -> dict[str, float]:
        x, (test, _) = data.whole[0], data.splits["test"]
        one = self._mixture(1).fit(x).score(test)
        curve = torch.as_tensor(model.log_likelihoods_)
        found = {
            "gaussian": one,
            "gain": model.score(test) - one,
            "iterations": float(model.n_iter_),
            "largest_fall": max(0.0, -float(curve.diff().min())),
        }
        if data.spec["classes"]:
            rows, y = (torch.cat(part) for part in zip(*data.splits.values(), strict=True))
            found["rand_index"] = float(adjusted_rand_score(y, model.predict(rows)))
        return found

    def picture_em(
        self, model: GaussianMixture, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """EM at work, in two columns: training rows in the colours of their likeliest component.

        An ellipse is two standard deviations of a component; the mean log-likelihood of a row
        rises from {first:.2f} to {last:.2f} and never falls.
        """
        steps = self._path(model, data.whole[0])
        curve = torch.as_tensor(model.log_likelihoods_)
        made = steps_of_em(data.whole[0], steps, self._plane(model), data.spec["features"])
        return made, {"first": float(curve[0]), "last": float(curve[-1])}

    def picture_components(
        self, model: GaussianMixture, data: Data, history: History
    ) -> tuple[Figure, dict[str, Any]] | None:
        """Log-likelihood by the number of components (left), and BIC of the training rows (right).

        Validation rows are fitted best by {unseen}; BIC, which charges for parameters, is least
        at {best}.
        """
        x, valid, rows = data.whole[0], data.splits["valid"][0], []
        for k in range(1, MOST + 1):
            try:
                one = self._mixture(k).fit(x)
            except UserError:  # a component collapses: so many are too many
                break
            rows.append([one.score(x), one.score(valid), one.bic(x) / len(x)])
        if not rows:
            return None
        found = torch.tensor(rows, dtype=torch.float64)
        counts, best = torch.arange(1.0, 1 + len(rows)), int(found[:, 2].argmin()) + 1
        curves = {"training": (counts, found[:, 0]), "validation": (counts, found[:, 1])}
        made = panels(
            Panel(curves, "components", "log-likelihood of a row (nats)", legend="lower right"),
            Panel({"training": (counts, found[:, 2])}, "components", "BIC of a row (nats)",
                  marks={"least": float(best)}),
        )  # fmt: skip
        return made, {"best": best, "unseen": int(found[:, 1].argmax()) + 1}

    def _plane(self, model: GaussianMixture) -> tuple[int, int]:
        """The two columns, or the one twice, in which the means of components differ most."""
        spread = torch.as_tensor(model.means_).var(0, correction=0)
        order = spread.argsort(descending=True, stable=True).tolist()
        return order[0], order[min(1, len(order) - 1)]

    @staticmethod
    def _path(model: GaussianMixture, x: Tensor) -> list[Gaussians]:
        path = model.iterates(x.double(), model.start_)
        return [next(path)[1] for _ in range(model.n_iter_ + 1)]

    def predict(
        self, model: GaussianMixture, inputs: Float[Tensor, "batch features"], spec: Spec
    ) -> Sequence[dict[str, Any]]:
        """The likeliest component, the probability of each, and the log density of the row."""
        p, log_p = (torch.as_tensor(f(inputs)) for f in (model.predict_proba, model.score_samples))
        return [
            {"component": int(row.argmax()), "probabilities": row.tolist(), "log_density": value}
            for row, value in zip(p, log_p.tolist(), strict=True)
        ]

    def sample(
        self,
        model: GaussianMixture,
        spec: Spec,
        generator: torch.Generator,
        *,
        n: int = 500,
        film: bool = False,
    ) -> Float[Tensor, "n features"] | Film:
        """Rows drawn from the mixture; `film` shows how EM finds it again in them."""
        if not 1 <= n <= 1_000_000:
            raise UserError(f"n ({n}) must be from 1 to 1,000,000 rows")
        x = torch.as_tensor(model.sample(n, generator)[0])
        if not film:
            return x
        again = self._mixture(model.n_components).fit(x)
        plane = self._plane(model)
        frames = ellipse_frames(x, self._path(again, x), plane, spec["features"])
        return Film(frames, RATE, hold=HOLD)


RECIPES = {
    "mixture": Clusters(
        goal="gain > 0 and largest_fall <= 1e-9 and rand_index >= 0.85", covers=("M24",)
    ),
}
