"""Logistic regression: the log-odds of two classes are a linear function of the input.

    s      = x theta                                                     (1)  log-odds
    y_hat  = 1 / (1 + e^-s) = p(y=1|x)                                   (2)  probability
    J      = -(1/n) sum_i [y_i log y_hat_i + (1-y_i) log(1-y_hat_i)]
             + l2/(2n) |theta|^2                                         (3)  objective
    g      = X^T (y_hat - y) / n + l2/n theta                            (4)  its gradient
    H      = X^T diag(y_hat (1-y_hat)) X / n + l2/n I                    (5)  its Hessian
    theta <- theta - g / L,   L = lambda_max(X^T X) / (4n) + l2/n        (6)  gradient descent
    theta <- theta - t H^-1 g,   t = 1, 1/2, 1/4, ... until J falls      (7)  Newton's method
    theta <- theta - t B g,      t = t_0, t_0/2, ... until J falls,
             t_0 = g^T B g / (B g)^T H (B g)                             (8)  L-BFGS

Rows of X are samples x, y_i in {0, 1} is the class of sample i of n, theta the weights, I the
identity. X ends in a column of ones for the intercept, which the penalty leaves out. J is
scikit-learn's objective for C = 1/l2, divided by n. Its minimum has no closed form, but J is convex
and L bounds its curvature, so (6) falls at every step. Without a penalty the minimum is finite only
where no hyperplane separates the classes; a linear program decides that before the first step.
B approximates H^-1 by the last ten steps and the changes of g along them.

Cox (1958), "The regression analysis of binary sequences", J. R. Stat. Soc. B 20,
doi:10.1111/j.2517-6161.1958.tb00292.x; (8): Liu and Nocedal (1989), "On the limited memory BFGS
method for large scale optimization", Math. Programming 45, doi:10.1007/BF01589116.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, pad

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec
from everynet.metrics import classified, name_classes
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
from everynet.plot.paths import error_decay
from everynet.recipes.recipe import Fitting
from everynet.recipes.tabular import Probabilistic
from everynet.system.errors import UserError
from everynet.system.wording import unknown
from everynet.zoo.classic.pictures.linear import coefficients, probability_curve


class LogisticRegression(ClassifierMixin, BaseEstimator):
    """Learns `coef_` (1 x features) and `intercept_`; `gradient_curve_` is max |g| by step."""

    classes_: Array
    coef_: Array
    intercept_: Array
    gradient_curve_: Array
    n_iter_: int

    def __init__(
        self,
        l2: float = 1.0,
        solver: str = "auto",
        tol: float = 1e-8,
        max_iter: int = 200_000,
    ) -> None:
        self.l2 = l2
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Array, y: Array) -> Self:
        if not self.l2 >= 0:
            raise UserError(f"l2 ({self.l2}) must be at least 0, because it is a penalty; try 1.0")
        if self.solver not in SOLVERS:
            raise UserError(unknown("solver", self.solver, SOLVERS))
        x, index, form = classification(self, X, y)
        if len(self.classes_) > 2:
            raise UserError(
                f"y ({len(self.classes_)} classes) must hold 2 classes. Only binary classification "
                "is supported. For more use SoftmaxRegression, the recipe softmax-regression"
            )
        if self.l2 == 0 and separating_weights(x, index) is not None:
            raise UserError(
                "l2 (0) must be positive for these data, because a hyperplane separates the "
                "classes: the likelihood rises for ever and no finite optimum exists; try 1.0"
            )
        objective = LogisticObjective.of(x, index.to(x.dtype), self.l2)
        theta, curve = converge(SOLVERS[self.solver](objective), self.tol, self.max_iter)
        self.coef_, self.intercept_ = form.give(theta[None, :-1]), form.give(theta[-1:])
        self.gradient_curve_, self.n_iter_ = form.give(curve), max(1, len(curve) - 1)
        return self

    def _log_odds(self, X: Array) -> tuple[Float[Tensor, " samples"], Caller]:
        x, form = inputs(self, X)
        return x @ form.take(self.coef_)[0] + form.take(self.intercept_), form  # (1)

    def decision_function(self, X: Array) -> Array:
        """The log-odds of the second class."""
        s, form = self._log_odds(X)
        return form.give(s)

    def predict_proba(self, X: Array) -> Array:
        """The probability of each class."""
        s, form = self._log_odds(X)
        return form.give(torch.stack([-s, s], dim=1).sigmoid())  # (2)

    def predict(self, X: Array) -> Array:
        s, form = self._log_odds(X)
        return labels(self, (s > 0).long(), form)

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        check_learned(vars(self), linear_classifier("2", "1") | CONVERGED)

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


@dataclass(frozen=True)
class LogisticObjective:
    """J and its derivatives for one training set; the last column of x is ones."""

    x: Float[Tensor, "samples weights"]
    y: Float[Tensor, " samples"]
    penalty: Float[Tensor, " weights"]
    """l2/n for each weight, 0 for the intercept."""

    @staticmethod
    def of(
        x: Float[Tensor, "samples features"], y: Float[Tensor, " samples"], l2: float
    ) -> LogisticObjective:
        """The objective with an intercept."""
        penalty = torch.full_like(x[0], l2 / len(x))
        return LogisticObjective(pad(x, (0, 1), value=1.0), y, pad(penalty, (0, 1)))

    def value(
        self, theta: Float[Tensor, " weights"], s: Float[Tensor, " samples"] | None = None
    ) -> Float[Tensor, ""]:
        """J; `s` saves the product (1) where the caller has it."""
        s = self.x @ theta if s is None else s
        loss = binary_cross_entropy_with_logits(s, self.y)
        return loss + (self.penalty * theta**2).sum() / 2  # (3)

    def gradient(
        self, theta: Float[Tensor, " weights"], s: Float[Tensor, " samples"] | None = None
    ) -> Float[Tensor, " weights"]:
        """g; `s` saves the product (1) where the caller has it."""
        y_hat = (self.x @ theta if s is None else s).sigmoid()
        return self.x.T @ (y_hat - self.y) / len(self.x) + self.penalty * theta  # (4)

    def hessian(self, theta: Float[Tensor, " weights"]) -> Float[Tensor, "weights weights"]:
        y_hat = (self.x @ theta).sigmoid()
        curved = (y_hat * (1 - y_hat))[:, None] * self.x
        return self.x.T @ curved / len(self.x) + self.penalty.diag()  # (5)


Iterates = Iterator[tuple[Float[Tensor, " weights"], Float[Tensor, " weights"]]]
"""theta and the gradient there, step after step."""


def descend(objective: LogisticObjective) -> Iterates:
    """Gradient descent with the largest fixed step that cannot overshoot."""
    x, theta = objective.x, torch.zeros_like(objective.penalty)
    largest = torch.linalg.eigvalsh(x.T @ x)[-1] / (4 * len(x)) + objective.penalty.max()
    while True:
        g = objective.gradient(theta)
        yield theta, g
        theta = theta - g / largest  # (6)


def newton(
    objective: LogisticObjective, start: Float[Tensor, " weights"] | None = None
) -> Iterates:
    """Newton's method with a line search; ends where rounding leaves no step that lowers J."""
    theta, t = torch.zeros_like(objective.penalty) if start is None else start, 1.0
    while t > 1e-10:
        g = objective.gradient(theta)
        yield theta, g
        # The pseudoinverse also serves where two features are the same and H has no inverse.
        direction = torch.linalg.pinv(objective.hessian(theta), hermitian=True) @ g
        before, slope, t = objective.value(theta), g @ direction, 1.0
        while objective.value(theta - t * direction) > before - 1e-4 * t * slope and t > 1e-10:
            t /= 2
        theta = theta - t * direction  # (7)


