"""A support vector machine: two classes kept apart with the widest margin, seen through a kernel.

    f(x)   = sum_i beta_i k(x_i, x) + b,   beta_i = y_i alpha_i       (1)  the class is sign f(x)
    k(x,z) = x . z                                                    (2)  linear kernel
    k(x,z) = (gamma x . z + c)^p                                      (3)  polynomial kernel
    k(x,z) = exp(-gamma |x - z|^2)                                    (4)  RBF kernel
    W      = sum_i alpha_i - 1/2 sum_ij beta_i beta_j k(x_i, x_j)     (5)  dual, to be greatest for
             0 <= alpha_i <= C,  sum_i beta_i = 0
    w      = sum_i beta_i x_i = X^T beta,   f(x) = w . x + b          (6)  for a linear kernel
    y_i f(x_i) >= 1 where alpha_i = 0,  = 1 where 0 < alpha_i < C,
               <= 1 where alpha_i = C                                 (7)  Karush-Kuhn-Tucker
    s_k(x) = votes for k + m / (3 |m| + 3),   m = sum of margins      (8)  of more than two classes

y_i, -1 or 1, is the class of sample i and alpha_i its weight. Where (7) holds, W is at its maximum.
Most alpha are 0: the others belong to support vectors, which alone are kept, and a prediction takes
time in proportion to their number. A kernel is a scalar product phi(x) . phi(z) of features that
are never computed; the (x1, x2) of a polynomial kernel with p = 2 stand for x1^2, x1 x2, x2^2 and,
with c > 0, for x1, x2 and 1 too. (5) is solved by sequential minimal optimisation (`kernels/smo`).
Of more than two classes each pair has a machine of its own, f > 0 being a vote for the second.

Boser, Guyon and Vapnik (1992), "A training algorithm for optimal margin classifiers",
doi:10.1145/130385.130401; Cortes and Vapnik (1995), "Support-vector networks",
doi:10.1007/BF00994018; steps: Fan, Chen and Lin (2005), "Working set selection using second order
information for training support vector machines", JMLR 6. Names and defaults are scikit-learn's.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor
from torch.nn.functional import linear

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec
from everynet.kernels.smo import solve
from everynet.metrics import classified, confusion
from everynet.metrics.meanings import CLASSES, meanings
from everynet.nn.estimator import (
    Array,
    Caller,
    Learned,
    check_learned,
    classification,
    inputs,
    labels,
    linear_classifier,
)
from everynet.plot.images import image_grid
from everynet.plot.matrix import confusion_matrix
from everynet.recipes.recipe import Fitting
from everynet.recipes.tabular import Tabular
from everynet.system.errors import UserError
from everynet.system.wording import unknown
from everynet.zoo.classic.pictures.margin import margins_by_weight, margins_in_the_plane

KERNELS = ("linear", "poly", "rbf")
CHUNK = 2**20
"""Entries of a kernel matrix that are computed at a time: what a core's cache holds."""
MANY = 100_000
"""Numbers in the samples from which float32 pays, if its rounding is allowed."""
ROUNDING = 5e-4
"""What float32 may add to f: half of the tolerance that f is compared with scikit-learn's by."""


@dataclass(frozen=True)
class Kernel:
    """k(x, z) of all rows of x with all rows of z."""

    name: str
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0

    def __call__(
        self, x: Float[Tensor, "rows features"], z: Float[Tensor, "others features"]
    ) -> Float[Tensor, "rows others"]:
        if self.name == "linear":
            return x @ z.T  # (2)
        if self.name == "poly":
            return (self.gamma * (x @ z.T) + self.coef0) ** self.degree  # (3)
        return self.rbf(x, pack(z), x.square().sum(1), z.square().sum(1))

    def rbf(
        self,
        x: Float[Tensor, "rows features"],
        z: Float[Tensor, "others features"],
        x_squares: Float[Tensor, " rows"],
        z_squares: Float[Tensor, " others"],
    ) -> Float[Tensor, "rows others"]:
        """-|x - z|^2 as 2 x.z - |z|^2 - |x|^2: one product of matrices, of a packed z.

        The product may leave out features in which z is 0; the squares may not.
        """
        exponent = products(2 * self.gamma * x, z, -self.gamma * z_squares)
        exponent -= self.gamma * x_squares[:, None]
        return exponent.clamp_(max=0).exp_()  # (4)

    def diagonal(self, x: Float[Tensor, "rows features"]) -> Float[Tensor, " rows"]:
        """k(x, x) of each row."""
        if self.name == "rbf":
            return torch.ones_like(x[:, 0])
        squares = x.square().sum(1)
        if self.name == "linear":
            return squares
        powers: Tensor = (self.gamma * squares + self.coef0) ** self.degree
        return powers

    def centre(self, x: Float[Tensor, "rows features"]) -> Float[Tensor, " features"]:
        """What may be subtracted from all rows without changing k, so that less is rounded."""
        return x.mean(0) if self.name == "rbf" else torch.zeros_like(x[0])

    def suits_float32(self, centred: Float[Tensor, "rows features"], weight: float) -> bool:
        """Whether f, by coefficients of this length, is rounded by less than `ROUNDING`.

        The exponent of (4) is; other kernels are not bounded, so that nothing is known of them.
        """
        if self.name != "rbf" or centred.numel() < MANY:
            return False
        exponent = self.gamma * centred.square().sum(1).max().item()
        return exponent * weight * torch.finfo(torch.float32).eps < ROUNDING


