"""Judge a trained network once more: on its own test split, or on labelled files of the same kind.

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
<<<<<<< HEAD
from everynet.data.loading import Like
from everynet.metrics.summary import each_class
=======
from everynet.data.loading import judging
from everynet.metrics.summary import class_report
>>>>>>> t1
from everynet.recipes.recipe import Fitting, Recipe
from everynet.recipes.settings import override, setting_types
from everynet.recipes.training import Training
from everynet.runs.folder import as_json, read_environment, read_spec
from everynet.runs.job import check_figures
from everynet.runs.verbs import fitting, load, setup_for
from everynet.system.errors import UserError
from everynet.system.wording import nearest, shown, with_article
from everynet.training import device as devices
from everynet.training.device import Setup
from everynet.training.loop import measured, with_threads


@dataclass(frozen=True)
class Judgement:
    """The figures of a trained network, and on what."""

    figures: dict[str, float]
    data: str
    """What judged it, by name."""
    rows: int
    own: bool
    """Whether it was the test split of the data that the run learned from."""
    each_class: Sequence[Sequence[str]]
    """Precision, recall and F1 of every class, as rows of text with a header; or none."""


def judge(
    recipe: Recipe,
    folder: str | Path,
    data: str | Path = "",
    *,
    device: str = "auto",
    precision: str = "auto",
    **fields: object,
) -> Judgement:
    """The figures of a run on `data`, a path or a known set; or else on its own test split.

    `fields` are settings that say how files are read, such as `target`.
    """
    folder = Path(folder)
    if not isinstance(recipe, Training | Fitting):
        instead = "; name a cell of it" if recipe.kind == "experiment" else ""
        raise UserError(
            f"{recipe.name} is {with_article(recipe.kind)}, which no data judges{instead}"
        )
    setup, known = _setup(recipe, folder, device, precision), read_spec(folder)
    _check_fields(recipe, str(data), fields)
    changed = override(recipe, {**fields, **({"data": str(data)} if str(data) else {})})
    assert isinstance(changed, Training | Fitting)
    model = load(recipe, folder)
    if isinstance(recipe, Training):
        setup = with_threads(setup, recipe, model)
    with devices.computing(setup):
        found, own = _read(recipe, changed, known)
        found = found.to(setup.device, setup.dtype)
        if isinstance(model, nn.Module):
            model = model.to(device=setup.device, dtype=setup.dtype)
        with fitting(recipe, folder):
            outputs = measured(recipe, model, found.test, setup)
            figures = recipe.summarise(outputs)
            classes = class_report(outputs, found.spec.get("classes", ()))
    check_figures(figures, recipe.steps if isinstance(recipe, Training) else 1)
    name, rows = str(found.spec.get("name", "none")), found.rows("test")
    return Judgement(figures, name, rows, own, classes)


def _setup(recipe: Recipe, folder: Path, device: str, precision: str) -> Setup:
    """How to compute: what is not said is as it was in training, where it can be."""
    then = read_environment(folder)["precision"]
    setup = setup_for(recipe, device, precision)
    if precision == "auto" and then != setup.precision and (then == "fp64" or _on_cuda(setup)):
        return setup_for(recipe, device, then)
    return setup


def _on_cuda(setup: Setup) -> bool:
    return setup.device.type == "cuda"


def _check_fields(recipe: Recipe, data: str, fields: Mapping[str, object]) -> None:
    """Refuse data where the network has none, and settings that do not say how it is read."""
    types = setting_types(recipe)
    if (data or fields) and "data" not in types:
        raise UserError(
            f"data ({shown(data)}) must be left out, because {recipe.name} learns from no files"
        )
    for name in fields:
        if name != "target" or name not in types:
            kept = ("data", "target") if "target" in types else ("data",)
            raise UserError(
                f"{name} must stay as it was in the run: evaluate takes {' and '.join(kept)}"
                + nearest(name, kept)
            )


def _read(
    recipe: Training | Fitting, changed: Training | Fitting, known: Mapping[str, Any]
) -> tuple[Data, bool]:
    """The data that judges, in its test split, and whether it is that of the run."""
    spec, digest = known["spec"], known["digest"]
    mine, other = (str(getattr(one, "data", "")) for one in (recipe, changed))
    if _same_place(mine, other):
        found = recipe.dataset()
        if found.digest != digest:
            raise UserError(
                f"the data of the run ({shown(spec.get('name', 'none'))}) has changed since, so "
                "that its test split is another; give the files to judge by as data=PATH"
            )
        return found, True
    found = replace(changed, data=Like(other, spec, digest)).dataset()  # type: ignore[call-arg]  # has data
    if digest and found.digest == digest:
        return found, True
    if not found.test_only or _known_of(found.spec) != _known_of(spec):
        raise UserError(
            f"data ({shown(other)}) must be left out, because {recipe.name} takes more from "
            "its data than files to judge by could give; train it on them instead"
        )
    return found, False


def _same_place(mine: str, other: str) -> bool:
    return mine == other or (Path(mine).exists() and Path(mine).resolve() == Path(other).resolve())


def _known_of(spec: Spec) -> Spec:
    """What a network takes from a description of data: all but the name and the split."""
    return {n: v for n, v in json.loads(as_json(spec)).items() if n not in ("name", "split")}