def lbfgs(objective: LogisticObjective) -> Iterates:
    """L-BFGS; ends where rounding leaves no step that lowers J.

    Log-odds are linear in the weights: along a direction they need no further product with X.
    """
    x, theta = objective.x, torch.zeros_like(objective.penalty)
    s, g = x @ theta, objective.gradient(theta)
    value = objective.value(theta, s)
    steps: deque[tuple[Tensor, Tensor]] = deque(maxlen=10)
    while True:
        yield theta, g
        direction = approximate_newton(g, steps)
        along, y_hat, slope = x @ direction, s.sigmoid(), g @ direction
        curved = (y_hat * (1 - y_hat) * along**2).mean() + (objective.penalty * direction**2).sum()
        for t in (float(slope / curved) / 2**halved for halved in range(40)):
            new, s_new = theta - t * direction, s - t * along  # (8)
            lower = objective.value(new, s_new)
            if lower <= value - 1e-4 * t * slope:
                break
        else:
            return
        change = objective.gradient(new, s_new) - g
        steps.append((new - theta, change))
        theta, s, g, value = new, s_new, g + change, lower


def approximate_newton(
    g: Float[Tensor, " weights"], steps: Sequence[tuple[Tensor, Tensor]]
) -> Float[Tensor, " weights"]:
    """B g by two loops over the steps and the changes of the gradient along them."""
    direction, shares = g.clone(), []
    for step, change in reversed(steps):
        shares.append((step @ direction) / (step @ change))
        direction -= shares[-1] * change
    if steps:
        step, change = steps[-1]
        direction *= (step @ change) / (change @ change)
    for step, change in steps:
        direction += (shares.pop() - (change @ direction) / (step @ change)) * step
    return direction


