"""Which weights a run keeps and why, and when it is ended early.

What decides is the clause of the goal that `Training.monitor` gives. Where it gives none, because
the rate falls to its end, the last weights are kept on a known set, where that was tried; on the
user's own data, and with `patience`, the best of validation are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from everynet.data.dataset import Data, History
from everynet.recipes.plateau import OBJECTIVE, Streak, merit, monitored_value
from everynet.recipes.recipe import Goal
from everynet.recipes.training import Training
from everynet.system.errors import UserError


@dataclass
class BestWeights:
    """How the weights of a run are chosen, and what the evaluations so far were worth."""

    monitor: Goal | None
    """What decides; None keeps the last."""
    prefers_later: bool = False
    """Whether the later of two that are as good is kept: a rate that falls betters what few rows
    cannot tell apart."""
    why_last: str = ""
    """Why the last are kept."""
    patience: int = 0
    streak: Streak = field(default_factory=Streak)

    @staticmethod
    def of(recipe: Training, data: Data) -> BestWeights:
        """How a recipe chooses on this data; a patience that nothing can try is refused."""
        best = _choose(recipe, data)
        if recipe.patience and best.monitor is None:
            raise UserError(f"patience ({recipe.patience}) must be 0, because {best.why_last}")
        best.patience = recipe.patience
        return best

    def add(self, metrics: Mapping[str, float]) -> float:
        """How good an evaluation is, larger is better; it is counted."""
        assert self.monitor is not None
        value = merit(self.monitor, metrics)
        self.streak.add(value)
        return value

    def replay(self, history: History) -> None:
        """Count the evaluations of earlier sessions."""
        self.streak = Streak()
        for row in history if self.monitor is not None else ():
            self.add(row["valid"])

    @property
    def out_of_patience(self) -> bool:
        """Whether the newest evaluations, as many as patience lasts, were no better than before."""
        return 0 < self.patience <= self.streak.length

    def describe_idle_patience(self, evaluations: int) -> str:
        """What to say of a patience that so many evaluations cannot bring to its end."""
        if not self.patience or evaluations > self.patience:
            return ""
        return (
            f"patience ({self.patience}) cannot end this run, which is evaluated {evaluations} "
            "times: do more steps, or a smaller eval_every"
        )

    def describe(self, history: History, best: int, step: int, steps: int) -> str:
        """Of which step the weights are that a run of so many steps ended with, and why."""
        found = next((row["valid"] for row in reversed(history) if row["step"] == best), None)
        if found is None or self.monitor is None:
            why = f", because {self.why_last}" if self.why_last else ""
            return f"of step {step:,}, the last{why}"
        what = f"of step {best:,} of {steps:,}: best valid {self.monitor.metric} "
        ended = (
            f"; stopped at step {step:,} after {self.patience} evaluations without a better one "
            f"(patience={self.patience})"
        )
        return f"{what}{monitored_value(self.monitor, found):.4g}" + ended * (step < steps)


def _choose(recipe: Training, data: Data) -> BestWeights:
    if not data.chooses:
        why = "holdout=false leaves no rows that could choose others"
        if vars(recipe).get("holdout"):
            why = f"{data.rows('valid')} validation rows are too few to choose others"
        return BestWeights(None, why_last=why)
    if monitor := recipe.monitor():
        return BestWeights(monitor)
    falls = recipe.schedule not in ("constant", "plateau")
    if data.own or recipe.patience:  # nobody knows whether the last are the best
        if recipe.goal:
            return BestWeights(recipe.goals()[0], prefers_later=falls)
        if type(recipe).metrics is Training.metrics:
            return BestWeights(OBJECTIVE, prefers_later=falls)
    return BestWeights(None, why_last=_explain_last(recipe, falls))


def _explain_last(recipe: Training, falls: bool) -> str:
    if not recipe.goal:
        return "no goal of the recipe says which metric is the better"
    if falls:
        return f"the rate falls to its end (schedule={recipe.schedule})"
    return "the recipe does not choose by its metrics"
