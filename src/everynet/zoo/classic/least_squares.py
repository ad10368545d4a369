"""Linear least squares: the straight line, plane or hyperplane nearest to the targets.

    y_hat = x theta + b                                 (1)  prediction
    J     = (1/n) sum_i (y_hat_i - y_i)^2               (2)  mean squared error, to be least
    theta = (X^T X)^-1 X^T y,  X and y centred          (3)  where the gradient of J is zero
    b     = mean(y) - mean(x) theta                     (4)  intercept
    R^2   = 1 - J / ((1/n) sum_i (y_i - mean(y))^2)     (5)  share of the variance explained

Rows of X are samples x, y_i is the target of sample i of n, theta the weights. The pseudoinverse
stands for (X^T X)^-1 X^T in (3): where X^T X has no inverse it gives the shortest of the many best
theta. X^T X itself, whose condition is that of X squared, is formed only where that does no harm.

Legendre (1805), "Nouvelles methodes pour la determination des orbites des cometes", appendix;
Gauss (1809), "Theoria motus corporum coelestium", book 2, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from sklearn.base import BaseEstimator, RegressorMixin
from torch import Tensor

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec
from everynet.metrics import regressed, summarise_outputs
from everynet.metrics.meanings import NUMBERS, meanings
from everynet.nn.estimator import Array, Learned, check_learned, inputs, regression
from everynet.recipes.recipe import Fitting
from everynet.recipes.tabular import Tabular
from everynet.system.errors import UserError
from everynet.zoo.classic.pictures.linear import coefficients, fitted, residuals


class LeastSquares(RegressorMixin, BaseEstimator):
    """Learns `coef_` (one a feature) and `intercept_`; predicts a number from each row."""

    coef_: Array
    intercept_: float

    def fit(self, X: Array, y: Array) -> Self:
        x, targets, form = regression(self, X, y)
        centre, mean = x.mean(dim=0), targets.mean()
        centred, rest = x - centre, targets - mean
        theta = solve_normal_equations(centred, rest)
        if theta is None:
            joined = torch.cat([centred, rest[:, None]], 1)
            r = torch.linalg.qr(joined, mode="r").R  # R and Q^T y, which have the same solution
            theta = torch.linalg.pinv(r[:, :-1]) @ r[:, -1]  # (3)
        self.coef_ = form.give(theta)
        self.intercept_ = (mean - centre @ theta).item()  # (4)
        return self

    def predict(self, X: Array) -> Array:
        x, form = inputs(self, X)
        return form.give(x @ form.take(self.coef_) + self.intercept_)  # (1)

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        check_learned(vars(self), {
            "n_features_in_": Learned("int", "features", low=1),
            "coef_": Learned("float64", "features"),
            "intercept_": Learned("float"),
        })  # fmt: skip


def solve_normal_equations(
    x: Float[Tensor, "samples features"], y: Float[Tensor, " samples"]
) -> Float[Tensor, " features"] | None:
    """The same by X^T X, several times as fast; None where its rounding errors would matter.

    The condition of X^T X is that of X squared. Up to 1e8, and with what is left of y solved for
    once more, the solution is as exact as that of (3).
    """
    if len(x) < 2 * x.shape[1]:
        return None
    gram = torch.from_numpy(x.numpy().T @ x.numpy()) if x.is_cpu else x.T @ x  # numpy does half
    values, v = torch.linalg.eigh(gram)
    if values[0] <= 1e-8 * values[-1]:
        return None
    theta = torch.zeros_like(x[0])
    for _ in range(2):
        theta = theta + v @ ((v.T @ (x.T @ (y - x @ theta))) / values)  # (3)
    return theta


# -------- the network ends here; training and pictures follow --------


SERUM = {
    "s1": "cholesterol (s1)", "s2": "LDL (s2)", "s3": "HDL (s3)", "s4": "cholesterol / HDL (s4)",
    "s5": "log triglycerides (s5)", "s6": "glucose (s6)", "bmi": "body mass",
    "bp": "blood pressure",
}  # fmt: skip
"""Names of columns of the diabetes table."""


@dataclass(frozen=True, kw_only=True)
class Regression(Tabular, Fitting[LeastSquares]):
    """Predict a number from a row of a table."""

    meanings: ClassVar[Mapping[str, str]] = meanings(*NUMBERS)

    data: str = "diabetes"
    """A known set or a csv file whose target is a number."""

    def dataset(self) -> Data:
        data = load(self.data, kind=("table", "image"), batch_size=1, **self.columns)
        if data.spec["task"] != "regression":
            raise UserError(
                f"data ({self.data}) must have a number as its target, because least squares "
                "measures distances; for classes try logistic or softmax-regression"
            )
        return data

    def model(self, data: Data) -> LeastSquares:
        return LeastSquares()

    def fit(self, model: LeastSquares, data: Data) -> LeastSquares:
        x, y = data.whole
        return model.fit(x.flatten(1), y)

    def metrics(self, model: LeastSquares, batch: Batch) -> dict[str, Tensor]:
        x, y = batch
        predicted = model.predict(x.flatten(1))
        return {"squared_error": (predicted - y) ** 2, **regressed(predicted, y)}  # (2)

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        error, target = outputs["squared_error"].double(), outputs["_target"].double()
        r2 = 1 - error.mean() / (target - target.mean()).square().mean()  # (5)
        shared = {name: values for name, values in outputs.items() if name[0] == "_"}
        return summarise_outputs(shared) | {"r2": r2.item()}

    def picture_fit(self, model: LeastSquares, data: Data, history: History) -> Figure:
        """Predicted values (across) and measured ones (up), a point for each sample.

        Points on the black diagonal are predicted without error.
        """
        splits = {"training": data.splits["train"], "validation": data.splits["valid"]}
        return fitted({name: (model.predict(x.flatten(1)), y) for name, (x, y) in splits.items()})

    def picture_residuals(self, model: LeastSquares, data: Data, history: History) -> Figure:
        """What the prediction leaves over, against the prediction (left) and counted (right).

        Where a linear model fits, the cloud around 0 has no shape.
        """
        x, y = data.splits["train"]
        return residuals(model.predict(x.flatten(1)), y)

    def picture_coefficients(self, model: LeastSquares, data: Data, history: History) -> Figure:
        """How far the prediction moves when a feature grows by one standard deviation.

        The largest weight is on top; orange ones move it upwards and blue ones downwards.
        """
        names = data.spec["features"]
        if self.data == "diabetes":
            names = [SERUM.get(name, name) for name in names]
        return coefficients(torch.as_tensor(model.coef_), names)

    def predict(
        self, model: LeastSquares, inputs: Float[Tensor, "batch ..."], spec: Spec
    ) -> Sequence[dict[str, Any]]:
        return [{"value": value} for value in model.predict(inputs.flatten(1)).tolist()]


RECIPES = {
    "least-squares": Regression(goal="r2 >= 0.45", covers=("M18",)),
}