def lbfgs_then_newton(objective: LogisticObjective) -> Iterates:
    """L-BFGS for about as long as one Hessian takes, which is enough for features of one scale.

    Then Newton's method from where it stands.
    """
    for first in islice(lbfgs(objective), 10 + len(objective.penalty) // 2):
        yield first
    yield from islice(newton(objective, first[0]), 1, None)


SOLVERS = {"auto": lbfgs_then_newton, "newton": newton, "gradient-descent": descend}


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class TwoClasses(Probabilistic, Fitting[LogisticRegression]):
    """Tell two classes apart, with a probability."""

    meanings: ClassVar[Mapping[str, str]] = meanings(*CLASSES, "cross_entropy")

    data: str = "breast-cancer"
    """A known set or a csv file whose target has two classes."""
    l2: float = 1.0
    """Penalty on the squared weights, 1/C of scikit-learn; 0 is none."""
    solver: str = "newton"
    """newton, gradient-descent, or auto (L-BFGS, then Newton): ways to the same weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "l2")
        self.one_of("solver", SOLVERS)

    def dataset(self) -> Data:
        data = load(self.data, kind=("table", "image"), batch_size=1, **self.columns)
        if len(data.spec["classes"]) != 2:
            raise UserError(
                f"data ({self.data}) must have two classes, because log-odds compare two; for "
                "more try softmax-regression, for numbers least-squares"
            )
        return data

    def model(self, data: Data) -> LogisticRegression:
        return LogisticRegression(self.l2, self.solver)

    def fit(self, model: LogisticRegression, data: Data) -> LogisticRegression:
        x, y = data.whole
        return model.fit(x.flatten(1), y)

    def metrics(self, model: LogisticRegression, batch: Batch) -> dict[str, Tensor]:
        x, y = batch
        s = model.decision_function(x.flatten(1))
        loss = binary_cross_entropy_with_logits(s, y.to(s.dtype), reduction="none")
        return {**classified(s[:, None], y), "cross_entropy": loss}

    def picture_probability(
        self, model: LogisticRegression, data: Data, history: History
    ) -> Figure:
        """Validation samples on the logistic curve, coloured by their true class.

        A cross lies on the wrong side of the dotted boundary, where the log-odds are 0.
        """
        x, y = (torch.cat(parts) for parts in zip(*data.valid, strict=True))
        return probability_curve(model.decision_function(x.flatten(1)), y, data.spec["classes"])

    def picture_convergence(
        self, model: LogisticRegression, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """The largest entry of the gradient by step, both logarithmic.

        Newton's method (blue) is at {newton:.0e} after {newton_steps} steps, gradient descent
        (orange) at {descent:.0e} after {descent_steps}.
        """
        x, y = data.whole
        objective = LogisticObjective.of(x.flatten(1).double(), y.double(), self.l2)
        first = torch.stack([g.abs().max() for _, g in islice(newton(objective), 10)])
        second = torch.stack([g.abs().max() for _, g in islice(descend(objective), 3_000)])
        curves = {"Newton's method": first, "gradient descent": second}
        return error_decay(curves, ylabel="largest entry of the gradient", log_steps=True), {
            **{"newton": float(first[-1]), "newton_steps": len(first) - 1},
            **{"descent": float(second[-1]), "descent_steps": len(second) - 1},
        }

    def picture_coefficients(
        self, model: LogisticRegression, data: Data, history: History
    ) -> Figure:
        """The weight of each feature, the largest on top.

        Orange bars to the right speak for the second class, blue bars to the left for the first.
        """
        first, second = data.spec["classes"]
        arrows = f"{first}  \N{LEFTWARDS ARROW}  weight  \N{RIGHTWARDS ARROW}  {second}"
        weights = torch.as_tensor(model.coef_)[0]
        return coefficients(weights, data.spec["features"], xlabel=arrows)

    def predict(
        self, model: LogisticRegression, inputs: Float[Tensor, "batch ..."], spec: Spec
    ) -> Sequence[dict[str, Any]]:
        p = torch.as_tensor(model.predict_proba(inputs.flatten(1)))
        return name_classes(p, spec["classes"], spec.get("threshold"))


RECIPES = {
    "logistic": TwoClasses(goal="accuracy >= 0.95", covers=("M19",)),
    "logistic-descent": TwoClasses(
        solver="gradient-descent", goal="accuracy >= 0.95", covers=("M19",)
    ),
}
