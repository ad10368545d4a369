"""Principal components: the directions in which data vary most, and the density they belong to.

    S      = 1/(n-1) sum_i (x_i - m)(x_i - m)^T,   S v_j = lambda_j v_j      (1)  covariance
    z      = V^T (x - m)                                                     (2)  code
    x'     = V z + m                                                         (3)  reconstruction
    E      = 1/(n-1) sum_i |x_i - x'_i|^2 = sum_{j > k} lambda_j             (4)  its error
    Q     <- orth((X - m)^T (X - m) Q)                                       (5)  randomised
    x      = W h + m + e,   h ~ N(0, I),   e ~ N(0, s I)                     (6)  probabilistic PCA
    s      = 1/(d-k) sum_{j > k} lambda_j,   W = V (Lambda - s I)^(1/2)      (7)  likeliest s and W
    log p  = -1/2 (d log 2 pi + log|C| + (x-m)^T C^-1 (x-m)),  C = W W^T + s I     (8)  likelihood
    W'     = S W (s I + M^-1 W^T S W)^-1,   M = W^T W + s I                  (9)  EM, another way
    s'     = 1/d tr(S - S W M^-1 W'^T)                                       (10) to (7)

x_i are the n rows of X with d columns, m their mean, V holds the k eigenvectors v_j with the
largest eigenvalues lambda_j, which are in Lambda. What varies least is left out, and (4) says how
much that is. (5) starts with random Q and turns it towards V, faster the more the eigenvalues
differ; the components are then those of X Q. Where n is many times d, (1) is solved as it stands,
else by the singular value decomposition of X - m, which has the same V. For (6) to (10) S is
divided by n, not n - 1, because there the likelihood is at its maximum.

Pearson (1901), "On lines and planes of closest fit to systems of points in space",
doi:10.1080/14786440109462720; (5): Halko, Martinsson and Tropp (2011), "Finding structure with
randomness", doi:10.1137/090771806; (6) to (10): Tipping and Bishop (1999), "Probabilistic
principal component analysis", doi:10.1111/1467-9868.00196. Names are scikit-learn's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec
from everynet.metrics.meanings import meanings
from everynet.nn.estimator import Array, Caller, Learned, check_learned, inputs, unsupervised
from everynet.plot.images import filters, image_grid
from everynet.plot.matrix import heatmap
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Fitting
from everynet.system.errors import UserError
from everynet.system.wording import unknown
from everynet.zoo.classic.pictures.components import code_plane

SOLVERS = ("auto", "full", "covariance_eigh", "randomized")
ROUNDS, SPARE = 7, 10
"""Of (5), and columns of Q beside the k that are wanted."""
CHUNK = 4096
"""Rows that are centred at a time, so that X is never copied whole."""
HARMLESS = 1e4
"""A square mean by its variance up to which taking it off costs no more than four digits."""


class PCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learns `components_`, the rows of V^T, `explained_variance_`, their lambda, and `mean_`.

    `total_variance_` is the sum of all lambda, so that (4) is its rest.
    """

    components_: Array
    explained_variance_: Array
    explained_variance_ratio_: Array
    mean_: Array
    total_variance_: float
    n_samples_: int

    def __init__(
        self,
        n_components: int | None = None,
        svd_solver: str = "auto",
        random_state: object = None,
    ) -> None:
        self.n_components = n_components
        self.svd_solver = svd_solver
        self.random_state = random_state

    def fit(self, X: Array, y: object = None) -> Self:
        """Learn from the rows of X; y is not used."""
        if self.svd_solver not in SOLVERS:
            raise UserError(unknown("svd_solver", self.svd_solver, SOLVERS))
        x, form = unsupervised(self, X)
        k, mean = self._count(x), x.mean(0)
        self.n_samples_ = len(x)
        solver = self.svd_solver if self.svd_solver != "auto" else choose_solver(x, k)
        if solver == "covariance_eigh":
            s = covariance(x, mean)
            self.total_variance_ = s.trace().item()
        else:
            self.total_variance_ = sum_squares(x, mean) / (len(x) - 1)
        if self.total_variance_ == 0:
            raise UserError(
                "X must vary, because directions are looked for in which it does, and all of its "
                "columns are constant; give other rows or columns"
            )
        if solver == "randomized":
            values, v = randomized_components(x, mean, k, self._generator(x))
        elif solver == "covariance_eigh":
            values, v = torch.linalg.eigh(s)
            values, v = values.flip(0)[:k].clamp(min=0), v.T.flip(0)[:k]
        else:
            _, sizes, v = torch.linalg.svd(x - mean, full_matrices=False)
            values, v = sizes[:k].square() / (len(x) - 1), v[:k]
        largest = v.gather(1, v.abs().argmax(1, keepdim=True))  # as v and -v are as good
        self.components_, self.mean_ = form.give(v * largest.sign()), form.give(mean)
        self._set_variances(values, form)
        return self

    def transform(self, X: Array) -> Array:
        """The code of each row."""
        x, form = inputs(self, X)
        v, mean = form.take(self.components_), form.take(self.mean_)
        return form.give(x @ v.T - mean @ v.T)  # (2)

    def inverse_transform(self, X: Array) -> Array:
        """The row that each code stands for."""
        check_is_fitted(self)
        form = Caller.of(X)
        z, v = form.take(X).double(), form.take(self.components_)
        if z.dim() != 2 or z.shape[1] != len(v):
            raise UserError(
                f"X ({[*z.shape]}) must have {len(v)} columns, one a component; give codes as "
                "transform does"
            )
        return form.give(z @ v + form.take(self.mean_))  # (3)

    def left_out(self) -> float:
        """The error of the reconstruction of the rows that were learned from."""
        return self.total_variance_ - float(self.explained_variance_.sum())  # (4)

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        check_learned(vars(self), {
            "n_features_in_": Learned("int", "features", low=1),
            "n_samples_": Learned("int", low=2, high=2**53),
            "components_": Learned("float64", "components features", low=-1.001, high=1.001),
            "explained_variance_": Learned("float64", "components", low=0),
            "explained_variance_ratio_": Learned("float64", "components", low=0, high=1.001),
            "mean_": Learned("float64", "features"),
            "total_variance_": Learned("float", low=0),
        })  # fmt: skip

    def _count(self, x: Float[Tensor, "rows features"]) -> int:
        """How many components are wanted, if there are as many."""
        rows, columns = x.shape
        if rows < 2:
            raise UserError("X (1 sample) must have 2 rows or more, because one does not vary")
        k = min(rows, columns) if self.n_components is None else self.n_components
        if not 1 <= k <= min(rows, columns):
            raise UserError(
                f"n_components ({k}) must be from 1 to {min(rows, columns)}, because X has {rows} "
                f"rows and {columns} columns"
            )
        return k

    def _set_variances(self, values: Float[Tensor, " components"], form: Caller) -> None:
        self.explained_variance_ = form.give(values)
        self.explained_variance_ratio_ = form.give(values / self.total_variance_)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _generator(self, x: Tensor) -> torch.Generator:
        number = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        return torch.Generator(x.device).manual_seed(number)

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None and self.svd_solver == "randomized"
        return tags