def pack(z: Float[Tensor, "others features"]) -> Float[Tensor, "others features"]:
    """The rows in the form of oneDNN, whose float32 products are twice as fast on some CPUs."""
    fast = z.dtype == torch.float32 and z.is_cpu and torch.backends.mkldnn.is_available()
    return z.to_mkldnn() if fast else z


def products(
    x: Float[Tensor, "rows features"],
    z: Float[Tensor, "others features"],
    bias: Float[Tensor, " others"],
) -> Float[Tensor, "rows others"]:
    """The scalar products of all rows with all rows of a packed z, plus a number for each z."""
    if z.is_mkldnn:
        packed: Tensor = linear(x.to_mkldnn(), z, bias.to_mkldnn())
        return packed.to_dense()
    return torch.addmm(bias, x, z.T)


class Pairs(NamedTuple):
    """What the machines of all pairs of classes learned from n rows."""

    beta: Float[Tensor, "pairs rows"]
    bias: Float[Tensor, " pairs"]
    steps: Int[Tensor, " pairs"]


def fit_pairs(
    x: Float[Tensor, "rows features"],
    index: Int[Tensor, " rows"],
    kernel: Kernel,
    bounds: Sequence[float],
    *,
    tol: float,
    max_iter: int,
    cache_size: float,
) -> Pairs:
    """One machine for each pair of classes: (0, 1), (0, 2), ..., (1, 2), ...

    `bounds` has C for each class, `cache_size` the megabytes for columns of the kernel.
    """
    pairs = [*combinations(range(len(bounds)), 2)]
    centred = x - kernel.centre(x)
    if kernel.suits_float32(centred, max(bounds) * math.sqrt(len(x))):
        centred = centred.float()
        centred = centred[:, (centred != centred[0]).any(0)]  # the others add to no distance
    beta = x.new_zeros(len(pairs), len(x))
    bias, steps = x.new_zeros(len(pairs)), torch.zeros(len(pairs), dtype=torch.int64)
    for number, (a, b) in enumerate(pairs):
        rows = ((index == a) | (index == b)).nonzero()[:, 0]
        y = np.where((index[rows] == b).cpu().numpy(), 1.0, -1.0)
        columns = Columns(kernel, centred[rows])
        high = np.where(y > 0, bounds[b], 0.0)
        low = np.where(y < 0, -bounds[a], 0.0)
        solution = solve(
            columns, columns.diagonal, y, low, high, tol=tol, max_steps=max_iter,
            slots=int(cache_size * 2**20) // (len(rows) * centred.element_size()),
        )  # fmt: skip
        if not solution.converged:
            warnings.warn(
                f"(7) is not yet met after {solution.steps:,} steps for classes {a} and {b}; scale "
                "the features or raise max_iter",
                ConvergenceWarning,
                stacklevel=3,
            )
        beta[number, rows] = torch.from_numpy(solution.beta).to(beta)
        bias[number], steps[number] = solution.bias, solution.steps
    return Pairs(beta, bias, steps)


class Columns:
    """Columns of the kernel matrix of some rows, as the solver asks for them."""

    def __init__(self, kernel: Kernel, x: Float[Tensor, "rows features"]) -> None:
        self.kernel, self.x = kernel, x
        self.packed, self.squares = pack(x), x.square().sum(1)
        self.diagonal = kernel.diagonal(x).double().cpu().numpy()

    def __call__(self, wanted: NDArray[np.int64]) -> NDArray[Any]:
        some = self.x[torch.from_numpy(wanted).to(self.x.device)]
        if self.kernel.name == "rbf":
            made = self.kernel.rbf(some, self.packed, some.square().sum(1), self.squares)
        else:
            made = self.kernel(some, self.x)
        columns: NDArray[Any] = made.cpu().numpy()
        return columns


