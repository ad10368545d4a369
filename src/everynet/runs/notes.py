"""What a person should know of a run on files of their own: lines that are printed and kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from everynet.data.dataset import Data
from everynet.data.report import rare
from everynet.recipes.recipe import Recipe
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.runs.gap import ERRORS, Gap
from everynet.system.user_files import line_of_method
from everynet.system.wording import shown, written


def on_settings(found: Mapping[str, Any]) -> Iterator[str]:
    """Which settings were taken from the data."""
    if found:
        given = " ".join(f"{name}={written(value)}" for name, value in found.items())
        yield f"taken from the data: {given}"


def on_data(data: Data, recipe: Recipe) -> Iterator[str]:
    """What the data is like, and whether the steps are enough to see all of it."""
    if not data.own:
        return
    name = shown(data.spec.get("name", "data"))
    yield from (f"{name}: {note}" for note in data.notes)
    if few := rare(_count_classes(data)):
        yield f"{name}: {few}"
    if isinstance(recipe, Training) and 0 < recipe.steps < recipe.updates_per_epoch(data):
        samples = recipe.steps * recipe.accumulate * recipe.batch_size
        yield (
            f"steps ({recipe.steps:,}) see {samples:,} of {data.rows('train'):,} training samples, "
            "less than one epoch; epochs=1 sees them all"
        )


def _count_classes(data: Data) -> dict[str, int]:
    """How many training samples are of each class; nothing where a sample has no one class."""
    classes, (*inputs, labels) = data.spec.get("classes") or (), data.splits["train"]
    if not classes or not inputs or labels.dim() != 1 or labels.is_floating_point():
        return {}
    counts = torch.bincount(labels, minlength=len(classes)).tolist()
    return dict(zip(classes, counts, strict=True))


def sum_tensors(recipe: Training[Any, Any], state: State[Any, Any]) -> list[float]:
    """The sum of each tensor that learning may change, where the `step` is the user's own."""
    if type(recipe).step.__module__.startswith("everynet."):
        return []
    both = [*state.model.state_dict().values(), *state.extra.state_dict().values()]
    return [float(tensor.double().sum()) for tensor in both]


def on_step(
    recipe: Training[Any, Any], state: State[Any, Any], before: Sequence[float]
) -> Iterator[str]:
    """Whether a `step` of the user's own left all as it was `before` the first update."""
    if before and before == sum_tensors(recipe, state):
        yield (
            f"{line_of_method(type(recipe), 'step')}: step has changed no weight in "
            f"{state.step:,} updates, so nothing is learned; end it in state.descend(loss)"
        )


def on_gap(gap: Gap | None) -> Iterator[str]:
    """How much better a network does on what it learned from, and whether that is overfitting."""
    if gap is None:
        return
    limit = f"{ERRORS} standard errors ({ERRORS * gap.error:.2g})"
    yield (
        f"{'overfitting' if gap.overfits else 'no overfitting seen'}: {gap.metric} "
        f"{gap.train:.4g} on {gap.samples[0]:,} training samples, {gap.valid:.4g} on "
        f"{gap.samples[1]:,} validation samples; the gap of {gap.size:.2g} is "
        + (f"more than {limit}" if gap.overfits else f"within {limit}")
    )


def on_metrics(
    metrics: Mapping[str, float], recipe: Recipe | None = None, classes: int = 0
) -> Iterator[str]:
    """Whether something that learns nothing would have done as well.

    Where classes are uneven accuracy may hide what was learned: of so many `classes` the mean
    recall of such a thing is 1 / `classes`, and its ranking of two has an area of a half.
    """
    right, most = metrics.get("accuracy"), metrics.get("majority")
    if right is not None and most is not None and right <= most:
        recall, area = metrics.get("balanced_accuracy", 0.0), metrics.get("auc", 0.0)
        if (classes and recall > 1.1 / classes) or ("threshold" in metrics and area > 0.55):
            return
        if area > 0.55:
            ways = {"threshold": "threshold=f1", "class_weight": "class_weight=balanced"}
            finds = " or ".join(way for name, way in ways.items() if hasattr(recipe, name))
            yield (
                f"accuracy ({right:.4g}) is no better than that of always naming the largest class "
                f"({most:.4g}), but the rarer class is ranked higher (auc {area:.4g})"
                + (f"; {finds} finds more of it" if finds else "")
            )
            return
        yield (
            f"accuracy ({right:.4g}) is no better than that of always naming the largest class "
            f"({most:.4g}); nothing was learned that shows in it"
        )
    explained = metrics.get("r2")
    if explained is not None and explained <= 0:
        yield (
            f"r2 ({explained:.4g}) is no better than that of always saying the mean (0); nothing "
            "was learned that helps"
        )