def choose_solver(x: Float[Tensor, "rows features"], k: int) -> str:
    """The fastest for this shape, by scikit-learn's rule."""
    rows, columns = x.shape
    if columns <= 1000 and rows >= 10 * columns:
        return "covariance_eigh"
    return "randomized" if max(rows, columns) > 500 and k < 0.8 * min(rows, columns) else "full"


def sum_squares(x: Float[Tensor, "rows features"], mean: Float[Tensor, " features"]) -> float:
    """The sum of |x - m|^2."""
    return float(sum((part - mean).square().sum().item() for part in x.split(CHUNK)))


def covariance(
    x: Float[Tensor, "rows features"], mean: Float[Tensor, " features"]
) -> Float[Tensor, "features features"]:
    """S; on the CPU by numpy, which sees that the product is symmetric and does half of it.

    Where no mean is large beside its deviation, it is taken off the product, not off the rows.
    """
    if x.is_cpu:
        product, squares = torch.from_numpy(x.numpy().T @ x.numpy()), len(x) * mean.square()
        if bool((squares <= HARMLESS * (product.diagonal() - squares)).all()):
            return (product - len(x) * torch.outer(mean, mean)) / (len(x) - 1)  # (1)
    total = x.new_zeros(x.shape[1], x.shape[1])
    for part in x.split(CHUNK):
        centred = part - mean
        total.addmm_(centred.T, centred)  # (1)
    return total / (len(x) - 1)


