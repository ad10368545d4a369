"""The threshold from which on a run answers with the rarer of two classes.

It is chosen on the validation split with the weights kept, and stays in spec.json, where `predict`
and `evaluate` find it: {"class": "churned", "value": 0.31}.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from everynet.data.dataset import Data
from everynet.metrics.ranking import f1_threshold, recall_threshold
from everynet.metrics.summary import probability_of, rarer_class
from everynet.recipes.recipe import Recipe
from everynet.recipes.tabular import Probabilistic
from everynet.system.errors import UserError
from everynet.system.wording import shown


def has_threshold(recipe: Recipe) -> bool:
    """Whether a recipe decides by another threshold than the more probable class."""
    return isinstance(recipe, Probabilistic) and not recipe.decides_as_usual


def check_threshold(recipe: Recipe, data: Data) -> None:
    """Refuse a threshold where there are not two classes, or nothing that could choose it."""
    if not isinstance(recipe, Probabilistic) or not has_threshold(recipe):
        return
    name = "recall" if recipe.recall else "threshold"
    given, classes = f"{name} ({getattr(recipe, name)})", len(data.spec.get("classes", ()))
    if classes != 2:
        what = f"{classes} classes" if classes else "a number"
        raise UserError(
            f"{given} must be left out, because it decides between two classes and "
            f"{data.spec.get('name', 'the data')} has {what} to learn"
        )
    if recipe.chooses_threshold and not data.chooses:
        raise UserError(
            f"{given} must be left out where no rows are held out that could choose the threshold; "
            "leave holdout=false out, or give a number such as threshold=0.3"
        )
    if recipe.chooses_threshold and len(data.splits["valid"][1].unique()) < 2:
        raise UserError(
            f"{given} must be left out, because the {data.rows('valid')} validation rows are all "
            "of one class, so that they cannot choose; give more rows or a number"
        )


def find_threshold(recipe: Probabilistic, data: Data, valid: Mapping[str, Tensor]) -> Any:  # noqa: ANN401 -- JSON
    """What spec.json holds of it; `valid` is what the network says of the validation samples."""
    positive = rarer_class(data.splits["train"][1])
    value = 0.5
    if recipe.chooses_threshold:
        probability, there = probability_of(valid, positive), valid["_target"] == positive
        if recipe.recall:
            value = recall_threshold(probability, there, recipe.recall)
        else:
            value = f1_threshold(probability, there)
    else:
        value = float(recipe.threshold)
    return {"class": data.spec["classes"][positive], "value": value}


def describe_threshold(recipe: Recipe, data: Data) -> str:
    """The threshold of a run in words."""
    found, rows = data.spec["threshold"], f"{data.rows('valid'):,} validation samples"
    why = "as given"
    if isinstance(recipe, Probabilistic) and recipe.chooses_threshold:
        what = f"the largest with recall {recipe.recall:g}" if recipe.recall else "the best F1"
        why = f"{what} on {rows}"
    return f"the answer is {shown(found['class'])} from probability {found['value']:.4g} on ({why})"
