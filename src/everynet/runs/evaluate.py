"""Evaluate a trained network once more: on its own test split, or on labelled files of its kind.

Files are read as the run read its data: with its columns, class names, vocabulary and
standardising, which are in spec.json. Nothing is learned of them, and nothing is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from everynet.data.dataset import Data, Spec
from everynet.data.in_memory import given, holding
from everynet.data.loading import Like
from everynet.metrics.summary import class_report, decided
from everynet.recipes.recipe import Fitting
from everynet.recipes.settings import override, setting_types
from everynet.recipes.training import Training
from everynet.runs.folder import RunFolder, as_json, explaining_misfit, open_run, read_dataset
from everynet.runs.job import check_finite, job_class
from everynet.runs.verbs import setup_for
from everynet.system.errors import UserError
from everynet.system.values import verb_arguments, verb_settings
from everynet.system.wording import nearest, shown, with_article
from everynet.training.device import Setup, computing
from everynet.training.loop import TEST, add_final, measure, summarise, with_threads


@dataclass(frozen=True)
class Evaluation:
    """The metrics of a trained network, and on what."""

    metrics: dict[str, float]
    data: str
    """What it was evaluated on, by name."""
    rows: int
    own: bool
    """Whether that is the test split of the data that the run learned from."""
    class_table: Sequence[Sequence[str]]
    """Precision, recall and F1 of every class, as rows of text with a header; or none."""
    settings: Mapping[str, Any]
    """The parameters of `final` that were given."""


def evaluate(
    folder: str | Path,
    data: object = "",
    file: str | Path | None = None,
    *,
    device: str = "auto",
    precision: str = "auto",
    **fields: object,
) -> dict[str, float]:
    """The metrics of a run on labelled data; or else on its own test split.

    Data are files, a known set, or in memory as `run` takes them: a frame, or (X, y). `fields` are
    `target` and parameters of the recipe's `final`, such as `episodes=10`.
    """
    run = open_run(folder, file)
    return evaluate_run(run, data, device=device, precision=precision, **fields).metrics


def evaluate_run(
    run: RunFolder,
    data: object = "",
    *,
    device: str = "auto",
    precision: str = "auto",
    **fields: object,
) -> Evaluation:
    """How a run does on `data`, a path, a known set or in memory; or else on its own test split.

    `fields` are settings that say how data is read, such as `target`, and parameters of `final`.
    """
    in_memory = None if isinstance(data, str | Path) else given(data)
    place = str(data) if in_memory is None else in_memory.name
    with holding(in_memory):
        return _evaluate(run, place, device, precision, fields)


def _evaluate(
    run: RunFolder, data: str, device: str, precision: str, fields: Mapping[str, object]
) -> Evaluation:
    recipe = run.recipe
    if not isinstance(recipe, Training | Fitting):
        instead = "; name a cell of it" if recipe.kind == "experiment" else ""
        raise UserError(
            f"{recipe.name} is {with_article(recipe.kind)}, which no data can test{instead}"
        )
    setup = _choose_setup(run, device, precision)
    settings, reads = _part_fields(recipe, data, fields)
    changed = override(recipe, {**reads, **({"data": data} if data else {})})
    assert isinstance(changed, Training | Fitting)
    model = job_class(recipe).load(recipe, run.path, run.spec)
    if isinstance(recipe, Training):
        setup = with_threads(setup, recipe, model)
    with computing(setup):
        found, own = _read(run, recipe, changed)
        found = found.to(setup.device, setup.dtype)
        if isinstance(model, nn.Module):
            model = model.to(device=setup.device, dtype=setup.dtype)
        with explaining_misfit(recipe, run.path):
            outputs = decided(measure(recipe, model, found.test, setup, TEST), run.spec)
            metrics = add_final(
                recipe, model, found, summarise(recipe, outputs), setup, settings=settings
            )
            classes = class_report(outputs, found.spec.get("classes", ()))
    check_finite(metrics, recipe.steps if isinstance(recipe, Training) else 1)
    name, rows = str(found.spec.get("name", "none")), found.rows("test")
    return Evaluation(metrics, name, rows, own, classes, settings)


def _choose_setup(run: RunFolder, device: str, precision: str) -> Setup:
    """How to compute: what is not said is as it was in training, where it can be."""
    then, setup = run.environment["precision"], setup_for(run.recipe, device, precision)
    if precision == "auto" and then != setup.precision and (then == "fp64" or _on_cuda(setup)):
        return setup_for(run.recipe, device, then)
    return setup


def _on_cuda(setup: Setup) -> bool:
    return setup.device.type == "cuda"


def _part_fields(
    recipe: Training | Fitting, data: str, fields: Mapping[str, object]
) -> tuple[dict[str, Any], dict[str, object]]:
    """Parameters of `final`, and settings that say how data is read; refuse all others."""
    types, final = setting_types(recipe), verb_settings(recipe.final)
    if data and "data" not in types:
        raise UserError(
            f"data ({shown(data)}) must be left out, because {recipe.name} learns from no files"
        )
    taken = [name for name in ("data", "text", "target") if name in types] + [*final]
    for name in fields:
        if name not in taken:
            stays = f"{name} must stay as it was in the run: evaluate takes "
            raise UserError(
                (stays if name in types else f"evaluate has no setting {name}; it takes ")
                + (" and ".join(taken) or "none")
                + nearest(name, taken)
            )
    settings = verb_arguments(recipe.final, {n: v for n, v in fields.items() if n in final})
    return settings, {n: v for n, v in fields.items() if n not in final}


def _read(
    run: RunFolder, recipe: Training | Fitting, changed: Training | Fitting
) -> tuple[Data, bool]:
    """The data in whose test split to evaluate, and whether it is that of the run."""
    spec, digest = run.spec, run.digest
    mine, other = (str(getattr(one, "data", "")) for one in (recipe, changed))
    if _same_place(mine, other):
        found = read_dataset(recipe, run.path)
        if found.digest != digest:
            raise UserError(
                f"the data of the run ({shown(spec.get('name', 'none'))}) has changed since, so "
                "that its test split is another; give the files to test it on as data=PATH"
            )
        return found, True
    like = replace(changed, data=Like(other, spec, digest))  # type: ignore[call-arg]  # has data
    found = read_dataset(like, run.path)
    if digest and found.digest == digest:
        return found, True
    if not found.test_only or _known_of(found.spec) != _known_of(spec):
        raise UserError(
            f"data ({shown(other)}) must be left out, because {recipe.name} takes more from "
            "its data than files to test it on could give; train it on them instead"
        )
    return found, False


def _same_place(mine: str, other: str) -> bool:
    return mine == other or (Path(mine).exists() and Path(mine).resolve() == Path(other).resolve())


def _known_of(spec: Spec) -> Spec:
    """What a network takes from a description of data: all but the name and the split."""
    return {n: v for n, v in json.loads(as_json(spec)).items() if n not in ("name", "split")}
