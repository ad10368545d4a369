"""Overfitting: how much better a network does on samples that it learned from than on others.

    gap    = +-(mean of v_train - mean of v_valid)                    (1)
    error  = sqrt(var v_train / n_train + var v_valid / n_valid)      (2)  of the gap

where v is the value of the monitored metric for each sample, n how many there are, and the sign
such that the gap is above 0 where the network does better on training samples. A gap of more than
three standard errors is hardly chance. Tokens of a text count as samples, though neighbours are
alike, so that (2) is then a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from everynet.metrics.meanings import BETTER
from everynet.recipes.recipe import Goal

MOST_ROWS = 10_000  # of a split: more would tell no more and take longer
ERRORS = 3  # standard errors that chance explains


@dataclass(frozen=True)
class Gap:
    """A metric of training samples beside that of validation samples, on the weights kept."""

    metric: str
    train: float
    valid: float
    samples: tuple[int, int]
    """How many values each is the mean of."""
    size: float
    """How much better it is of training samples."""
    error: float
    """The standard error of that."""

    @property
    def overfits(self) -> bool:
        """Whether the gap is larger than chance explains."""
        return self.size > ERRORS * self.error

    @staticmethod
    def of(train: Mapping[str, Tensor], valid: Mapping[str, Tensor], *goals: Goal) -> Gap | None:
        """The gap of the first goal whose metric has a value for each sample; None without one.

        A metric that has none (perplexity, AUC) is stood in for by one that has and is measured
        too: the accuracy, the cross-entropy, the squared error.
        """
        train, valid = (_with_errors(values) for values in (train, valid))
        ways = {goal.metric: goal.relation[0] + "=" for goal in goals if goal.relation != "=="}
        ways |= {name: way for name, way in BETTER.items() if name not in ways}
        for name, way in ways.items():
            both = [values[name].double() for values in (train, valid) if name in values]
            if len(both) == 2 and all(len(v) > 1 and bool(v.isfinite().all()) for v in both):
                a, b = both
                size = float(a.mean() - b.mean()) * (1 if way == ">=" else -1)  # (1)
                error = math.sqrt(float(a.var() / len(a) + b.var() / len(b)))  # (2)
                means = float(a.mean()), float(b.mean())
                return Gap(name, *means, (len(a), len(b)), size, error)
        return None


def _with_errors(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The values of each sample, with the squared error where numbers are predicted."""
    if "_predicted" not in values:
        return dict(values)
    return {**values, "mse": (values["_predicted"] - values["_target"]).square()}
