"""Perceptron, one threshold unit that learns from its mistakes until it makes none.

    y       = step(w . x + b),  step(z) = 1 if z > 0 else 0     (1)  answer
    (w, b) <- (w, b) + eta (t - y) (x, 1)                       (2)  rule, after each sample
    R       = max_i |(x_i, 1)|                                  (3)  longest sample
    gamma   = max over |(w, b)| = 1 of min_i s_i (w . x_i + b)  (4)  margin, s_i = 2 t_i - 1
    k      <= (R / gamma)^2                                     (5)  mistakes, where gamma > 0

where x is an input, t its class, 0 or 1, w . x is the inner product with the weights, b is the bias
and (x, 1) is x with a 1 behind it. The boundary is the line (plane, hyperplane) w . x = -b. The
rule is no descent of a gradient, for that of the step is zero almost everywhere. It begins at zero,
so that eta scales w and b and changes no answer. Where no hyperplane separates the classes it goes
on for ever (XOR); where one does, (5) holds for any order of the samples.

Rosenblatt (1958), "The perceptron: a probabilistic model for information storage and organization
in the brain", Psychological Review 65, doi:10.1037/h0042519. The bound: Novikoff (1962), "On
convergence proofs on perceptrons", Symposium on the Mathematical Theory of Automata 12.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from scipy.optimize import nnls
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from torch import Tensor

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec
from everynet.kernels.perceptron import perceptron
from everynet.metrics import classified
from everynet.metrics.meanings import CLASSES, meanings
from everynet.nn.estimator import (
    Array,
    Learned,
    check_learned,
    classification,
    inputs,
    labels,
    linear_classifier,
)
from everynet.recipes.recipe import Fitting
from everynet.recipes.tabular import Tabular
from everynet.system.errors import UserError
from everynet.system.wording import nearest
from everynet.zoo.feedforward.pictures.separation import mistake_bound, separating_line


class Perceptron(ClassifierMixin, BaseEstimator):
    """Learns which of two classes a row belongs to."""

    coef_: Array
    intercept_: Array
    classes_: Array
    mistakes_: int
    """Updates made, over all passes."""
    passes_: int
    converged_: bool
    """Whether the last pass was without a mistake."""
    radius_: float
    margin_: float

    def __init__(self, max_passes: int = 1000, lr: float = 1.0) -> None:
        self.max_passes = max_passes
        self.lr = lr

    def fit(self, X: Array, y: Array) -> Perceptron:
        x, t, form = classification(self, X, y)
        self._check(len(self.classes_))
        learned = perceptron(x, t, self.lr, self.max_passes)  # as `learn_by_loop` below
        self.coef_ = form.give(learned.weight[None])
        self.intercept_ = form.give(learned.weight.new_tensor([learned.bias]))
        self.mistakes_, self.passes_ = learned.mistakes, learned.passes
        self.converged_ = learned.converged
        if not self.converged_:
            warnings.warn(
                f"max_passes ({self.max_passes}) ended before a pass without a mistake: no line "
                "may separate the classes; raise max_passes or use logistic regression",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def decision_function(self, X: Array) -> Array:
        """The value w . x + b of each row, whose sign decides."""
        x, form = inputs(self, X)
        return form.give(x @ form.take(self.coef_)[0] + form.take(self.intercept_))

    def predict(self, X: Array) -> Array:
        _, form = inputs(self, X)
        answers = form.take(self.decision_function(X)) > 0  # (1)
        return labels(self, answers.long(), form)

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        check_learned(vars(self), {
            **linear_classifier("2", "1"),
            "mistakes_": Learned("int", low=0, high=1e9),
            "passes_": Learned("int", low=1),
            "converged_": Learned("bool"),
        })  # fmt: skip

    def _check(self, classes: int) -> None:
        if classes > 2:
            raise ValueError(
                f"y ({classes} classes) must hold 2 classes, because one line parts the space in "
                "two; tell one class from the rest, or use softmax regression. Only binary "
                "classification is supported. The type of the target is multiclass."
            )
        if not self.lr > 0 or math.isinf(self.lr):
            raise ValueError(
                f"lr ({self.lr}) must be a positive number, because (2) is scaled by it"
            )
        if self.max_passes < 1:
            raise ValueError(f"max_passes ({self.max_passes}) must be at least 1 to learn at all")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def learn_by_loop(
    x: Float[Tensor, "samples features"], t: Int[Tensor, " samples"], lr: float, passes: int
) -> Float[Tensor, " weights"]:
    """The rule as it is written, for reading and for tests: (w, b) after so many passes."""
    rows = torch.cat([x, torch.ones_like(x[:, :1])], 1)  # (x_i, 1)
    w_b = torch.zeros_like(rows[0])
    for _ in range(passes):
        for row, target in zip(rows, t, strict=True):
            y = (w_b @ row > 0).long()
            w_b = w_b + lr * (target - y) * row  # (2)
    return w_b


def radius(x: Float[Tensor, "samples features"]) -> float:
    """The length of the longest sample, with its 1."""
    return float((1 + x.square().sum(1)).sqrt().max())  # (3)


def margin(x: Float[Tensor, "samples features"], t: Int[Tensor, " samples"]) -> float:
    """The margin gamma, or 0 where no hyperplane separates the classes.

    1 / gamma is the least |v| with s_i v . (x_i, 1) >= 1 for all i, which is a problem of
    non-negative least squares (Lawson and Hanson 1974, chapter 23).
    """
    rows = np.column_stack([x.double().cpu().numpy(), np.ones(len(x))])
    rows *= 2 * t.cpu().numpy()[:, None] - 1
    system = np.vstack([rows.T, np.ones(len(rows))])
    goal = np.zeros(len(system))
    goal[-1] = 1
    solution, distance = nnls(system, goal)
    residual = goal - system @ solution
    if distance < 1e-9:
        return 0.0
    return float(residual[-1] / np.linalg.norm(residual[:-1]))  # (4)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class OneFromTheRest(Tabular, Fitting[Perceptron]):
    """Tell one class of a table from the others."""

    meanings: ClassVar[Mapping[str, str]] = meanings(*CLASSES) | {
        "mistakes": "updates until all training samples were right, or the passes ended",
        "share_of_bound": "mistakes as a share of the most that the theorem allows (5)",
    }

    data: str = "iris"
    """A known set or a csv file whose target is a class."""
    positive: str = "setosa"
    """The class that is separated from the rest."""
    max_passes: int = 1000
    """Passes over the samples before giving up."""
    lr: float = 1.0
    """Step eta of the rule; it scales the weights and changes no answer."""

    def dataset(self) -> Data:
        data = load(self.data, kind=("table", "image"), batch_size=1, **self.columns)
        classes = data.spec["labels" if "labels" in data.spec else "classes"]  # of `evaluate`
        if data.spec["task"] != "classification":
            raise UserError(
                f"data ({self.data}) must have a class as its target, because a perceptron answers "
                "one of two; for numbers try least-squares or mlp"
            )
        if self.positive not in classes:
            raise UserError(
                f"positive ({self.positive}) must be a class of {self.data}"
                + nearest(self.positive, classes)
            )
        index = classes.index(self.positive)
        splits = {part: (x, (y == index).long()) for part, (x, y) in data.splits.items()}
        spec = data.spec | {"classes": ["the rest", self.positive], "labels": classes}
        return replace(data, splits=splits, spec=spec)

    def model(self, data: Data) -> Perceptron:
        return Perceptron(max_passes=self.max_passes, lr=self.lr)

    def fit(self, model: Perceptron, data: Data) -> Perceptron:
        x, t = data.whole
        model.fit(x.flatten(1), t)
        model.radius_, model.margin_ = radius(x.flatten(1)), margin(x.flatten(1), t)
        return model

    def check_learned(self, model: Perceptron, spec: Spec) -> None:
        super().check_learned(model, spec)
        bound = {"radius_": Learned("float", low=1), "margin_": Learned("float", low=0)}
        check_learned(vars(model), bound)

    def metrics(self, model: Perceptron, batch: Batch) -> dict[str, Tensor]:
        x, t = batch
        score = torch.as_tensor(model.decision_function(x.flatten(1)))
        found = classified(score[:, None], t)
        found["mistakes"] = torch.tensor(float(model.mistakes_))
        if model.margin_:  # else no hyperplane separates the classes, and there is no bound
            share = model.mistakes_ * (model.margin_ / model.radius_) ** 2  # (5)
            found["share_of_bound"] = torch.tensor(share)
        return found

    def picture_line(self, model: Perceptron, data: Data, history: History) -> Figure:
        """The samples by class and the line that the perceptron found, with its weight vector w.

        The line is at right angles to w, and each side is tinted with the class predicted there.
        """
        x, t = data.whole
        x, names = x.flatten(1), data.spec["features"]
        w, b = torch.as_tensor(model.coef_)[0], float(model.intercept_[0])
        plane = torch.eye(2, dtype=x.dtype)
        if x.shape[1] != 2:  # along w, and at right angles to it along the greatest spread
            along, rest = w / w.norm(), x - x.mean(0)
            rest = rest - torch.outer(rest @ along, along)
            plane = torch.stack([along, torch.linalg.svd(rest, full_matrices=False).Vh[0]], 1)
            across = "direction of greatest spread at right angles to w"
            names = (r"$w \cdot x\, /\, |w|$", across)
        classes = data.spec["classes"]
        return separating_line(x @ plane, t, w @ plane, b, labels=names, classes=classes)

    def picture_bound(self, model: Perceptron, data: Data, history: History) -> Figure | None:
        """The length of the weights by mistake, with both axes logarithmic.

        It can only be in the grey wedge, and where its lines meet (dotted) no mistake can follow.
        """
        if not model.margin_:
            return None
        x, t = data.whole
        found = perceptron(x.flatten(1), t, 1.0, self.max_passes, record=model.mistakes_)
        return mistake_bound(found.norms, model.radius_, model.margin_)

    def predict(
        self, model: Perceptron, inputs: Float[Tensor, "batch ..."], spec: Spec
    ) -> Sequence[dict[str, Any]]:
        """The class and the score, whose sign it is; a perceptron knows no probability."""
        scores = model.decision_function(inputs.flatten(1)).tolist()
        return [{"class": spec["classes"][score > 0], "score": score} for score in scores]


RECIPES = {
    "perceptron": OneFromTheRest(goal="accuracy >= 1 and share_of_bound <= 1", covers=("F1", "F2")),
}
