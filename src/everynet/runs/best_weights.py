"""Which weights a run keeps and why, and when it has waited long enough for better ones.

The one place that says what "better" is: the clause of the goal that `Training.judge` gives. Where
it gives none, because the rate falls to its end, the last weights are kept on a known set, where
that was tried; on the user's own data, and with `patience`, the best of validation are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from everynet.data.dataset import Data, History
from everynet.recipes.recipe import Goal
from everynet.recipes.training import Training
from everynet.system.errors import UserError

OBJECTIVE = Goal("objective", "<=", 0.0)
"""What judges where no goal does: the sum of the terms that are minimised."""


@dataclass
class Keeping:
    """How the weights of a run are chosen, and what the evaluations so far were worth."""

    judge: Goal | None
    """What decides; None keeps the last."""
    later: bool = False
    """Whether the later of two that are as good is kept: a rate that falls betters what few rows
    cannot tell apart."""
    why: str = ""
    """Why the last are kept."""
    patience: int = 0
    merits: list[float] = field(default_factory=list)

    @staticmethod
    def of(recipe: Training, data: Data) -> Keeping:
        """How a recipe keeps weights on this data; a patience that nothing can try is refused."""
        keeping = _keeping(recipe, data)
        if recipe.patience and keeping.judge is None:
            raise UserError(f"patience ({recipe.patience}) must be 0, because {keeping.why}")
        keeping.patience = recipe.patience
        return keeping

    def figure(self, found: Mapping[str, float]) -> float:
        """The figure of an evaluation that decides."""
        assert self.judge is not None
        if self.judge is OBJECTIVE:
            return sum(value for name, value in found.items() if not name.startswith("_"))
        self.judge.check(found)
        return found[self.judge.metric]

    def weigh(self, found: Mapping[str, float]) -> float:
        """How good an evaluation is, larger is better; it is counted."""
        assert self.judge is not None
        self.merits.append(self.judge.merit({self.judge.metric: self.figure(found)}))
        return self.merits[-1]

    def replay(self, history: History) -> None:
        """Count the evaluations of earlier sessions."""
        self.merits.clear()
        for row in history if self.judge is not None else ():
            self.weigh(row["valid"])

    @property
    def tired(self) -> bool:
        """Whether the newest evaluations, as many as patience lasts, were no better than before."""
        if not self.patience or not self.merits:
            return False
        return len(self.merits) - 1 - self.merits.index(max(self.merits)) >= self.patience

    def idle(self, looks: int) -> str:
        """What to say of a patience that so many evaluations cannot bring to its end."""
        if not self.patience or looks > self.patience:
            return ""
        return (
            f"patience ({self.patience}) cannot end this run, which is evaluated {looks} times: "
            "do more steps, or a smaller eval_every"
        )

    def told(self, history: History, best: int, step: int, steps: int) -> str:
        """Of which step the weights are that a run of so many steps ended with, and why."""
        found = next((row["valid"] for row in reversed(history) if row["step"] == best), None)
        if found is None or self.judge is None:
            return f"of step {step:,}, the last" + (f", because {self.why}" if self.why else "")
        what = f"of step {best:,} of {steps:,}: best valid {self.judge.metric} "
        ended = (
            f"; stopped at step {step:,} after {self.patience} evaluations without a better one "
            f"(patience={self.patience})"
        )
        return f"{what}{self.figure(found):.4g}" + ended * (step < steps)


def _keeping(recipe: Training, data: Data) -> Keeping:
    if not data.chooses:
        return Keeping(None, why="holdout=false leaves no rows that could choose others")
    if judge := recipe.monitor():
        return Keeping(judge)
    falls = recipe.schedule not in ("constant", "plateau")
    if data.own or recipe.patience:  # nobody knows whether the last are the best
        if recipe.goal:
            return Keeping(recipe.goals()[0], later=falls)
        if type(recipe).metrics is Training.metrics:
            return Keeping(OBJECTIVE, later=falls)
    return Keeping(None, why=_why(recipe, falls))


def _why(recipe: Training, falls: bool) -> str:
    if not recipe.goal:
        return "no goal of the recipe says which figure is the better"
    if falls:
        return f"the rate falls to its end (schedule={recipe.schedule})"
    return "the recipe does not choose by its figures"
