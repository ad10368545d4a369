"""Which of two evaluations is better, and the schedule `plateau` that follows from it.

Evaluations are compared by the metric of a goal, or by the summed objective where there is none.
The one place that says so: weights are chosen, runs are ended early, learning rates are lowered and
sweeps are ordered by it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from everynet.data.dataset import History
from everynet.recipes.recipe import Goal

OBJECTIVE = Goal("objective", "<=", 0.0)
"""What is monitored where no goal says it: the sum of the terms that are minimised."""


def monitored_value(goal: Goal, metrics: Mapping[str, float]) -> float:
    """The value of an evaluation that decides."""
    if goal is OBJECTIVE:
        return sum(value for name, value in metrics.items() if not name.startswith("_"))
    goal.check(metrics)
    return metrics[goal.metric]


def merit(goal: Goal, metrics: Mapping[str, float]) -> float:
    """How good an evaluation is, larger is better."""
    return goal.merit({goal.metric: monitored_value(goal, metrics)})


class Streak:
    """How many evaluations in a row were no better than the best before them."""

    def __init__(self) -> None:
        self.best, self.length = -math.inf, 0

    def add(self, merit: float) -> None:
        """Count one more evaluation."""
        self.length = 0 if merit > self.best else self.length + 1
        self.best = max(self.best, merit)


class Plateau:
    """The factor on the learning rate; each evaluation is looked at once, as the history grows."""

    def __init__(self, history: History, monitor: Goal, waits: int) -> None:
        self.history, self.monitor, self.waits = history, monitor, waits
        self._streak, self._seen = Streak(), 0
        self._last: Mapping[str, Any] | None = None
        self._steps, self._factors = [-1], [1.0]

    def goes_on(self, history: History) -> bool:
        """Whether this is the history that was looked at, with rows added to it at most."""
        if history is not self.history or len(history) < self._seen:
            return False
        return self._seen == 0 or history[self._seen - 1] is self._last

    def factor(self, step: int) -> float:
        """A tenth for each `waits` evaluations without progress, up to `step`."""
        while self._seen < len(self.history):
            self._last = self.history[self._seen]
            self._seen += 1
            if "valid" not in self._last:
                continue
            self._streak.add(merit(self.monitor, self._last["valid"]))
            if self._streak.length >= self.waits:
                self._streak.length = 0
                self._steps.append(self._last["step"])
                self._factors.append(self._factors[-1] / 10)
        return self._factors[bisect_right(self._steps, step) - 1]
