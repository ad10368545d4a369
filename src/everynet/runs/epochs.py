"""Settings that say in epochs how long to train: these are turned into steps of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from everynet.recipes.recipe import Recipe
from everynet.recipes.settings import override, setting_types
from everynet.recipes.sweep import split, values_of
from everynet.recipes.training import Training
from everynet.runs.folder import read_dataset, with_vocabulary
from everynet.runs.progress import Progress
from everynet.system.errors import UserError
from everynet.system.status import telling
from everynet.system.values import typed
from everynet.system.wording import shown, written


def with_settings(recipe: Recipe, given: Mapping[str, Any], *, show: bool = False) -> Recipe:
    """The recipe with some settings replaced; `epochs` is turned into steps."""
    if not gives_epochs(recipe, given):
        return override(recipe, given)
    rest = {name: value for name, value in given.items() if name != "epochs"}
    recipe = override(recipe, rest)
    return override(recipe, {"steps": epochs_to_steps(recipe, [given["epochs"]], show=show)[0]})


def gives_epochs(recipe: Recipe, given: Mapping[str, Any]) -> TypeGuard[Training]:
    """Whether settings say in epochs how long to train, for a recipe that counts steps."""
    counts = isinstance(recipe, Training) and "epochs" not in setting_types(recipe)
    if "epochs" in given and "steps" in given and counts:
        raise UserError("epochs and steps must not both be given: each says how long; keep one")
    return "epochs" in given and counts


def epochs_to_steps(recipe: Recipe, given: Sequence[Any], *, show: bool = False) -> list[int]:
    """Numbers of epochs as steps. The data is read for it, with progress where `show` is set."""
    assert isinstance(recipe, Training)
    epochs: list[float] = [typed("epochs", value, float) for value in given]
    for number, value in zip(epochs, given, strict=True):
        if number <= 0:
            raise UserError(f"epochs ({shown(value)}) must be a positive number")
    with telling(Progress(1, shown=show)):
        each = recipe.updates_per_epoch(read_dataset(with_vocabulary(recipe)))  # type: ignore[arg-type]  # a Training
    if each == 0:
        raise UserError(
            f"epochs ({shown(given[0])}) must be steps: {recipe.name} has no set to go through"
        )
    return [max(1, round(number * each)) for number in epochs]


def turn_into_steps(base: Recipe, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a sweep, each a text or a list of values, with `epochs` turned into steps."""
    if not gives_epochs(base, given):
        return dict(given)
    others = {key: value for key, value in given.items() if key != "epochs"}
    fixed = {k: v for k, v in others.items() if len(values_of(base, k, v)) == 1}
    epochs = given["epochs"]
    for key in ("batch_size", "data"):
        if key in others and key not in fixed:
            raise UserError(
                f"epochs ({written(epochs)}) must be steps where {key} is swept, because an epoch "
                "then has another number of steps in each; give steps=N"
            )
    each = {key: values_of(base, key, value)[0] for key, value in fixed.items()}
    texts = split("epochs", epochs) if isinstance(epochs, str) else epochs
    return {**others, "steps": epochs_to_steps(override(base, each), texts)}
