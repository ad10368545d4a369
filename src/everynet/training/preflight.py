"""Checks before the first update: methods, memory, compiling, one batch, the goal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from inspect import Parameter, signature
from itertools import islice
from traceback import extract_tb
from typing import Any

import torch

from everynet.data.dataset import Batch, Data, Spec, Terms
from everynet.metrics.meanings import explain_metric
from everynet.recipes.experiment import Experiment
from everynet.recipes.recipe import Fitting, Recipe, Simulation
from everynet.recipes.settings import setting_types, settings
from everynet.recipes.state import M, X
from everynet.recipes.stored import source_file
from everynet.recipes.training import Training
from everynet.system.errors import Failure, UserError, is_out_of_memory
from everynet.system.memory import free
from everynet.system.seeds import random_state_kept
from everynet.system.user_files import defined, line_of, line_of_method
from everynet.system.values import typed
from everynet.system.wording import nearest, shown, with_article, written
from everynet.training.device import Setup
from everynet.training.graph import Update
from everynet.training.loop import VALUES, begin, evaluate, train

NEEDED: dict[type[Recipe], tuple[str, ...]] = {
    Training: ("model(self, data)",),
    Fitting: ("dataset(self)", "model(self, data)", "metrics(self, model, batch)"),
    Simulation: ("simulate(self, generator)", "metrics(self, result)"),
    Experiment: ("cells(self)", "metrics(self, table)"),
}
"""The methods that each kind of recipe must have, because there is no default for them."""
OF_EVALUATE = ("folder", "run", "file", "data", "target", "device", "precision")
"""Names of what `evaluate` takes, besides the parameters of `final`."""
AT_THE_END = "final is called at the end alone, when the weights are chosen"


def check_methods(recipe: Recipe) -> None:
    """Refuse a recipe that lacks a method it will need."""
    cls = type(recipe)
    kind = next((kind for kind in NEEDED if isinstance(recipe, kind)), None)
    if kind is None:
        kinds = ", ".join(known.__name__ for known in NEEDED)
        raise UserError(f"{defined(cls)}: {cls.__name__} must be derived from one of {kinds}")
    needed = [*NEEDED[kind]]
    if kind is Training and not _defines(cls, "objective", kind):
        own_step = _defines(cls, "step", kind)
        needed.append(
            "metrics(self, model, batch)" if own_step else "objective(self, model, batch)"
        )
    for method in needed:
        if not _defines(cls, method.partition("(")[0], kind):
            raise UserError(
                f"{defined(cls)}: {cls.__name__} must have a method {method}, because it is "
                f"{with_article(recipe.kind)}; write one"
            )
    if isinstance(recipe, Training | Fitting):
        _check_final(recipe)
    for name, wanted in setting_types(recipe).items() if source_file(recipe) else ():
        if wanted in (bool, int, float, str):  # others are the recipe's own business
            try:
                typed(name, getattr(recipe, name), wanted)
            except UserError as error:
                raise UserError(f"{line_of(cls, name + ':')}: {error}") from None


def _check_final(recipe: Training[Any, Any] | Fitting[Any]) -> None:
    """Refuse a `final` that could not be called when a run ends, or by `evaluate`."""
    where, form = line_of_method(type(recipe), "final"), signature(recipe.final)
    try:
        form.bind(None, None, None)
    except TypeError as error:
        raise UserError(
            f"{where}: final must be callable as final(model, data, generator), because a run ends "
            f"without settings ({error}); give each one a default"
        ) from None
    for name, parameter in form.parameters.items():
        if parameter.kind is Parameter.KEYWORD_ONLY and name in OF_EVALUATE:
            raise UserError(
                f"{where}: {name} must have another name in final, because evaluate has a setting "
                f"{name} already; rename it"
            )


def _defines(cls: type, method: str, kind: type) -> bool:
    return getattr(cls, method, None) is not getattr(kind, method)


def check_memory(recipe: Training[M, X], data: Data, copies: int = 1) -> None:
    """Refuse a network whose weights, so many times over, are more than the memory that is free.

    Where its sizes leave a doubt it is built without its numbers, from the description of the data
    alone, so that nothing is learned on the way; one that cannot be is not asked about.
    """
    sizes, there = _find_sizes(recipe), free()
    if 256 * copies * max([*sizes.values(), *_sizes_in(data.spec)]) ** 4 < there:
        return  # maps x maps x pixels of a kernel x layers, 64 times over, in four bytes each
    try:
        with random_state_kept(), torch.device("meta"):
            model = recipe.model(Data.described(data.spec))
    except Exception:  # building it in earnest says why
        return
    parts = (*model.parameters(), *model.buffers())
    needed = copies * sum(t.numel() * t.element_size() for t in parts if t.is_meta)
    if needed > there:
        name, also = recipe.name or type(recipe).__name__, " and gradients" * (copies > 1)
        largest = max(sizes, key=sizes.__getitem__)
        value = shown(written(getattr(recipe, largest, "")))
        raise UserError(
            f"{largest}{value and f' ({value})'} must be smaller, because the weights{also} of "
            f"{name} would take {needed / 1e9:,.1f} GB, and {there / 1e9:,.1f} GB of memory are "
            "free"
        )


def _find_sizes(recipe: Training[M, X]) -> dict[str, int]:
    """The largest whole number in each setting of a network that has one."""
    general, found = {field.name for field in fields(Training)}, {"the network": 0}
    for name, value in settings(recipe).items():
        numbers = [n for n in (value if isinstance(value, tuple) else (value,)) if type(n) is int]
        if numbers and name not in general:
            found[name] = max(numbers)
    return found


def _sizes_in(spec: Spec) -> Iterator[int]:
    """Sizes that a network may take from a description of data."""
    for value in spec.values():
        if isinstance(value, list):
            yield len(value)
            yield math.prod(n for n in value if type(n) is int)
        elif type(value) is int:
            yield value


def check_compiles(recipe: Training[M, X], data: Data, setup: Setup) -> None:
    """Refuse what `--compile` could not compile: one update is tried, on a state thrown away."""
    from torch._dynamo.exc import TorchDynamoException  # noqa: PLC0415 -- takes a second

    eagerly, called = replace(setup, capture=False), False
    state = begin(recipe, data, eagerly)
    update = Update(recipe, state, data, eagerly)
    objective = update.recipe.objective

    def counted(model: M, batch: Batch) -> Terms:
        nonlocal called
        called = True
        return objective(model, batch)

    object.__setattr__(update.recipe, "objective", counted)  # a copy, made for this update
    name = recipe.name or type(recipe).__name__
    try:
        next(train(recipe, state, data, update=update))
    except TorchDynamoException as error:
        why = next(line for line in str(error).splitlines() if line.strip()).strip()
        raise UserError(
            f"compile (true) must be false, because torch cannot compile the objective of {name}: "
            f"{why}; leave it out"
        ) from error
    if not called:
        raise UserError(
            f"compile (true) must be false, because {name} has a step of its own, which calls no "
            "objective that could be compiled; leave it out"
        )


def try_evaluation(
    recipe: Training[Any, Any], model: object, data: Data, setup: Setup
) -> Mapping[str, float] | None:
    """The metrics of one batch of the validation split, as an evaluation will give them.

    Nothing is changed by it; None where one batch does not tell.
    """
    cls = type(recipe)
    try:
        found = evaluate(recipe, model, islice(data.valid, 1), setup)
    except Failure:
        raise
    except Exception as error:
        frames = extract_tb(error.__traceback__)
        if is_out_of_memory(error) or any(frame.name == "summarise" for frame in frames):
            return None  # one batch may be too much for memory, or too little for it
        if any(frame.filename == source_file(recipe) for frame in frames):
            raise  # it names its line
        name = "metrics" if _defines(cls, "metrics", Training) else "objective"
        raise UserError(
            f"{line_of_method(cls, name)}: {name} must return {VALUES}: "
            f"{type(error).__name__}: {error}"
        ) from error
    final = {g.metric: 0.0 for g in recipe.goals() if explain_metric(recipe.meanings, g.metric)}
    has_final, monitor = _defines(cls, "final", Training), recipe.monitor()
    if has_final and monitor and not recipe.metric and monitor.metric not in found:
        raise UserError(
            f"{line_of(cls, monitor.metric + ' ' + monitor.relation)}: monitor ({monitor.metric}) "
            f"must be a metric that {recipe.name or cls.__name__} measures at every evaluation: "
            f"{', '.join(found)}; {AT_THE_END}: write a method monitor that gives one of these, or "
            "None to keep the last weights"
        )
    check_goal(recipe, {**final, **found} if has_final else found)
    return found


def check_metric(recipe: Training[Any, Any], model: object, data: Data, setup: Setup) -> None:
    """Refuse a setting `metric` that an evaluation of this data does not give."""
    found = evaluate(recipe, model, data.valid, setup)
    if recipe.metric not in found:
        raise UserError(
            f"metric ({recipe.metric}) must be one that {recipe.name or type(recipe).__name__} "
            f"measures on this data: {', '.join(found) or 'none'}"
            + (f"; {AT_THE_END}" if _defines(type(recipe), "final", Training) else "")
            + nearest(recipe.metric, found)
        )


def check_goal(recipe: Recipe, metrics: Mapping[str, float]) -> None:
    """Refuse a goal that names a metric which is not given."""
    monitor = recipe.monitor() if isinstance(recipe, Training) else None
    for goal in (*recipe.goals(), *([monitor] if monitor else [])):
        if goal.metric not in metrics:
            clause = f"{goal.metric} {goal.relation} {goal.value:g}"
            raise UserError(
                f"{line_of(type(recipe), goal.metric + ' ' + goal.relation)}: the goal ({clause}) "
                f"must name a metric that {recipe.name or type(recipe).__name__} gives: "
                + (", ".join(metrics) or "metrics gives none")
            )
