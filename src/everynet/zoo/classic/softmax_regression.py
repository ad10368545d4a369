"""Softmax regression: a linear score for each class, turned into probabilities.

    s      = x Theta                                                    (1)  scores of the classes
    p_k    = e^{s_k} / sum_j e^{s_j}                                    (2)  probabilities
    J      = -(1/n) sum_i log p_{y_i} + l2/(2n) |Theta|^2               (3)  objective
    G      = X^T (P - Y) / n + l2/n Theta,  Y one-hot                   (4)  its gradient
    H[V]   = X^T (P * (S - rowsum(P * S))) / n + l2/n V,  S = X V       (5)  its Hessian along V
    Theta <- Theta - t V,  H[V] = G,  t = 1, 1/2, ... until J falls     (6)  Newton's method

Rows of X are samples x, y_i is the class of sample i of n; * is the product entry by entry. X ends
in a column of ones for the intercepts, which the penalty leaves out. J is scikit-learn's objective
for C = 1/l2, divided by n. H is never formed: conjugate gradients solve (6) with products (5), each
as cheap as a gradient, and only as exactly as the distance to go deserves.

Bridle (1990), "Probabilistic interpretation of feedforward classification network outputs, with
relationships to statistical pattern recognition", doi:10.1007/978-3-642-76153-9_28.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot, pad

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec
from everynet.metrics import classified, confusion, name_classes
from everynet.metrics.meanings import CLASSES, meanings
from everynet.metrics.separability import separating_weights
from everynet.nn.estimator import (
    CONVERGED,
    Array,
    Caller,
    check_learned,
    classification,
    converge,
    inputs,
    labels,
    linear_classifier,
)
from everynet.plot.images import misclassified
from everynet.plot.matrix import confusion_matrix
from everynet.plot.paths import error_decay
from everynet.recipes.recipe import Fitting
from everynet.recipes.tabular import Probabilistic
from everynet.system.errors import UserError
from everynet.zoo.classic.pictures.linear import class_images, class_table


class SoftmaxRegression(ClassifierMixin, BaseEstimator):
    """Learns `coef_` (classes x features), `intercept_` and `gradient_curve_`, max |G| by step."""

    classes_: Array
    coef_: Array
    intercept_: Array
    gradient_curve_: Array
    n_iter_: int

    def __init__(self, l2: float = 1.0, tol: float = 1e-7, max_iter: int = 200) -> None:
        self.l2 = l2
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Array, y: Array) -> Self:
        if not self.l2 >= 0:
            raise UserError(f"l2 ({self.l2}) must be at least 0, because it is a penalty; try 1.0")
        x, index, form = classification(self, X, y)
        if self.l2 == 0 and separating_weights(x, index) is not None:
            raise UserError(
                "l2 (0) must be positive for these data, because hyperplanes separate some "
                "classes: the likelihood rises for ever and no finite optimum exists; try 1.0"
            )
        objective = SoftmaxObjective.of(x, index, self.l2)
        theta, curve = converge(newton(objective), self.tol, self.max_iter)
        self.coef_, self.intercept_ = form.give(theta[:-1].T), form.give(theta[-1])
        self.gradient_curve_, self.n_iter_ = form.give(curve), max(1, len(curve) - 1)
        return self

    def _scores(self, X: Array) -> tuple[Float[Tensor, "samples classes"], Caller]:
        x, form = inputs(self, X)
        return x @ form.take(self.coef_).T + form.take(self.intercept_), form  # (1)

    def decision_function(self, X: Array) -> Array:
        """The scores of the classes; of two, how far the second is above the first."""
        s, form = self._scores(X)
        return form.give(s if s.shape[1] > 2 else s[:, 1] - s[:, 0])

    def predict_proba(self, X: Array) -> Array:
        """The probability of each class."""
        s, form = self._scores(X)
        return form.give(s.softmax(dim=1))  # (2)

    def predict(self, X: Array) -> Array:
        s, form = self._scores(X)
        return labels(self, s.argmax(dim=1), form)

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        check_learned(vars(self), linear_classifier("classes", "classes") | CONVERGED)


@dataclass(frozen=True)
class SoftmaxObjective:
    """J and its derivatives for one training set; the last column of x is ones."""

    x: Float[Tensor, "samples weights"]
    y: Int[Tensor, " samples"]
    targets: Float[Tensor, "samples classes"]
    penalty: Float[Tensor, "weights 1"]
    """l2/n for each weight, 0 for the intercepts."""

    @staticmethod
    def of(
        x: Float[Tensor, "samples features"], y: Int[Tensor, " samples"], l2: float
    ) -> SoftmaxObjective:
        """The objective with an intercept for each class."""
        penalty = torch.full_like(x[0], l2 / len(x))
        return SoftmaxObjective(
            pad(x, (0, 1), value=1.0), y, one_hot(y).to(x.dtype), pad(penalty, (0, 1))[:, None]
        )

    def value(self, theta: Float[Tensor, "weights classes"]) -> Float[Tensor, ""]:
        return cross_entropy(self.x @ theta, self.y) + (self.penalty * theta**2).sum() / 2  # (3)

    def gradient(
        self, theta: Float[Tensor, "weights classes"], p: Float[Tensor, "samples classes"]
    ) -> Float[Tensor, "weights classes"]:
        return self._back(p - self.targets) + self.penalty * theta  # (4)

    def curvature(
        self, v: Float[Tensor, "weights classes"], p: Float[Tensor, "samples classes"]
    ) -> Float[Tensor, "weights classes"]:
        s = self.x @ v
        change = p * (s - (p * s).sum(dim=1, keepdim=True))
        return self._back(change) + self.penalty * v  # (5)

    def _back(self, change: Float[Tensor, "samples classes"]) -> Float[Tensor, "weights classes"]:
        """X^T change / n, written so that x is read in the order it lies: three times faster."""
        return (change.T @ self.x).T / len(self.x)


MOST_PRODUCTS = 250  # of the Hessian and a vector, (5), in one step of (6)


def newton(
    objective: SoftmaxObjective,
) -> Iterator[tuple[Float[Tensor, "weights classes"], Float[Tensor, "weights classes"]]]:
    """Theta and the gradient there, step after step; ends where rounding leaves no step down."""
    theta, t = objective.x.new_zeros(objective.x.shape[1], objective.targets.shape[1]), 1.0
    while t > 1e-10:
        p = (objective.x @ theta).softmax(dim=1)
        g = objective.gradient(theta, p)
        yield theta, g
        direction = solve(objective, p, g)
        start, slope, t = objective.value(theta), (g * direction).sum(), 1.0
        while objective.value(theta - t * direction) > start - 1e-4 * t * slope and t > 1e-10:
            t /= 2
        theta = theta - t * direction  # (6)


def solve(
    objective: SoftmaxObjective,
    p: Float[Tensor, "samples classes"],
    g: Float[Tensor, "weights classes"],
) -> Float[Tensor, "weights classes"]:
    """V with H[V] = g, by conjugate gradients, to an error that shrinks with |g|."""
    v, rest = torch.zeros_like(g), g
    way, left = rest, (rest * rest).sum()
    goal = left * min(0.25, left.sqrt().item())  # squares, as `left` is
    for _ in range(MOST_PRODUCTS):
        product = objective.curvature(way, p)
        length = left / (way * product).sum()
        v, rest = v + length * way, rest - length * product
        before, left = left, (rest * rest).sum()
        if left <= goal:
            break
        way = rest + left / before * way
    return v


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class ManyClasses(Probabilistic, Fitting[SoftmaxRegression]):
    """Tell any number of classes apart, with a probability for each."""

    meanings: ClassVar[Mapping[str, str]] = meanings(*CLASSES, "cross_entropy")

    data: str = "digits"
    """A known set, a csv file or a folder with one subfolder per class."""
    l2: float = 1.0
    """Penalty on the squared weights, 1/C of scikit-learn; 0 is none."""
    tol: float = 1e-7
    """Largest entry of the gradient at which fitting ends."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "l2")
        self.require(0 < self.tol < 1, "tol", "between 0 and 1")

    def dataset(self) -> Data:
        data = load(self.data, kind=("table", "image"), batch_size=1, **self.columns)
        if data.spec["task"] != "classification":
            raise UserError(
                f"data ({self.data}) must have classes, because softmax gives each a probability; "
                "for numbers try least-squares"
            )
        return data

    def model(self, data: Data) -> SoftmaxRegression:
        return SoftmaxRegression(self.l2, self.tol)

    def fit(self, model: SoftmaxRegression, data: Data) -> SoftmaxRegression:
        x, y = data.whole
        return model.fit(x.flatten(1), y)

    def metrics(self, model: SoftmaxRegression, batch: Batch) -> dict[str, Tensor]:
        x, y = batch
        s = torch.as_tensor(model.decision_function(x.flatten(1)))
        s = s if s.dim() == 2 else torch.stack([torch.zeros_like(s), s], 1)
        return {**classified(s, y), "cross_entropy": cross_entropy(s, y, reduction="none")}

    def _predicted(self, model: SoftmaxRegression, data: Data) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs and classes of the validation split, and the probabilities of the classes."""
        x, y = (torch.cat(parts) for parts in zip(*data.valid, strict=True))
        return x, y, model.predict_proba(x.flatten(1))

    def picture_weights(self, model: SoftmaxRegression, data: Data, history: History) -> Figure:
        """The weights of each class, for images laid out as the image.

        Where the input is large, red speaks for the class and blue against it.
        """
        weights, spec = torch.as_tensor(model.coef_), data.spec
        if spec["kind"] == "table":
            return class_table(weights, spec["classes"], spec["features"])
        return class_images(weights.reshape(-1, *spec["shape"]), spec["classes"])

    def picture_misclassified(
        self, model: SoftmaxRegression, data: Data, history: History
    ) -> Figure | None:
        """Validation images with the predicted class and its probability.

        Mistakes (red) come first, with their true class; where they are few, the least sure of
        the right answers (blue) follow.
        """
        if data.spec["kind"] == "table":
            return None
        x, y, p = self._predicted(model, data)
        guess, sure = p.argmax(dim=1), p.amax(dim=1)
        return misclassified(x, guess, y, sure, classes=data.spec["classes"])

    def picture_convergence(self, model: SoftmaxRegression, data: Data, history: History) -> Figure:
        """The largest entry of the gradient (logarithmic) after each step of Newton's method.

        It falls faster the nearer it is to the minimum.
        """
        curve = torch.as_tensor(model.gradient_curve_)
        return error_decay({"Newton's method": curve}, ylabel="largest entry of the gradient")

    def picture_confusion(self, model: SoftmaxRegression, data: Data, history: History) -> Figure:
        """Validation samples by their true class (rows) and the predicted one (columns).

        Right answers (blue) lie on the diagonal; mistakes are red.
        """
        _, y, p = self._predicted(model, data)
        counts = confusion(p.argmax(dim=1), y, p.shape[1])
        return confusion_matrix(counts, data.spec["classes"])

    def predict(
        self, model: SoftmaxRegression, inputs: Float[Tensor, "batch ..."], spec: Spec
    ) -> Sequence[dict[str, Any]]:
        p = torch.as_tensor(model.predict_proba(inputs.flatten(1)))
        return name_classes(p, spec["classes"], spec.get("threshold"))


RECIPES = {
    "softmax-regression": ManyClasses(goal="accuracy >= 0.95", covers=("M20",)),
    "softmax-regression-mnist": ManyClasses(
        data="mnist", tol=2e-3, goal="accuracy >= 0.92", covers=("M20",)
    ),
}
