"""What is wrong with a recipe of one's own, said before it is trained and not after it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from traceback import extract_tb
from typing import Any

from everynet.data.dataset import Data
from everynet.recipes.experiment import Experiment
from everynet.recipes.recipe import Fitting, Recipe, Simulation
from everynet.recipes.stored import source_file
from everynet.recipes.training import Training
from everynet.system.errors import Failure, UserError
from everynet.system.user_files import defined, line_of
from everynet.system.wording import with_article
from everynet.training.device import Setup
from everynet.training.loop import evaluate

NEEDED: dict[type[Recipe], tuple[str, ...]] = {
    Training: ("model(self, data)",),
    Fitting: ("dataset(self)", "model(self, data)", "metrics(self, model, batch)"),
    Simulation: ("simulate(self, generator)", "metrics(self, result)"),
    Experiment: ("cells(self)", "metrics(self, table)"),
}
"""The methods that each kind of recipe must have, because there is no default for them."""


def check_whole(recipe: Recipe) -> None:
    """Refuse a recipe that lacks a method it will need."""
    cls = type(recipe)
    kind = next((kind for kind in NEEDED if isinstance(recipe, kind)), None)
    if kind is None:
        kinds = ", ".join(known.__name__ for known in NEEDED)
        raise UserError(f"{defined(cls)}: {cls.__name__} must be derived from one of {kinds}")
    needed = [*NEEDED[kind]]
    if kind is Training and not _says(cls, "objective", kind):
        own_step = _says(cls, "step", kind)
        needed.append(
            "metrics(self, model, batch)" if own_step else "objective(self, model, batch)"
        )
    for method in needed:
        if not _says(cls, method.partition("(")[0], kind):
            raise UserError(
                f"{defined(cls)}: {cls.__name__} must have a method {method}, because it is "
                f"{with_article(recipe.kind)}; write one"
            )


def _says(cls: type, method: str, kind: type) -> bool:
    return getattr(cls, method, None) is not getattr(kind, method)


def rehearse(recipe: Training[Any, Any], model: object, data: Data, setup: Setup) -> None:
    """Look at one batch of the validation split as an evaluation will; nothing is changed by it."""
    cls = type(recipe)
    try:
        found = evaluate(recipe, model, islice(data.valid, 1), setup)
    except Failure:
        raise
    except Exception as error:
        frames = extract_tb(error.__traceback__)
        if any(frame.name == "summarise" for frame in frames):
            return  # one batch may be too little for it
        if any(frame.filename == source_file(recipe) for frame in frames):
            raise  # it names its line
        name = "metrics" if _says(cls, "metrics", Training) else "objective"
        raise UserError(
            f"{line_of(cls, f'def {name}(')}: {name} must give a dict of tensors by name, such as "
            f"{{'loss': loss}}: {type(error).__name__}: {error}"
        ) from error
    check_goal(recipe, found)


def check_goal(recipe: Recipe, figures: Mapping[str, float]) -> None:
    """Refuse a goal that names a figure which is not given."""
    judge = recipe.monitor() if isinstance(recipe, Training) else None
    for goal in (*recipe.goals(), *([judge] if judge else [])):
        if goal.metric not in figures:
            clause = f"{goal.metric} {goal.relation} {goal.value:g}"
            raise UserError(
                f"{line_of(type(recipe), goal.metric + ' ' + goal.relation)}: the goal ({clause}) "
                f"must name a figure that {recipe.name or type(recipe).__name__} gives: "
                + (", ".join(figures) or "metrics gives none")
            )
