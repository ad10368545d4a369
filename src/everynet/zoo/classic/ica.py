"""Independent component analysis (ICA): find signals again of which only mixtures were recorded.

    x_i = A s_i                                                          (1)  mixing
    z_i = K (x_i - mean),   K = Lambda^-1/2 U^T                          (2)  whitening
    w_k <- (1/n) sum_i [z_i g(w_k z_i) - g'(w_k z_i) w_k],   g = tanh    (3)  fixed-point step
    W   <- (W W^T)^-1/2 W                                                (4)  decorrelation
    s_i = W z_i                                                          (5)  the sources
    E(P) = 1/(2m(m-1)) [sum_ij |p_ij| / max_k |p_ik| + sum_ij |p_ij| / max_k |p_kj| - 2m]
                                                                         (6)  Amari distance

x_i is row i of n, s_i its m sources, U the eigenvectors and Lambda the eigenvalues of the
covariance of the rows. W is the rotation that is left after whitening: (3) moves all its rows w_k
and (4) makes them orthogonal again, alike for all (symmetric), until none turns. A sum of
independent numbers is nearer to a Gaussian than they are, so that the directions least like a
Gaussian, where the mean of log cosh is far from that of one, are sources; hence at most one source
may be a Gaussian. Order, sign and size of sources cannot be known: if all is right, P = W K A is a
permutation with signs and sizes, and E(P) is 0; it is at most 1.

Hyvarinen (1999), "Fast and Robust Fixed-Point Algorithms for Independent Component Analysis",
doi:10.1109/72.761722. Unlike the paper, steps are halved where directions do not come to rest.
(6): Amari, Cichocki, Yang (1996), "A New Learning Algorithm for Blind Signal Separation", NIPS 8.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from everynet.data.dataset import Batch, Data, History, Spec
from everynet.nn.estimator import Array, Caller, Learned, check_learned, inputs, unsupervised
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Fitting
from everynet.recipes.tabular import Columns
from everynet.system.errors import UserError
from everynet.system.seeds import generator as seeded
from everynet.zoo.classic.pictures.factors import signals
from everynet.zoo.classic.rows import covariance, load_rows, require_components, require_varying

CACHED = 2**15
"""Numbers of a chunk on the CPU: products and tanh of it stay in the cache."""
PATIENCE = 50
"""Steps after which the step is halved, and halved again."""
GAUSSIAN = 0.37456720
"""The mean of log cosh of a standard normal number."""


class FastICA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learns `components_` (sources x columns), `mixing_`, its pseudoinverse, and `mean_`.

    Sources have variance 1. Without `n_components` there are as many as columns.
    """

    components_: Array
    mixing_: Array
    mean_: Array
    n_iter_: int

    def __init__(
        self,
        n_components: int | None = None,
        tol: float = 1e-6,
        max_iter: int = 500,
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Array, y: Array = None) -> Self:
        """Fixed-point steps until no direction turns: its cosine with the last is 1 - `tol`."""
        x, form = unsupervised(self, X)
        if self.max_iter < 1:
            raise UserError(f"max_iter ({self.max_iter}) must be at least 1")
        if len(x) < 2:
            raise UserError(f"X (n_samples = {len(x)}) must have 2 rows or more: 1 has no variance")
        if self.n_components is not None:
            require_components(self.n_components, x, columns=True)
        require_varying(x)
        mean, whitening = whiten(x, self.n_components)
        z = whitening @ (x - mean).T
        draw = seeded(self.random_state)
        w = decorrelate(torch.randn(*[len(z)] * 2, generator=draw, dtype=x.dtype).to(x))
        for step in range(1, self.max_iter + 1):
            before, following = w, decorrelate(turned(w, z))
            share = 0.5 ** (step // PATIENCE)
            if share < 1:  # of the way, the sign as it was: directions may be exchanged for ever
                aligned = following * (following * w).sum(1, keepdim=True).sign()
                following = decorrelate(w + share * (aligned - w))
            w = following
            turn = float((1 - (w * before).sum(1).abs()).abs().max())
            if turn < self.tol:
                break
        else:
            warnings.warn(
                f"a direction still turned by {turn:.2g} after {step} steps, above tol "
                f"({self.tol}); raise max_iter or tol, or give fewer n_components",
                ConvergenceWarning,
                stacklevel=2,
            )
        unmixing = w @ whitening
        self.components_, self.mean_ = form.give(unmixing), form.give(mean)
        self.mixing_ = form.give(torch.linalg.pinv(unmixing))
        self.n_iter_ = step
        return self

    def transform(self, X: Array) -> Array:
        """The sources of each row."""
        x, form = inputs(self, X)
        return form.give((x - form.take(self.mean_)) @ form.take(self.components_).T)  # (5)

    def inverse_transform(self, X: Array) -> Array:
        """The rows that sources are mixed to."""
        form = Caller.of(X)
        s = form.take(X).to(torch.float64)
        return form.give(s @ form.take(self.mixing_).T + form.take(self.mean_))  # (1)

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        check_learned(vars(self), {
            "n_features_in_": Learned("int", "features", low=1),
            "mean_": Learned("float64", "features"),
            "components_": Learned("float64", "sources features"),
            "mixing_": Learned("float64", "features sources"),
            "n_iter_": Learned("int", low=1),
        })  # fmt: skip

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


def whiten(
    x: Float[Tensor, "samples features"], k: int | None
) -> tuple[Float[Tensor, " features"], Float[Tensor, "components features"]]:
    """The mean and K, of the k directions of largest variance; none may have a variance of 0."""
    mean, s = covariance(x)
    values, vectors = torch.linalg.eigh(s)
    rank = int((values > 1e-12 * values[-1]).sum())
    k = min(rank, len(x)) if k is None else k
    if k > rank:
        raise UserError(
            f"n_components ({k}) must be at most {rank}, because the columns of X vary along so "
            "many directions only; give fewer, or leave out columns that follow from others"
        )
    kept = values[-k:].flip(0)
    return mean, vectors[:, -k:].flip(1).T / kept.sqrt()[:, None]  # (2)


def turned(
    w: Float[Tensor, "sources sources"], z: Float[Tensor, "sources samples"]
) -> Float[Tensor, "sources sources"]:
    """The directions after one step, not yet decorrelated."""
    total, slope = torch.zeros_like(w), w.new_zeros(len(w))
    for part in z.split(max(1, CACHED // len(w)) if z.is_cpu else z.shape[1], 1):
        g = (w @ part).mul_(2).sigmoid_().mul_(2).sub_(1)  # tanh, in a quarter of its time
        total.addmm_(g, part.T)
        slope += part.shape[1] - g.square_().sum(1)  # of tanh' = 1 - tanh^2
    return (total - slope[:, None] * w) / z.shape[1]  # (3)


def decorrelate(w: Float[Tensor, "sources sources"]) -> Float[Tensor, "sources sources"]:
    """The orthogonal matrix nearest to W."""
    values, vectors = torch.linalg.eigh(w @ w.T)
    made: Tensor = (vectors / values.sqrt()) @ vectors.T @ w  # (4)
    return made


def amari_distance(p: Float[Tensor, "sources sources"]) -> float:
    """How far P is from a permutation with signs and sizes, from 0 to 1."""
    p, m = p.abs(), len(p)
    rows = (p / p.amax(1, keepdim=True)).sum()
    columns = (p / p.amax(0, keepdim=True)).sum()
    return float(rows + columns - 2 * m) / (2 * m * max(1, m - 1))  # (6)


# -------- the network ends here; training and pictures follow --------

SHOWN = 300  # time steps in a picture
POINTS = 400  # of a scatter, about
PERIODS = (83.0, 57.0, 131.0)  # time steps of the sine, the square and the sawtooth


@dataclass(frozen=True, kw_only=True)
class Unmixing(Columns, Fitting[FastICA]):
    """Separate signals that were recorded mixed."""

    takes: ClassVar[tuple[str, ...]] = ("table",)
    meanings: ClassVar[Mapping[str, str]] = {
        "negentropy": "how far log cosh of a source is from that of a Gaussian, mean of sources",
        "mixtures": "the same of the columns as they were recorded",
        "gain": "the first less the second",
        "amari": "the Amari distance of the unmixing from the true one: 0 is perfect, at most 1",
        "correlation": "the least correlation of a source with the true one of the test rows",
        "steps": "fixed-point steps",
    }

    data: str = ""
    """A known table, or a csv file whose columns were recorded; empty is three mixed signals."""
    components: int = 3
    """Sources."""
    length: int = 4000
    """Time steps of the three signals."""
    noise: float = 0.02
    """Standard deviation of the noise on each signal, whose own is 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "components")
        self.at_least(100, "length")
        self.at_least(0, "noise")
        few = bool(self.data) or self.components <= 3
        self.require(few, "components", "at most 3, because three signals are mixed")

    def dataset(self) -> Data:
        if self.data:
            return load_rows(self.data, self.columns)
        draw = seeded(self.seed, 1)
        s = three_signals(self.length, self.noise, draw)
        a = mixing_matrix(3, draw)
        x = s @ a.T  # (1)
        cut, end = int(0.7 * self.length), int(0.8 * self.length)
        where = {"train": slice(0, cut), "valid": slice(cut, end), "test": slice(end, None)}
        spec = {
            "name": "a sine, a square wave and a sawtooth, mixed", "kind": "table",
            "task": "density", "shape": [3], "features": ["mixture 1", "mixture 2", "mixture 3"],
            "mean": [0.0] * 3, "std": [1.0] * 3, "classes": [], "mixing": a.tolist(),
            "split": "the last fifth of the time steps is test and a tenth before it is valid",
        }  # fmt: skip
        splits = {part: (x[rows], s[rows]) for part, rows in where.items()}
        digest = hashlib.sha256(x.numpy().tobytes() + a.numpy().tobytes()).hexdigest()
        return Data(splits, spec, 1, self.seed, digest)

    def model(self, data: Data) -> FastICA:
        return FastICA(self.components, random_state=self.seed)

    def fit(self, model: FastICA, data: Data) -> FastICA:
        return model.fit(data.whole[0])

    def metrics(self, model: FastICA, batch: Batch) -> dict[str, Tensor]:
        sources = torch.as_tensor(model.transform(batch[0]))
        columns = (batch[0] - torch.as_tensor(model.mean_)).double()
        parts = {"_source": sources, "_column": columns}
        return {f"{name}{k}": s for name, part in parts.items() for k, s in enumerate(part.T)}

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        found, mixtures = (
            negentropy(torch.stack([s for key, s in outputs.items() if key.startswith(name)], 1))
            for name in ("_source", "_column")
        )
        return {"negentropy": found, "mixtures": mixtures, "gain": found - mixtures}

    def final(self, model: FastICA, data: Data, generator: torch.Generator) -> dict[str, float]:
        found = {"steps": float(model.n_iter_)}
        mixing = data.spec.get("mixing")
        if mixing is None or len(model.components_) < len(mixing):
            return found
        a = torch.tensor(mixing, dtype=torch.float64)
        found["amari"] = amari_distance(torch.as_tensor(model.components_) @ a)
        x, s = data.splits["test"]
        order, sign = matched(torch.as_tensor(model.transform(x)), s)
        pairs = correlations(torch.as_tensor(model.transform(x))[:, order] * sign, s)
        found["correlation"] = float(pairs.diagonal().min())
        return found

    def picture_signals(self, model: FastICA, data: Data, history: History) -> Figure:
        """What was recorded (left), and the sources that were found in it (right).

        Where the true signals are known they are dashed, and order and sign of the sources, which
        cannot be known, are taken from them.
        """
        x, truth = data.splits["test"]
        x, truth = x[:SHOWN], truth[:SHOWN]
        sources = torch.as_tensor(model.transform(x))
        if "mixing" not in data.spec:
            return signals({"recorded": x, "sources": sources}, truth=None)
        order, sign = matched(sources, truth)
        shown = sources[:, order] * sign
        return signals({"recorded": x, "sources": shown}, truth=truth[:, : len(order)])

    def picture_directions(
        self, model: FastICA, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Two columns as recorded, whitened, and as sources; a point is a training row.

        Whitening leaves a rotation, and ICA finds the one whose axes are least like a Gaussian:
        negentropy rises from {before:.4f} to {after:.4f}.
        """
        x = data.whole[0].double()
        mean, whitening = whiten(x, min(2, x.shape[1]) if self.components == 1 else self.components)
        white = (x - mean) @ whitening.T
        sources = torch.as_tensor(model.transform(x)).double()
        parts = {"recorded": x - mean, "whitened": white, "sources": sources}
        some = slice(None, None, max(1, len(x) // POINTS))
        made = panels(*(
            Panel({"training rows": (part[some, 0], part[some, min(1, part.shape[1] - 1)])},
                  f"{name}, 1", f"{name}, 2", scatter=True, legend="none", title=name)
            for name, part in parts.items()
        ))  # fmt: skip
        return made, {"before": negentropy(white), "after": negentropy(sources)}

    def predict(
        self, model: FastICA, inputs: Float[Tensor, "batch features"], spec: Spec
    ) -> Sequence[dict[str, Any]]:
        """The sources of each row."""
        return [{"sources": row} for row in torch.as_tensor(model.transform(inputs)).tolist()]


def three_signals(
    length: int, noise: float, generator: torch.Generator
) -> Float[Tensor, "length 3"]:
    """A sine, a square wave and a sawtooth with noise, each of mean 0 and standard deviation 1."""
    t = torch.arange(length, dtype=torch.float64)
    phase = torch.rand(3, generator=generator, dtype=torch.float64)
    turns = t[:, None] / torch.tensor(PERIODS, dtype=torch.float64) + phase
    sine = (2 * math.pi * turns[:, 0]).sin()
    square = torch.where(turns[:, 1] % 1 < 0.5, 1.0, -1.0)
    s = torch.stack([sine, square, turns[:, 2] % 1], 1)
    s = (s - s.mean(0)) / s.std(0)
    return s + noise * torch.randn(s.shape, generator=generator, dtype=torch.float64)


def mixing_matrix(m: int, generator: torch.Generator) -> Float[Tensor, "m m"]:
    """Numbers at random, drawn again where the largest singular value is above ten of the least."""
    while True:
        a = torch.randn(m, m, generator=generator, dtype=torch.float64)
        if float(torch.linalg.cond(a)) < 10:
            return a


def negentropy(s: Float[Tensor, "samples sources"]) -> float:
    """The squared distance of the mean log cosh of each source from a Gaussian's, on average."""
    s = (s - s.mean(0)) / s.std(0, correction=0).clamp(min=1e-300)
    log_cosh = s.abs() + torch.log1p(torch.exp(-2 * s.abs())) - math.log(2)
    return float((log_cosh.mean(0) - GAUSSIAN).square().mean())


def correlations(
    a: Float[Tensor, "samples found"], b: Float[Tensor, "samples true"]
) -> Float[Tensor, "found true"]:
    """Of each column of one with each of the other."""
    a, b = ((s - s.mean(0)) / (s - s.mean(0)).norm(dim=0) for s in (a.double(), b.double()))
    product: Tensor = a.T @ b
    return product


def matched(
    s: Float[Tensor, "samples found"], truth: Float[Tensor, "samples true"]
) -> tuple[Tensor, Tensor]:
    """The source for each true signal, by correlation, and its sign."""
    found = correlations(s, truth)
    rows, columns = linear_sum_assignment(-found.abs().numpy())
    order = torch.as_tensor(rows)[torch.as_tensor(columns).argsort()]
    return order, found[order, torch.arange(len(order))].sign()


RECIPES = {
    "ica": Unmixing(goal="amari < 0.05 and correlation >= 0.99 and gain > 0", covers=("M23",)),
}
