"""Metrics of a regression.

RMSE = sqrt(mean (p - t)^2)                        in the units of the target
MAE  = mean |p - t|                                likewise; a few large errors count less
R2   = 1 - sum (p - t)^2 / sum (t - mean t)^2      0 for always predicting the mean, 1 for no error
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

Numbers = Float[Tensor, " batch"]


def rmse(predicted: Numbers, targets: Numbers) -> float:
    """The root of the mean squared error."""
    return (predicted.double() - targets.double()).square().mean().sqrt().item()


def mae(predicted: Numbers, targets: Numbers) -> float:
    """The mean absolute error."""
    return (predicted.double() - targets.double()).abs().mean().item()


def r2(predicted: Numbers, targets: Numbers) -> float:
    """The coefficient of determination; of equal targets 1 or 0, as in scikit-learn."""
    targets = targets.double()
    left = (predicted.double() - targets).square().sum()
    there = (targets - targets.mean()).square().sum()
    if not there:
        return float(left == 0)
    return (1 - left / there).item()
