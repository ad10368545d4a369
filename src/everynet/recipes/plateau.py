"""Which of two evaluations is better, and the schedule `plateau` that follows from it.

Evaluations are compared by the metric of a goal, or by the objective where there is none; those
that are alike in it by the objective, as far as it was measured. The one place that says so:
weights are chosen, runs are ended early, learning rates are lowered and sweeps are ordered by it.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from everynet.data.dataset import History
from everynet.recipes.recipe import Goal

OBJECTIVE = Goal("objective", "<=", 0.0)
"""What is monitored where no goal says it: the sum of the terms that are minimised."""
NEXT_TO_NOTHING = 0.01
"""A share, such as an accuracy, below which it counts as 0: so few samples tell little."""


class Score(NamedTuple):
    """How good an evaluation is: of two the larger is the better, and of equals the later."""

    merit: float
    """The monitored metric, with its sign changed where the smaller is the better."""
    minus_objective: float = 0.0
    """The objective with its sign changed; 0 where it was not measured."""

    @staticmethod
    def of(monitor: Goal, metrics: Mapping[str, float], terms: Iterable[str] = ()) -> Score:
        """The score of an evaluation; `terms` are the names of what training minimises."""
        merit = monitor.merit({monitor.metric: monitored_value(monitor, metrics, terms)})
        names = measured_terms(metrics, terms)
        if names and is_share(monitor) and merit < NEXT_TO_NOTHING:
            merit = 0.0
        return Score(merit, -sum(metrics[name] for name in names))

    @staticmethod
    def mean(scores: Iterable[Score]) -> Score:
        """The mean over seeds; of none it is the worst."""
        columns = [*zip(*scores, strict=True)]
        return Score(*map(statistics.fmean, columns)) if columns else WORST


WORST = Score(-math.inf, -math.inf)


def is_share(monitor: Goal) -> bool:
    """Whether a monitored metric is a share of 1, of which more is better."""
    return monitor.relation in (">", ">=") and 0 < monitor.value <= 1


def measured_terms(metrics: Mapping[str, float], terms: Iterable[str] = ()) -> list[str]:
    """The metrics that are the objective: those terms that were measured, or else `loss`."""
    names = [name for name in terms if name in metrics and not name.startswith("_")]
    return names or ["loss"] * ("loss" in metrics)


def monitored_value(goal: Goal, metrics: Mapping[str, float], terms: Iterable[str] = ()) -> float:
    """The value of an evaluation that decides."""
    if goal is OBJECTIVE:
        names = measured_terms(metrics, terms) or [n for n in metrics if not n.startswith("_")]
        return sum(metrics[name] for name in names)
    goal.check(metrics)
    return metrics[goal.metric]


class Streak:
    """How many evaluations in a row were no better than the best before them."""

    def __init__(self) -> None:
        self.best, self.length = WORST, 0

    def add(self, score: Score) -> None:
        """Count one more evaluation."""
        self.length = 0 if score > self.best else self.length + 1
        self.best = max(self.best, score)


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
            self._streak.add(Score.of(self.monitor, self._last["valid"]))
            if self._streak.length >= self.waits:
                self._streak.length = 0
                self._steps.append(self._last["step"])
                self._factors.append(self._factors[-1] / 10)
        return self._factors[bisect_right(self._steps, step) - 1]
