"""Whether a linear classifier can separate labelled points, and if so by what weights.

A softmax (with two classes, logistic) regression without a penalty has a finite optimum if and
only if no weights Theta, one column a class, satisfy

    x_i (Theta_{y_i} - Theta_k) >= 0   for every sample i and every other class k     (1)

with at least one strict inequality (x_i ends in a 1 for the intercept): along such a Theta the
likelihood rises for ever. All strict is complete separation, some zero quasi-complete. The
linear program that maximises the sum of the left sides over -1 <= Theta <= 1 decides it: its
optimum is 0 where the classes overlap and positive where they do not.

Albert and Anderson (1984), "On the existence of maximum likelihood estimates in logistic
regression models", Biometrika 71, doi:10.1093/biomet/71.1.1.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array
from torch import Tensor

from everynet.system.errors import UserError

TOLERANCE = 1e-6
"""Largest left side of (1) that counts as zero; the solver's own tolerance is 1e-7."""
LARGEST = 50_000_000
"""Most numbers in the linear program: they take 1.2 GB of memory."""


def separating_weights(
    x: Float[Tensor, "samples features"], index: Int[Tensor, " samples"]
) -> Float[Tensor, "weights classes"] | None:
    """Weights that satisfy (1), the intercepts in the last row; None where the classes overlap."""
    rows = np.column_stack([x.cpu().double().numpy(), np.ones(len(x))])
    scale = np.maximum(np.abs(rows).max(axis=0), np.finfo(float).tiny)
    left = _left_sides(rows / scale, index.cpu().numpy())
    total = np.asarray(left.sum(axis=0)).ravel()
    goal = -total / (np.abs(total).max() or 1.0)
    solved = linprog(goal, A_ub=-left, b_ub=np.zeros(left.shape[0]), bounds=(-1, 1))
    if solved.x is None:
        raise ArithmeticError(f"the linear program of separability failed: {solved.message}")
    if (left @ solved.x).max() <= TOLERANCE:
        return None
    weights = solved.x.reshape(-1, len(scale)) / scale
    return torch.tensor(weights.T).to(x.device)


def _left_sides(rows: NDArray[np.float64], index: NDArray[np.int64]) -> csr_array:
    """The matrix that takes the classes' weights, one class after another, to (1)."""
    samples, width = rows.shape
    classes = int(index.max()) + 1
    numbers = 2 * samples * (classes - 1) * width
    if numbers > LARGEST:
        raise UserError(
            f"the data ({samples} samples, {width - 1} features, {classes} classes) must make a "
            f"linear program of at most {LARGEST:,} numbers, because more than that take hours to "
            f"decide whether the classes can be separated ({numbers:,} here); take l2 above 0, "
            "where the question does not arise, or fewer samples"
        )
    sample, other = np.nonzero(np.arange(classes) != index[:, None])
    values = rows[sample]
    line = np.broadcast_to(np.arange(len(sample))[:, None], values.shape)
    owner = np.stack([index[sample], other])
    columns = owner[:, :, None] * width + np.arange(width)
    made = (np.stack([values, -values]).ravel(), (np.stack([line, line]).ravel(), columns.ravel()))
    return csr_array(made, shape=(len(sample), classes * width))