def dual_value(
    beta: Float[Tensor, " rows"], y: Float[Tensor, " rows"], k: Float[Tensor, "rows rows"]
) -> Float[Tensor, ""]:
    """W, which the steps of `solve` raise."""
    return (y * beta).sum() - beta @ k @ beta / 2  # (5)


def kkt_residuals(
    alpha: Float[Tensor, " rows"], margin: Float[Tensor, " rows"], bound: Float[Tensor, " rows"]
) -> Float[Tensor, " rows"]:
    """By how much y f(x) of each row breaks its condition."""
    below, above = (1 - margin).clamp(min=0), (margin - 1).clamp(min=0)
    return torch.where(alpha < bound, below, 0 * below) + torch.where(alpha > 0, above, 0)  # (7)


class OneAgainstOne(ClassifierMixin):
    """What follows from the decisions of all pairs of classes: votes, scores and labels."""

    classes_: Array

    def _decide(self, X: Array) -> tuple[Float[Tensor, "samples pairs"], Caller]:
        raise NotImplementedError  # each machine has its own

    def pair_decisions(self, X: Array) -> Array:
        """The f of each pair of classes, (0, 1), (0, 2) and so on: above 0 for the second."""
        f, form = self._decide(X)
        return form.give(f)

    def decision_function(self, X: Array) -> Array:
        """f, above 0 for the second of two classes; of more than two a score for each."""
        f, form = self._decide(X)
        return form.give(f[:, 0] if f.shape[1] == 1 else vote(f, len(self.classes_)))

    def predict(self, X: Array) -> Array:
        """The class; where votes are equal, that of the larger margins."""
        f, form = self._decide(X)
        scores = torch.cat([-f, f], 1) if f.shape[1] == 1 else vote(f, len(self.classes_))
        return labels(self, scores.argmax(1), form)

    def _learn(self, X: Array, y: Array, class_weight: object, C: float) -> tuple[Any, ...]:
        """Validated rows, the index of each class, C for each class, and the form of results."""
        if not 0 < C < math.inf:
            raise UserError(
                f"C ({C}) must be a positive number, because it is the most that one sample may "
                "weigh; try 1.0"
            )
        x, index, form = classification(self, X, y)
        classes = np.asarray(Caller(None).give(self.classes_))
        weights = compute_class_weight(
            class_weight, classes=classes, y=classes[index.cpu().numpy()]
        )
        return x, index, [C * float(weight) for weight in weights], form


def vote(f: Float[Tensor, "samples pairs"], classes: int) -> Float[Tensor, "samples classes"]:
    """The votes for each class and, below one vote, its margins."""
    first, second = torch.triu_indices(classes, classes, 1, device=f.device)
    votes, m = f.new_zeros(len(f), classes), f.new_zeros(len(f), classes)
    votes.index_add_(1, second, (f > 0).to(f)).index_add_(1, first, (f <= 0).to(f))
    m.index_add_(1, second, f).index_add_(1, first, -f)
    return votes + m / (3 * m.abs() + 3)  # (8)


