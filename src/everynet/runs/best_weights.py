"""Which weights a run keeps and why, and when it is ended early.

What decides is the clause of the goal that `Training.monitor` gives. Where it gives none, because
the rate falls to its end, the last weights are kept on a known set, where that was tried; on the
user's own data, and with `patience`, the best of validation are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from everynet.data.dataset import Data, History
from everynet.recipes.plateau import (
    NEXT_TO_NOTHING,
    OBJECTIVE,
    WORST,
    Score,
    Streak,
    is_share,
    measured_terms,
    monitored_value,
)
from everynet.recipes.recipe import Goal
from everynet.recipes.training import Training
from everynet.system.errors import UserError


@dataclass
class BestWeights:
    """How the weights of a run are chosen, and what the evaluations so far were worth."""

    monitor: Goal | None
    """What decides; None keeps the last."""
    why_last: str = ""
    """Why the last are kept."""
    patience: int = 0
    terms: tuple[str, ...] = ()
    """The names of what training minimises: evaluations that are alike are compared by it."""
    kept: Score = WORST
    """How good the evaluation is whose weights are kept."""
    streak: Streak = field(default_factory=Streak)

    @staticmethod
    def of(recipe: Training, data: Data, measured: Collection[str] | None = None) -> BestWeights:
        """How a recipe chooses on this data; what nothing can be compared for is refused.

        `measured` are the metrics of an evaluation; a goal may name others, which `final` gives.
        """
        best = _choose(recipe, data, measured)
        for name, empty in (("patience", "0"), ("metric", "empty")):
            if (value := getattr(recipe, name)) and best.monitor is None:
                raise UserError(f"{name} ({value}) must be {empty}, because {best.why_last}")
        best.patience = recipe.patience
        return best

    def add(self, metrics: Mapping[str, float]) -> Score:
        """How good an evaluation is; it is counted."""
        assert self.monitor is not None
        score = Score.of(self.monitor, metrics, self.terms)
        self.streak.add(score)
        return score

    def replay(self, history: History, best: int = -1, terms: Iterable[str] = ()) -> None:
        """Count the evaluations of earlier sessions; the weights of step `best` are kept."""
        self.streak, self.terms = Streak(), tuple(terms)
        for row in history if self.monitor is not None else ():
            score = self.add(row["valid"])
            if row["step"] == best:
                self.kept = score

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
        ended = (
            f"; stopped at step {step:,} after {self.patience} evaluations without a better one "
            f"(patience={self.patience})"
        )
        why = self._explain_choice(self.monitor, found, [row["valid"] for row in history])
        return f"of step {best:,} of {steps:,}: best valid {why}" + ended * (step < steps)

    def _explain_choice(
        self, monitor: Goal, found: Mapping[str, float], every: Sequence[Mapping[str, float]]
    ) -> str:
        """What made an evaluation the best of all."""
        value = monitored_value(monitor, found, self.terms)
        terms = measured_terms(found, self.terms)
        loss = f"{' + '.join(terms)} {sum(found[name] for name in terms):.4g}"
        if terms and is_share(monitor) and value < NEXT_TO_NOTHING:
            return (
                f"{loss}, because {monitor.metric} ({value:.4g}) stayed below "
                f"{NEXT_TO_NOTHING:.0%} and tells little"
            )
        merit = Score.of(monitor, found, self.terms).merit
        alike = sum(Score.of(monitor, other, self.terms).merit == merit for other in every)
        what = f"{monitor.metric} {value:.4g}"
        if alike == 1:
            return what
        how = f"the best by {loss}" if terms else "the last"
        return f"{what}, of {alike} such evaluations {how}"


def _choose(recipe: Training, data: Data, measured: Collection[str] | None) -> BestWeights:
    if not data.chooses:
        why = "holdout=false leaves no rows that could choose others"
        if vars(recipe).get("holdout"):
            why = f"{data.rows('valid')} validation rows are too few to choose others"
        return BestWeights(None, why_last=why)
    if monitor := recipe.monitored():
        return BestWeights(monitor)
    falls = recipe.schedule not in ("constant", "plateau")
    if data.own or recipe.patience:  # nobody knows whether the last are the best
        for goal in recipe.goals():
            if measured is None or goal.metric in measured:
                return BestWeights(goal)
        if type(recipe).metrics is Training.metrics:
            return BestWeights(OBJECTIVE)
    return BestWeights(None, why_last=_explain_last(recipe, falls))


def _explain_last(recipe: Training, falls: bool) -> str:
    if not recipe.goal:
        return "no goal of the recipe says which metric is the better"
    if falls:
        return f"the rate falls to its end (schedule={recipe.schedule})"
    return "the recipe does not choose by its metrics"
