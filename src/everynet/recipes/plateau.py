"""The schedule `plateau`: a tenth of the learning rate where evaluations no longer get better."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from everynet.data.dataset import History
from everynet.recipes.recipe import Goal


class Plateau:
    """The factor on the learning rate; each evaluation is looked at once, as the history grows."""

    def __init__(self, history: History, judge: Goal, waits: int) -> None:
        self.history, self.judge, self.waits = history, judge, waits
        self._best, self._since, self._seen = -math.inf, 0, 0
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
            value = self.judge.merit(self._last["valid"])
            self._since = 0 if value > self._best else self._since + 1
            self._best = max(self._best, value)
            if self._since >= self.waits:
                self._since = 0
                self._steps.append(self._last["step"])
                self._factors.append(self._factors[-1] / 10)
        return self._factors[bisect_right(self._steps, step) - 1]