class SVC(OneAgainstOne, BaseEstimator):
    """Learns `support_vectors_`, their `dual_coef_`, a row for each pair, and `intercept_`.

    Unlike scikit-learn's, `dual_coef_` is 0 where a support vector is of neither class of a pair.
    """

    support_: Array
    support_vectors_: Array
    dual_coef_: Array
    intercept_: Array
    bounds_: Array
    """C of each class, times its weight."""
    n_iter_: Array
    gamma_: float

    def __init__(
        self,
        C: float = 1.0,
        kernel: str = "rbf",
        *,
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        tol: float = 1e-3,
        class_weight: Mapping[Any, float] | str | None = None,
        max_iter: int = 10_000_000,
        cache_size: float = 200.0,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.tol = tol
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.cache_size = cache_size

    def fit(self, X: Array, y: Array) -> Self:
        if self.kernel not in KERNELS:
            raise UserError(unknown("kernel", self.kernel, KERNELS))
        scaled = self.gamma in ("scale", "auto")
        if not scaled and (isinstance(self.gamma, str) or not 0 < self.gamma < math.inf):
            raise UserError(f"gamma ({self.gamma}) must be a positive number, or scale or auto")
        if self.degree < 1:
            raise UserError(f"degree ({self.degree}) must be at least 1; try 3")
        x, index, bounds, form = self._learn(X, y, self.class_weight, self.C)
        spread = x.var(correction=0).item() if self.gamma == "scale" else 1.0
        self.gamma_ = 1 / (x.shape[1] * (spread or 1.0)) if scaled else float(self.gamma)
        beta, bias, steps = fit_pairs(
            x, index, self._kernel(), bounds,
            tol=self.tol, max_iter=self.max_iter, cache_size=self.cache_size,
        )  # fmt: skip
        support = (beta != 0).any(0).nonzero()[:, 0]
        self.support_, self.support_vectors_ = form.give(support), form.give(x[support])
        self.dual_coef_, self.intercept_ = form.give(beta[:, support]), form.give(bias)
        self.bounds_, self.n_iter_ = form.give(x.new_tensor(bounds)), form.give(steps)
        return self

    def _kernel(self) -> Kernel:
        return Kernel(self.kernel, self.gamma_, self.degree, self.coef0)

    def _decide(self, X: Array) -> tuple[Float[Tensor, "samples pairs"], Caller]:
        x, form = inputs(self, X)
        vectors, beta = form.take(self.support_vectors_), form.take(self.dual_coef_)
        bias, kernel = form.take(self.intercept_), self._kernel()
        centre = kernel.centre(vectors)
        centred = torch.sub(vectors, centre, out=vectors.new_empty(0, dtype=torch.float32))
        if not kernel.suits_float32(centred, beta.norm(dim=1).max().item()):
            centred = vectors - centre
        varied = (vectors != vectors[0]).any(0)  # where `centred` is 0 a product needs no column
        z, z_squares, f = pack(centred[:, varied]), centred.square().sum(1), []
        for part in x.split(max(1, CHUNK // len(vectors))):
            rows = torch.sub(part, centre, out=centred.new_empty(0))
            if kernel.name == "rbf":
                k = kernel.rbf(rows[:, varied], z, rows.square().sum(1), z_squares)
            else:
                k = kernel(rows, centred)
            f.append(k @ beta.to(centred).T)  # (1)
        return torch.cat(f).double() + bias, form

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        sizes = check_learned(vars(self), {
            "n_features_in_": Learned("int", "features", low=1),
            "classes_": Learned("int64", "classes", ascending=True),
            "gamma_": Learned("float", low=0),
            "bounds_": Learned("float64", "classes", low=0),
            "support_": Learned("int64", "vectors", low=0, high=2**53, ascending=True),
            "support_vectors_": Learned("float64", "vectors features"),
            "dual_coef_": Learned("float64", "pairs vectors"),
            "intercept_": Learned("float64", "pairs"),
            "n_iter_": Learned("int64", "pairs", low=0, high=2**53),
        })  # fmt: skip
        check_pairs(sizes)


class LinearSVC(OneAgainstOne, BaseEstimator):
    """Learns `coef_`, the w of each pair of classes, and `intercept_`: no sample has to be kept.

    Unlike scikit-learn's it has the margins of (7), as `SVC(kernel="linear")` has, which are not
    squared, and decides between pairs of classes.
    """

    coef_: Array
    intercept_: Array
    n_iter_: Array

    def __init__(
        self,
        C: float = 1.0,
        *,
        tol: float = 1e-3,
        class_weight: Mapping[Any, float] | str | None = None,
        max_iter: int = 10_000_000,
        cache_size: float = 200.0,
    ) -> None:
        self.C = C
        self.tol = tol
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.cache_size = cache_size

    def fit(self, X: Array, y: Array) -> Self:
        x, index, bounds, form = self._learn(X, y, self.class_weight, self.C)
        beta, bias, steps = fit_pairs(
            x, index, Kernel("linear"), bounds,
            tol=self.tol, max_iter=self.max_iter, cache_size=self.cache_size,
        )  # fmt: skip
        self.coef_, self.intercept_ = form.give(beta @ x), form.give(bias)  # (6)
        self.n_iter_ = form.give(steps)
        return self

    def _decide(self, X: Array) -> tuple[Float[Tensor, "samples pairs"], Caller]:
        x, form = inputs(self, X)
        return x @ form.take(self.coef_).T + form.take(self.intercept_), form  # (6)

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        check_pairs(check_learned(vars(self), {
            **linear_classifier("classes", "pairs"),
            "n_iter_": Learned("int64", "pairs", low=0, high=2**53),
        }))  # fmt: skip


def check_pairs(sizes: Mapping[str, int]) -> None:
    """Refuse another number of machines than there are pairs of classes."""
    pairs = math.comb(sizes["classes"], 2)
    if sizes["classes"] < 2 or sizes["pairs"] != pairs:
        raise ValueError(f"intercept_ ({sizes['pairs']}) must have {pairs}, one a pair of classes")


def conditions(
    model: SVC, x: Float[Tensor, "rows features"], y: Int[Tensor, " rows"]
) -> tuple[Float[Tensor, " all"], Float[Tensor, " all"], Float[Tensor, " all"]]:
    """alpha, y f(x) and C of the rows that were learned from, for one pair after another."""
    dual, bounds, support = (
        torch.as_tensor(each) for each in (model.dual_coef_, model.bounds_, model.support_)
    )
    beta = dual.new_zeros(len(dual), len(x)).index_copy_(1, support, dual)
    f, found = torch.as_tensor(model.pair_decisions(x)), []
    for number, (a, b) in enumerate(combinations(range(len(bounds)), 2)):
        rows = (y == a) | (y == b)
        side = torch.where(y[rows] == b, 1.0, -1.0).to(f)
        found.append((beta[number, rows].abs(), side * f[rows, number], bounds[y[rows]]))
    alpha, margin, bound = (torch.cat(each) for each in zip(*found, strict=True))
    return alpha, margin, bound


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class KernelClassifier(Tabular, Fitting[SVC]):
    """Tell classes apart by the widest margin, straight or bent by a kernel."""

    meanings: ClassVar[Mapping[str, str]] = {
        **meanings(*CLASSES),
        "support_share": "the share of the training samples that are support vectors, and kept",
        "kkt": "by how much a training sample breaks its optimality condition at most",
    }

    data: str = "breast-cancer"
    """A known set, a csv file or a folder with one subfolder per class."""
    kernel: str = "rbf"
    """linear, poly or rbf."""
    C: float = 1.0
    """The most that one sample may weigh: the larger, the fewer training samples are misplaced."""
    gamma: float = 0.0
    """Of rbf and poly: the larger, the narrower; 0 is 1 / (features x variance)."""
    degree: int = 3
    """The power of poly."""
    coef0: float = 1.0
    """What poly adds to the product, so that lower powers count too."""
    class_weight: str = ""
    """balanced: every class weighs as much as the others, however rare."""
    tol: float = 1e-4
    """Steps end where no two samples break their optimality conditions by more, together."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.one_of("kernel", KERNELS)
        self.above(0, "C", "tol")
        self.at_least(0, "gamma", "coef0")
        self.at_least(1, "degree")
        self.require(self.class_weight in ("", "balanced"), "class_weight", "empty or balanced")

    def dataset(self) -> Data:
        data = load(self.data, kind=("table", "image"), batch_size=1, **self.columns)
        if data.spec["task"] != "classification":
            raise UserError(
                f"data ({self.data}) must have classes, because a margin lies between two; for "
                "numbers try least-squares"
            )
        return data

    def model(self, data: Data) -> SVC:
        return SVC(
            self.C, self.kernel, degree=self.degree, gamma=self.gamma or "scale",
            coef0=self.coef0, tol=self.tol, class_weight=self.class_weight or None,
        )  # fmt: skip

    def fit(self, model: SVC, data: Data) -> SVC:
        x, y = data.whole
        return model.fit(x.flatten(1), y)

    def metrics(self, model: SVC, batch: Batch) -> dict[str, Tensor]:
        x, y = batch
        scores = torch.as_tensor(model.decision_function(x.flatten(1)))
        return classified(scores[:, None] if scores.dim() == 1 else scores, y)

    def final(self, model: SVC, data: Data, generator: torch.Generator) -> dict[str, float]:
        x, y = data.whole
        residual = kkt_residuals(*conditions(model, x.flatten(1), y)).max().item()
        return {"support_share": len(model.support_) / len(x), "kkt": residual}

    def picture_plane(
        self, model: SVC, data: Data, history: History
    ) -> tuple[Figure, dict[str, int]] | None:
        """The decision in the plane, straight and by the kernel; support vectors have a ring.

        Dashed lines are the margins, where f is -1 and 1: {kept} of {rows} samples lie between
        them or on the wrong side, or hold them up, and decide alone.
        """
        x, y = data.whole
        if (
            len(data.spec["classes"]) != 2
            or data.spec.get("features", ())[2:]
            or x.shape[1:] != (2,)
        ):
            return None
        machines = {"linear": SVC(self.C, "linear", tol=self.tol).fit(x, y), self.kernel: model}
        figure = margins_in_the_plane(machines, x, y, data.spec)
        return figure, {"kept": len(model.support_), "rows": len(x)}

    def picture_conditions(
        self, model: SVC, data: Data, history: History
    ) -> tuple[Figure, dict[str, object]]:
        """The weight of each training sample against its margin, y f(x), in each pair of classes.

        Weights are 0 beyond 1 ({none:,} samples), C below 1 ({full:,}) and between them only at 1
        ({free:,}): no sample is off by more than {residual:.1e}.
        """
        x, y = data.whole
        alpha, margin, bound = conditions(model, x.flatten(1), y)
        residual = kkt_residuals(alpha, margin, bound).max().item()
        none, full = int((alpha == 0).sum()), int((alpha == bound).sum())
        return margins_by_weight(alpha / bound, margin), {
            **{"none": none, "full": full, "free": len(alpha) - none - full},
            "residual": residual,
        }

    def picture_support_vectors(
        self, model: SVC, data: Data, history: History
    ) -> tuple[Figure, dict[str, int]] | None:
        """The training images that weigh most, with their class: those that are hard to place.

        {kept:,} of {rows:,} training images are kept as support vectors.
        """
        x, y = data.whole
        if data.spec["kind"] == "table":
            return None
        weight = torch.as_tensor(model.dual_coef_).abs().sum(0)
        heaviest = torch.as_tensor(model.support_)[
            weight.argsort(descending=True, stable=True)[:24]
        ]
        names = [data.spec["classes"][k] for k in y[heaviest].tolist()]
        return image_grid(x[heaviest], captions=names, columns=12), {
            **{"kept": len(model.support_), "rows": len(x)},
        }

    def picture_confusion(self, model: SVC, data: Data, history: History) -> Figure:
        """Validation samples by their true class (rows) and the predicted one (columns).

        Right answers (blue) lie on the diagonal; mistakes are red.
        """
        x, y = (torch.cat(parts) for parts in zip(*data.valid, strict=True))
        predicted = torch.as_tensor(model.predict(x.flatten(1)))
        classes = data.spec["classes"]
        return confusion_matrix(confusion(predicted, y, len(classes)), classes)

    def predict(
        self, model: SVC, inputs: Float[Tensor, "batch ..."], spec: Spec
    ) -> Sequence[dict[str, Any]]:
        """The class, and the score of each: a machine of margins knows no probability."""
        f = torch.as_tensor(model.decision_function(inputs.flatten(1)))
        scores = torch.stack([-f, f], 1) if f.dim() == 1 else f
        names = spec["classes"]
        return [
            {
                "class": names[row.index(max(row))],
                "score": max(row),
                "scores": dict(zip(names, row, strict=True)),
            }
            for row in scores.tolist()
        ]


@dataclass(frozen=True, kw_only=True)
class BentMargin(KernelClassifier):
    """Tell classes apart that no straight line divides, beside a machine that is straight."""

    meanings: ClassVar[Mapping[str, str]] = {
        **KernelClassifier.meanings,
        "linear_accuracy": "the accuracy of a linear machine with the same C",
    }

    def final(self, model: SVC, data: Data, generator: torch.Generator) -> dict[str, float]:
        x, y = data.whole
        straight = LinearSVC(self.C, tol=self.tol).fit(x.flatten(1), y)
        test, truth = (torch.cat(parts) for parts in zip(*data.test, strict=True))
        right = torch.as_tensor(straight.predict(test.flatten(1))) == truth
        found = {"linear_accuracy": right.double().mean().item()}
        return super().final(model, data, generator) | found


RECIPES = {
    "svm": KernelClassifier(goal="accuracy >= 0.96 and kkt < 0.001", covers=("M21",)),
    "svm-xor": BentMargin(
        data="xor", goal="accuracy >= 0.97 and linear_accuracy <= 0.8 and kkt < 0.001",
        covers=("M21",),
    ),
    "svm-mnist": KernelClassifier(
        data="mnist", C=10.0, tol=1e-3, goal="accuracy >= 0.98", covers=("M21",)
    ),
}  # fmt: skip