def randomized_components(
    x: Float[Tensor, "rows features"],
    mean: Float[Tensor, " features"],
    k: int,
    generator: torch.Generator,
) -> tuple[Float[Tensor, " components"], Float[Tensor, "components features"]]:
    """The largest eigenvalues of S, and their eigenvectors, by products of X with few columns."""
    columns = min(k + SPARE, *x.shape)
    q = torch.randn(x.shape[1], columns, generator=generator, device=x.device, dtype=x.dtype)
    for _ in range(ROUNDS):
        y = x @ q - mean @ q
        q, _ = torch.linalg.qr(x.T @ y - torch.outer(mean, y.sum(0)))  # (5)
    y = x @ q - mean @ q
    values, turn = torch.linalg.eigh(y.T @ y / (len(x) - 1))
    return values.flip(0)[:k].clamp(min=0), (q @ turn).T.flip(0)[:k]


class ProbabilisticPCA(PCA):
    """The same directions as a density: also learns `noise_variance_`, has `score` and `sample`."""

    noise_variance_: float

    def fit(self, X: Array, y: object = None) -> Self:
        """Learn from the rows of X; y is not used."""
        super().fit(X)
        form, (k, d) = Caller.of(X), self.components_.shape
        smaller = (self.n_samples_ - 1) / self.n_samples_  # S divided by n
        self.total_variance_ *= smaller
        self._set_variances(form.take(self.explained_variance_) * smaller, form)
        self.noise_variance_ = max(0.0, self.left_out() / (d - k)) if k < d else 0.0  # (7)
        return self

    def factors(self) -> Array:
        """W, features x components."""
        check_is_fitted(self)
        form = Caller.of(self.components_)
        v, values = form.take(self.components_), form.take(self.explained_variance_)
        return form.give(v.T * (values - self.noise_variance_).clamp(min=0).sqrt())  # (7)

    def get_covariance(self) -> Array:
        """C."""
        form = Caller.of(self.components_)
        w = form.take(self.factors())
        return form.give(w @ w.T + self.noise_variance_ * torch.eye(len(w)).to(w))

    def score_samples(self, X: Array) -> Array:
        """The log-likelihood of each row, in nats."""
        x, form = inputs(self, X)
        v, values = form.take(self.components_), form.take(self.explained_variance_)
        (k, d), s, centred = v.shape, self.noise_variance_, x - form.take(self.mean_)
        if (s if k < d else values.min().item()) <= 1e-14 * self.total_variance_:
            raise UserError(
                f"noise_variance_ ({s:.1e}) must be positive, because the rows that were learned "
                f"from lie in a subspace, outside of which nothing is likely; n_components ({k}) "
                "must be smaller, or constant columns left out"
            )
        z = centred @ v.T
        rest = centred.square().sum(1) - z.square().sum(1)
        distance = (z.square() / values).sum(1) + (rest / s if k < d else 0)  # C is diagonal in V
        volume = values.log().sum() + ((d - k) * math.log(s) if k < d else 0)
        return form.give(-0.5 * (d * math.log(2 * math.pi) + volume + distance))  # (8)

    def score(self, X: Array, y: object = None) -> float:
        """The mean log-likelihood of the rows, in nats."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, *, generator: torch.Generator | None = None) -> Array:
        """Rows of the density."""
        form = Caller.of(self.components_)
        w, mean = form.take(self.factors()).cpu(), form.take(self.mean_).cpu()
        h = torch.randn(n_samples, w.shape[1], generator=generator, dtype=w.dtype)
        e = torch.randn(n_samples, len(w), generator=generator, dtype=w.dtype)
        return form.give(h @ w.T + mean + math.sqrt(self.noise_variance_) * e)  # (6)

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        super().check_learned()
        check_learned(vars(self), {"noise_variance_": Learned("float", low=0)})


def em_steps(
    covariance: Float[Tensor, "features features"],
    w: Float[Tensor, "features components"],
    s: float,
) -> Iterator[tuple[Float[Tensor, "features components"], float]]:
    """W and s after the first, second, ... step of expectation maximisation, from a start."""
    eye = torch.eye(w.shape[1]).to(w)
    while True:
        sw, m = covariance @ w, w.T @ w + s * eye
        new = sw @ torch.linalg.inv(s * eye + torch.linalg.solve(m, w.T @ sw))  # (9)
        s = float(
            (covariance.trace() - (sw * torch.linalg.solve(m, new.T).T).sum()) / len(w)
        )  # (10)
        w = new
        yield w, s


def mean_log_likelihood(
    covariance: Float[Tensor, "features features"],
    w: Float[Tensor, "features components"],
    s: float,
) -> float:
    """The mean of (8) over rows of this covariance, divided by n."""
    c = w @ w.T + s * torch.eye(len(w)).to(w)
    distance = torch.linalg.solve(c, covariance).trace()
    return float(-0.5 * (len(w) * math.log(2 * math.pi) + torch.logdet(c) + distance))  # (8)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class LinearCodes(Fitting[ProbabilisticPCA]):
    """Describe samples by few numbers, from which they are reconstructed, and draw new ones."""

    meanings: ClassVar[Mapping[str, str]] = {
        **meanings("mse"),
        "explained": "the share of the variance around the training mean that is reconstructed",
        "log_likelihood": "the mean log-likelihood of a sample under the density, in nats",
        "identity": "the training error without the eigenvalues left out, as a share of all",
    }

    data: str = "digits"
    """A known set, a csv file or a folder with one subfolder of images for each class."""
    target: str = ""
    """The column of a csv file that is no feature; it colours pictures and is not learned."""
    components: int = 16
    """How many numbers the code has."""
    solver: str = "auto"
    """full, covariance_eigh or randomized; auto is the fastest for the shape of the data."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "components")
        self.one_of("solver", SOLVERS)

    def dataset(self) -> Data:
        data = load(self.data, kind=("table", "image"), batch_size=1, target=self.target)
        return replace(data, spec={**data.spec, "task": "density"})  # targets are not learned

    def model(self, data: Data) -> ProbabilisticPCA:
        columns = math.prod(data.spec["shape"])
        words = f"below {columns}, the number of columns, because the code would hold them all"
        self.require(self.components < columns, "components", words)
        return ProbabilisticPCA(self.components, self.solver, self.seed)

    def fit(self, model: ProbabilisticPCA, data: Data) -> ProbabilisticPCA:
        return model.fit(data.whole[0].flatten(1))

    def metrics(self, model: ProbabilisticPCA, batch: Batch) -> dict[str, Tensor]:
        x = batch[0].flatten(1)
        return {
            "mse": (reconstruct(model, x) - x).square().mean(1),
            "_spread": (x - torch.as_tensor(model.mean_)).square().mean(1),
            "log_likelihood": torch.as_tensor(model.score_samples(x)),
        }

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        mse, spread = outputs["mse"].mean().item(), outputs["_spread"].mean().item()
        return {
            **{"mse": mse, "explained": 1 - mse / max(spread, 1e-300)},
            "log_likelihood": outputs["log_likelihood"].mean().item(),
        }

    def final(
        self, model: ProbabilisticPCA, data: Data, generator: torch.Generator
    ) -> dict[str, float]:
        x = data.whole[0].flatten(1)
        error = (reconstruct(model, x) - x).square().sum().item() / len(x)
        return {"identity": abs(error - model.left_out()) / model.total_variance_}

    def predict(
        self, model: ProbabilisticPCA, inputs: Float[Tensor, "batch ..."], spec: Spec
    ) -> Sequence[dict[str, Any]]:
        """The code of each sample, the mean squared error, and the reconstruction."""
        x = inputs.flatten(1)
        codes, made = torch.as_tensor(model.transform(x)), reconstruct(model, x)
        errors = (made - x).square().mean(1)
        if spec["kind"] == "table":
            mean, std = (torch.tensor(spec[name]).to(made) for name in ("mean", "std"))
            rows = (made * std + mean).tolist()
            shown: list[Any] = [dict(zip(spec["features"], row, strict=True)) for row in rows]
        else:
            shown = [*made.view(inputs.shape)]
        each = zip(codes.tolist(), errors.tolist(), shown, strict=True)
        return [{"code": code, "mse": mse, "reconstruction": one} for code, mse, one in each]

    def sample(
        self, model: ProbabilisticPCA, spec: Spec, generator: torch.Generator, *, n: int = 16
    ) -> Float[Tensor, "n ..."]:
        """New samples: random codes, and noise as large as what the components leave out."""
        if not 1 <= n <= 10_000:
            raise UserError(f"n ({n}) must be from 1 to 10,000 samples")
        made: Tensor = torch.as_tensor(model.sample(n, generator=generator))
        return made.view(n, *spec["shape"])

    # --------------------------------------------------------------------------------- pictures

    def picture_eigenvalues(
        self, model: ProbabilisticPCA, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """The variance along each component, and the error of the training samples by their number.

        Dots are measured, the line is the sum of the eigenvalues left out; {k} of {all} components
        leave {left:.1%} of the variance.
        """
        x = data.whole[0].flatten(1).double()
        whole = PCA(min(x.shape), "full" if len(x) < 10_000 else "auto").fit(x)
        values, total = whole.explained_variance_, whole.total_variance_
        count = torch.arange(1, len(values) + 1).double()
        z = whole.transform(x)
        measured = [k for k in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if k <= len(values)]
        errors = [
            (z[:, :k] @ whole.components_[:k] + whole.mean_ - x).square().sum() / (len(x) - 1)
            for k in measured
        ]
        kept = {f"k = {self.components}": float(self.components)}
        figure = panels(
            Panel(
                {"eigenvalue": (count, values.clamp(min=1e-9 * total))}, "component", "variance",
                log="xy", marks=kept,
            ),
            Panel(
                {"measured": (torch.tensor(measured).double(), torch.stack(errors) / total)},
                "components", "error, share of the variance",
                guides={"eigenvalues left out": (count, 1 - values.cumsum(0) / total)},
                log="x", scatter=True, marks=kept,
            ),
        )  # fmt: skip
        left = model.left_out() / model.total_variance_
        return figure, {"k": self.components, "all": len(values), "left": left}

    def picture_components(self, model: ProbabilisticPCA, data: Data, history: History) -> Figure:
        """The first components: what a number of the code adds, red, and takes away, blue."""
        v = torch.as_tensor(model.components_)[:24]
        if data.spec["kind"] != "table":
            return filters(v.view(-1, *data.spec["shape"])[:, :1], title="components")
        names, k = data.spec["features"], [str(n + 1) for n in range(len(v))]
        return heatmap(
            v.T, xlabel="component", ylabel="feature", unit="weight", signed=True,
            down=names, across=k,
        )  # fmt: skip

    def picture_codes(
        self, model: ProbabilisticPCA, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]] | None:
        """Validation samples by the first two numbers of their codes, coloured by their class.

        The classes were not given. Both directions together hold {share:.0%} of the variance.
        """
        if not data.spec["classes"] or self.components < 2:
            return None
        x, y = (torch.cat(parts) for parts in zip(*data.valid, strict=True))
        z = torch.as_tensor(model.transform(x.flatten(1)))[:, :2]
        share = float(torch.as_tensor(model.explained_variance_ratio_)[:2].sum())
        return code_plane(z, y, data.spec["classes"]), {"share": share}

    def picture_reconstructions(
        self, model: ProbabilisticPCA, data: Data, history: History
    ) -> Figure | None:
        """Validation images on top, and below what few and then more components make of them."""
        if data.spec["kind"] == "table":
            return None
        x = torch.cat([x for x, *_ in data.valid])[:10]
        z, rows, names = torch.as_tensor(model.transform(x.flatten(1))), [x], ["image"]
        for k in [k for k in (1, 2, 4, 8, 16, 32, 64, 128) if k < self.components] + [
            self.components
        ]:
            kept = torch.cat([z[:, :k], torch.zeros_like(z[:, k:])], 1)
            made = torch.as_tensor(model.inverse_transform(kept)).view(x.shape)
            rows.append(made.clamp(x.min(), x.max()))
            names.append(f"k = {k}")
        captions = [name if not column else "" for name in names for column in range(len(x))]
        return image_grid(torch.cat(rows), captions=captions, columns=len(x))

    def picture_likelihood(
        self, model: ProbabilisticPCA, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """The mean log-likelihood of the training samples by step of EM, from random factors.

        It rises at every step towards the dotted line, which the eigenvectors give at once; after
        {steps} steps it is {gap:.2g} nats below.
        """
        x = data.whole[0].flatten(1).double()
        s = covariance(x, x.mean(0)) * ((len(x) - 1) / len(x))
        start = torch.randn(len(s), self.components, generator=self._start(), dtype=s.dtype)
        steps = islice(em_steps(s, start.to(s), 1.0), 60)
        curve = torch.tensor([mean_log_likelihood(s, *step) for step in steps]).double()
        best = mean_log_likelihood(s, torch.as_tensor(model.factors()), model.noise_variance_)
        figure = panels(Panel(
            {"EM": (torch.arange(1, len(curve) + 1).double(), curve)}, "step",
            "log-likelihood, nats a sample", levels={"closed form": best}, log="x",
        ))  # fmt: skip
        return figure, {"steps": len(curve), "gap": best - float(curve[-1])}

    def _start(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)


def reconstruct(model: PCA, x: Float[Tensor, "rows features"]) -> Float[Tensor, "rows features"]:
    """Rows by way of their codes."""
    return torch.as_tensor(model.inverse_transform(model.transform(x)))


RECIPES = {
    "pca": LinearCodes(goal="explained >= 0.8 and identity < 1e-8", covers=("M22", "M23")),
    "pca-mnist": LinearCodes(
        data="mnist", components=50, goal="explained >= 0.8 and identity < 1e-8",
        covers=("M22", "M23"),
    ),
}  # fmt: skip
