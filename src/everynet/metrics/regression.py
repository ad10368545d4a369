"""How far predicted numbers are from the true ones.

RMSE = sqrt(mean (p - t)^2)                        in the units of the target
MAE  = mean |p - t|                                likewise; a few large errors count less
R2   = 1 - sum (p - t)^2 / sum (t - mean t)^2      0 for always saying the mean, 1 for no error
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

Numbers = Float[Tensor, " batch"]


def rmse(predicted: Numbers, targets: Numbers) -> float:
    """The root of the mean squared error."""
    return (predicted.double() - targets.double()).square().mean().sqrt().item()


def mae(predicted: Numbers, targets: Numbers) -> float:
    """The mean size of the error."""
    return (predicted.double() - targets.double()).abs().mean().item()


def r2(predicted: Numbers, targets: Numbers) -> float:
    """The share of the variance that is explained; of targets all alike 1 or 0, as in sklearn."""
    targets = targets.double()
    left = (predicted.double() - targets).square().sum()
    there = (targets - targets.mean()).square().sum()
    if not there:
        return float(left == 0)
    return (1 - left / there).item()
